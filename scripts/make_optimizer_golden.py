"""Prints the golden values of the optimizers' tests: parameters after each of five steps, in float64.

    python scripts/make_optimizer_golden.py lion            src/ops/lion/tests.rs
    python scripts/make_optimizer_golden.py stable_adamw    src/ops/stable_adamw/tests.rs
    python scripts/make_optimizer_golden.py muon            src/ops/muon/tests.rs
    python scripts/make_optimizer_golden.py muon_bf16       src/ops/muon/tests.rs

Lion is program 1 of arXiv:2302.06675, StableAdamW algorithm 2 of arXiv:2304.13013, each written here as it is
printed there; needs numpy. Muon is `torch.optim.Muon` (PyTorch 2.15.0), once as it is, with products in bf16,
and once without its rounding to bf16.
"""
import inspect
import sys

import numpy as np

START = np.array([0.5, -1.25, 2.0, 0.0, -0.75, 1.5])
GROUPS = [(slice(0, 3), 0.1), (slice(3, 6), 0.0)]  # elements and weight decay
LR, BETA1, BETA2, EPS = 0.01, 0.9, 0.98, 1e-6


def gradients(step):
    return np.array([((7 * step + 3 * i) % 11 - 5) / 20 for i in range(6)])


def lion():
    p, m = START.copy(), np.zeros(6)
    for step in range(1, 6):
        g = gradients(step)
        for at, decay in GROUPS:
            direction = BETA1 * m[at] + (1 - BETA1) * g[at]
            assert all(value == 0 or abs(value) > 1e-4 for value in direction), "rounding decides no sign"
            p[at] -= LR * (np.sign(direction) + decay * p[at])
            m[at] = BETA2 * m[at] + (1 - BETA2) * g[at]
        yield p.copy()


def stable_adamw():
    # The gradients of the third step are larger, so that the rate is lowered.
    p, v, u = START.copy(), np.zeros(6), np.zeros(6)
    for step in range(1, 6):
        g = gradients(step) * (30 if step == 3 else 1)
        beta1 = BETA1 * (1 - BETA1 ** (step - 1)) / (1 - BETA1**step)
        beta2 = BETA2 * (1 - BETA2 ** (step - 1)) / (1 - BETA2**step)
        for at, decay in GROUPS:
            v[at] = beta1 * v[at] + (1 - beta1) * g[at]
            u[at] = beta2 * u[at] + (1 - beta2) * g[at] ** 2
            rms = np.sqrt(np.mean(g[at] ** 2 / np.maximum(u[at], EPS**2)))
            lr = LR / max(1, rms)
            p[at] = p[at] - lr * decay * p[at] - lr * v[at] / (np.sqrt(u[at]) + EPS)
        yield p.copy()


def muon_steps(is_rounded, **settings):
    import torch
    from torch.optim import _muon

    if not is_rounded:
        source = inspect.getsource(_muon._zeropower_via_newtonschulz).replace("torch.bfloat16", "torch.float64")
        exec(source, _muon.__dict__)
    shapes = [(2, 3), (4, 2)]
    start = [torch.tensor([((5 * i + 2) % 7 - 3) / 4 for i in range(rows * cols)]) for rows, cols in shapes]
    matrices = [torch.nn.Parameter(p.double().reshape(shape)) for p, shape in zip(start, shapes)]
    optimizer = torch.optim.Muon(matrices, lr=0.02, weight_decay=0.1, momentum=0.95, **settings)
    for step in range(1, 6):
        for p in matrices:
            values = [((7 * step + 3 * i) % 11 - 5) / 20 for i in range(p.numel())]
            p.grad = torch.tensor(values, dtype=torch.float64).reshape(p.shape)
        optimizer.step()
        yield torch.cat([p.detach().flatten() for p in matrices]).numpy()


def muon():
    return muon_steps(False, adjust_lr_fn="match_rms_adamw")


def muon_bf16():
    return muon_steps(True, nesterov=False, ns_steps=3)


rules = {"lion": lion, "stable_adamw": stable_adamw, "muon": muon, "muon_bf16": muon_bf16}
for row in rules[sys.argv[1]]():
    print("    [" + ", ".join(repr(float(value)) for value in row) + "],")

#!/usr/bin/env python3
"""Where the training loss of a configuration of `pretrain` lies, as its key `evaluation.loss_band`: to be pasted into it.

  loss_band.py --mlmtrain target/release/mlmtrain --config configs/quickstart.yaml [--seeds 1,2,3,4,5] [--points 10]

Runs it once for each seed, and prints the lowest and the highest loss of its records at some steps, with a margin of twice
the standard deviation, or of one per cent where that is more. It begins where straight lines between the steps hold the losses
of the runs: in the first fall they lie above them.
"""
import argparse, json, os, re, statistics, subprocess, sys, tempfile


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mlmtrain", default="target/release/mlmtrain")
    parser.add_argument("--config", required=True)
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--points", type=int, default=10)
    o = parser.parse_args()
    losses, of = [], set()
    with tempfile.TemporaryDirectory() as work:
        for seed in o.seeds.split(","):
            folder = os.path.join(work, seed)
            settings = {
                "run.output_dir": folder, "run.seed": seed, "run.tensorboard": "false", "data.prepared_dir": os.path.join(work, "data"),
                "training.max_train_time": "null", "training.save_steps": 0, "evaluation.loss_band": '{of: "", points: []}',
            }
            command = [o.mlmtrain, "pretrain", "--config", o.config]
            for key, value in settings.items():
                command += ["--set", f"{key}={value}"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr)
            note = r"`evaluation.loss_band` is ignored: it belongs to other settings or data than these \(`(\w+)`\)"
            of.add(re.search(note, done.stderr)[1])
            with open(os.path.join(folder, "metrics.jsonl")) as file:
                records = [json.loads(line) for line in file]
            losses.append({r["step"]: r["train/loss"] for r in records if "train/loss" in r})
            print(f"seed {seed}: {losses[-1][max(losses[-1])]:.4f} at the end", file=sys.stderr)
    (of,) = of
    # The record after the first step is of one step.
    steps = [step for step in sorted(losses[0]) if step > 1]
    chosen = sorted({steps[round(i * (len(steps) - 1) / (o.points - 1))] for i in range(o.points)})
    print(f"evaluation:\n  loss_band:\n    of: {of}\n    points:")
    for step, low, high in band(losses, chosen):
        print(f"      - {{step: {step}, low: {low:.3f}, high: {high:.3f}}}")


def band(losses, chosen):
    """(step, low, high) of the chosen steps, without the first ones between which a straight line does not hold the losses."""
    points = []
    for step in chosen:
        at = [run[step] for run in losses]
        margin = max(2 * statistics.stdev(at), 0.01 * statistics.mean(at))
        points.append((step, min(at) - margin, max(at) + margin))

    def holds(left, right):
        """Whether no run has two records in a row outside, which is what `pretrain` tells of."""
        for run in losses:
            outside = 0
            for step in (step for step in sorted(run) if left[0] < step < right[0]):
                share = (step - left[0]) / (right[0] - left[0])
                low, high = (a + share * (b - a) for a, b in zip(left[1:], right[1:]))
                outside = 0 if low <= run[step] <= high else outside + 1
                if outside == 2:
                    return False
        return True

    while len(points) > 2 and not holds(*points[:2]):
        points.pop(0)
    return points


if __name__ == "__main__":
    main()

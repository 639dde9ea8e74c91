#!/usr/bin/env python3
"""How far the losses of two runs are apart, and rows of `mlmtrain bench --json` as lines.

compare_curves.py RUN OTHER LIMIT  run folders with metrics.jsonl: largest and mean distance of train/loss
                                   over the steps of both; ends with 1 where the largest is over LIMIT (nat)
compare_curves.py --bench FILE     the rows, one a line
"""

import json, math, pathlib, sys


def losses(folder):
    """train/loss by step; a step that was run twice (after a resume) counts as it was run last."""
    found = {}
    with open(pathlib.Path(folder) / "metrics.jsonl") as file:
        for record in map(json.loads, file):
            if "train/loss" in record:
                found[record["step"]] = record["train/loss"]
    return found


def compare(run, other, limit):
    one, two = losses(run), losses(other)
    steps = sorted(one.keys() & two.keys())
    if not steps:
        sys.exit(f"error: {run} and {other} have no step in common")
    distances = [abs(one[step] - two[step]) for step in steps]
    worst = max(range(len(steps)), key=lambda i: math.inf if math.isnan(distances[i]) else distances[i])
    last = steps[-1]
    print(
        f"{len(steps)} steps: at most {distances[worst]:.2e} apart (step {steps[worst]}; "
        f"{limit:g} is allowed), "
        f"mean {sum(distances) / len(steps):.2e}; step {last}: {one[last]:.4f} and {two[last]:.4f}"
    )
    # A loss that is no number is over every limit.
    sys.exit(0 if distances[worst] <= limit else 1)


def bench(path):
    with open(path) as file:
        for row in map(json.loads, file):
            what = f"{row['model']} {row['batch']} x {row['length']} {row['compute']} on {row['device']}"
            if row["tokens_per_second"] is None:
                print(f"{what:34} {row['problem']}")
                continue
            mfu = f", MFU {100 * row['mfu']:.1f} %" if row["mfu"] else ""
            memory = f", {row['peak_memory_bytes'] / 2**20:,.0f} MiB" if row["peak_memory_bytes"] else ""
            print(
                f"{what:34} {row['tokens_per_second']:,.0f} tokens/s, "
                f"{1e3 * row['step_seconds']:.1f} ms{mfu}{memory}"
            )


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--bench":
        bench(sys.argv[2])
    elif len(sys.argv) == 4:
        compare(sys.argv[1], sys.argv[2], float(sys.argv[3]))
    else:
        sys.exit(__doc__)

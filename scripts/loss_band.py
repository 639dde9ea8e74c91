#!/usr/bin/env python3
"""Where the training loss of a configuration of `pretrain` lies, as its key `evaluation.loss_band`: to be pasted into it.

  loss_band.py --mlmtrain target/release/mlmtrain --config configs/quickstart.yaml [--seeds 1,2,3,4,5] [--points 10]

Runs it once for each seed, and prints the lowest and the highest loss of its records at some steps, with a margin of twice
the standard deviation, or of one per cent where that is more.
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
            of.add(re.search(r"`evaluation.loss_band` is of other settings or data than these \(`(\w+)`\)", done.stderr)[1])
            with open(os.path.join(folder, "metrics.jsonl")) as file:
                records = [json.loads(line) for line in file]
            losses.append({r["step"]: r["train/loss"] for r in records if "train/loss" in r})
            print(f"seed {seed}: {losses[-1][max(losses[-1])]:.4f} at the end", file=sys.stderr)
    (of,) = of
    # The record after the first step is of one step.
    steps = [step for step in sorted(losses[0]) if step > 1]
    chosen = sorted({steps[round(i * (len(steps) - 1) / (o.points - 1))] for i in range(o.points)})
    print(f"evaluation:\n  loss_band:\n    of: {of}\n    points:")
    for step in chosen:
        at = [run[step] for run in losses]
        margin = max(2 * statistics.stdev(at), 0.01 * statistics.mean(at))
        print(f"      - {{step: {step}, low: {min(at) - margin:.3f}, high: {max(at) + margin:.3f}}}")


if __name__ == "__main__":
    main()

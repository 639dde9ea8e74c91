#!/usr/bin/env python3
"""What `mlmtrain plan` says of five runs on this machine, and what they then take: seconds of steps and memory.

  check_plan.py [--mlmtrain target/release/mlmtrain] [--seconds 40]

The runs are of the novels of configs/quickstart, as long as about so many seconds each; prepared shards go to a temporary
folder. Prints a table, and fails where time is more than 15 % or memory more than 10 % apart.
"""
import argparse, json, os, re, subprocess, sys, tempfile

SMALL = ["hidden_size=256", "num_hidden_layers=4", "num_attention_heads=4", "intermediate_size=1024", "max_position_embeddings=130"]
BASE = ["hidden_size=768", "num_hidden_layers=12", "num_attention_heads=12", "intermediate_size=3072", "max_position_embeddings=130"]
LONG = ["data.max_seq_length=128"]
RUNS = [
    ("RoBERTa 2 x 128, 32 x 64, f32", "configs/quickstart.yaml", ["precision.compute=f32"]),
    ("ELECTRA 2 x 128, 32 x 64, f32", "configs/quickstart-electra.yaml", ["precision.compute=f32"]),
    ("RoBERTa 4 x 256, 32 x 128, bf16", "configs/quickstart.yaml",
     [f"model.roberta.{key}" for key in SMALL] + LONG + ["precision.compute=bf16"]),
    ("RoBERTa 4 x 256, 4 x 16 x 128, f32", "configs/quickstart.yaml",
     [f"model.roberta.{key}" for key in SMALL] + LONG + ["precision.compute=f32", "training.per_device_train_batch_size=16",
      "training.gradient_accumulation_steps=4"]),
    ("RoBERTa-base, 8 x 128, bf16, checkpointed", "configs/quickstart.yaml",
     [f"model.roberta.{key}" for key in BASE] + LONG + ["precision.compute=bf16", "training.per_device_train_batch_size=8",
      "training.gradient_checkpointing=true"]),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mlmtrain", default="target/release/mlmtrain")
    parser.add_argument("--seconds", type=float, default=40)
    o = parser.parse_args()

    def mlmtrain(*arguments):
        done = subprocess.run([o.mlmtrain, *arguments], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        return done.stdout

    is_right = True
    print("| run | planned | taken | time | memory |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        for number, (name, config, keys) in enumerate(RUNS):
            folder = os.path.join(work, str(number))
            data = os.path.join(work, os.path.basename(config))
            keys = [*keys, f"run.output_dir={folder}", f"data.prepared_dir={data}", "training.max_train_time=null",
                    "training.eval_steps=0", "training.save_steps=0", "run.tensorboard=false"]
            sets = [word for key in keys for word in ("--set", key)]
            mlmtrain("prepare", "--config", config, *sets)
            plan = json.loads(mlmtrain("plan", "--config", config, *sets, "--device", "here", "--json"))
            steps = max(20, round(plan["steps"] * o.seconds / plan["devices"][0]["train_seconds"]))
            sets += ["--set", f"training.max_steps={steps}"]
            planned = json.loads(mlmtrain("plan", "--config", config, *sets, "--device", "here", "--save", "--json"))
            told = [line.strip() for line in mlmtrain("pretrain", "--config", config, *sets).splitlines()]
            taken = next(line for line in told if line.startswith("actual ")).removeprefix("actual").strip()
            percents = re.findall(r"(\d+) % (slower|faster|more|less)", taken)
            time, memory = (float(f"{'-' if word in ('faster', 'less') else ''}{number}") for number, word in percents)
            is_right &= abs(time) <= 15 and abs(memory) <= 10
            row = planned["devices"][0]
            before = f"{row['train_seconds']:.0f} s, {row['memory_bytes'] / 2**20:.0f} MiB"
            print(f"| {name}, {steps} steps | {before} | {taken} | {time:+.0f} % | {memory:+.0f} % |", flush=True)
    sys.exit(0 if is_right else "error: a plan was too far from its run")


if __name__ == "__main__":
    main()

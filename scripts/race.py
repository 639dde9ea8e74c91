#!/usr/bin/env python3
"""The time to one held-out loss: the usual script of transformers, then mlmtrain, on the same text and tokenizer.

  race.py --mlmtrain target/release/mlmtrain --text 'corpus/*.jsonl.gz' [--shape 2x128] [--minutes 15] [--seeds 1,2,3]
          [--rates 5e-5,1e-3] [--set KEY=VALUE ...] [--output runs/race]

The usual script is the recipe of transformers' `run_mlm.py`: texts joined and cut into rows of 128 tokens, 15 % masked,
AdamW, a linear schedule that ends after `--minutes`, dropout 0.1, rows of `--rows`. Of several `--rates` it takes the one
that is best after a fifth of the time with the first seed, so that it is not beaten by a bad rate.

mlmtrain then gets whole runs, each with a schedule of its own length: a tenth of the minutes first, then more or less
until one run reaches the loss of the usual script and one of a sixth fewer steps does not. The text is cleaned,
deduplicated and tokenized once, by `mlmtrain prepare`; neither side is charged for it. The usual script is charged for
its training loop, mlmtrain for the whole process but the validation at its end.

Transformers judges both: the loss on the same masked tokens of documents that neither side trained on. Everything that is
finished is kept in `--output`, and the same command continues. Needs torch, transformers, accelerate, and `zstd`.
"""
import argparse, glob, json, math, os, shutil, statistics, subprocess, sys, time

LENGTH = 128
JUDGED_ROWS = 400
# The search for the shortest run ends when one of this many times fewer steps does not reach the loss.
FINENESS = 1.2
LEAST_STEPS = 20


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mlmtrain", default="target/release/mlmtrain")
    parser.add_argument("--text", nargs="+", required=True, metavar="PATTERN", help="sources, as `data.sources.files`")
    parser.add_argument("--shape", default="2x128", help="layers x hidden size")
    parser.add_argument("--vocab-size", type=int, default=8192)
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--rates", default="5e-5,1e-3", help="learning rates of the usual script")
    parser.add_argument("--rows", type=int, default=32, help="rows of an update, on both sides")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of mlmtrain's configuration")
    parser.add_argument("--output", default="runs/race")
    parser.add_argument("--peer", metavar="JOB", help=argparse.SUPPRESS)
    return parser.parse_args()


def shape(o):
    layers, hidden = map(int, o.shape.split("x"))
    return dict(
        num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=hidden // 64, intermediate_size=4 * hidden,
        max_position_embeddings=LENGTH + 2,
    )


def configuration(o):
    """What mlmtrain trains: the rules of its defaults for pretraining, and what its quickstart has for narrow models."""
    model = shape(o) | dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model["initializer_range"] = 0.05 if model["hidden_size"] <= 256 else 0.02
    return {
        "run": {"output_dir": os.path.join(o.output, "run"), "tensorboard": False, "threads": o.threads},
        "data": {
            "sources": [{"files": o.text}], "validation_fraction": 0.02, "max_seq_length": LENGTH, "save_text": True,
            "deduplication": {"exact": True, "near_threshold": 0.8}, "prepared_dir": os.path.join(o.output, "data"),
        },
        "tokenizer": {"vocab_size": o.vocab_size},
        "model": {"initial_embeddings": "cooccurrence", "roberta": model},
        "training": {
            "per_device_train_batch_size": o.rows, "lr_scheduler_type": "linear", "max_steps": 1000, "eval_steps": 0,
            "save_steps": 0, "logging_steps": 20,
        },
    }


def program(o, command, *arguments):
    done = subprocess.run([o.mlmtrain, command, "-q", "--config", os.path.join(o.output, "race.json"), *arguments],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"mlmtrain {command} {' '.join(arguments)}:\n{done.stderr}")


# The text of both sides


def documents(o, split):
    """The cleaned documents of one split, in order."""
    for path in sorted(glob.glob(os.path.join(o.output, "data", "text", "*.jsonl.zst"))):
        lines = subprocess.run(["zstd", "-dcq", path], capture_output=True, check=True).stdout.splitlines()
        yield from (record["text"] for record in map(json.loads, lines) if record["split"] == split)


def tokenizer(o):
    import transformers

    return transformers.AutoTokenizer.from_pretrained(os.path.join(o.output, "data", "tokenizer"))


def rows(o, split):
    """Texts with their special tokens, joined and cut into rows: `group_texts` of `run_mlm.py`."""
    import itertools, torch

    tokens = tokenizer(o)
    ids = list(itertools.chain.from_iterable(tokens(list(documents(o, split)), verbose=False)["input_ids"]))
    return torch.tensor(ids[: len(ids) // LENGTH * LENGTH]).view(-1, LENGTH)


def judge(o, folder):
    """The mean loss of the masked tokens of held-out rows: the same tokens for every model."""
    import torch, transformers

    torch.set_num_threads(o.threads)
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    tokens = tokenizer(o)
    ids = rows(o, "validation")[:JUDGED_ROWS]
    chosen = torch.rand(ids.shape, generator=torch.Generator().manual_seed(0)) < 0.15
    for special in tokens.all_special_ids:
        chosen &= ids != special
    inputs = ids.masked_fill(chosen, tokens.mask_token_id)
    losses = []
    with torch.no_grad():
        for at in range(0, len(ids), 32):
            logits = model(input_ids=inputs[at : at + 32]).logits[chosen[at : at + 32]]
            labels = ids[at : at + 32][chosen[at : at + 32]]
            losses.append(torch.nn.functional.cross_entropy(logits, labels, reduction="none"))
    return torch.cat(losses).mean().item()


# The usual script


def train_peer(o, job):
    """Trains a model from random weights by transformers' Trainer; runs in a process of its own."""
    import torch, transformers

    torch.set_num_threads(o.threads)
    transformers.set_seed(job["seed"])
    tokens = tokenizer(o)
    examples = [{"input_ids": row} for row in rows(o, "train")]
    config = transformers.RobertaConfig(
        vocab_size=len(tokens), pad_token_id=tokens.pad_token_id, bos_token_id=tokens.bos_token_id,
        eos_token_id=tokens.eos_token_id, type_vocab_size=1, **shape(o),
    )
    trainer = transformers.Trainer(
        model=transformers.RobertaForMaskedLM(config),
        args=transformers.TrainingArguments(
            output_dir=job["folder"], per_device_train_batch_size=o.rows, learning_rate=job["rate"],
            max_steps=job["steps"], seed=job["seed"], use_cpu=True, save_strategy="no", report_to=[], disable_tqdm=True, logging_steps=200,
        ),
        data_collator=transformers.DataCollatorForLanguageModeling(tokens, mlm_probability=0.15),
        train_dataset=examples,
    )
    start = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - start
    trainer.save_model(job["folder"])
    return {"seconds": seconds, "steps": job["steps"]}


def peer(o, name, seed, rate, steps):
    """A run of the usual script, or what is known of it already."""

    def work(folder):
        job = json.dumps({"folder": folder, "seed": seed, "rate": rate, "steps": steps})
        command = [sys.executable, __file__, *sys.argv[1:], "--peer", job]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit("the usual script failed")
        return json.loads(done.stdout.splitlines()[-1]) | {"model": folder}

    return once(o, name, work)


# mlmtrain


def ours(o, name, seed, steps):
    def work(folder):
        start = time.perf_counter()
        program(o, "pretrain", "--set", f"run.output_dir={folder}", "--set", f"run.seed={seed}",
                "--set", f"training.max_steps={steps}", *(f"--set={setting}" for setting in o.set))
        seconds = time.perf_counter() - start
        with open(os.path.join(folder, "metrics.jsonl")) as file:
            records = [json.loads(line) for line in file]
        seconds -= sum(record.get("perf/eval_seconds", 0) for record in records)
        return {"seconds": seconds, "steps": steps, "model": os.path.join(folder, "final")}

    return once(o, name, work)


def once(o, name, work):
    """The result of a run that ended before, or of `work` in a folder of this name; judged in both cases."""
    folder = os.path.join(o.output, name)
    record = os.path.join(folder, "race.json")
    if not os.path.exists(record):
        # A run that was interrupted would go on, and its time would be that of the rest.
        shutil.rmtree(folder, ignore_errors=True)
        result = work(folder)
        result["loss"] = judge(o, result["model"])
        with open(record, "w") as file:
            json.dump(result, file)
    with open(record) as file:
        result = json.load(file)
    print(f"{name:32} {result['steps']:7} steps {result['seconds']:8.1f} s   loss {result['loss']:.4f}", flush=True)
    return result


def shortest(o, seed, first, most, loss):
    """mlmtrain's run of the fewest steps that reaches `loss`; `first` steps are tried first, `most` at most. None if
    those do not reach it either."""
    short, enough = 0, None
    steps = first
    while True:
        result = ours(o, f"ours-{seed}-{steps}", seed, steps)
        if result["loss"] <= loss:
            enough = result
        elif steps == most:
            return None
        else:
            short = steps
        if enough is None:
            steps = min(round(steps * 1.6), most)
        elif short:
            if enough["steps"] <= short * FINENESS:
                return enough
            steps = round(math.sqrt(short * enough["steps"]))
        else:
            steps = round(steps / 1.6)
            if steps < LEAST_STEPS:
                return enough


def main():
    o = options()
    o.output = os.path.abspath(o.output)
    if o.peer:
        print(json.dumps(train_peer(o, json.loads(o.peer))))
        return
    os.makedirs(o.output, exist_ok=True)
    with open(os.path.join(o.output, "race.json"), "w") as file:
        json.dump(configuration(o), file, indent=1)
    program(o, "prepare")

    # How many updates a side does in a second.
    probe = peer(o, "peer-speed", 1, 1e-3, 40)
    speed = 40 / probe["seconds"]
    steps = round(o.minutes * 60 * speed)
    seeds = [int(seed) for seed in o.seeds.split(",")]
    rates = [float(rate) for rate in o.rates.split(",")]
    if len(rates) > 1:
        tried = {rate: peer(o, f"peer-rate-{rate:g}", seeds[0], rate, steps // 5)["loss"] for rate in rates}
        rate = min(tried, key=tried.get)
    else:
        (rate,) = rates
    # Two lengths, as a short run is mostly its beginning.
    short, long = (ours(o, f"ours-speed-{steps}", 1, steps) for steps in (40, 160))
    our_speed = 120 / (long["seconds"] - short["seconds"])

    ratios = []
    for seed in seeds:
        theirs = peer(o, f"peer-{seed}", seed, rate, steps)
        most = round(theirs["seconds"] * our_speed)
        result = shortest(o, seed, round(most / 10), most, theirs["loss"])
        if result is None:
            print(f"seed {seed}: mlmtrain does not reach {theirs['loss']:.4f} in the time of the usual script")
            continue
        ratios.append(theirs["seconds"] / result["seconds"])
        print(f"seed {seed}: {theirs['loss']:.4f} after {theirs['seconds']:.0f} s by the usual script (rate {rate:g}), "
              f"{result['loss']:.4f} after {result['seconds']:.0f} s by mlmtrain: {ratios[-1]:.1f} times faster",
              flush=True)
    if ratios:
        print(f"{o.shape}, {o.minutes:g} minutes: {statistics.mean(ratios):.1f} times faster "
              f"({min(ratios):.1f} to {max(ratios):.1f}, {len(ratios)} seeds)")


if __name__ == "__main__":
    main()

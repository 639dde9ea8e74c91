#!/usr/bin/env python3
"""`mlmtrain finetune` beside transformers: the same model, files, recipe and seeds, in turn; scores, seconds of training, and
seconds of processor time, which a neighbour changes little (ours with start and evaluation, transformers' of training alone).

  compare_finetune.py --mlmtrain target/release/mlmtrain --model DIR --train FILE --eval FILE [--task token-classify]
                      [--seeds 1,2,3] [--compute bf16] [--rate 5e-5] [--epochs 3] [--rows 16] [--length 128] [--threads 2]
                      [--nothing-drawn]

Files: .tsv or .csv with the columns --text-column and --label-column, or CoNLL (word, tab, tag) for token-classify.
The recipe of both: AdamW, weight decay 0.01 on matrices alone, a tenth of the steps to warm up and then down to zero, clipping
at 1, dropout as the model's folder says; transformers pads each batch to its longest row, and computes in bf16 by autocast.
With --nothing-drawn both begin with one head and take the examples in our order, without dropout: with f32 they differ by
rounding alone.
Score: accuracy, or seqeval's F1 of entities. Needs torch, transformers, and seqeval for entities.
"""
import argparse, csv, json, math, os, re, resource, statistics, subprocess, sys, tempfile, time


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mlmtrain", default="target/release/mlmtrain")
    for name in ("--model", "--train", "--eval"):
        parser.add_argument(name, required=True)
    parser.add_argument("--task", default="classify", choices=["classify", "token-classify"])
    parser.add_argument("--text-column", default="text")
    parser.add_argument("--label-column", default="label")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--compute", default="bf16", choices=["f32", "bf16"])
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=16, help="rows of a batch")
    parser.add_argument("--length", type=int, default=128, help="tokens of a row at most")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--nothing-drawn", action="store_true", help="one head, our order of examples, no dropout")
    parser.add_argument("--peer", type=int, metavar="SEED", help=argparse.SUPPRESS)
    return parser.parse_args()


def read(path, o):
    """(text, label) of each row, or (words, tags) of each sentence."""
    if o.task == "classify":
        with open(path, encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if path.endswith(".tsv") else csv.DictReader(file)
            return [(row[o.text_column], row[o.label_column]) for row in rows]
    with open(path, encoding="utf-8") as file:
        sentences = [[line.rstrip("\n").split("\t") for line in block.split("\n") if line] for block in re.split(r"\n\s*\n", file.read())]
    return [([w[0] for w in s], [w[-1] for w in s]) for s in sentences if s]


def philox(counter, key):
    """Philox4x32-10: four words of 32 bits."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [q >> 32 ^ c[1] ^ k[0], q & 0xFFFFFFFF, p >> 32 ^ c[3] ^ k[1], p & 0xFFFFFFFF]
        k = [k[0] + 0x9E3779B9 & 0xFFFFFFFF, k[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return c


def our_order(count, seed, epoch):
    """The order in which mlmtrain takes `count` examples: a network of four rounds (src/rng.rs)."""
    half = max(1, math.ceil((count - 1).bit_length() / 2))

    def place(i):
        left, right = i >> half, i & (1 << half) - 1
        for turn in range(4):
            at = turn << 48 | right
            words = philox([at & 0xFFFFFFFF, at >> 32, epoch, 2 << 24], [seed & 0xFFFFFFFF, seed >> 32])
            left, right = right, left ^ words[0] & (1 << half) - 1
        return left << half | right

    order = []
    for i in range(count):
        i = place(i)
        while i >= count:
            i = place(i)
        order.append(i)
    return order


def peer(o, seed):
    """One training by transformers: prints a JSON object with score and seconds."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer
    from transformers import get_linear_schedule_with_warmup, set_seed

    torch.set_num_threads(o.threads)
    set_seed(seed)
    train, held = read(o.train, o), read(o.eval, o)
    words = o.task == "token-classify"
    labels = sorted({tag for _, tags in train for tag in tags} if words else {label for _, label in train})
    number = {label: i for i, label in enumerate(labels)}
    tokenizer = AutoTokenizer.from_pretrained(o.model)
    make = AutoModelForTokenClassification if words else AutoModelForSequenceClassification
    if o.nothing_drawn:
        none = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        model = make.from_pretrained(o.model, **none)
        labels = [model.config.id2label[i] for i in range(len(labels))]
        number = {label: i for i, label in enumerate(labels)}
    else:
        model = make.from_pretrained(o.model, num_labels=len(labels))

    def encode(rows):
        encoded = tokenizer([r[0] for r in rows], truncation=True, max_length=o.length, is_split_into_words=words)
        examples = []
        for i, (_, label) in enumerate(rows):
            example = {key: encoded[key][i] for key in encoded.keys()}
            if words:
                previous, tags = None, []
                for word in encoded.word_ids(i):
                    first = word is not None and word != previous
                    tags.append(number.get(label[word], -100) if first else -100)
                    previous = word
                example["labels"] = tags
            else:
                example["labels"] = number[label]
            examples.append(example)
        return examples

    def batch(examples):
        tags = [e["labels"] for e in examples]
        padded = tokenizer.pad([{k: v for k, v in e.items() if k != "labels"} for e in examples], return_tensors="pt")
        longest = padded["input_ids"].shape[1]
        padded["labels"] = torch.tensor([t + [-100] * (longest - len(t)) for t in tags] if words else tags)
        return padded

    examples = encode(train)
    plain = [p for n, p in model.named_parameters() if p.ndim < 2]
    decayed = [p for n, p in model.named_parameters() if p.ndim >= 2]
    groups = [dict(params=decayed, weight_decay=0.01), dict(params=plain, weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=o.rate, fused=True)
    steps = math.ceil(len(examples) / o.rows) * o.epochs
    schedule = get_linear_schedule_with_warmup(optimizer, round(steps / 10), steps)
    order = torch.Generator().manual_seed(seed)
    autocast = lambda: torch.autocast("cpu", dtype=torch.bfloat16, enabled=o.compute == "bf16")
    start, busy = time.perf_counter(), time.process_time()
    model.train()
    for epoch in range(o.epochs):
        shuffled = torch.randperm(len(examples), generator=order).tolist()
        if o.nothing_drawn:
            shuffled = our_order(len(examples), seed, epoch)
        for at in range(0, len(shuffled), o.rows):
            with autocast():
                loss = model(**batch([examples[i] for i in shuffled[at : at + o.rows]])).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
    seconds, cpu = time.perf_counter() - start, time.process_time() - busy

    model.eval()
    right, predicted = 0, []
    with torch.no_grad(), autocast():
        for at in range(0, len(held), 64):
            rows = held[at : at + 64]
            # Labels that training has not: -100 for words, never equal for texts.
            known = rows if words else [(text, label if label in number else labels[0]) for text, label in rows]
            inputs = batch(encode(known))
            targets = inputs.pop("labels")
            guesses = model(**inputs).logits.argmax(-1)
            if words:
                encoded = tokenizer([r[0] for r in rows], truncation=True, max_length=o.length, is_split_into_words=True)
                for i, (sentence, _) in enumerate(rows):
                    tags, previous = ["O"] * len(sentence), None
                    for place, word in enumerate(encoded.word_ids(i)):
                        if word is not None and word != previous:
                            tags[word] = labels[guesses[i][place]]
                        previous = word
                    predicted.append(tags)
            else:
                right += sum(labels[guess] == label for guess, (_, label) in zip(guesses.tolist(), rows))
    if words:
        from seqeval.metrics import f1_score

        score = f1_score([tags for _, tags in held], predicted)
    else:
        score = right / len(held)
    print(json.dumps(dict(score=100 * score, seconds=seconds, cpu=cpu)))


def ours(o, seed, folder, **others):
    command = [o.mlmtrain, "--quiet", "finetune", "--task", o.task, "--model", o.model, "--train", o.train, "--eval", o.eval]
    if o.task == "classify":
        command += ["--text-column", o.text_column, "--label-column", o.label_column]
    settings = {
        "run.output_dir": folder, "run.seed": seed, "run.threads": o.threads, "precision.compute": o.compute,
        "training.learning_rate": o.rate, "training.num_train_epochs": o.epochs, "training.per_device_train_batch_size": o.rows,
        "training.warmup_steps": 0.1, "training.weight_decay": 0.01, "training.save_steps": 0, "training.eval_steps": 0,
        "data.max_seq_length": o.length,
    }
    if o.nothing_drawn:
        settings |= {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    settings |= others
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    busy = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    cpu = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - busy
    with open(os.path.join(folder, "all_results.json")) as file:
        results = json.load(file)
    score = results["eval_overall_f1" if o.task == "token-classify" else "eval_accuracy"]
    return dict(score=100 * score, seconds=results["train_runtime"], cpu=cpu)


def main():
    o = options()
    if o.peer is not None:
        return peer(o, o.peer)
    seeds = [int(seed) for seed in o.seeds.split(",")]
    found = {"mlmtrain": [], "transformers": []}
    with tempfile.TemporaryDirectory() as work:
        if o.nothing_drawn:
            ours(o, 1, os.path.join(work, "head"), **{"training.max_steps": 1, "training.learning_rate": 1e-30})
            o.model = os.path.join(work, "head", "final")
        for seed in seeds:
            found["mlmtrain"].append(ours(o, seed, os.path.join(work, str(seed))))
            again = [sys.executable, __file__, *sys.argv[1:], "--model", o.model, "--peer", str(seed)]
            done = subprocess.run(again, capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr)
            found["transformers"].append(json.loads(done.stdout.splitlines()[-1]))
            last = {name: runs[-1] for name, runs in found.items()}
            print(f"seed {seed}:", *(f"{n} {r['score']:.2f} in {r['seconds']:.1f} s ({r['cpu']:.1f} of processor)" for n, r in last.items()), flush=True)
    spread = {}
    for name, runs in found.items():
        scores, seconds = [r["score"] for r in runs], [r["seconds"] for r in runs]
        deviation = statistics.stdev(scores) if len(scores) > 1 else math.nan
        spread[name] = statistics.mean(scores), deviation / math.sqrt(len(scores))
        print(f"{name:12}  {spread[name][0]:.2f} (standard deviation {deviation:.2f}), {statistics.median(seconds):.1f} s of training")
    (a, se_a), (b, se_b) = spread.values()
    error = math.hypot(se_a, se_b)
    print(f"difference    {a - b:+.2f}, standard error {error:.2f}")
    for key, name in (("seconds", "as fast"), ("cpu", "by processor time")):
        ratios = [theirs[key] / mine[key] for mine, theirs in zip(*found.values())]
        print(f"              {min(ratios):.2f}x to {max(ratios):.2f}x {name}, median {statistics.median(ratios):.2f}x")


if __name__ == "__main__":
    main()

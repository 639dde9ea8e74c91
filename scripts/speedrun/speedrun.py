#!/usr/bin/env python3
"""One clock from raw text to scores: prepares the text, pretrains an encoder, fine-tunes it on the tasks of a language.

  speedrun.py --data ../shared/data [--mlmtrain target/release/mlmtrain] [--language finnish] [--seed 1]
              [--output runs/speedrun/finnish-1] [--set KEY=VALUE ...]
  speedrun.py --data ../shared/data --baselines [--models DIR ...] --output runs/speedrun/finnish-1

The clock stops with the last score of the model. `--set` changes the configuration of pretraining. The result goes to
`record.json` in the output folder, which must be new: a run that continues would not show its whole time.

`--baselines` adds to a finished run what is not on the clock: the random twin, baselines without a network, and other
`--models`. Rules, data and records: README.md beside this script.
"""
import argparse, hashlib, json, os, platform, re, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
# Training sentences with tagged entities, of each language.
ENTITIES = {"finnish": "ner/turku_fi/train.tsv", "english": "ner/wnut17_en/train.conll"}
# Name of the score of the minimal pairs.
PAIRS = "minimal-pairs"


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mlmtrain", default="target/release/mlmtrain")
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with the texts and the tasks")
    parser.add_argument("--language", choices=list(ENTITIES), default="finnish")
    parser.add_argument("--seed", type=int, default=1, help="of pretraining")
    parser.add_argument("--output", metavar="DIR")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of pretraining")
    parser.add_argument("--baselines", action="store_true", help="add rows that are not on the clock")
    parser.add_argument("--models", nargs="+", default=[], metavar="DIR", help="with --baselines: other models")
    o = parser.parse_args()
    o.output = os.path.abspath(o.output or os.path.join("runs", "speedrun", f"{o.language}-{o.seed}"))
    o.data = os.path.abspath(o.data)
    return o


def write_splits(o):
    """Writes the last tenth of the training sentences as a file of its own: the development file is for the scores.
    TREC, which has no development file and is not UTF-8, becomes two tables."""
    with open(os.path.join(o.data, ENTITIES[o.language]), encoding="utf-8") as file:
        sentences = [sentence for sentence in re.split(r"\n[ \t]*\n", file.read()) if sentence.strip()]
    end = len(sentences) * 9 // 10
    splits = {"train.tsv": "\n\n".join(sentences[:end]), "validation.tsv": "\n\n".join(sentences[end:])}
    if o.language == "english":
        with open(os.path.join(o.data, "cls", "trec_latin1", "train.txt"), encoding="latin-1") as file:
            rows = [line.rstrip("\n").split(" ", 1) for line in file]
        rows = [f"{label.split(':')[0]}\t{text}" for label, text in rows]
        end = len(rows) * 9 // 10
        for name, part in [("train", rows[:end]), ("dev", rows[end:])]:
            splits[f"trec-{name}.tsv"] = "\n".join(["label\ttext", *part])
    for name, text in splits.items():
        with open(os.path.join(o.output, name), "w", encoding="utf-8") as file:
            file.write(text + "\n")


def program(o, *arguments, **more):
    environment = dict(os.environ, SPEEDRUN_DATA=o.data, SPEEDRUN_SPLIT=o.output)
    done = subprocess.run([o.mlmtrain, *arguments], env=environment, **more)
    if done.returncode:
        sys.exit(f"mlmtrain {arguments[0]} failed")
    return done.stdout


def final(o):
    return os.path.join(o.output, "pretrain", "final")


def pretrain(o):
    settings = [f"run.output_dir={os.path.join(o.output, 'pretrain')}", f"run.seed={o.seed}", *o.set]
    config = os.path.join(HERE, f"{o.language}.yaml")
    program(o, "pretrain", "-q", "--config", config, *(f"--set={setting}" for setting in settings))


def compare(o, kind, *more):
    """Fine-tunes the model on the tasks of one list, and returns the scores of each row on each task."""
    tasks = os.path.join(HERE, f"{o.language}-{kind}.yaml")
    folder = os.path.join(o.output, kind)
    if kind == "protocol":
        more = ("--profile", "small", *more)
    program(o, "compare", "-q", "--tasks", tasks, "--output-dir", folder, *more, "--models", final(o), *o.models)
    with open(os.path.join(folder, "compare.json"), encoding="utf-8") as file:
        results = json.load(file)["tasks"]
    scores = {}
    for task in results:
        for row in task["rows"]:
            if kind == "tasks":
                score, seeds = row["mean"], row["scores"]
            else:
                score, seeds = (row["test"].get("micro_f1_no_misc", {}).get(key) for key in ("mean", "scores"))
            if row["kind"] != "published" and score is not None:
                percent = {"score": 100 * score, "each": [100 * one for one in seeds]}
                scores.setdefault(row["name"], {})[task["name"]] = percent
    return scores


def judge_pairs(o):
    """The share of minimal pairs whose grammatical sentence the model finds likelier."""
    pairs = os.path.join(o.data, "minimal_pairs", "blimp_dev.jsonl.zst")
    arguments = ["evaluate", "-q", "--json", "--task", PAIRS, "--model", final(o), "--data", pairs]
    told = program(o, *arguments, stdout=subprocess.PIPE, text=True)
    return 100 * json.loads(told)["eval_accuracy"]


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def output_of(*command):
    """The output of a command; empty if it fails."""
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def run(o):
    if os.path.exists(o.output):
        sys.exit(f"error: `{o.output}` is there already; name a new folder by --output")
    os.makedirs(o.output)
    write_splits(o)
    record = {
        "language": o.language, "seed": o.seed, "settings": o.set,
        "program": output_of(o.mlmtrain, "-V"), "commit": output_of("git", "-C", HERE, "rev-parse", "HEAD"),
        "processor": processor(), "threads": os.cpu_count(), "minutes": {},
    }
    start = last = time.perf_counter()

    def lap(name):
        nonlocal last
        now = time.perf_counter()
        record["minutes"][name] = (now - last) / 60
        last = now
        print(f"{name:10} {record['minutes'][name]:5.1f} minutes", flush=True)

    pretrain(o)
    lap("pretrain")
    record["rows"] = compare(o, "tasks", "--no-baselines")
    lap("tasks")
    for name, scores in compare(o, "protocol", "--no-baselines").items():
        record["rows"].setdefault(name, {}).update(scores)
    lap("protocol")
    if o.language == "english":
        record["rows"]["pretrain"][PAIRS] = {"score": judge_pairs(o)}
        lap("pairs")
    record["minutes"]["total"] = (last - start) / 60
    record["model"] = digest(os.path.join(final(o), "model.safetensors"))
    write(o, record)


def add_baselines(o):
    with open(os.path.join(o.output, "record.json"), encoding="utf-8") as file:
        record = json.load(file)
    for kind in ["tasks", "protocol"]:
        for name, scores in compare(o, kind).items():
            record["rows"].setdefault(name, {}).update(scores)
    write(o, record)


def write(o, record):
    with open(os.path.join(o.output, "record.json"), "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)
    tasks = sorted({task for scores in record["rows"].values() for task in scores})
    minutes, model = record["minutes"]["total"], record["model"][:12]
    print(f"{record['language']}, seed {record['seed']}: {minutes:.1f} minutes, model {model}")
    for name, scores in record["rows"].items():
        shown = (f"{task} {scores[task]['score']:.2f}" if task in scores else f"{task} -" for task in tasks)
        print(f"  {name:30} {'   '.join(shown)}")


if __name__ == "__main__":
    given = options()
    add_baselines(given) if given.baselines else run(given)

#!/usr/bin/env python3
"""The Hugging Face data route on this machine (`datasets` + `tokenizers`, as run_mlm.py goes), and what
measuring it takes.

  python3 -m venv V && V/bin/pip install datasets transformers        (1 GB; no torch is needed)

  peer_datasets.py join --bytes 64MB corpus.txt FILE...    one document a line, out of .txt, .jsonl, .gz, .zst
  peer_datasets.py vary --bytes 1GB corpus.txt big.txt     copies of a corpus, each with other words swapped
  peer_datasets.py tokenizer --vocab-size 32000 corpus.txt tokenizer.json
  peer_datasets.py run --tokenizer tokenizer.json --processes 2 --length 128 --folder OUT corpus.txt
  peer_datasets.py measure --name ours --folder OUT --suffix .safetensors --json results.jsonl -- COMMAND...
  peer_datasets.py table results.jsonl corpus.txt

`run` does what run_mlm.py of transformers 5 does before training: load_dataset("text" or "json"),
map(tokenize, batched, num_proc, remove_columns), map(group_texts, batched, num_proc), with the functions of
that script. The cache files of the second map are what training reads; `save_to_disk` comes on top and is
timed on its own.

`measure` samples the proportional set size (PSS, /proc/PID/smaps_rollup) of a command and all its descendants
ten times a second: pages that forked processes share count once, mapped files count as far as they are in
memory. Processor time is that of all of them too; on a machine that does other work it says more than the
clock.
"""

import argparse
import gzip
import itertools
import json
import os
import pathlib
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def size(text):
    number, unit = re.fullmatch(r"([0-9.]+)\s*([A-Za-z]*)", text).groups()
    return int(float(number) * UNITS[unit])


# --- corpora ---


def documents(path):
    """The documents of a file, without line ends in them: JSON objects, paragraphs of text."""
    if path.endswith(".zst"):
        # Python before 3.14 has no zstd of its own; the program is everywhere, and pyarrow comes with
        # `datasets`.
        import pyarrow

        raw = pyarrow.CompressedInputStream(pyarrow.OSFile(path), "zstd").read()
    else:
        raw = (gzip.open if path.endswith(".gz") else open)(path, "rb").read()
    text = raw.decode("utf-8-sig", errors="replace")
    if ".jsonl" in path:
        # Not splitlines(): U+2028 and its like may stand inside of JSON strings.
        rows = (json.loads(line) for line in text.split("\n") if line.strip())
        texts = (
            row.get("text") or " ".join(value for value in row.values() if isinstance(value, str))
            for row in rows
        )
    else:
        texts = re.split(r"\n\s*\n", text.replace("\r\n", "\n"))
    for text in texts:
        line = " ".join(text.split())
        if line:
            yield line


def join(arguments):
    """Concatenates the files until the size is reached; short of it, starts again with words swapped, as
    `vary` does."""
    found = [line for path in arguments.files for line in documents(path)]
    write(arguments.output, itertools.chain(found, varied(found)), arguments.bytes)


def vary(arguments):
    with open(arguments.input, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    write(arguments.output, itertools.chain(lines, varied(lines)), arguments.bytes)


def varied(lines, share=0.2, fresh=0.1):
    """Endless copies of `lines`; each has `share` of its words replaced by words drawn from all of them, so
    that their frequencies stay, and in `fresh` of these two letters change places, so that new words go on
    turning up as they do in real text. Of five words in a row a third stays as it was: no near duplicates,
    and no cache of whole lines helps.
    """
    pool = [word for line in lines[:: max(1, len(lines) // 20000)] for word in line.split(" ")]
    for copy in itertools.count(1):
        draw = random.Random(copy)
        for line in lines:
            words = line.split(" ")
            expected = len(words) * share
            for _ in range(int(expected) + (draw.random() < expected % 1)):
                word = pool[int(draw.random() * len(pool))]
                if len(word) > 3 and draw.random() < fresh:
                    at = int(draw.random() * (len(word) - 1))
                    word = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
                words[int(draw.random() * len(words))] = word
            yield " ".join(words)


def write(path, lines, limit):
    written = 0
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for line in lines:
            written += len(line.encode()) + 1
            if written > limit:
                break
            file.write(line + "\n")


def train_tokenizer(arguments):
    """A byte-level BPE with RoBERTa's special tokens, which ours and theirs both load."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=arguments.vocab_size,
        special_tokens=special,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train([arguments.input], trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    tokenizer.save(arguments.output)


# --- the peer ---


def run(arguments):
    import datasets
    import transformers

    datasets.disable_progress_bars()
    folder = pathlib.Path(arguments.folder)
    names = dict(bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>", mask_token="<mask>")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=arguments.tokenizer, model_max_length=10**9, **names
    )
    kind = "json" if ".json" in arguments.files[0] else "text"
    clock, seconds = time.perf_counter(), {}

    def lap(stage):
        nonlocal clock
        now = time.perf_counter()
        seconds[stage], clock = now - clock, now

    def tokenize(examples):
        return tokenizer(examples["text"], return_special_tokens_mask=True)

    def group_texts(examples):
        joined = {k: list(itertools.chain(*examples[k])) for k in examples}
        total = len(joined[next(iter(examples))])
        total = (total // arguments.length) * arguments.length
        return {
            k: [t[i : i + arguments.length] for i in range(0, total, arguments.length)]
            for k, t in joined.items()
        }

    raw = datasets.load_dataset(
        kind, data_files=arguments.files, split="train", cache_dir=str(folder / "cache")
    )
    lap("load")
    tokenized = raw.map(tokenize, batched=True, num_proc=arguments.processes, remove_columns=raw.column_names)
    lap("tokenize")
    grouped = tokenized.map(group_texts, batched=True, num_proc=arguments.processes)
    lap("group")
    ready = sum(os.path.getsize(file["filename"]) for file in grouped.cache_files)
    grouped.save_to_disk(str(folder / "saved"))
    lap("save")
    written = sum(path.stat().st_size for path in folder.rglob("*.arrow"))
    print(
        json.dumps(
            dict(
                ready_seconds=sum(seconds[stage] for stage in ("load", "tokenize", "group")),
                stage_seconds=seconds,
                ready_bytes=ready,
                disk_bytes=written,
                rows=len(grouped),
                tokens=len(grouped) * arguments.length,
                versions=dict(datasets=datasets.__version__, transformers=transformers.__version__),
            )
        )
    )


# --- measuring ---


def family(root):
    """The process `root`, its descendants, and whoever is left in its session."""
    parents, found = {}, {root}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"/proc/{entry.name}/stat") as file:
                    fields = file.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            if int(fields[3]) == root:
                found.add(int(entry.name))
    grew = True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grew = bool(more)
    return found


def memory_bytes(pids):
    """PSS of the processes together, and its part that belongs to no file."""
    total = anonymous = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                rows = dict(line.split(":", 1) for line in file.read().splitlines()[1:])
        except OSError:
            continue
        total += int(rows["Pss"].split()[0]) << 10
        anonymous += int(rows["Pss_Anon"].split()[0]) << 10
    return total, anonymous


def measure(arguments):
    started = time.perf_counter()
    # A file: a pipe that nobody reads fills up.
    stdout = tempfile.TemporaryFile("w+")
    process = subprocess.Popen(arguments.command, stdout=stdout, start_new_session=True)
    peak = peak_anonymous = 0
    while process.poll() is None:
        total, anonymous = memory_bytes(family(process.pid))
        peak, peak_anonymous = max(peak, total), max(peak_anonymous, anonymous)
        time.sleep(0.1)
    wall = time.perf_counter() - started
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    stdout.seek(0)
    output = stdout.read()
    if process.returncode != 0:
        sys.exit(f"`{' '.join(arguments.command)}` ended with {process.returncode}:\n{output}")
    files = pathlib.Path(arguments.folder).rglob(f"*{arguments.suffix}")
    result = dict(
        name=arguments.name, wall_seconds=wall, peak_bytes=peak, peak_anonymous_bytes=peak_anonymous
    )
    result["cpu_seconds"] = used.ru_utime + used.ru_stime
    result["ready_seconds"], result["ready_bytes"] = wall, sum(path.stat().st_size for path in files)
    result["disk_bytes"] = sum(
        path.stat().st_size for path in pathlib.Path(arguments.folder).rglob("*") if path.is_file()
    )
    last = output.strip().splitlines()[-1:] or [""]
    if last[0].startswith("{"):
        result |= json.loads(last[0])
    with open(arguments.json, "a") as file:
        file.write(json.dumps(result) + "\n")
    print(json.dumps(result))


def table(arguments):
    """Medians and, in brackets, least and greatest of the rounds; the ratio is the second by the first."""
    with open(arguments.json) as file:
        results = [json.loads(line) for line in file]
    raw = sum(os.path.getsize(path) for path in arguments.files)
    rows = [
        ("raw text to training-ready, s", "ready_seconds", 1, 1),
        ("whole program, s", "wall_seconds", 1, 1),
        ("processor time of it, s", "cpu_seconds", 1, 1),
        ("peak memory (PSS), MiB", "peak_bytes", 2**20, 0),
        ("  of it not file pages, MiB", "peak_anonymous_bytes", 2**20, 0),
        ("training-ready files, MB", "ready_bytes", 10**6, 1),
        ("  by raw bytes", "ready_bytes", raw, 2),
        ("left on disk, MB", "disk_bytes", 10**6, 1),
    ]
    names = list(dict.fromkeys(result["name"] for result in results))
    rounds = sum(result["name"] == names[0] for result in results)
    print(f"{raw / 1e6:.1f} MB of raw text, {rounds} rounds, one after the other in turn")
    print(f"{'':32}" + "".join(f"{name:>24}" for name in names) + f"{'ratio':>8}")
    for label, key, unit, digits in rows:
        cells, medians = "", []
        for name in names:
            values = [result[key] / unit for result in results if result["name"] == name]
            medians.append(statistics.median(values))
            cells += f"{f'{medians[-1]:.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})':>24}"
        ratio = f"{medians[-1] / medians[0]:>7.1f}x" if len(names) == 2 and medians[0] else ""
        print(f"{label:32}{cells}{ratio}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)

    def command(name, function, *positional):
        added = commands.add_parser(name)
        added.set_defaults(function=function)
        for argument in positional:
            added.add_argument(argument, **(dict(nargs="+") if argument in ("files", "command") else {}))
        return added

    command("join", join, "output", "files").add_argument("--bytes", type=size, required=True)
    command("vary", vary, "input", "output").add_argument("--bytes", type=size, required=True)
    command("tokenizer", train_tokenizer, "input", "output").add_argument(
        "--vocab-size", type=int, default=32000
    )
    peer = command("run", run, "files")
    for flag, kind in (("--tokenizer", str), ("--folder", str), ("--processes", int), ("--length", int)):
        peer.add_argument(flag, type=kind, required=True)
    measured = command("measure", measure, "command")
    for flag in ("--name", "--folder", "--suffix", "--json"):
        measured.add_argument(flag, required=True)
    command("table", table, "json", "files")
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()

"""Check that transformers and mlmtrain cut text into the same tokens with a tokenizer folder.

    python scripts/check_tokenizer.py runs/quickstart/data/tokenizer --input corpus.txt --limit 10000

`AutoTokenizer` loads the folder, has the special tokens that its files name, puts them around a text and a
pair as the family does, and gives the ids of `mlmtrain tokenizer encode` for each line of the input. The
first difference ends the check with exit code 1. Needs transformers; `--program` names the built mlmtrain.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import transformers

ROLES = ("bos_token", "eos_token", "cls_token", "sep_token", "pad_token", "unk_token", "mask_token")


class Mismatch(Exception):
    """What differs."""


def check_special_tokens(tokenizer, folder):
    """The roles of tokenizer_config.json are those of the tokenizer, and each has an id of its own."""
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    for role in ROLES:
        wanted = config.get(role)
        wanted = wanted["content"] if isinstance(wanted, dict) else wanted
        if wanted is None:
            continue
        if str(getattr(tokenizer, role)) != wanted:
            raise Mismatch(f"{role} is {getattr(tokenizer, role)!r}, tokenizer_config.json has {wanted!r}")
        if tokenizer.convert_ids_to_tokens(tokenizer.convert_tokens_to_ids(wanted)) != wanted:
            raise Mismatch(f"{role} {wanted!r} is not in the vocabulary")


def check_frame(tokenizer):
    """One text is `cls a sep`; a pair is `cls a sep b sep` (BERT) or `cls a sep sep b sep` (RoBERTa)."""
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    first, second = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("one", "two"))
    single, pair = tokenizer("one")["input_ids"], tokenizer("one", "two")["input_ids"]
    if single != [cls, *first, sep]:
        raise Mismatch(f"one text becomes {single}")
    if pair not in ([cls, *first, sep, *second, sep], [cls, *first, sep, sep, *second, sep]):
        raise Mismatch(f"a pair becomes {pair}")


def our_ids(program, folder, lines):
    """The ids of each line from mlmtrain."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8", newline="") as file:
        file.write("".join(line + "\n" for line in lines))
        file.flush()
        command = [program, "tokenizer", "encode", "--tokenizer", str(folder), "--input", file.name]
        done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        raise Mismatch(
            f"mlmtrain ended with {done.returncode}: {done.stderr.decode(errors='replace').strip()}"
        )
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def check_ids(tokenizer, program, folder, lines):
    """How many tokens were compared, and how many texts come back from their ids unchanged."""
    ours = our_ids(program, folder, lines)
    if len(ours) != len(lines):
        raise Mismatch(f"{len(lines)} lines went in, {len(ours)} came out")
    theirs = tokenizer(lines, add_special_tokens=False)["input_ids"]
    for number, (line, a, b) in enumerate(zip(lines, ours, theirs), start=1):
        if a != b:
            raise Mismatch(f"line {number} {line[:80]!r}: mlmtrain {a[:20]}, transformers {b[:20]}")
    same = sum(
        tokenizer.decode(ids, clean_up_tokenization_spaces=False) == line for line, ids in zip(lines, theirs)
    )
    return sum(map(len, ours)), same


def read_lines(paths, limit):
    """The first lines of each file, as many from each."""
    lines = []
    for path in paths:
        with path.open(encoding="utf-8", newline="\n") as file:
            lines += [line.rstrip("\r\n") for line, _ in zip(file, range(limit // len(paths)))]
    return lines


def check(arguments):
    """A sentence that says what was compared, or Mismatch."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.folder)
    check_special_tokens(tokenizer, arguments.folder)
    check_frame(tokenizer)
    # A special token that a line spells out is text for us and the token for transformers: such lines tell
    # nothing.
    special = tokenizer.all_special_tokens
    lines = [
        line
        for line in read_lines(arguments.input, arguments.limit)
        if not any(token in line for token in special)
    ]
    if not lines:
        raise Mismatch("the input has no lines")
    tokens, same = check_ids(tokenizer, arguments.program, arguments.folder, lines)
    name = type(tokenizer).__name__
    return (
        f"{name}, {len(tokenizer)} entries: {len(lines)} lines, {tokens} tokens, the same ids; "
        f"{same} lines come back unchanged"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", type=pathlib.Path, help="folder with tokenizer.json and tokenizer_config.json"
    )
    parser.add_argument("--input", type=pathlib.Path, nargs="+", required=True, help="texts, one a line")
    parser.add_argument(
        "--limit",
        type=int,
        default=10_000,
        help="most lines to compare, evenly from the files (default 10000)",
    )
    parser.add_argument(
        "--program",
        default="target/release/mlmtrain",
        help="the built mlmtrain (default target/release/mlmtrain)",
    )
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    try:
        print(f"ok: {check(arguments)}")
    except Mismatch as error:
        print(f"mismatch: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""What scripts/compare_pytorch.sh measures with, and its table.

  compare_pytorch.py measure --results FILE --round N --name NAME --device D --case CASE --type T -- COMMAND
  compare_pytorch.py table FILE
  compare_pytorch.py products --rounds N --types T,.. --threads N -- BENCH...

`measure` runs a command whose last line of output is a JSON object with tokens_per_second and a peak of
memory, and adds it to FILE; a command that fails is added with its reason. `table` needs nothing but Python.
`products` runs benches/ops (BENCH) and the products of peer_pytorch.py in turn, by the Python that it runs
under.
"""

import argparse, json, os, pathlib, re, statistics, subprocess, sys

OURS = "mlmtrain"
# What a column of theirs is compared under: the best that PyTorch does without and with its compiler.
BEST = ("best", "compiled")


def reason(process):
    """Why a command brought no figures: in the output of a failed Python the last line says it."""
    lines = [line.strip() for line in process.stderr.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith("error:") or "Error" in line.split(":")[0]]
    return (named or lines or [f"exit code {process.returncode}"])[-1][:200]


def measure(arguments):
    process = subprocess.run(arguments.command, capture_output=True, text=True)
    row = {name: getattr(arguments, name) for name in ("round", "name", "device", "case", "type")}
    try:
        measured = json.loads(process.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        measured = {}
    row["tokens_per_second"] = measured.get("tokens_per_second")
    row["peak_bytes"] = measured.get("peak_memory_bytes") or measured.get("peak_rss_bytes")
    if row["tokens_per_second"] is None:
        row["problem"] = measured.get("problem") or reason(process)
    speed = f"{row['tokens_per_second']:,.0f} tokens/s" if row["tokens_per_second"] else row["problem"]
    print(
        f"round {row['round']}: {row['device']} {row['case']} {row['type']} {row['name']}: {speed}",
        file=sys.stderr,
    )
    with open(arguments.results, "a") as file:
        file.write(json.dumps(row) + "\n")


def spread(values, form):
    """The median and, in brackets, the least and the greatest."""
    return f"{form(statistics.median(values))} ({form(min(values))}-{form(max(values))})"


def by_round(results, name):
    return {
        row["round"]: row["tokens_per_second"]
        for row in results
        if row["name"] == name and row["tokens_per_second"]
    }


def ratios(ours, theirs):
    """Ours by theirs in each round that has both; of several columns of theirs the fastest of the round
    counts."""
    pairs = []
    for number, value in ours.items():
        others = [column[number] for column in theirs if number in column]
        if others:
            pairs.append(value / max(others))
    return spread(pairs, lambda ratio: f"{ratio:.2f}x") if pairs else "-"


def table(arguments):
    with open(arguments.results) as file:
        results = [json.loads(line) for line in file]
    names = list(dict.fromkeys(row["name"] for row in results))
    rounds = 1 + max((row["round"] for row in results), default=-1)
    print(
        f"tokens/s and ratios: median (least-greatest) of {rounds} rounds, one after the other in turn; "
        "memory: greatest, MiB"
    )
    header = (
        [""]
        + names
        + [f"{OURS} / stock", f"{OURS} / best of {', '.join(BEST)}", "memory: " + " / ".join(names)]
    )
    lines, notes = [header], []
    for key in dict.fromkeys((row["device"], row["case"], row["type"]) for row in results):
        of_key = [row for row in results if (row["device"], row["case"], row["type"]) == key]
        columns = {name: by_round(of_key, name) for name in names}
        line, memory = [" ".join(key)], []
        for name in names:
            values = list(columns[name].values())
            line.append(spread(values, lambda value: f"{value:,.0f}") if values else "-")
            peaks = [row["peak_bytes"] for row in of_key if row["name"] == name and row["peak_bytes"]]
            memory.append(f"{max(peaks) / 2**20:,.0f}" if peaks else "-")
            problems = dict.fromkeys(
                row["problem"] for row in of_key if row["name"] == name and row.get("problem")
            )
            notes += [f"{' '.join(key)} {name}: {problem}" for problem in problems]
        line.append(ratios(columns.get(OURS, {}), [columns.get("stock", {})]))
        line.append(ratios(columns.get(OURS, {}), [columns[name] for name in BEST if name in columns]))
        lines.append(line + [" / ".join(memory)])
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        print(
            "  ".join(
                [line[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(line[1:], widths[1:])]
            )
        )
    for note in notes:
        print(f"not measured: {note}")


def products(arguments):
    """Linear layers of base: ours adds the weight gradient to f32, PyTorch writes it in the type of the
    operands."""
    peer = pathlib.Path(__file__).with_name("peer_pytorch.py")
    environment = os.environ | {"RAYON_NUM_THREADS": str(arguments.threads)}
    line = re.compile(r"(?:base +(\w+) linear) +(\w+) +(\d+x\d+x\d+) +([\d.]+) ms")
    took = {}
    for _ in range(arguments.rounds):
        for type in arguments.types.split(","):
            theirs = [
                sys.executable,
                str(peer),
                "--products",
                "--threads",
                str(arguments.threads),
                f"base,{type}",
            ]
            ours = arguments.command + ["base", f" {type.replace('fp', 'f')} ", "linear "]
            for name, command in ((OURS, ours), ("PyTorch", theirs)):
                output = subprocess.run(
                    command, stdout=subprocess.PIPE, text=True, env=environment, check=True
                ).stdout
                for dtype, pass_name, size, milliseconds in line.findall(output):
                    took.setdefault((dtype, pass_name, size), {}).setdefault(name, []).append(
                        float(milliseconds)
                    )
    print(
        f"ms: median (least-greatest) of {arguments.rounds} rounds, in turn; "
        f"speed of {OURS} by PyTorch's: of the medians"
    )
    for key, columns in took.items():
        ours, theirs = columns.get(OURS, []), columns.get("PyTorch", [])
        if ours and theirs:
            cells = [spread(values, lambda value: f"{value:.2f}") for values in (ours, theirs)]
            print(
                f"{' '.join(key):30} {cells[0]:>26} {cells[1]:>26} "
                f"{statistics.median(theirs) / statistics.median(ours):6.2f}x"
            )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("measure")
    measuring.set_defaults(function=measure)
    for name in ("results", "name", "device", "case", "type"):
        measuring.add_argument(f"--{name}", required=True)
    measuring.add_argument("--round", type=int, required=True)
    measuring.add_argument("command", nargs="+")
    showing = commands.add_parser("table")
    showing.set_defaults(function=table)
    showing.add_argument("results")
    comparing = commands.add_parser("products")
    comparing.set_defaults(function=products)
    comparing.add_argument("--rounds", type=int, required=True)
    comparing.add_argument("--threads", type=int, required=True)
    comparing.add_argument("--types", required=True)
    comparing.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()

#!/usr/bin/env bash
# Lists what the compiler makes of the GPU kernels, from their machine code: needs nvcc and cuobjdump, and no GPU.
#
#   scripts/gpu_audit.sh [-a ARCHITECTURES] [-k PATTERN] [-o FOLDER] [OP...]
#
# Without OP all folders of src/ops with a kernel.cu. ARCHITECTURES are of `75 80 90` (all of them unless set), PATTERN
# picks kernels by name (an extended regular expression). FOLDER keeps the table as audit.tsv, and what it was made of.
# $NVCC or nvcc on the PATH, cuobjdump and nvdisasm on the PATH or beside it (scripts/cuda-toolkit.sh brings them).
#
# Columns, one line a kernel and architecture:
#   registers  of a thread
#   spilled    bytes that a thread stores for want of registers, by ptxas
#   local      loads and stores of local memory, instructions; `in turn` counts them in the loop of the next columns
#   shared     bytes of shared memory that the kernel has without asking; what a launch asks for is not seen here
#   HI, WIDE   IMAD.HI and IMAD.WIDE: a product of 32 by 32 bits wants one of the latter, not one of the former more
#   turn       instructions of the shortest way round the innermost loop with products on tensor cores that meets most
#              of them, and how many of these there are (HMMA): without masks and copies of the next stage, which a turn
#              may have besides
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
architectures="75 80 90" pattern=. folder=
while getopts a:k:o: option; do
    case $option in
        a) architectures=$OPTARG ;;
        k) pattern=$OPTARG ;;
        o) folder=$OPTARG ;;
        *) sed -n '2,10p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
nvcc=${NVCC:-nvcc}
PATH=$PATH:$(dirname "$(command -v "$nvcc")")
command -v cuobjdump > /dev/null || { echo "cuobjdump is not there: scripts/cuda-toolkit.sh brings it" >&2; exit 2; }
room=${folder:-$(mktemp -d)}
[ -n "$folder" ] || trap 'rm -rf "$room"' EXIT
mkdir -p "$room"
room=$(cd "$room" && pwd)
cd "$root"
if [ $# -eq 0 ]; then
    mapfile -t all < <(for kernel in src/ops/*/kernel.cu; do basename "$(dirname "$kernel")"; done)
    set -- "${all[@]}"
fi

compile() { # op, architecture: flags as in src/ops/build.rs
    local at=$room/$1-$2
    "$nvcc" -fatbin -std=c++17 -O3 -Isrc/ops/cuda/kernels -Xptxas -v -gencode "arch=compute_$2,code=sm_$2" \
        "src/ops/$1/kernel.cu" -o "$at.fatbin" > "$at.ptxas" 2>&1 || { cat "$at.ptxas" >&2; return 1; }
    cuobjdump -sass "$at.fatbin" > "$at.sass"
}
export -f compile
export nvcc room
# shellcheck disable=SC2016  # the parameters are those of the inner shell
for op in "$@"; do for arch in $architectures; do echo "$op $arch"; done; done |
    xargs -P "$(nproc)" -L 1 bash -c 'set -eu; compile "$0" "$1"'

python3 - "$room" "$pattern" "$architectures" "$@" <<'PY'
import collections, pathlib, re, sys

room, pattern, architectures, *ops = sys.argv[1:]

def resources(log):
    found = {}
    for part in log.split("Compiling entry function '")[1:]:
        spilled = re.search(r"(\d+) bytes spill stores", part)
        shared = re.search(r"(\d+) bytes smem", part)
        found[part.split("'")[0]] = (int(re.search(r"Used (\d+) registers", part)[1]), int(spilled[1]), int(shared[1]) if shared else 0)
    return found

def code_of(sass):
    """Kernel -> [(address, name of the instruction, target of a branch or None, it may go on behind it)]"""
    found, code = {}, None
    for line in sass.splitlines():
        if function := re.match(r"\s+Function : (\S+)", line):
            code = found[function[1]] = []
        elif (at := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", line)) and code is not None:
            words = at[2].split()
            conditional = words[0].startswith("@") and words[0] != "@PT"
            name = words[1] if words[0].startswith("@") else words[0]
            target = re.search(r"(0x[0-9a-f]+)$", at[2].strip()) if name.split(".")[0] == "BRA" else None
            # `BRA.DIV` is taken by a warp whose lanes have parted: not here.
            target = None if name.startswith("BRA.DIV") else target
            ends = name.split(".")[0] in ("BRA", "EXIT", "RET") and not conditional and not name.startswith("BRA.DIV")
            ends = ends and len(words) < 3 + words[0].startswith("@")
            code.append((int(at[1], 16), name, int(target[1], 16) if target else None, not ends))
    return found

def products(name):
    return name.startswith(("HMMA", "HGMMA"))

def turn(code):
    """(instructions, products, accesses of local memory) of the turn that the head of the script names, or none"""
    loops = [(target, at) for at, _, target, _ in code if target is not None and target < at]
    best = (0, 0, 0)
    for first, last in loops:
        body = [line for line in code if first <= line[0] <= last]
        if not any(products(name) for _, name, _, _ in body):
            continue
        inner = [l for l in loops if first <= l[0] and l[1] <= last and l != (first, last)]
        if any(products(name) for a, b in inner for at, name, _, _ in body if a <= at <= b):
            continue
        ways = {first: (0, 0)}  # address -> (products, minus instructions) of the best way there
        for i, (at, name, target, goes_on) in enumerate(body):
            if at not in ways:
                continue
            here = (ways[at][0] + products(name), ways[at][1] - 1)
            after = ([body[i + 1][0]] if goes_on and i + 1 < len(body) else []) + ([target] if target and at < target <= last else [])
            for to in after:
                ways[to] = max(ways.get(to, here), here)
            if at == last:
                local = sum(name.startswith(("LDL", "STL")) for _, name, _, _ in body)
                best = max(best, (here[0], -here[1], local))
    return best

table = []
for op in ops:
    for arch in architectures.split():
        at = pathlib.Path(room, f"{op}-{arch}")
        known, codes = resources(at.with_suffix(".ptxas").read_text()), code_of(at.with_suffix(".sass").read_text())
        assert known.keys() == codes.keys(), (op, arch, known.keys() ^ codes.keys())
        for kernel in sorted(known):
            if not re.search(pattern, kernel):
                continue
            count = collections.Counter(name.split(".")[0] if name.startswith(("LDL", "STL")) else name for _, name, _, _ in codes[kernel])
            of = lambda start: sum(n for name, n in count.items() if name.startswith(start))
            hmma, length, local = turn(codes[kernel])
            registers, spilled, shared = known[kernel]
            table.append((kernel, "sm_" + arch, registers, spilled, f"{count['LDL']}+{count['STL']}", local, shared,
                          of("IMAD.HI"), of("IMAD.WIDE"), length or "", hmma or ""))
heads = ("kernel", "code", "registers", "spilled", "local", "in turn", "shared", "HI", "WIDE", "turn", "HMMA")
rows = [heads, *[tuple(map(str, row)) for row in table]]
widths = [max(map(len, column)) for column in zip(*rows)]
for row in rows:
    print("  ".join(value.ljust(width) if i < 2 else value.rjust(width) for i, (value, width) in enumerate(zip(row, widths))))
pathlib.Path(room, "audit.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
PY

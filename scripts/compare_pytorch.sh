#!/usr/bin/env bash
# Whole training steps of mlmtrain against PyTorch (scripts/peer_pytorch.py) at the same shapes, threads and
# cores, one after the other in turn: mlmtrain, stock (transformers as it is), best (head on masked rows
# only), compiled (best under torch.compile), and again. Prints tokens/s and peak memory with their least and
# greatest, and the ratios of each round.
#
#   scripts/compare_pytorch.sh [-r 3] [-n THREADS] [-s 5] [-t fp32,bf16] [-p stock,best,compiled] [-w FOLDER]
#   [-l] [CASE...]
#
#   CASE  size,rows,length: tiny,32,128 small,16,128 base,8,128 where none is given; also large, and FAMILY-small and
#         FAMILY-base of electra, distilbert, modernbert, deberta-v3, albert, mpnet, neobert       -r  rounds
#   -n  threads of each (all cores)      -s  timed steps a round        -t  fp32, bf16, fp16
#   -p  which of PyTorch's columns       -w  where to work; results.jsonl stays there
#   -l  no steps, but the products of the linear layers of base alone, on the CPU (benches/ops; no cases)
#
# $VENV is a Python with `torch` and `transformers`; one is made where it is not given (6 GB). $MLMTRAIN is
# the program; target/release/mlmtrain is built where it is not given. Where PyTorch finds CUDA, the same is
# done there ($DEVICES: cpu,cuda says where). What cannot run (no C++ compiler for torch.compile, a device or
# type that is not built) is said in the table.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
rounds=3 threads=$(nproc) steps=5 types=fp32,bf16 peers=stock,best,compiled work='' products=''
while getopts r:n:s:t:p:w:l option; do
    case $option in
        r) rounds=$OPTARG ;; n) threads=$OPTARG ;; s) steps=$OPTARG ;; t) types=$OPTARG ;; p) peers=$OPTARG ;; w) work=$OPTARG ;; l) products=1 ;;
        *) sed -n '2,17p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- tiny,32,128 small,16,128 base,8,128
work=${work:-$(mktemp -d)}
mkdir -p "$work"
if [ -z "${VENV:-}" ]; then
    VENV=$work/venv
    # An interrupted installation is made again.
    [ -e "$VENV/complete" ] || { python3 -m venv "$VENV" && "$VENV/bin/pip" install --quiet torch transformers && touch "$VENV/complete"; }
fi
if [ -n "$products" ]; then
    # Autograd and its threads have no part in it: the number of threads alone limits both.
    export OMP_NUM_THREADS="$threads"
    exec "$VENV/bin/python" "$here/compare_pytorch.py" products --rounds "$rounds" --threads "$threads" --types "$types" -- \
        cargo bench --quiet --manifest-path "$here/../Cargo.toml" --bench ops --
fi
if [ -z "${MLMTRAIN:-}" ]; then
    cargo build --release --manifest-path "$here/../Cargo.toml"
    MLMTRAIN=$here/../target/release/mlmtrain
fi
export HF_HUB_OFFLINE=1 TRANSFORMERS_NO_ADVISORY_WARNINGS=1 OMP_NUM_THREADS="$threads"
results=$work/results.jsonl
: > "$results"
devices=${DEVICES:-cpu}
[ -n "${DEVICES:-}" ] || ! "$VENV/bin/python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' || devices=cpu,cuda
# Autograd has threads of its own: without a limit PyTorch would use more cores than it was given threads.
pinned=()
[ "$threads" -lt "$(nproc)" ] && command -v taskset > /dev/null && pinned=(taskset -c "0-$((threads - 1))")

measure() { # round, name, device, case, type, command...
    "$VENV/bin/python" "$here/compare_pytorch.py" measure --results "$results" --round "$1" --name "$2" --device "$3" --case "$4" \
        --type "$5" -- "${pinned[@]}" "${@:6}"
}

for ((round = 0; round < rounds; round++)); do
    for device in ${devices//,/ }; do
        for case in "$@"; do
            IFS=, read -r size rows length <<< "$case"
            for type in ${types//,/ }; do
                ours=(--model "$size" --batch "$rows" --length "$length" --compute "${type/fp/f}" --threads "$threads"
                    --device "$device")
                measure "$round" mlmtrain "$device" "$case" "$type" "$MLMTRAIN" --quiet bench "${ours[@]}" --steps "$steps" --seconds 0 --json
                for peer in ${peers//,/ }; do
                    measure "$round" "$peer" "$device" "$case" "$type" "$VENV/bin/python" "$here/peer_pytorch.py" --device "$device" \
                        --threads "$threads" --steps "$steps" --lines "$case,$type,$peer"
                done
            done
        done
    done
done
"$VENV/bin/python" "$here/compare_pytorch.py" table "$results"

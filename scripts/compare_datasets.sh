#!/usr/bin/env bash
# `mlmtrain prepare` against the Hugging Face route (run_mlm.py's map tokenise, group_texts) on the same
# files, tokenizer, number of processes and cores, one after the other in turn. Prints seconds, peak memory
# and bytes, ours / theirs / ratio.
#
#   scripts/compare_datasets.sh -t tokenizer.json [-r 2] [-n 2] [-l 128] [-w FOLDER] FILE... -- \
#       target/release/mlmtrain prepare --config prepare.yaml
#
#   -t  tokenizer.json that both use        -r  rounds of each          -n  processes of theirs, threads of
#   ours -l  tokens of a row                     -w  where to work; everything in it but results.jsonl is
#   removed
#
# The configuration names the same files as sources; `run.output_dir`, `run.threads`, `data.max_seq_length`
# and `tokenizer.path` are set from here. $VENV is a Python with `datasets` and `transformers`; one is made
# where it is not given. Without a command behind `--` only theirs is measured. Corpora:
# `scripts/peer_datasets.py join` and `vary`.
set -euo pipefail
peer="$(dirname "$0")/peer_datasets.py"
tokenizer='' rounds=2 processes=2 length=128 work=''
while getopts t:r:n:l:w: option; do
    case $option in
        t) tokenizer=$OPTARG ;; r) rounds=$OPTARG ;; n) processes=$OPTARG ;; l) length=$OPTARG ;; w) work=$OPTARG ;;
        *) sed -n '2,13p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
files=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do files+=("$1"); shift; done
[ $# -gt 0 ] && shift
if [ -z "$tokenizer" ] || [ ${#files[@]} -eq 0 ]; then sed -n '2,13p' "$0" >&2; exit 2; fi
work=${work:-$(mktemp -d)}
mkdir -p "$work"
if [ -z "${VENV:-}" ]; then
    VENV=$work/venv
    [ -x "$VENV/bin/datasets-cli" ] || { python3 -m venv "$VENV" && "$VENV/bin/pip" install --quiet datasets transformers; }
fi
export HF_HUB_OFFLINE=1 HF_HOME="$work/home" TRANSFORMERS_NO_ADVISORY_WARNINGS=1
# With several processes of `datasets`, each with several threads of `tokenizers` they would fight for the
# cores.
export TOKENIZERS_PARALLELISM=false
results=$work/results.jsonl
: > "$results"

measure() { # name, suffix of the files that training reads, command...
    local name=$1 suffix=$2
    shift 2
    "$VENV/bin/python" "$peer" measure --name "$name" --folder "$work/out" --suffix "$suffix" --json "$results" -- "$@"
    rm -rf "$work/out"
}

for ((round = 0; round < rounds; round++)); do
    # Both find the raw files in the page cache.
    cat "${files[@]}" > /dev/null
    rm -rf "$work/out"
    if [ $# -gt 0 ]; then
        measure mlmtrain .safetensors taskset -c "0-$((processes - 1))" "$@" --quiet \
            --set "run.output_dir=$work/out" --set "run.threads=$processes" --set "data.max_seq_length=$length" \
            --set "tokenizer.path=$tokenizer"
    fi
    measure "HF datasets" .arrow taskset -c "0-$((processes - 1))" "$VENV/bin/python" "$peer" run --tokenizer "$tokenizer" \
        --processes "$processes" --length "$length" --folder "$work/out" "${files[@]}"
done
"$VENV/bin/python" "$peer" table "$results" "${files[@]}"

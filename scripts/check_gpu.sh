#!/usr/bin/env bash
# Proves the GPU side on a machine with a GPU, in one call that builds nothing: every op against its
# reference, training against the CPU's, speed against PyTorch's. Prints one short table at the end;
# everything else lies in the output folder.
#
#   scripts/check_gpu.sh pack FOLDER          on any machine, with nvcc: builds program and tests into FOLDER
#   (70 MB) scripts/check_gpu.sh run FOLDER [OUTPUT]  on the machine with the GPU, in a checkout: about eight
#   minutes
#
# run: $STEPS (200) steps of the quickstart on the CPU in f32 and on the GPU in f32, bf16 and f16; $SHAPES of
# training steps ("base,64,128 base,32,512 large,32,128 large,16,512"); PyTorch beside them where `python3`
# has `torch` and `transformers` ($PEERS: stock,best,compiled); memcheck and racecheck of the op tests named
# in $SANITIZE where compute-sanitizer is there. Ends with 1 where a line of the table says FAILED. DEVICE=cpu
# rehearses it all without a GPU, with a program of any build.
set -euo pipefail
device=${DEVICE:-cuda}
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
usage() { sed -n '2,14p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage

pack() {
    mkdir -p "$1"
    cd "$root"
    local tests
    # One command for both: a second one would build the dependencies again, with what the tests want of them
    # besides.
    tests=$(cargo build --release --features cuda --bin mlmtrain --tests --message-format=json-render-diagnostics | python3 -c '
import json, sys
built = [m for m in map(json.loads, sys.stdin) if m.get("executable") and m["target"]["kind"] == ["lib"]]
print(built[-1]["executable"])')
    cp target/release/mlmtrain "$1/mlmtrain"
    cp "$tests" "$1/tests"
    strip "$1/mlmtrain" "$1/tests"
    ls -l "$1"
}

# Each check prints a line of the table: what, and what came of it.
line() { printf '%-34s %s\n' "$1" "$2" | tee -a "$output/table"; }

ops() {
    local outcome
    outcome=$(cd "$root" && "$folder/tests" ops:: tasks::tests --test-threads 4 > "$output/ops.log" 2>&1 && echo passed || echo FAILED)
    line "ops and whole passes" "$outcome: $(grep -o '[0-9]* passed; [0-9]* failed' "$output/ops.log" || echo 'no result')"
    if grep -q 'skipped on the GPU' "$output/ops.log"; then line "ops and whole passes" "FAILED, not on a GPU: $(grep -m1 'skipped on' "$output/ops.log")"; fi
}

sanitized() { # tool
    command -v compute-sanitizer > /dev/null || { line "$1" "not run: no compute-sanitizer"; return 0; }
    local log=$output/$1.log errors
    timeout 150 compute-sanitizer --tool "$1" --target-processes all "$folder/tests" --test-threads 1 ${SANITIZE:-forward_and_backward} > "$log" 2>&1 || true
    errors=$(grep -oE 'ERROR SUMMARY: .*|RACECHECK SUMMARY: .*' "$log" | tail -1 || true)
    case $errors in
        *': 0 errors'* | *': 0 hazards'*) line "$1" "$errors" ;;
        *) line "$1" "FAILED: ${errors:-it did not end in time}" ;;
    esac
}

train() { # name, settings...
    local name=$1
    shift
    "$folder/mlmtrain" --quiet pretrain --config "$root/configs/quickstart.yaml" --set "run.output_dir=$output/$name" \
        --set "data.prepared_dir=$output/prepared" --set "training.max_steps=${STEPS:-200}" --set training.logging_steps=1 \
        --set training.eval_steps=0 --set training.save_steps=0 "$@" > "$output/$name.log" 2>&1 && return
    line "$name" "FAILED: $(grep -m1 error "$output/$name.log" || tail -1 "$output/$name.log")"
    return 1
}

curves() {
    local type compared limit
    train cpu-f32 --set run.device=cpu || return 0
    for type in f32 bf16 f16; do
        train "gpu-$type" --set "run.device=$device" --set "precision.compute=$type" || continue
        [ "$type" = f32 ] && limit=1e-3 || limit=0.02
        compared=$(python3 "$here/compare_curves.py" "$output/cpu-f32" "$output/gpu-$type" "$limit" 2>&1 | tail -1) || compared="FAILED: $compared"
        line "quickstart, GPU $type by CPU f32" "$compared"
    done
}

speed() {
    local shape size rows length
    for shape in ${SHAPES:-base,64,128 base,32,512 large,32,128 large,16,512}; do
        IFS=, read -r size rows length <<< "$shape"
        "$folder/mlmtrain" --quiet bench --device "$device" --model "$size" --batch "$rows" --length "$length" --compute bf16,f32 --steps 20 --json >> "$output/bench.jsonl" || true
    done
    if [ -s "$output/bench.jsonl" ]; then
        python3 "$here/compare_curves.py" --bench "$output/bench.jsonl" | tee -a "$output/table"
    else
        line "speed" "FAILED: no row of bench ran"
    fi
    if python3 -c 'import torch, transformers' 2> /dev/null; then
        # shellcheck disable=SC2086
        VENV=$output/peer MLMTRAIN=$folder/mlmtrain DEVICES=$device "$here/compare_pytorch.sh" -r 2 -s 10 -t bf16 -p "${PEERS:-stock,best,compiled}" \
            -w "$output/peer" ${SHAPES:-base,64,128 base,32,512 large,32,128 large,16,512} > "$output/peer.log" 2>&1 || true
        tail -8 "$output/peer.log" | tee -a "$output/table"
    else
        line "beside PyTorch" "not run: python3 has no torch or no transformers"
    fi
}

case $1 in
    pack) pack "$(mkdir -p "$2" && cd "$2" && pwd)" ;;
    run)
        folder=$(cd "$2" && pwd)
        output=${3:-$(mktemp -d)}
        mkdir -p "$output/peer/bin"
        output=$(cd "$output" && pwd)
        # Not a link: a Python of a virtual environment finds its packages by where it lies.
        printf '#!/bin/sh\nexec "%s" "$@"\n' "$(command -v python3)" > "$output/peer/bin/python"
        chmod +x "$output/peer/bin/python"
        : > "$output/table"
        line GPU "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2> /dev/null | head -1 || echo 'no nvidia-smi')"
        ops
        curves
        speed
        sanitized memcheck
        sanitized racecheck
        printf '\n--- table ---\n'
        cat "$output/table"
        ! grep -q FAILED "$output/table"
        ;;
    *) usage ;;
esac

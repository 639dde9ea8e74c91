#!/usr/bin/env bash
# Proves the GPU side on a machine with a GPU, in two calls of at most ten minutes each that build nothing and need no
# network. Each prints a short table at its end and leaves at most eight files in OUT.
#
#   scripts/check_gpu.sh pack                   on any machine, with nvcc: builds program and tests, compressed, into $PACK
#   scripts/check_gpu.sh run correctness OUT    in a checkout with that folder, on the machine with the GPU: every op
#                                               against its reference, each in a process of its own; training against the
#                                               CPU's; two processes on the GPU; memcheck and racecheck of every op
#   scripts/check_gpu.sh run speed OUT          speed beside PyTorch's, all shapes, what each kernel takes of a step
#   scripts/check_gpu.sh run all OUT            of both what a change of attention asks for first, in seven minutes: its
#                                               ops, memcheck, its kernels, the norms' and the earlier ones in turn, kernel
#                                               times, a short curve, and PyTorch as far as time allows
#
# $PACK is target/gpu unless set. Whatever fails, runs out of time or is not there (`python3` with `torch` and
# `transformers`, compute-sanitizer, CUPTI) is a line that says FAILED, and the exit code is 1. DEVICE=cpu rehearses it all
# without a GPU, at small shapes and with a program of any build. $LIMIT (570; `all`: 420) seconds are all that a call takes.
set -euo pipefail
device=${DEVICE:-cuda}
root=$(cd "$(dirname "$0")/.." && pwd)
here=$root/scripts
pack=${PACK:-$root/target/gpu}
limit=${LIMIT:-570}
[ "${2:-}" != all ] || limit=${LIMIT:-420}
# A machine that is lent takes 64 MiB with the checkout.
most_bytes=$((40 << 20))
# What the kernels of attention and their neighbours are in, and those that read gradients.
touched="attention biased_attention disentangled_attention dropout residual_norm layer_norm linear norm adamw muon"
usage() { sed -n '2,16p' "$0" >&2; exit 2; }

if [ "$device" = cpu ]; then
    shapes="tiny,8,64 small,4,64" first="tiny,8,64" steps=5 features=()
    ways=$first half=f32
else
    features=(--features nccl)
    shapes="base,64,128 base,32,512 large,32,128 large,16,512 electra-base,32,128 deberta-v3-base,32,128"
    first="base,64,128 large,16,512" steps=20
    ways="$first large,32,512" half=bf16
fi

build() {
    mkdir -p "$pack"
    cd "$root"
    local tests bytes
    # One command for all: a second one would build the dependencies again, with what the tests want of them besides.
    tests=$(cargo build --release --locked "${features[@]}" --bin mlmtrain --tests \
        --message-format=json-render-diagnostics | python3 -c '
import json, sys
for m in map(json.loads, sys.stdin):
    if m.get("executable") and m["target"]["kind"] == ["lib"]:
        print({"ops": "ops-tests", "mlmtrain": "tests"}.get(m["target"]["name"], ""), m["executable"])')
    strip -o "$pack/mlmtrain" target/release/mlmtrain
    local name path
    while read -r name path; do
        [ -z "$path" ] || strip -o "$pack/$name" "$path"
    done <<< "$tests"
    python3 - "$pack" <<'PY'
import lzma, pathlib, sys
for name in ["mlmtrain", "tests", "ops-tests"]:
    path = pathlib.Path(sys.argv[1], name)
    path.with_suffix(".xz").write_bytes(lzma.compress(path.read_bytes(), preset=6))
    path.unlink()
PY
    [ "$device" = cpu ] || build_kernel_times
    bytes=$(cat "$pack"/* | wc -c)
    ls -l "$pack"
    echo "$bytes bytes in all, of $most_bytes"
    [ "$bytes" -le "$most_bytes" ]
}

# The headers of CUPTI come with its wheel alone.
build_kernel_times() {
    local room
    room=$(mktemp -d)
    python3 -m pip install -q --no-deps --target "$room" nvidia-cuda-cupti==13.0.85
    g++ -std=c++17 -O2 -fPIC -shared -I"$room/nvidia/cu13/include" -I"$CUDA_HOME/include" "$here/kernel_times.cpp" \
        -o "$pack/kernel_times.so" -ldl
    rm -rf "$room"
}

unpack() {
    python3 - "$pack" "$work" <<'PY'
import lzma, pathlib, sys
for name in ["mlmtrain", "tests", "ops-tests"]:
    target = pathlib.Path(sys.argv[2], name)
    target.write_bytes(lzma.decompress(pathlib.Path(sys.argv[1], name + ".xz").read_bytes()))
    target.chmod(0o755)
PY
}

# Each check prints a line of the table: what, and what came of it.
line() { printf '%-40s %s\n' "$1" "$2" | tee -a "$output/table"; }

# The seconds that a check may take, out of those that it asks for.
left() { local rest=$((limit - SECONDS)); echo $((rest < 1 ? 1 : rest < $1 ? rest : $1)); }

# Why a program failed: out of time, its error, or its last word.
why() { # exit code, seconds, log
    if [ "$1" -eq 124 ]; then
        echo "FAILED: it did not end in $2 seconds"
    else
        echo "FAILED: $(grep -m1 error "$3" || tail -1 "$3" || echo 'no word')"
    fi
}

# The folders of the ops with kernels, one a line.
kernel_names() {
    local kernel
    for kernel in "$root"/src/ops/*/kernel.cu; do basename "$(dirname "$kernel")"; done
}

# The folders of the ops as the tests are named, one a line.
op_names() { "$work/ops-tests" --list 2> /dev/null | sed -n 's/^\([a-z_0-9]*\)::.*: test$/\1/p' | sort -u; }

# Whether tests say that they ran without the GPU that they were to run on.
not_on_gpu() { [ "$device" != cpu ] && grep -q 'skipped on the GPU' "$1"; }

one_op() { # op, seconds: one line for the log, one word for the table
    local log=$work/op-$1.log code=0
    timeout "$2" "$work/ops-tests" "$1::" --test-threads 2 --skip two_billion --skip lower_cap > "$log" 2>&1 ||
        code=$?
    if [ "$code" -eq 124 ]; then
        echo "FAILED $1: it did not end in $2 seconds"
    elif [ "$code" -ne 0 ]; then
        echo "FAILED $1: $(grep -m3 -E 'panicked|FAILED|error' "$log" | tr '\n' ' ')"
    elif not_on_gpu "$log"; then
        echo "FAILED $1: $(grep -m1 'skipped on the GPU' "$log")"
    else
        echo "passed $1: $(grep -oE '[0-9]+ passed' "$log")"
    fi
}

some_ops() { # seconds: the ops on stdin
    local outcome seconds
    seconds=$(left "$1")
    export -f one_op not_on_gpu
    cat > "$work/wanted"
    xargs -P "$parallel" -I{} bash -c "one_op {} $seconds" < "$work/wanted" > "$work/ops.txt"
    while read -r outcome; do case $outcome in FAILED*) line "op" "$outcome" ;; esac; done < "$work/ops.txt"
    line "ops" "$(grep -c '^passed' "$work/ops.txt") of $(wc -l < "$work/wanted") passed"
}

ops() {
    local outcome
    op_names | some_ops 120
    for outcome in tasks::tests models:: layers:: distributed::nccl; do
        if timeout "$(left 90)" "$work/tests" "$outcome" --test-threads 4 > "$work/passes.log" 2>&1 && ! not_on_gpu "$work/passes.log"; then
            line "whole passes, $outcome" "$(grep -oE '[0-9]+ passed' "$work/passes.log" | tail -1)"
        else
            line "whole passes, $outcome" "FAILED: $(grep -m2 -E 'panicked|skipped on|failed' "$work/passes.log" | tr '\n' ' ')"
        fi
    done
    tail -n 200 "$work"/op-*.log "$work/passes.log" > "$output/ops.log"
}

# Tests that copy whole storages of gigabytes: last, and one at a time.
far_rows() {
    local code=0 seconds log=$output/far_rows.log
    seconds=$(left 60)
    timeout "$seconds" "$work/ops-tests" two_billion --test-threads 1 > "$log" 2>&1 || code=$?
    # shellcheck disable=SC2015  # a log without `passed` is a failure, too
    line "rows behind two billion values" \
        "$([ "$code" -eq 0 ] && grep -oE '[0-9]+ passed' "$log" || why "$code" "$seconds" "$log")"
}

train() { # name, settings...
    local name=$1 code=0 seconds
    shift
    seconds=$(left 150)
    timeout "$seconds" "$work/mlmtrain" --quiet pretrain --config "$root/configs/quickstart.yaml" --set "run.output_dir=$work/$name" \
        --set "data.prepared_dir=$work/prepared" --set tokenizer.vocab_size=4093 --set tokenizer.pad_vocab_to_multiple_of=1 \
        --set model.roberta.hidden_dropout_prob=0.1 --set model.roberta.attention_probs_dropout_prob=0.1 \
        --set "training.max_steps=${STEPS:-200}" --set training.logging_steps=1 --set training.eval_steps=0 \
        --set training.save_steps=0 "$@" > "$work/$name.log" 2>&1 || code=$?
    [ "$code" -ne 0 ] || return 0
    line "$name" "$(why "$code" "$seconds" "$work/$name.log")"
    return 1
}

# Dropout 0.1 and an odd vocabulary: what a small test does not see.
curves() {
    local type compared most
    train cpu-f32 --set run.device=cpu --set precision.compute=f32 || return 0
    for type in ${1:-f32 bf16 f16}; do
        train "gpu-$type" --set "run.device=$device" --set "precision.compute=$type" || continue
        # In bf16 single steps of the CPU's own are 0.03 from its f32.
        [ "$type" = f32 ] && most=1e-3 || most=0.05
        compared=$(python3 "$here/compare_curves.py" "$work/cpu-f32" "$work/gpu-$type" "$most" 2>&1 | tail -1) || compared="FAILED: $compared"
        line "quickstart, $device $type by CPU f32" "$compared"
    done
    cat "$work"/*/metrics.jsonl > "$output/curves.jsonl" || true
}

# Two processes on the one GPU, which NCCL 2.30 and later allows where it is told to, beside one.
two() {
    [ "$device" != cpu ] || { line "two processes, NCCL" "FAILED: not run, there is no GPU"; return 0; }
    local rank compared sets=(--set run.device=cuda --set precision.compute=f32
        --set training.per_device_train_batch_size=16 --set training.gradient_accumulation_steps=2)
    STEPS=30 train one-of-one "${sets[@]}" || return 0
    for rank in 0 1; do
        STEPS=30 RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0 NCCL_MAX_CTAS=4 \
            train two "${sets[@]}" --log-file "$output/two-$rank.log" &
    done
    wait
    compared=$(python3 "$here/compare_curves.py" "$work/one-of-one" "$work/two" 1e-4 2>&1 | tail -1) ||
        compared="FAILED: $compared"
    line "two processes, NCCL, by one" "$compared"
}

sanitized_op() { # op, tool, seconds
    local log=$work/$2-$1.log summary
    timeout "$3" compute-sanitizer --tool "$2" --target-processes all "$work/ops-tests" "$1::" --test-threads 1 \
        --skip two_billion > "$log" 2>&1 || true
    summary=$(grep -oE '(ERROR|RACECHECK) SUMMARY: .*' "$log" | tail -1 || true)
    case $summary in
        *': 0 errors'* | *': 0 hazards'*) echo "clean $1" ;;
        *) echo "FAILED $1: ${summary:-it did not end in $3 seconds}" ;;
    esac
}

sanitized() { # tool: the ops on stdin
    cat > "$work/wanted"
    command -v compute-sanitizer > /dev/null || { line "$1" "FAILED: not run, there is no compute-sanitizer"; return 0; }
    export -f sanitized_op
    local outcome
    xargs -P "$parallel" -I{} bash -c "sanitized_op {} $1 $(left "${SANITIZE_SECONDS:-180}")" \
        < "$work/wanted" > "$work/$1.txt"
    while read -r outcome; do case $outcome in FAILED*) line "$1" "$outcome" ;; esac; done < "$work/$1.txt"
    line "$1" "$(grep -c '^clean' "$work/$1.txt") of $(wc -l < "$work/wanted") ops clean"
    tail -n 60 "$work/$1"-*.log > "$output/$1.log"
}

peers() {
    if ! python3 -c 'import torch, transformers' 2> /dev/null; then
        line "beside PyTorch" "FAILED: not run, python3 has no torch or no transformers"
        return 0
    fi
    mkdir -p "$work/peer/bin"
    # Not a link: a Python of a virtual environment finds its packages by where it lies.
    printf '#!/bin/sh\nexec "%s" "$@"\n' "$(command -v python3)" > "$work/peer/bin/python"
    chmod +x "$work/peer/bin/python"
    local done=ok types=bf16
    [ "$device" = cpu ] && types=fp32
    # shellcheck disable=SC2086
    VENV=$work/peer MLMTRAIN=$work/mlmtrain DEVICES=$device timeout "$(left 330)" "$here/compare_pytorch.sh" -r 2 -s 10 -t "$types" \
        -p "${PEERS:-stock,best,compiled}" -w "$work/peer" $first > "$output/peer.log" 2>&1 || done=FAILED
    tail -8 "$output/peer.log" | tee -a "$output/table"
    line "beside PyTorch (stock, best, compiled)" "$done"
    cp "$work/peer/results.jsonl" "$output/peer.jsonl" 2> /dev/null || true
}

speed() {
    local shape size rows length code seconds types=bf16,f32
    [ "$device" = cpu ] && types=f32
    for shape in $shapes; do
        IFS=, read -r size rows length <<< "$shape"
        seconds=$(left 60) code=0
        timeout "$seconds" "$work/mlmtrain" --quiet bench --device "$device" --model "$size" --batch "$rows" \
            --length "$length" --compute "$types" --steps "$steps" --json \
            >> "$output/bench.jsonl" 2> "$work/bench.log" || code=$?
        [ "$code" -eq 0 ] || line "bench $shape" "$(why "$code" "$seconds" "$work/bench.log")"
    done
    [ ! -s "$output/bench.jsonl" ] || python3 "$here/compare_curves.py" --bench "$output/bench.jsonl" | tee -a "$output/table"
}

# The sums of a bias gradient beside the product of its weight, or by a kernel of ours; gradients of attention in one
# launch, as in the lines above, or in two; for each product the algorithm that cuBLASLt names first, as in the lines
# above, or the fastest of eight; what cuBLASLt says of its choices.
choices() {
    local how code seconds
    local one=(--quiet bench --device "$device" --model "${first%%,*}" --batch 64 --length 128 --compute bf16)
    [ "$device" = cpu ] && one=(--quiet bench --device cpu --model tiny --batch 8 --length 64 --compute f32)
    for how in MLMTRAIN_ROW_SUMS=beside MLMTRAIN_ROW_SUMS=apart MLMTRAIN_ATTENTION_BACKWARD=apart \
        MLMTRAIN_PRODUCTS=timed; do
        seconds=$(left 40) code=0
        env "$how" timeout "$seconds" "$work/mlmtrain" "${one[@]}" --steps "$steps" --json \
            > "$work/choices.json" 2> "$work/choices.log" || code=$?
        line "$how" "$(grep -oE '"step_seconds":[0-9.e-]+' "$work/choices.json" ||
            why "$code" "$seconds" "$work/choices.log")"
    done
    seconds=$(left 40) code=0
    CUBLASLT_LOG_LEVEL=4 CUBLASLT_LOG_FILE=$output/cublaslt.log timeout "$seconds" "$work/mlmtrain" "${one[@]}" \
        --steps 1 > "$work/choices.log" 2>&1 || code=$?
    [ "$code" -eq 0 ] || line "log of cuBLASLt" "$(why "$code" "$seconds" "$work/choices.log")"
}

# The kernels of attention and of norms and the earlier ones in turn, in the same minutes: seconds of a step.
# `narrow` are 64 queries a block instead of 128, `earlier` those from before dropout was drawn ahead of the scores.
kernel_ways() {
    local shape size rows length how code seconds
    for shape in $ways; do
        IFS=, read -r size rows length <<< "$shape"
        for how in ATTENTION=now ATTENTION=narrow ATTENTION=earlier NORMS=earlier \
            ATTENTION=now ATTENTION=narrow NORMS=earlier; do
            seconds=$(left 25) code=0
            env "MLMTRAIN_$how" timeout "$seconds" "$work/mlmtrain" --quiet bench --device "$device" \
                --model "$size" --batch "$rows" --length "$length" --compute "$half" --steps "$steps" --json \
                > "$work/ways.json" 2> "$work/ways.log" || code=$?
            line "$how, $shape" "$(grep -oE '"step_seconds":[0-9.e-]+' "$work/ways.json" ||
                why "$code" "$seconds" "$work/ways.log")"
        done
    done
}

# Gradients of linear layers in f32 and in bf16, in turn: seconds of a step.
gradients() {
    local shape size rows length sizes type code seconds
    for shape in $first; do
        IFS=, read -r size rows length <<< "$shape"
        case $size in
            base) sizes= ;;
            large) sizes="num_hidden_layers: 24, hidden_size: 1024, num_attention_heads: 16, intermediate_size: 4096" ;;
            *) sizes="num_hidden_layers: 2, hidden_size: 128, num_attention_heads: 2, intermediate_size: 512" ;;
        esac
        for type in f32 bf16 f32 bf16; do
            seconds=$(left 25) code=0
            cat > "$work/gradients.yaml" <<YAML
data: {sources: [{files: [none.txt]}], max_seq_length: $length}
model: {roberta: {$sizes}}
training: {max_steps: 1}
precision: {compute: bf16, weight_gradients: $type}
YAML
            timeout "$seconds" "$work/mlmtrain" --quiet bench --device "$device" --model "$work/gradients.yaml" \
                --batch "$rows" --length "$length" --steps "$steps" --json \
                > "$work/gradients.json" 2> "$work/gradients.log" || code=$?
            line "gradients in $type, $shape" "$(grep -oE '"step_seconds":[0-9.e-]+' "$work/gradients.json" ||
                why "$code" "$seconds" "$work/gradients.log")"
        done
    done
}

# What each kernel takes of some steps.
profile() {
    local libraries shape size rows length
    [ -e "$pack/kernel_times.so" ] || { line "kernel times" "FAILED: not run, there is no kernel_times.so"; return 0; }
    libraries=$(python3 -c 'import pathlib, nvidia
print(":".join(f"{p}/cu13/lib" for p in nvidia.__path__))' 2> /dev/null || true)
    for shape in $first; do
        IFS=, read -r size rows length <<< "$shape"
        CUDA_INJECTION64_PATH=$pack/kernel_times.so KERNEL_TIMES=$output/kernels-$size.tsv \
            LD_LIBRARY_PATH=$libraries:/usr/local/cuda/extras/CUPTI/lib64:${LD_LIBRARY_PATH:-} \
            timeout "$(left 60)" "$work/mlmtrain" --quiet bench --device "$device" --model "$size" --batch "$rows" \
            --length "$length" --compute bf16 --steps "$steps" --seconds 0 > "$work/profile.log" 2>&1 || true
        line "kernel times, $shape" \
            "$(head -1 "$output/kernels-$size.tsv" 2> /dev/null || echo "FAILED: $(tail -1 "$work/profile.log")")"
    done
}

run() { # part, output
    mkdir -p "$2"
    output=$(cd "$2" && pwd)
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    parallel=$(($(nproc) < 8 ? ($(nproc) + 1) / 2 : 6))
    export work output device
    unpack
    : > "$output/table"
    line "GPU" "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2> /dev/null | head -1 || true)"
    "$work/mlmtrain" --version | tee -a "$output/table"
    case $1 in
        correctness)
            ops; curves; two
            kernel_names | sanitized memcheck
            kernel_names | sanitized racecheck
            far_rows ;;
        speed) peers; speed; choices; gradients; kernel_ways; profile ;;
        all)
            # shellcheck disable=SC2086
            printf '%s\n' $touched | some_ops 60
            printf '%s\n' attention residual_norm | SANITIZE_SECONDS=60 sanitized memcheck
            kernel_ways; gradients; profile
            STEPS=60 curves bf16
            peers ;;
        *) usage ;;
    esac
    line "seconds" "$SECONDS"
    printf '\n--- table ---\n'
    cat "$output/table"
    ! grep -q FAILED "$output/table"
}

case ${1:-} in
    pack) build ;;
    run) [ $# -eq 3 ] || usage; run "$2" "$3" ;;
    *) usage ;;
esac

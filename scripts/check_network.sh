#!/usr/bin/env bash
# Two network namespaces as hosts with a throttled line between them: which share of the time two processes compute, by
# accumulation, wire and overlap; beside PyTorch's DistributedDataParallel over gloo where --python has torch and
# transformers.
#
#   scripts/check_network.sh PROGRAM [--rates 1gbit,250mbit] [--accumulate 1,4] [--steps 10] [--python PYTHON]
#
# PROGRAM is a build with --features mpi. Needs root, iproute2, Open MPI, and two cores with nothing else to do; from the
# checkout, on the text of the quickstart. A process has one thread and one core. Efficiency is against two processes that
# train at the same time and know nothing of each other.
set -euo pipefail
usage="usage: check_network.sh PROGRAM [--rates RATE,...] [--accumulate N,...] [--steps N] [--python PYTHON]"
[ $# -ge 1 ] || { echo "$usage" >&2; exit 2; }
program=$(realpath "$1"); shift
rates=1gbit,250mbit accumulate=1,4 steps=10 python=''
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || { echo "$usage" >&2; exit 2; }
    case $1 in
        --rates) rates=$2 ;;
        --accumulate) accumulate=$2 ;;
        --steps) steps=$2 ;;
        --python) python=$2 ;;
        *) echo "$usage" >&2; exit 2 ;;
    esac
    shift 2
done

here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
clean() {
    ip netns del mlm0 2> /dev/null || true
    ip netns del mlm1 2> /dev/null || true
    rm -rf "$work"
}
trap clean EXIT
ip netns add mlm0
ip netns add mlm1
ip link add veth0 netns mlm0 type veth peer name veth1 netns mlm1
for i in 0 1; do
    ip -n "mlm$i" addr add "10.77.0.$((i + 1))/24" dev "veth$i"
    ip -n "mlm$i" link set "veth$i" up
    ip -n "mlm$i" link set lo up
done
# Open MPI reaches the other host by this in the place of ssh; hosts with one name would be taken for one.
cat > "$work/agent" << 'EOF'
#!/bin/bash
shift
exec ip netns exec mlm1 unshare --uts bash -c "hostname mlm1; exec taskset -c 1 bash -c \"\$1\"" agent "$*"
EOF
chmod +x "$work/agent"

# 12 x 256: ten million gradients.
sets=(run.threads=1 run.tensorboard=false model.roberta.num_hidden_layers=12 model.roberta.hidden_size=256
    model.roberta.num_attention_heads=4 model.roberta.intermediate_size=1024 model.roberta.max_position_embeddings=130
    model.initial_embeddings=random data.max_seq_length=128 "data.prepared_dir=$work/data" evaluation.loss_band=null
    training.max_train_time=null training.per_device_train_batch_size=16 training.save_steps=0 training.eval_steps=0
    "training.max_steps=$steps" "training.logging_steps=$((steps / 2))" training.warmup_steps=1)
# The arguments of a run into this folder, with more settings.
arguments() {
    local folder=$1
    shift
    printf '%s\n' pretrain --config "$here/configs/quickstart.yaml"
    printf -- '--set\n%s\n' "run.output_dir=$folder" "${sets[@]}" "$@"
}
# Tokens a second of the last half of the steps.
speed() { grep -o '"perf/tokens_per_second":[0-9.]*' "$1/metrics.jsonl" | tail -n 1 | cut -d: -f2; }

cd "$here"
mapfile -t prepare < <(arguments "$work/none")
"$program" prepare "${prepare[@]:1}" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }

# Two that know nothing of each other.
alone() {
    for i in 0 1; do
        mapfile -t run < <(arguments "$work/alone$i" "training.gradient_accumulation_steps=$1")
        taskset -c "$i" "$program" "${run[@]}" > "$work/log$i" 2>&1 &
    done
    wait
    awk -v a="$(speed "$work/alone0")" -v b="$(speed "$work/alone1")" 'BEGIN { print a + b }'
    rm -rf "$work"/alone?
}

together() {
    rm -rf "$work/run"
    mapfile -t run < <(arguments "$work/run" "training.gradient_accumulation_steps=$(($1 * 2))" \
        "distributed.wire=$2" "distributed.overlap=$3")
    ip netns exec mlm0 unshare --uts bash -c 'hostname mlm0; exec taskset -c 0 "$@"' run \
        mpirun --allow-run-as-root --host 10.77.0.1:1,10.77.0.2:1 -np 2 --bind-to none --mca plm_rsh_agent "$work/agent" \
        --mca btl tcp,self --mca pml ob1 --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 \
        "$program" "${run[@]}" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    grep -ho 'rank [01] has talked.*' "$work/log" "$work"/run/rank-1.log > "$work/talked" || true
    speed "$work/run"
}

ddp() {
    for i in 0 1; do
        ip netns exec "mlm$i" taskset -c "$i" "$python" "$here/scripts/peer_ddp.py" --rank "$i" --address 10.77.0.1 \
            --interface "veth$i" --accumulate "$1" --wire "$2" --steps "$steps" > "$work/ddp$i" 2> "$work/ddp$i.err" &
    done
    wait
    cat "$work/ddp0"
    [ -s "$work/ddp0" ] || { cat "$work/ddp0.err" >&2; exit 1; }
}

printf '%-8s %10s %5s %8s %9s %11s  %s\n' rate accumulate wire overlap tokens/s efficiency ''
for a in ${accumulate//,/ }; do
    base=$(alone "$a")
    printf '%-8s %10s %5s %8s %9.0f\n' none "$a" - - "$base"
    for rate in ${rates//,/ }; do
        for i in 0 1; do
            tc -n "mlm$i" qdisc replace dev "veth$i" root tbf rate "$rate" burst 256kb latency 50ms
        done
        for wire in f32 bf16; do
            for overlap in false true; do
                found=$(together "$a" "$wire" "$overlap")
                share=$(awk -v a="$found" -v b="$base" 'BEGIN { printf "%.0f %%", 100 * a / b }')
                printf '%-8s %10s %5s %8s %9.0f %11s  %s\n' "$rate" "$a" "$wire" "$overlap" "$found" "$share" \
                    "$(tail -n 1 "$work/talked")"
            done
            [ -z "$python" ] || printf '%-8s %10s %5s %8s %s\n' "$rate" "$a" "$wire" DDP "$(ddp "$a" "$wire")"
        done
    done
done

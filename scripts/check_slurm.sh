#!/usr/bin/env bash
# Runs vm/train-slurm.sbatch on a Slurm of its own, on this machine: the job is requeued twice while it trains, and must
# end in the bytes of an undisturbed run. A build with MPI does it once more on two nodes, with a process on each.
#
#   scripts/check_slurm.sh PROGRAM
#
# It needs root and Debian's slurm-wlm and munge; it starts none of their services, and stops what it starts.
set -euo pipefail
program=$(realpath "${1:?usage: scripts/check_slurm.sh PROGRAM}")
sbatch=$(realpath "$(dirname "$0")/vm/train-slurm.sbatch")
nodes=1
if "$program" --version | grep -q 'processes: MPI'; then nodes=2; fi
work=$(mktemp -d)
# munge wants its socket where everybody may go.
chmod 755 "$work"
cd "$work"
daemons=()
trap '[ ${#daemons[@]} -eq 0 ] || kill "${daemons[@]}"; wait; rm -rf "$work"' EXIT

(umask 077 && head -c 1024 /dev/urandom > munge.key)
munged --foreground --key-file "$work/munge.key" --socket "$work/munge.socket" --pid-file "$work/munge.pid" \
    --log-file "$work/munge.log" --seed-file "$work/munge.seed" 2> /dev/null &
daemons+=($!)
export SLURM_CONF=$work/slurm.conf
cat > slurm.conf << END
ClusterName=check
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=26817
SlurmUser=root
AuthInfo=socket=$work/munge.socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
SlurmdPidFile=$work/slurmd-%n.pid
TmpFS=$work/tmp-%n
SlurmctldPidFile=$work/slurmctld.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerParameters=batch_sched_delay=1,sched_interval=1
$(for ((node = 1; node <= nodes; node++)); do
    echo "NodeName=node$node NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$((26817 + node)) CPUs=$(nproc)"
done)
PartitionName=all Nodes=ALL Default=YES
END
mkdir state
slurmctld -D > slurmctld.log 2>&1 &
daemons+=($!)
for ((node = 1; node <= nodes; node++)); do
    mkdir "spool-node$node" "tmp-node$node"
    slurmd -D -N "node$node" > "slurmd-node$node.log" 2>&1 &
    daemons+=($!)
done

until_true() { # command...
    until "$@"; do
        sleep 0.2
        [ "$SECONDS" -lt 600 ] || { echo "error: not within ten minutes: $*" >&2; tail -n 5 ./*.log >&2; exit 1; }
    done
}
state() { squeue -h -j "$job" -o %T 2> /dev/null; }
is() { [ "$(state)" = "$1" ]; }
has_trained() {
    awk -v steps="$2" '/train\/loss/ { seen++ } END { exit seen < steps }' "$1/metrics.jsonl" 2> /dev/null
}

"$program" -q example quickstart > example.log
sets=(--set training.max_steps=150 --set training.per_device_train_batch_size=4 --set training.logging_steps=1
    --set training.gradient_accumulation_steps=2 --set training.eval_steps=0 --set training.save_steps=40)
"$program" -q pretrain --config quickstart.yaml "${sets[@]}" --set run.output_dir=undisturbed > undisturbed.log
until_true sinfo -h > sinfo.log 2>&1

# Options of sbatch, and those of the script behind `--`.
requeued() { # folder, options...
    local folder=$1 options=() step
    shift
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    job=$(sbatch --parsable --time 10 --output "$folder.log" "${options[@]}" "$sbatch" --program "$program" \
        --config quickstart.yaml "$@" -- "${sets[@]}" --set "run.output_dir=$folder")
    for step in 20 60; do
        until_true has_trained "$folder" "$step"
        scancel --batch --signal USR1 "$job"
        until_true is PENDING
        # Slurm would let a requeued job wait for two minutes; it wants a credential of a later second than the end.
        sleep 2
        scontrol update "JobId=$job" StartTime=now
    done
    until_true is ''
    scontrol show job "$job" | grep -oE 'JobState=COMPLETED|Restarts=2|NumNodes=[0-9]+' | tee outcome
    [ "$(grep -cE 'COMPLETED|Restarts' outcome)" -eq 2 ] || { cat "$folder.log" >&2; exit 1; }
    cmp undisturbed/final/model.safetensors "$folder/final/model.safetensors" || { cat "$folder.log" >&2; exit 1; }
}
requeued one -- --no-plan
echo "requeued twice, and the same bytes"
if [ "$nodes" -eq 2 ]; then
    requeued two --nodes 2 --ntasks-per-node 1 --
    echo "requeued twice on two nodes, and the same bytes"
fi

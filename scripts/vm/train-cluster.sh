#!/usr/bin/env bash
# Pretrains in several processes, and starts them again where one was lost: they go on from the newest checkpoint.
#
#   scripts/vm/train-cluster.sh --config FILE --launch 'mpirun -np 8 --hostfile hosts' [OPTIONS] [-- ARGUMENTS OF PRETRAIN]
#
# Options are in scripts/vm/README.md. It ends with the exit code of the last start.
set -euo pipefail
usage="usage: train-cluster.sh --config FILE --launch COMMAND [--program FILE] [--restarts N] [--pause SECONDS]
       [--requeue-command COMMAND] [-- ARGUMENTS OF PRETRAIN]"

say() { printf '%s  %s\n' "$(date -u +%FT%TZ)" "$*" >&2; }
refuse() { printf 'error: %s\n%s\n' "$1" "$usage" >&2; exit 2; }

config='' launch='' program=mlmtrain restarts=10 pause=10 requeue=''
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) echo "$usage"; exit 0 ;;
        --) shift; break ;;
    esac
    [ $# -ge 2 ] || refuse "\`$1\` is no option, or wants a value"
    case $1 in
        --config) config=$2 ;;
        --launch) launch=$2 ;;
        --program) program=$2 ;;
        --restarts) restarts=$2 ;;
        --pause) pause=$2 ;;
        --requeue-command) requeue=$2 ;;
        *) refuse "\`$1\` is no option" ;;
    esac
    shift 2
done
[ -n "$config" ] || refuse "--config is missing"
[ -n "$launch" ] || refuse "--launch is missing: what starts the processes, such as 'mpirun -np 4'"
[[ $restarts =~ ^[0-9]+$ ]] || refuse "--restarts wants a number, not \`$restarts\`"
command -v "$program" > /dev/null || refuse "there is no program \`$program\`: install it, or name it with --program"
"$program" --version | grep -q 'processes: MPI' || refuse "\`$program\` is a build without MPI (--features mpi)"

# What changes the configuration goes to each command that reads it.
changes=()
for ((i = 1; i < $#; i++)); do
    case ${!i} in --set | --profile) j=$((i + 1)); changes+=("${!i}" "${!j}") ;; esac
done
folder=$("$program" -q config show --json "$config" "${changes[@]}") || exit
folder=$(sed -n '/^ *"output_dir": "/ { s///; s/",\{0,1\}$//; s/\\\(["\\]\)/\1/g; p; q }' <<< "$folder")
is_complete() { "$program" -q runs --json "$folder" 2> /dev/null | grep -q '"state":"complete"'; }

# Where the line to another machine is cut, the processes end by themselves, and mpirun waits for those over there for a
# quarter of an hour: it is killed when it had processes here and has had none for three seconds.
watch_launcher() { # session
    local name seen=no since=0
    name=$(basename "$program" | cut -c 1-15)
    while kill -0 "$1" 2> /dev/null; do
        if pgrep -s "$1" -x "$name" > /dev/null 2>&1; then
            seen=yes since=$SECONDS
        elif [ "$seen" = yes ] && [ $((SECONDS - since)) -gt 2 ]; then
            say "the launcher has no processes here and does not end: it is killed"
            pkill -KILL -s "$1" || true
        fi
        sleep 0.5
    done
}

# A USR1 reaches all processes, which save and end. A TERM would give them no time for it, nor would a Ctrl-C that reaches
# the launcher: hence a session of its own.
stopped=no training=''
stop() {
    stopped=$1
    [ -z "$training" ] || kill -USR1 "$training" 2> /dev/null || true
}
trap 'stop yes' TERM INT HUP
trap 'stop usr1' USR1
for ((start = 0; ; start++)); do
    say "training, start $((start + 1)): $launch"
    # The line is read at each start: it may count the machines that are left.
    setsid bash -c "exec $launch \"\$@\"" launch "$program" pretrain --config "$config" --resume auto "$@" &
    training=$!
    watch_launcher "$training" &
    code=0
    wait "$training" || code=$?
    # A signal ends `wait`, too: what counts is the exit code of the launcher.
    while kill -0 "$training" 2> /dev/null; do
        code=0
        wait "$training" || code=$?
    done
    say "training ended with exit code $code"
    # `srun` ends with 0, too, where it was to start processes and could not.
    if [ "$code" -eq 0 ] && ! is_complete; then
        say "but the run in $folder is not complete, seen from here: this counts as a start that failed"
        code=1
    fi
    # A wrong configuration (2) and a run that diverges for good (76) are so at the next start, too.
    case $code in 0 | 2 | 76) exit "$code" ;; esac
    if [ "$stopped" = usr1 ] && [ -n "$requeue" ]; then
        say "$requeue"
        bash -c "$requeue" || say "requeueing failed"
    fi
    [ "$stopped" = no ] || exit "$code"
    [ "$start" -lt "$restarts" ] || { say "$restarts restarts did not bring it to its end"; exit "$code"; }
    sleep "$pause"
done

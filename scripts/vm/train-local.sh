#!/usr/bin/env bash
# Pretrains or fine-tunes on a machine that has the program: looks at the machine, fetches data, plans, trains or
# continues, uploads.
#
#   scripts/vm/train-local.sh --config FILE [OPTIONS] [-- ARGUMENTS]
#
# Options are in scripts/vm/README.md. Run it again after whatever stopped it: training goes on from the newest
# checkpoint. It ends with the exit code of the first step that failed.
set -euo pipefail
usage="usage: train-local.sh --config FILE [--program FILE] [--data-command COMMAND] [--upload-command COMMAND]
       [--preemption-command COMMAND] [--requeue-command COMMAND] [--price USD] [--no-plan] [--power-off]
       [-- ARGUMENTS OF PRETRAIN OR FINETUNE]"

say() { printf '%s  %s\n' "$(date -u +%FT%TZ)" "$*" >&2; }
refuse() { printf 'error: %s\n%s\n' "$1" "$usage" >&2; exit 2; }

config='' program=mlmtrain fetch='' upload='' preempted='' requeue='' price='' plan=yes power_off=no
while [ $# -gt 0 ]; do
    case $1 in
        --no-plan) plan=no; shift; continue ;;
        --power-off) power_off=yes; shift; continue ;;
        --help | -h) echo "$usage"; exit 0 ;;
        --) shift; break ;;
    esac
    [ $# -ge 2 ] || refuse "\`$1\` is no option, or wants a value"
    case $1 in
        --config) config=$2 ;;
        --program) program=$2 ;;
        --data-command) fetch=$2 ;;
        --upload-command) upload=$2 ;;
        --preemption-command) preempted=$2 ;;
        --requeue-command) requeue=$2 ;;
        --price) price=$2 ;;
        *) refuse "\`$1\` is no option" ;;
    esac
    shift 2
done
[ -n "$config" ] || refuse "--config is missing"
command -v "$program" > /dev/null || refuse "there is no program \`$program\`: install it, or name it with --program"

# What changes the configuration goes to each command that reads it.
changes=()
for ((i = 1; i < $#; i++)); do
    case ${!i} in --set | --profile) j=$((i + 1)); changes+=("${!i}" "${!j}") ;; esac
done

say "$("$program" -V)"
"$program" doctor
# Mistakes are told before anything is paid for.
checked=$("$program" config check "$config" "${changes[@]}")
printf '%s\n' "$checked"
# What the configuration is for.
command=(pretrain --resume auto) planned=(plan --device here --save ${price:+--price "here=$price"})
case $checked in *"(configuration of \`finetune\`)") 
        command=(finetune)
        planned=(finetune --dry-run ${price:+--set "run.usd_per_hour=$price"})
        ;; esac
if [ -n "$fetch" ]; then
    say "data: $fetch"
    bash -c "$fetch"
fi
if [ "$plan" = yes ]; then
    say plan
    "$program" "${planned[@]}" --config "$config" "${changes[@]}"
fi

# In the background, so that a signal to this script reaches the program, which then saves and ends. A second one would
# end it at once: where all processes were sent the signal, as by Slurm's `scancel`, the witness is gone, and the program
# has it already. A Ctrl-C reaches it by itself.
say training
tail --pid=$$ -f /dev/null > /dev/null 2>&1 &
witness=$!
again=no
trap 'sleep 0.2; ! kill -0 "$witness" 2> /dev/null || kill -TERM "$training" 2> /dev/null || true' TERM
trap 'again=yes; kill -TERM "$training" 2> /dev/null || true' USR1
trap : INT
"$program" "${command[@]}" --config "$config" "$@" &
training=$!
if [ -n "$preempted" ]; then
    until timeout 5 tail --pid="$training" -f /dev/null; do
        if bash -c "$preempted" > /dev/null; then
            say "this machine will be taken: $preempted"
            kill -TERM "$training"
            break
        fi
    done &
fi
code=0
wait "$training" || code=$?
# A signal ends `wait`, too: what counts is the exit code of the program.
while kill -0 "$training" 2> /dev/null; do
    code=0
    wait "$training" || code=$?
done
trap - TERM USR1 INT
kill "$witness" 2> /dev/null || true
say "training ended with exit code $code"

# What a stopped run saved is worth keeping, too.
uploaded=yes
if [ -n "$upload" ]; then
    say "upload: $upload"
    MLMTRAIN_EXIT_CODE=$code bash -c "$upload" || { uploaded=no; say "the upload failed"; }
fi
# A failed run costs as much an hour as one that trains. But who stopped it by a signal may want to look at it, and what
# could not be uploaded may go with the machine.
if [ "$power_off" = yes ] && [ "$code" -lt 128 ] && [ "$uploaded" = yes ]; then
    say "powering off"
    ${MLMTRAIN_POWER_OFF:-sudo poweroff}
fi
# A run that came to its end all the same is done.
if [ -n "$requeue" ] && [ "$again" = yes ] && [ "$code" -eq 143 ]; then
    say "again: $requeue"
    bash -c "$requeue"
fi
[ "$code" -ne 0 ] || [ "$uploaded" = yes ] || code=1
exit "$code"

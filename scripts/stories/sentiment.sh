#!/usr/bin/env bash
# A story: a classifier of sentiment is trained in f32 and in half precision, with all else the same. What do they take, and
# how good are they?
#
#   scripts/stories/sentiment.sh [--model DIR] [--train FILE] [--eval FILE] [--price USD] [-- ARGUMENTS OF FINETUNE]
#
#   --model DIR          models/minilm unless given: any encoder in the Hugging Face layout
#   --train, --eval FILE data/sst2/train.tsv and dev.tsv unless given: a sentence and its label a line, as SST-2 has them
#   --price USD          what an hour of the machine costs, 1 unless given
#   --device DEVICE      cpu, cuda or cuda:N; a GPU where there is one unless given
#   --half TYPE          bf16 unless given, or f16 where the device has no bf16, as a T4
#   --output FOLDER      runs/sentiment unless given; called again, it goes on with what is missing there
#   --program FILE       mlmtrain from the PATH unless given
#
# The arguments go to both trainings, such as `--max-train-samples 2000` or `--epochs 1`. Minutes are those of training
# alone.
set -euo pipefail
usage="usage: sentiment.sh [--model DIR] [--train FILE] [--eval FILE] [--price USD] [--device DEVICE] [--half TYPE]
       [--output FOLDER] [--program FILE] [-- ARGUMENTS OF FINETUNE]"
model=models/minilm train=data/sst2/train.tsv eval=data/sst2/dev.tsv price=1 device=auto half='' output=runs/sentiment program=mlmtrain
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
        --model | --train | --eval | --price | --device | --half | --output | --program) [ $# -ge 2 ] && declare "${1#--}=$2" ;;
        --help | -h) echo "$usage"; exit 0 ;;
        *) false ;;
    esac || { echo "error: \`$1\` is no option, or wants a value"$'\n'"$usage" >&2; exit 2; }
    shift 2
done
[ $# -eq 0 ] || shift

# Below flags and `--set`, so that the arguments change it.
recipe='
seeds: [1]
data: {max_seq_length: 64}
training: {num_train_epochs: 3, per_device_train_batch_size: 32, learning_rate: 5.0e-5, warmup_steps: 0.1,
  weight_decay: 0.01, eval_steps: 0, save_steps: 0}
'
finetune() { # number type, arguments...
    "$program" finetune --task classify --config <(echo "$recipe") --model "$model" --train "$train" --eval "$eval" \
        --output-dir "$output/$1" --set "run.device=$device" --set "precision.compute=$1" "${@:2}"
}
result() { # number type, name
    sed -nE "s/^ *\"$2\": ([^,]+),?$/\1/p" "$output/$1/all_results.json"
}

finetune f32 --dry-run "$@" > /dev/null
if [ -z "$half" ]; then
    half=bf16
    finetune bf16 --dry-run "$@" > /dev/null 2>&1 || half=f16
else
    finetune "$half" --dry-run "$@" > /dev/null
fi
for type in f32 "$half"; do
    finetune "$type" "$@" > /dev/null
done

printf '%-10s %8s %8s %9s\n' precision minutes cents accuracy
for type in f32 "$half"; do
    awk -v type="$type" -v seconds="$(result "$type" train_runtime)" -v accuracy="$(result "$type" eval_accuracy)" -v price="$price" \
        'BEGIN { printf "%-10s %8.2f %8.3f %9.4f\n", type, seconds / 60, seconds / 36 * price, accuracy }'
done
awk -v type="$half" -v f32="$(result f32 train_runtime)" -v half="$(result "$half" train_runtime)" \
    'BEGIN { printf "%s takes %.2f of the time and money of f32\n", type, half / f32 }'

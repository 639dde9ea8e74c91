#!/usr/bin/env bash
# Pretrains or fine-tunes on a rented machine with a GPU that has nothing yet: installs the program, then does what
# train-local.sh does.
#
#   scripts/vm/train-gpu-vm.sh --package WHEEL|ARCHIVE --config FILE [OPTIONS, also those of train-local.sh]
#
# Options are in scripts/vm/README.md. Run it again after whatever stopped it, as train-local.sh.
set -euo pipefail
usage="usage: train-gpu-vm.sh --package WHEEL|ARCHIVE --config FILE [--prefix FOLDER] [--device cuda|cuda:N|cpu]
       [OPTIONS OF train-local.sh] [-- ARGUMENTS OF PRETRAIN OR FINETUNE]"

refuse() { printf 'error: %s\n%s\n' "$1" "$usage" >&2; exit 2; }

package='' prefix=$HOME/mlmtrain device=cuda others=()
while [ $# -gt 0 ]; do
    case $1 in
        --no-plan | --power-off) others+=("$1"); shift; continue ;;
        --help | -h) echo "$usage"; exit 0 ;;
        --) shift; break ;;
    esac
    [ $# -ge 2 ] || refuse "\`$1\` is no option, or wants a value"
    case $1 in
        --package) package=$2 ;;
        --prefix) prefix=$2 ;;
        --device) device=$2 ;;
        *) others+=("$1" "$2") ;;
    esac
    shift 2
done
[ -f "$package" ] || refuse "--package: there is no file \`$package\`"
if [ "$device" != cpu ] && [ ! -r /proc/driver/nvidia/version ]; then
    refuse "the NVIDIA driver is missing: install 580 or newer, or try without a GPU by --device cpu"
fi

case $package in
    *.whl)
        # CUDA's libraries come with the wheel's extra; the driver is the machine's.
        extra='[cuda]'
        [ "$device" != cpu ] || extra=''
        [ -x "$prefix/bin/python3" ] || python3 -m venv "$prefix"
        "$prefix/bin/python3" -m pip install -q --disable-pip-version-check --force-reinstall --no-deps "$package"
        "$prefix/bin/python3" -m pip install -q --disable-pip-version-check "$package$extra"
        ;;
    *.tar.gz)
        mkdir -p "$prefix"
        tar -xzf "$package" --strip-components 1 -C "$prefix"
        ;;
    *) refuse "--package: \`$package\` is neither a .whl nor a .tar.gz" ;;
esac
# The program looks for CUDA's libraries in the environment of the python3 that comes first.
export PATH=$prefix/bin:$PATH
exec "$(dirname "$0")/train-local.sh" --program "$prefix/bin/mlmtrain" "${others[@]}" -- --set "run.device=$device" "$@"

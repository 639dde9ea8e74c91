#!/usr/bin/env bash
# Pretrains or fine-tunes in a container: does what train-local.sh does, with the program of an image of scripts/docker.
#
#   scripts/vm/train-docker.sh IMAGE --config FILE [OPTIONS OF train-local.sh]
#   MLMTRAIN_DOCKER_OPTIONS='--gpus all' scripts/vm/train-docker.sh IMAGE --config FILE -- --set run.device=cuda
#
# Only the program runs inside, as the user who calls; of the machine it sees the present folder, and whatever else the
# options for `docker run` give it. Run it again after whatever stopped it, as train-local.sh.
set -euo pipefail

# Called by train-local.sh, as its program. A signal to `docker run` reaches the program.
if [ -n "${MLMTRAIN_IMAGE:-}" ]; then
    # shellcheck disable=SC2086  # words
    exec docker run --rm --read-only --cap-drop ALL --security-opt no-new-privileges --user "$(id -u):$(id -g)" \
        --volume "$PWD:$PWD" --workdir "$PWD" ${MLMTRAIN_DOCKER_OPTIONS:-} "$MLMTRAIN_IMAGE" "$@"
fi

case ${1:-} in
    '' | -*) echo "usage: train-docker.sh IMAGE --config FILE [OPTIONS OF train-local.sh] [-- ARGUMENTS]" >&2; exit 2 ;;
esac
docker image inspect "$1" > /dev/null || { echo "error: there is no image \`$1\`: see scripts/docker/Dockerfile" >&2; exit 2; }
export MLMTRAIN_IMAGE=$1
exec "$(dirname "$0")/train-local.sh" --program "$0" "${@:2}"

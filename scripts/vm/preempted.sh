#!/usr/bin/env bash
# Whether the provider has said that it will take this machine: exit code 0 if so. For `--preemption-command`.
#
#   scripts/vm/preempted.sh aws|gcp|azure
#
# It asks the metadata server, at MLMTRAIN_METADATA where that is set, with curl.
set -euo pipefail
server=${MLMTRAIN_METADATA:-http://169.254.169.254}
ask() { curl -sf -m 3 --noproxy '*' "$@"; }

case ${1:-} in
    aws) # Until there is a notice, the answer is 404.
        token=$(ask -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$server/latest/api/token")
        ask -H "X-aws-ec2-metadata-token: $token" "$server/latest/meta-data/spot/instance-action"
        ;;
    gcp) ask -H 'Metadata-Flavor: Google' "$server/computeMetadata/v1/instance/preempted" | grep TRUE ;;
    azure) # A scale set hears of all of its machines.
        name=$(ask -H 'Metadata: true' "$server/metadata/instance/compute/name?api-version=2021-02-01&format=text")
        ask -H 'Metadata: true' "$server/metadata/scheduledevents?api-version=2020-07-01" | grep -o '{[^{}]*}' |
            grep '"EventType" *: *"Preempt"' | grep -iF "\"$name\""
        ;;
    *) echo "usage: scripts/vm/preempted.sh aws|gcp|azure" >&2; exit 2 ;;
esac

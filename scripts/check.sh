#!/usr/bin/env bash
# The quick check of a change: format, clippy, and the tests of what changed since a revision.
#
#   scripts/check.sh [REVISION]      # the point where this branch left `main`, without one
#
# It compiles what `cargo test` compiles, so that a second call is quick. `.ci/run` checks everything.
set -euo pipefail
cd "$(dirname "$0")/.."

since=${1:-$(git merge-base HEAD main)}
git rev-parse --verify --quiet "$since^{commit}" > /dev/null || { echo "error: \`$since\` is no revision" >&2; exit 2; }
changed=$({ git diff --name-only "$since"; git ls-files --others --exclude-standard; } | sort -u)
[ -n "$changed" ] || { echo "nothing changed since $since"; exit 0; }

# The modules of the main crate that changed: `src/train/step.rs` and `src/train.rs` are `train::`.
mapfile -t modules < <(echo "$changed" | sed -nE 's!^src/([a-z_]+)(\.rs|/.*)$!\1::!p' | grep -vxE 'base::|ops::|lib::|main::' | sort -u)
# Tests of the whole program: `tests/it/stores/upload.rs` is `stores::`.
mapfile -t tests < <(echo "$changed" | sed -nE 's!^tests/it/([a-z_]+)(\.rs|/.*)$!\1::!p' | grep -vxE 'main::|material::|workplace::' | sort -u)

cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
if grep -q '^src/base/' <<< "$changed"; then cargo test --locked -p mlm-base; fi
if grep -q '^src/ops/' <<< "$changed"; then cargo test --locked -p mlm-ops; fi
if [ ${#modules[@]} -gt 0 ]; then cargo test --locked -p mlmtrain --lib -- "${modules[@]}"; fi
cargo test --locked -p mlmtrain --test it -- architecture:: "${tests[@]}"

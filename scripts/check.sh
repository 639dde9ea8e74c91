#!/usr/bin/env bash
# The quick check of a change: format, clippy, and the tests of what changed since a revision.
#
#   scripts/check.sh [REVISION]      # the point where this branch left `main`, without one
#
# `.ci/run` checks everything.
set -euo pipefail
cd "$(dirname "$0")/.."

since=${1:-$(git merge-base HEAD main)}
git rev-parse --verify --quiet "$since^{commit}" > /dev/null || { echo "error: \`$since\` is no revision" >&2; exit 2; }
changed=$({ git diff --name-only "$since"; git ls-files --others --exclude-standard; } | sort -u)
[ -n "$changed" ] || { echo "nothing changed since $since"; exit 0; }

# Names the tests of what changed below a folder: `src/report/run.rs` and `src/report.rs` are `report::`.
tests_of() {
    local folder=$1 others=$2
    sed -nE "s!^$folder/([a-z_]+)(\\.rs|/.*)\$!\\1::!p" <<< "$changed" | grep -vxE "$others" | sort -u || true
}
crates='base|config|data|model|ops|stores|training'
mapfile -t modules < <(tests_of src "($crates|lib|main)::")
mapfile -t tests < <(tests_of tests/it 'main::|material::|workplace::')

cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
for crate in ${crates//|/ }; do
    if grep -q "^src/$crate/" <<< "$changed"; then cargo test --locked -p "mlm-$crate"; fi
done
if [ ${#modules[@]} -gt 0 ]; then cargo test --locked -p mlmtrain --lib -- "${modules[@]}"; fi
cargo test --locked -p mlmtrain --test it -- architecture:: "${tests[@]}"

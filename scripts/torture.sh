#!/usr/bin/env bash
# The torture table: every promise of reliability put to the test, each with a control that must fail.
#
#   scripts/torture.sh [--quick|--full] [--seed N] [--output FOLDER] [--program FILE] [--scratch FOLDER] [ROW...]
#
# Rows are named as in the table, or by how their names begin: `kill`, `resume-f16`. With `--output`, rows that are ok
# are kept there, and a later call with the same program and counts goes on with the others. `scripts/testing.md` says
# what it needs and how to read it. It ends with 0 where all is well, 1 where something is missed, 3 where nothing is
# but rows that this machine cannot run.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

case " $* ${MLMTRAIN_PROGRAM:+--program}" in
    *" --program"*) ;;
    *) cargo build --release --locked --manifest-path "$here/Cargo.toml" ;;
esac
driver=$(cargo test --locked --manifest-path "$here/Cargo.toml" --test torture --no-run --message-format short 2>&1 |
    tee /dev/stderr | sed -n 's/.*Executable .*(\(.*\))$/\1/p' | tail -n 1)
[ -n "$driver" ] || { echo "error: the driver was not built" >&2; exit 2; }
case $driver in /*) ;; *) driver=$here/$driver ;; esac

# Mounts that nobody else sees, and that go with the driver.
if [ "$(id -u)" = 0 ] && unshare --mount true 2> /dev/null; then
    exec unshare --mount --propagation private "$driver" "$@"
fi
exec "$driver" "$@"

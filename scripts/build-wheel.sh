#!/usr/bin/env bash
# Builds the wheel, and tests it in a fresh virtual environment: `pip install` of it brings the program `mlmtrain` and
# the package of that name, which calls it.
#
#   scripts/build-wheel.sh FOLDER [ARGUMENTS]    arguments for maturin and cargo, such as `--features cuda`
#
# It needs python3 with venv and pip, and fetches maturin from PyPI where there is none on the PATH. The tag of the wheel
# says which glibc the program needs at least: that of maturin's own check of the symbols that it asks for. Build on an
# older system for an older one.
set -euo pipefail
folder=${1:?usage: scripts/build-wheel.sh FOLDER [ARGUMENTS]}
shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/.."
source=$PWD
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

maturin=$(command -v maturin || true)
if [ -z "$maturin" ]; then
    "$python" -m venv "$work/tools"
    "$work/tools/bin/pip" install -q --disable-pip-version-check 'maturin>=1.9,<2'
    maturin=$work/tools/bin/maturin
fi

features=
case " $* " in
    *" --features cuda "* | *" --features=cuda "*) features=cuda ;;
    *" --features nccl "* | *" --features=nccl "*) features=nccl ;;
esac
# As deep in the tree as scripts/wheel, so that its path to Cargo.toml is right from here, too.
stage=target/wheel
rm -rf "$stage"
mkdir -p "$stage"
cp scripts/wheel/pyproject.toml README.md LICENSE-APACHE LICENSE-MIT "$stage"
mkdir -p "$stage/python/mlmtrain"
cp scripts/wheel/python/mlmtrain/{*.py,py.typed} "$stage/python/mlmtrain"
"$python" scripts/third_party_notices.py ${features:+--features "$features"} > "$stage/THIRD-PARTY-NOTICES.txt"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
(cd "$stage" && "$maturin" build --release --locked --out "$work/wheel" "$@")
wheel=$(ls "$work"/wheel/*.whl)

case $wheel in
    *-manylinux_*) ;;
    *) echo "error: \`${wheel##*/}\` has no manylinux tag: it would run on this system only" >&2; exit 1 ;;
esac
"$python" - "$wheel" <<'PY'
import sys, zipfile
names = zipfile.ZipFile(sys.argv[1]).namelist()
licences = ["LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY-NOTICES.txt"]
for wanted in [*licences, ".data/scripts/mlmtrain", "mlmtrain/__init__.py", "mlmtrain/py.typed"]:
    assert any(name.endswith(wanted) for name in names), f"the wheel has no {wanted}: {names}"
PY
# A fresh environment without network, away from the source: the program trains what it carries.
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check --no-index "$wheel"
mkdir "$work/try"
(
    cd "$work/try"
    PATH=$work/venv/bin:$PATH
    [ "$(command -v mlmtrain)" = "$work/venv/bin/mlmtrain" ]
    mlmtrain --version
    mlmtrain example quickstart
    mlmtrain -q pretrain --config quickstart.yaml --set training.max_steps=5
    mlmtrain -q example classify
    mlmtrain config check finetune-sample.yaml
    mlmtrain checkpoint verify runs/quickstart/final
    # The package and its notebook, without a PATH that leads to the program.
    PATH=/usr/bin:/bin "$work/venv/bin/python" "$source/scripts/wheel/test_mlmtrain.py"
)
mv "$wheel" "$folder/"
echo "wrote $folder/${wheel##*/}"

#!/usr/bin/env bash
# Builds an archive of the program for machines without Python, beside its sum in SHA256SUMS, and tests both.
#
#   scripts/release.sh FOLDER [ARGUMENTS]    arguments for cargo, such as `--features cuda`
#   tar -xzf mlmtrain-VERSION-TARGET.tar.gz --strip-components 1 -C /usr/local    then, on the other machine
#
# It has the program, stripped; manual pages; completions for bash, zsh and fish; README, licences, notices of third
# parties; the configurations. SHA256SUMS covers all archives and wheels of FOLDER. The same program, configurations and
# commit give the same archive. It needs cargo, python3, tar, gzip and strip.
set -euo pipefail
folder=${1:?usage: scripts/release.sh FOLDER [ARGUMENTS]}
shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

features=
case " $* " in
    *" --features cuda "* | *" --features=cuda "*) features=cuda ;;
    *" --features nccl "* | *" --features=nccl "*) features=nccl ;;
esac
cargo build --release --locked "$@"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
target=$(rustc -vV | sed -n 's/^host: //p')
name=mlmtrain-$version-$target${features:+-$features}
root=$work/$name

install -D -m 755 "${CARGO_TARGET_DIR:-target}/release/mlmtrain" "$root/bin/mlmtrain"
strip "$root/bin/mlmtrain"
"$root/bin/mlmtrain" -q manual "$root/share/man/man1" > "$work/manual.log"
mkdir -p "$root"/share/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d,doc/mlmtrain,mlmtrain}
"$root/bin/mlmtrain" completions bash > "$root/share/bash-completion/completions/mlmtrain"
"$root/bin/mlmtrain" completions zsh > "$root/share/zsh/site-functions/_mlmtrain"
"$root/bin/mlmtrain" completions fish > "$root/share/fish/vendor_completions.d/mlmtrain.fish"
cp README.md LICENSE-APACHE LICENSE-MIT "$root/share/doc/mlmtrain/"
python3 scripts/third_party_notices.py ${features:+--features "$features"} > "$root/share/doc/mlmtrain/THIRD-PARTY-NOTICES.txt"
cp -R configs "$root/share/mlmtrain/"

archive=$name.tar.gz
tar --sort=name --owner=0 --group=0 --numeric-owner --mode=go=rX,u=rwX --mtime="@$(git log -1 --format=%ct)" \
    -C "$work" -cf - "$name" | gzip -9n > "$folder/$archive"
cd "$folder"
find . -maxdepth 1 \( -name '*.tar.gz' -o -name '*.whl' \) -printf '%f\0' | sort -z | xargs -0 sha256sum -- > SHA256SUMS

# The test: sums are right, one that is wrong is told, and what was unpacked elsewhere works.
sha256sum --check --quiet SHA256SUMS
mkdir "$work/damaged" "$work/unpacked" "$work/try"
cp SHA256SUMS ./*.tar.gz "$work/damaged/"
printf x >> "$work/damaged/$archive"
if (cd "$work/damaged" && sha256sum --check --ignore-missing --status SHA256SUMS); then
    echo "error: SHA256SUMS does not tell a damaged archive" >&2
    exit 1
fi
tar -xzf "$archive" --strip-components 1 -C "$work/unpacked"
for file in bin/mlmtrain share/man/man1/mlmtrain{,-pretrain,-config-check}.1 share/bash-completion/completions/mlmtrain \
    share/zsh/site-functions/_mlmtrain share/fish/vendor_completions.d/mlmtrain.fish share/mlmtrain/configs/quickstart.yaml \
    share/doc/mlmtrain/{README.md,LICENSE-APACHE,LICENSE-MIT,THIRD-PARTY-NOTICES.txt}; do
    [ -s "$work/unpacked/$file" ] || { echo "error: the archive has no $file" >&2; exit 1; }
done
bash -n "$work/unpacked/share/bash-completion/completions/mlmtrain"
cd "$work/try"
[ "$("$work/unpacked/bin/mlmtrain" -V)" = "mlmtrain $version" ]
"$work/unpacked/bin/mlmtrain" example quickstart > example.log
"$work/unpacked/bin/mlmtrain" -q pretrain --config quickstart.yaml --set training.max_steps=5 > pretrain.log
"$work/unpacked/bin/mlmtrain" -q checkpoint verify runs/quickstart/final > verify.log
cat "$folder/SHA256SUMS"

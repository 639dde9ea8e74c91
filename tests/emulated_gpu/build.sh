#!/bin/sh
# Builds the GPU that is none into a folder: libraries by the names of CUDA's, for LD_LIBRARY_PATH. Needs g++ and the
# headers of scripts/cuda-toolkit.sh (CUDA_HOME).
#
#   tests/emulated_gpu/build.sh FOLDER
set -eu
folder=${1:?usage: build.sh FOLDER}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for kernels in src/ops/*/kernel.cu; do
    op=$(basename "$(dirname "$kernels")")
    printf 'namespace op_%s {\n#include "%s/%s"\n}\n' "$op" "$PWD" "$kernels"
done > "$work/all_kernels.inc"
kernels=src/ops/cuda/kernels
for file in $kernels/kernels.cpp $kernels/host.cpp $kernels/blocks.cpp $kernels/races.cpp tests/emulated_gpu/*.cpp; do
    "${CXX:-g++}" -std=c++17 -O2 -fPIC -ffp-contract=off -mf16c -Wall -Wno-unknown-pragmas -I$kernels -I"$work" \
        -I"${CUDA_HOME:?run scripts/cuda-toolkit.sh, and . its env.sh}/include" \
        -c "$file" -o "$work/$(basename "$file").o" &
    started="${started:-} $!"
done
for one in $started; do wait "$one"; done
"${CXX:-g++}" -shared "$work"/*.o -o "$folder/libcuda.so.1" -lpthread -lrt -Wl,-z,nodelete
for name in libcublas.so.13 libcublasLt.so.13 libcurand.so.10 libnccl.so.2; do ln -sf libcuda.so.1 "$folder/$name"; done

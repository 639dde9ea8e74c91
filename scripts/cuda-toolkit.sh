#!/bin/sh
# Puts what is needed of CUDA 13 into a folder, without root, a GPU or a driver. From PyPI wheels, under
# NVIDIA's licence; needs python3 with pip, and to build also gcc and ar. x86-64 Linux; safe to run again.
#
#   scripts/cuda-toolkit.sh PREFIX              to build: nvcc with its parts, headers, and libraries to link
#   with that load
#                                               the real ones when they are first called (110 MB to fetch, 216
#                                               MB on disk)
#   scripts/cuda-toolkit.sh --libraries PREFIX  to run, where a driver is but no CUDA: cuBLAS and cuRAND (0.9
#   GB)
#
# Then, to build:  cargo fetch && . PREFIX/env.sh && cargo build --release --features cuda
#        to run:   LD_LIBRARY_PATH=PREFIX/lib mlmtrain ...
#
# `NVCC=PREFIX/bin/nvcc-lite` builds faster: it leaves out what of candle no training needs. Run this script
# again after an update of the `cudarc` crate. CUDA_COMPUTE_CAP (75 unless set; 90 would be for Hopper alone) is for
# candle's kernels, of which a step launches none; ours are always built for T4, A100 and H100, with PTX for what comes
# after them.
set -eu

if [ "${1:-}" = --libraries ]; then
    prefix=${2:?usage: cuda-toolkit.sh --libraries PREFIX}
    mkdir -p "$prefix/lib"
    prefix=$(cd "$prefix" && pwd)
    tmp=$(mktemp -d "$prefix/.tmp.XXXXXX")
    trap 'rm -rf "$tmp"' EXIT
    # shellcheck disable=SC2086
    "${PYTHON:-python3}" -m pip install -q --no-deps --no-cache-dir --only-binary=:all: --target "$tmp" \
        nvidia-cublas==13.0.2.14 nvidia-curand==10.4.0.35 nvidia-cuda-nvrtc==13.0.88
    cp "$tmp"/nvidia/cu13/lib/*.so.* "$prefix/lib/"
    ls "$prefix/lib"
    exit 0
fi

prefix=${1:?usage: cuda-toolkit.sh PREFIX}
mkdir -p "$prefix"
prefix=$(cd "$prefix" && pwd)
cudarc=$(find "${CARGO_HOME:-$HOME/.cargo}/registry/src" -maxdepth 2 -name 'cudarc-[0-9]*' 2>/dev/null | sort -V | tail -n 1)
python=${PYTHON:-python3}

# CUDA 13.0 update 2. Not newer than what the driver of the machine that runs
# the program supports (driver 580: 13.0), or its PTX is refused there. The two that only read code
# (scripts/gpu_audit.sh) begin at 13.2.
wheels='nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88
nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
nvidia-cuda-cuobjdump==13.2.51 nvidia-cuda-nvdisasm==13.2.51'
stamp=$prefix/.wheels
if [ "$(cat "$stamp" 2>/dev/null || true)" != "$wheels" ]; then
    tmp=$(mktemp -d "$prefix/.tmp.XXXXXX")
    trap 'rm -rf "$tmp"' EXIT
    # shellcheck disable=SC2086
    "$python" -m pip download -q --no-deps --no-cache-dir --only-binary=:all: \
        --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
        --platform manylinux_2_12_x86_64 --platform manylinux2010_x86_64 \
        -d "$tmp/whl" $wheels
    "$python" - "$tmp" <<'PY'
import glob, sys, zipfile
for w in glob.glob(sys.argv[1] + "/whl/*.whl"):
    zipfile.ZipFile(w).extractall(sys.argv[1] + "/x")
PY
    # libnvvm.so (63 MB) is for programs that call NVVM; cicc, which nvcc calls, stands alone
    (cd "$prefix" && rm -rf bin nvvm include lib lib64 .stubs)
    rm -f "$tmp"/x/nvidia/cu13/lib/libnvvm.so*
    mv "$tmp"/x/nvidia/cu13/bin "$tmp"/x/nvidia/cu13/nvvm "$tmp"/x/nvidia/cu13/include "$tmp"/x/nvidia/cu13/lib "$prefix/"
    chmod -R u+w,a+rX "$prefix/bin" "$prefix/nvvm" "$prefix/include" "$prefix/lib"
    chmod a+x "$prefix"/bin/* "$prefix"/nvvm/bin/*
    ln -s lib "$prefix/lib64"
    printf '%s' "$wheels" >"$stamp"
fi

# Libraries to link with. Each is an archive of small functions that load the
# real library when the first of them is called, and return an error code when
# it is not there. The program then starts on a machine without CUDA.
if [ -n "$cudarc" ] && [ "$(cat "$prefix/.stubs" 2>/dev/null || true)" != "$(basename "$cudarc")" ]; then
    rm -rf "$prefix/lib/stubs"
    mkdir -p "$prefix/lib/stubs"
    "$python" - "$cudarc" "$prefix/lib/stubs" <<'PY'
import os, re, subprocess, sys

cudarc, out = sys.argv[1:]
# library, module of cudarc, sonames to try (those that linking would record), what to return when it is
# missing
LIBS = [
    ("cuda", "driver", ["libcuda.so.1"], 100),  # CUDA_ERROR_NO_DEVICE
    ("cublas", "cublas", ["libcublas.so.13"], 1),  # NOT_INITIALIZED
    ("cublasLt", "cublaslt", ["libcublasLt.so.13"], 1),
    ("curand", "curand", ["libcurand.so.10"], 203),  # INITIALIZATION_FAILED
    ("nvrtc", "nvrtc", ["libnvrtc.so.13"], 11),  # INTERNAL_ERROR
    ("cudnn", "cudnn", ["libcudnn.so.9"], 1),  # NOT_INITIALIZED
    ("nccl", "nccl", ["libnccl.so.2"], 2),  # ncclSystemError
]
C = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
static const char *const sonames[] = { %(sonames)s, 0 };
static const char *const names[] = { %(names)s };
extern void *%(lib)s_lazy_slots[] __attribute__((visibility("hidden")));
static const char texts[] = { %(texts)s }; /* 1: it returns a string */
static long missing(void) { return %(error)d; }
static const char *missing_text(void) { return sonames[0]; }
__attribute__((visibility("hidden"), used)) void *%(lib)s_lazy_resolve(long i) {
  static void *lib; /* dlopen counts and repeats: no lock needed */
  void *f = 0;
  for (int s = 0; !lib && sonames[s]; s++) lib = dlopen(sonames[s], RTLD_NOW);
  if (!lib && getenv("CUDA_LAZY_VERBOSE")) fprintf(stderr, "%%s: %%s\n", names[i], dlerror());
  if (lib && !(f = dlsym(lib, names[i]))) fprintf(stderr, "%%s has no %%s\n", sonames[0], names[i]);
  if (!f) f = texts[i] ? (void *)missing_text : (void *)missing;
  __atomic_store_n(&%(lib)s_lazy_slots[i], f, __ATOMIC_RELEASE);
  return f;
}
"""
ASM = """
.text
.p2align 4
common:
  push %rdi; push %rsi; push %rdx; push %rcx; push %r8; push %r9; push %rax; push %rbx
  sub $128, %rsp
  movups %xmm0, (%rsp); movups %xmm1, 16(%rsp); movups %xmm2, 32(%rsp); movups %xmm3, 48(%rsp)
  movups %xmm4, 64(%rsp); movups %xmm5, 80(%rsp); movups %xmm6, 96(%rsp); movups %xmm7, 112(%rsp)
  mov 192(%rsp), %rdi
  call LIB_lazy_resolve
  mov %rax, %r11
  movups (%rsp), %xmm0; movups 16(%rsp), %xmm1; movups 32(%rsp), %xmm2; movups 48(%rsp), %xmm3
  movups 64(%rsp), %xmm4; movups 80(%rsp), %xmm5; movups 96(%rsp), %xmm6; movups 112(%rsp), %xmm7
  add $128, %rsp
  pop %rbx; pop %rax; pop %r9; pop %r8; pop %rcx; pop %rdx; pop %rsi; pop %rdi
  add $8, %rsp
  jmp *%r11
"""
for lib, module, sonames, error in LIBS:
    text = open(f"{cudarc}/src/{module}/sys/mod.rs").read()
    returns = dict(re.findall(r'extern "C" \{\s*fn (\w+)\([^;]*?\)\s*(?:->\s*([^;]+))?;', text))
    names = sorted(returns)
    assert len(names) == len(set(re.findall(r'extern "C" \{\s*fn (\w+)', text)))
    assert len(names) > 10, (lib, names)
    q = lambda xs: ", ".join(f'"{x}"' for x in xs)
    src = C % dict(lib=lib, sonames=q(sonames), names=q(names), error=error,
                   texts=", ".join("01"["*const" in returns[n]] for n in names))
    asm = ASM.replace("LIB", lib)
    for i, n in enumerate(names):
        asm += f".globl {n}\n.type {n}, @function\n.p2align 4\n{n}: jmp *{lib}_lazy_slots+{8 * i}(%rip)\nf{i}: push ${i}; jmp common\n"
    asm += f".data\n.p2align 3\n.globl {lib}_lazy_slots\n.hidden {lib}_lazy_slots\n{lib}_lazy_slots:\n"
    asm += "".join(f".quad f{i}\n" for i in range(len(names)))
    asm += '.section .note.GNU-stack,"",@progbits\n'
    p = f"{out}/{lib}_lazy"
    open(p + "_c.c", "w").write(src)
    open(p + "_s.s", "w").write(asm)
    for s, ext in (("_c", ".c"), ("_s", ".s")):
        subprocess.check_call([os.environ.get("CC", "gcc"), "-O2", "-fPIC", "-c", p + s + ext, "-o", p + s + ".o"])
    subprocess.check_call(["ar", "rcsD", f"{out}/lib{lib}.a", p + "_c.o", p + "_s.o"])
    for s in ("_c.c", "_s.s", "_c.o", "_s.o"):
        os.remove(p + s)
    print(f"lib{lib}.a: {len(names)} functions", [n for n in names if "*" in returns[n]])
PY
    # candle-kernels links -lcudart: let it be the static one (it loads libcuda itself)
    ln -s ../libcudart_static.a "$prefix/lib/stubs/libcudart.a"
    basename "$cudarc" >"$prefix/.stubs"
fi

cat >"$prefix/bin/nvcc-lite" <<'NVCC'
#!/bin/sh
# nvcc for builds that need none of candle's GGUF (quantised) and mixture-of-
# experts kernels: those sources become functions that stop the program. The
# rest goes to nvcc as it is. Use: NVCC=.../nvcc-lite
here=$(dirname "$0")
out= last= prev=
for a in "$@"; do
    [ "$prev" = -o ] && out=$a
    prev=$a last=$a
done
case " $* " in *' -c '*) ;; *) exec "$here/nvcc" "$@" ;; esac
case $last in
*src/mmvq_gguf.cu)
    { echo '#include <stdio.h>'
      echo '#include <stdlib.h>'
      sed -n 's/.*pub fn \([A-Za-z0-9_]*\).*/\1/p' src/ffi.rs | while read -r f; do
          printf 'void %s(void) { puts("%s: left out of this build (nvcc-lite)"); abort(); }\n' "$f" "$f"
      done; } | "${CC:-gcc}" -O2 -fPIC -xc -c - -o "$out" ;;
*src/moe/*.cu | *src/mmq_gguf/*.cu)
    echo | "${CC:-gcc}" -fPIC -xc -c - -o "$out" ;;
*)  exec "$here/nvcc" "$@" ;;
esac
NVCC
chmod a+x "$prefix/bin/nvcc-lite"

cat >"$prefix/env.sh" <<E
export CUDA_HOME='$prefix' CUDA_PATH='$prefix' CUDA_ROOT='$prefix' NVCC='$prefix/bin/nvcc'
export PATH='$prefix/bin':"\$PATH"
export CUDARC_CUDA_VERSION=13000
export CUDA_COMPUTE_CAP="\${CUDA_COMPUTE_CAP:-75}"
export CUDAFORGE_THREADS="\${CUDAFORGE_THREADS:-\$(nproc)}"
E
"$prefix/bin/nvcc" --version | sed -n 4p
[ -n "$cudarc" ] || echo "no cudarc source found: run cargo fetch, then this script again, for the libraries to link with"

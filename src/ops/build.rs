//! Compiles the GPU kernels (`*/kernel.cu`) if one of two features is enabled; otherwise it does nothing.
//!
//! With `cuda`, nvcc compiles each op to one fat binary: machine code for each GPU generation in [`CODE`],
//! and PTX for later generations. With `cuda-on-host`, the C++ compiler compiles the kernels into this
//! program, for tests. The script prints to standard output because cargo reads its instructions there.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::{env, fs, thread};

/// The nvcc targets: machine code for T4, A100 and H100, then PTX of the newest generation.
const CODE: [&str; 4] = [
    "arch=compute_75,code=sm_75",
    "arch=compute_80,code=sm_80",
    "arch=compute_90,code=sm_90",
    "arch=compute_90,code=compute_90",
];

/// Environment variable with a folder for compiled kernels. Builds of the same sources take them from there:
/// clippy and the compiler have build folders of their own, and nvcc takes minutes.
const CACHE: &str = "MLMTRAIN_KERNEL_CACHE";

/// Environment variable with the GPU generation that candle compiles its own kernels for. If it is not set,
/// candle takes the generation of the GPU in the build machine.
const CANDLE_CODE: &str = "CUDA_COMPUTE_CAP";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let mut files = Vec::new();
    add_files(Path::new("."), &mut files);
    files.sort();
    watch(&files);
    println!("cargo::rerun-if-env-changed=NVCC");
    println!("cargo::rerun-if-env-changed={CACHE}");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    let sources = kernel_sources();
    if env::var_os("CARGO_FEATURE_CUDA").is_some() {
        fat_binaries(&sources, &files, &out);
        println!("cargo::rerun-if-env-changed={CANDLE_CODE}");
        println!("cargo::rustc-env=MLMTRAIN_GPU_CODE={}", code_in_words());
    } else if env::var_os("CARGO_FEATURE_CUDA_ON_HOST").is_some() {
        on_host(&sources, &out);
    }
}

/// The GPU code in the program, as `--version` prints it: `sm_75 sm_80 sm_90, PTX compute_90 for later ones`.
fn code_in_words() -> String {
    let codes: Vec<&str> = CODE.iter().filter_map(|code| code.split("code=").nth(1)).collect();
    let (machine_code, ptx): (Vec<&str>, Vec<&str>) =
        codes.into_iter().partition(|code| code.starts_with("sm_"));
    let candles = env::var(CANDLE_CODE)
        .map_or_else(|_| "the GPU of the build".to_string(), |cap| format!("{CANDLE_CODE}={cap}"));
    format!("{}, PTX {} for later ones; candle's own for {candles}", machine_code.join(" "), ptx.join(" "))
}

/// Makes cargo run this script again when a kernel source changes, or a `cuda.rs` or `lib.rs`, which change
/// when an op gets its first kernel. Other Rust files do not trigger it, because nvcc takes minutes.
fn watch(files: &[PathBuf]) {
    for path in files {
        let is_of_op = path.ends_with("cuda.rs") && path.parent() != Some(Path::new("."));
        if is_kernel(path) || is_of_op || path.ends_with("lib.rs") {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
}

/// Adds all files below `folder` to `files`.
fn add_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("the sources can be read").path();
        if path.is_dir() {
            add_files(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// Returns the name and the path of `kernel.cu` of each op that has one, sorted by name.
fn kernel_sources() -> Vec<(String, PathBuf)> {
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let ops = fs::read_dir(&root).expect("the sources are there");
    let mut sources: Vec<(String, PathBuf)> = ops
        .map(|entry| entry.expect("the sources can be read"))
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path().join("kernel.cu")))
        .filter(|(_, source)| source.exists())
        .collect();
    sources.sort();
    sources
}

/// Runs nvcc on all sources, one process per CPU at a time, and writes the table of fat binaries that the
/// folder `cuda/driver` includes.
fn fat_binaries(sources: &[(String, PathBuf)], files: &[PathBuf], out: &Path) {
    let nvcc = env::var("NVCC").unwrap_or_else(|_| "nvcc".to_string());
    let cache = env::var_os(CACHE).map(|folder| Path::new(&folder).join(version(&nvcc, files)));
    if let Some(folder) = &cache {
        fs::create_dir_all(folder).expect("the folder of compiled kernels can be written");
    }
    let mut by_length: Vec<&(String, PathBuf)> = sources.iter().collect();
    // The longest are started first: while they are compiled, the others fill the other CPUs.
    by_length.sort_by_key(|(_, source)| kernel_bytes(source));
    let waiting = Mutex::new(by_length);
    let at_once = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some((op, source)) = last_of(&waiting) {
                    let binary = out.join(format!("{op}.fatbin"));
                    let cached = cache.as_ref().map(|folder| folder.join(format!("{op}.fatbin")));
                    if cached.as_ref().is_some_and(|cached| fs::copy(cached, &binary).is_ok()) {
                        continue;
                    }
                    let status = compiler(&nvcc, source, &binary).status();
                    let status = status.unwrap_or_else(|e| {
                        panic!(
                            "cannot run `{nvcc}`: {e}\n  \
                             hint: scripts/cuda-toolkit.sh installs it, without root; then `. PREFIX/env.sh`"
                        )
                    });
                    assert!(status.success(), "`{nvcc}` failed on the kernels of `{op}`, see above");
                    if let Some(cached) = cached {
                        // Another build never finds half a file.
                        let half = cached.with_extension(std::process::id().to_string());
                        fs::copy(&binary, &half)
                            .and_then(|_| fs::rename(&half, &cached))
                            .expect("the folder of compiled kernels can be written");
                    }
                }
            });
        }
    });
    let line =
        |op: &str| format!("    (\"{op}\", include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{op}.fatbin\"))),\n");
    let lines: String = sources.iter().map(|(op, _)| line(op)).collect();
    fs::write(out.join("fat_binaries.rs"), format!("&[\n{lines}]\n"))
        .expect("the output folder can be written");
}

fn last_of<'a>(waiting: &Mutex<Vec<&'a (String, PathBuf)>>) -> Option<&'a (String, PathBuf)> {
    waiting.lock().expect("no thread panics with it").pop()
}

/// A name for the kernel sources among `files` as compiled by `nvcc`: a hash of them, of the targets and of
/// the compiler's version.
fn version(nvcc: &str, files: &[PathBuf]) -> String {
    let mut hasher = DefaultHasher::new();
    CODE.hash(&mut hasher);
    Command::new(nvcc).arg("--version").output().map(|output| output.stdout).ok().hash(&mut hasher);
    for file in files.iter().filter(|file| is_kernel(file)) {
        file.hash(&mut hasher);
        fs::read(file).expect("the sources can be read").hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

fn is_kernel(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| ["cu", "cuh", "cpp", "hpp"].iter().any(|known| extension == *known))
}

/// The size of all kernel sources in the folder of `source`. More bytes take longer to compile.
fn kernel_bytes(source: &Path) -> u64 {
    let folder = source.parent().unwrap_or(source);
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let kernels = files.filter(|file| is_kernel(&file.path()));
    kernels.map(|file| file.metadata().map_or(0, |metadata| metadata.len())).sum()
}

fn compiler(nvcc: &str, source: &Path, to: &Path) -> Command {
    let mut command = Command::new(nvcc);
    command.args(["-fatbin", "-std=c++17", "-O3", "-Icuda/kernels", "-Xfatbin=-compress-all"]);
    command.args(CODE.iter().flat_map(|code| ["-gencode", code]));
    command.arg(source).arg("-o").arg(to);
    command
}

#[cfg(feature = "cuda-on-host")]
fn on_host(sources: &[(String, PathBuf)], out: &Path) {
    // All kernels are one translation unit, so that the linker drops none of them. Each op has a namespace,
    // so that helper functions of two ops may have the same name.
    let include = |(op, source): &(String, PathBuf)| {
        format!("namespace op_{op} {{\n#include \"{}\"\n}}\n", source.display())
    };
    fs::write(out.join("all_kernels.inc"), sources.iter().map(include).collect::<String>())
        .expect("the output folder can be written");
    let kernels = Path::new("cuda/kernels");
    let build = |files: &[&str], flags: &[&str], library: &str| {
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").opt_level(2).include(kernels).include(out);
        for flag in ["-ffp-contract=off", "-mf16c"].iter().chain(flags) {
            build.flag(flag);
        }
        build.flag_if_supported("-Wno-unknown-pragmas");
        build.files(files.iter().map(|file| kernels.join(file))).compile(library);
    };
    // With these flags the compiler inserts a call before each memory access. The functions called are not
    // those of ThreadSanitizer's library but our own, in `races.hpp`.
    let instrumented = ["-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0"];
    build(&["kernels.cpp"], &instrumented, "mlmtrain_kernels_on_host");
    build(&["host.cpp", "blocks.cpp", "races.cpp"], &[], "mlmtrain_host");
}

#[cfg(not(feature = "cuda-on-host"))]
fn on_host(_: &[(String, PathBuf)], _: &Path) {}

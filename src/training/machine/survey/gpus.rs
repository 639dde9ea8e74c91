//! NVIDIA GPUs, as the driver's library reports them in a build with CUDA, else as the driver's files in
//! `/proc` and `/dev` show them.

use std::path::Path;

use serde::Serialize;

use super::field;
use crate::telemetry;
use crate::telemetry::GpuFacts;
use base::fs;
use base::fs::read_system_text;

/// The GPUs of a machine, and the support for them in this program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gpus {
    /// True if this program contains code for GPUs.
    pub built_with_cuda: bool,
    /// Generations that the code is compiled for; `None` in a build without CUDA.
    pub code_for: Option<&'static str>,
    /// Version of the driver.
    pub driver: Option<String>,
    /// GPUs in the driver's order.
    pub list: Vec<GpuFacts>,
}

impl Gpus {
    /// Asks the driver's library, or else reads the driver's files below `root`, which is `/` outside of
    /// tests.
    pub(super) fn read(root: &Path) -> Self {
        let known = telemetry::gpu_driver().unwrap_or_default();
        Self {
            built_with_cuda: cfg!(feature = "cuda"),
            code_for: ops::cuda::GPU_CODE,
            driver: known
                .version
                .or_else(|| driver_version(&read_system_text(&root.join("proc/driver/nvidia/version"))?)),
            list: if known.gpus.is_empty() { gpus_by_files(root) } else { known.gpus },
        }
    }
}

/// The version in a line such as `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  ...`.
fn driver_version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    line.split_whitespace().find(|word| is_version(word)).map(str::to_string)
}

fn is_version(word: &str) -> bool {
    word.contains('.')
        && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

/// GPUs by the driver's files: a folder for each GPU, or at least a device file for each in `/dev`.
fn gpus_by_files(root: &Path) -> Vec<GpuFacts> {
    let folders = fs::list(&root.join("proc/driver/nvidia/gpus")).unwrap_or_default();
    if !folders.is_empty() {
        return folders.iter().map(|folder| facts_in(folder)).collect();
    }
    let nodes = fs::list(&root.join("dev")).unwrap_or_default();
    nodes.iter().filter(|path| is_gpu_node(path)).map(|_| GpuFacts::default()).collect()
}

fn facts_in(folder: &Path) -> GpuFacts {
    let text = read_system_text(&folder.join("information")).unwrap_or_default();
    GpuFacts {
        name: field(&text, "Model").map(str::to_string),
        uuid: field(&text, "GPU UUID").map(str::to_string),
        ..GpuFacts::default()
    }
}

/// Returns true for `/dev/nvidia0`, `/dev/nvidia1`, ...
fn is_gpu_node(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix("nvidia").is_some_and(|number| number.parse::<u32>().is_ok())
}

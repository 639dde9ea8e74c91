//! NVIDIA's GPUs: by the driver's library in a build with CUDA, else by what the driver shows in `/proc` and
//! `/dev`.

use std::path::Path;

use serde::Serialize;

use super::field;
use crate::fs;
use crate::fs::read_system_text;
use crate::telemetry;
use crate::telemetry::GpuFacts;

/// The GPUs of a machine, and what this program can do with them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gpus {
    /// Whether this program has code for them.
    pub built_with_cuda: bool,
    /// For which generations; `None` in a build without CUDA.
    pub code_for: Option<&'static str>,
    /// The driver's version.
    pub driver: Option<String>,
    /// In the driver's order.
    pub list: Vec<GpuFacts>,
}

impl Gpus {
    /// What the driver's library tells, or else the system where `root` is `/`.
    pub(super) fn below(root: &Path) -> Self {
        let known = telemetry::gpu_driver().unwrap_or_default();
        Self {
            built_with_cuda: cfg!(feature = "cuda"),
            code_for: ops::cuda::GPU_CODE,
            driver: known
                .version
                .or_else(|| driver_version(&read_system_text(&root.join("proc/driver/nvidia/version"))?)),
            list: if known.gpus.is_empty() { shown(root) } else { known.gpus },
        }
    }
}

/// The number in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  ...`.
fn driver_version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let is_version = |word: &&str| {
        word.contains('.')
            && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    line.split_whitespace().find(is_version).map(str::to_string)
}

/// What the driver shows as files: a folder for each GPU, or at least its node in `/dev`.
fn shown(root: &Path) -> Vec<GpuFacts> {
    let folders = fs::list(&root.join("proc/driver/nvidia/gpus")).unwrap_or_default();
    let of_folder = |folder: &std::path::PathBuf| {
        let text = read_system_text(&folder.join("information")).unwrap_or_default();
        let value = |name| field(&text, name).map(str::to_string);
        GpuFacts { name: value("Model"), uuid: value("GPU UUID"), ..GpuFacts::default() }
    };
    if !folders.is_empty() {
        return folders.iter().map(of_folder).collect();
    }
    let is_node = |path: &&std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix("nvidia").is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let nodes = fs::list(&root.join("dev")).unwrap_or_default();
    nodes.iter().filter(is_node).map(|_| GpuFacts::default()).collect()
}

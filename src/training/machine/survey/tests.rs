//! Tests on machines made up of files: existing facts are reported, and missing or invalid ones are unknown.

use std::path::Path;

use tempfile::TempDir;

use super::{Gpus, Memory, Processor, Room};
#[cfg(not(feature = "cuda"))]
use crate::telemetry::GpuFacts;

fn machine(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

#[test]
fn a_machine_in_a_container_is_described() {
    let cpuinfo = "processor\t: 0\nmodel name\t: AMD EPYC 9124\nphysical id\t: 0\ncore id\t\t: 0\n\n\
        processor\t: 1\nmodel name\t: AMD EPYC 9124\nphysical id\t: 0\ncore id\t\t: 0\n\n";
    let root = machine(&[
        ("proc/cpuinfo", cpuinfo),
        ("proc/self/status", "Name:\tmlmtrain\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n"),
        ("proc/self/cgroup", "0::/box\n"),
        ("sys/fs/cgroup/box/cpu.max", "50000 100000\n"),
        ("sys/fs/cgroup/box/memory.max", "1048576\n"),
        ("sys/fs/cgroup/box/memory.current", "48576\n"),
        ("proc/meminfo", "MemTotal:       4096 kB\nMemFree:  5 kB\nMemAvailable:   2048 kB\n"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
    ]);
    let processor = Processor::read(root.path());
    assert_eq!(processor.model.as_deref(), Some("AMD EPYC 9124"));
    assert_eq!((processor.cores, processor.threads, processor.affinity), (Some(1), Some(2), Some(2)));
    assert_eq!(processor.group_cpus, Some(0.5));
    assert_eq!(
        Memory::read(root.path()),
        Memory {
            total_bytes: Some(4 << 20),
            available_bytes: Some(2 << 20),
            group_limit_bytes: Some(1 << 20),
            group_room_bytes: Some(1_000_000),
            free_bytes: Some(1_000_000),
            huge_pages: Some("madvise".to_string()),
        }
    );
}

#[test]
fn a_machine_without_readable_files_is_unknown() {
    for files in [
        &[][..],
        &[
            ("proc/cpuinfo", "\n\n:\nprocessor\n\u{fffd}"),
            ("proc/self/status", "Cpus_allowed_list:\t-\n"),
            ("proc/self/cgroup", "::::\n\n"),
            ("proc/meminfo", "MemTotal: many kB\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise"),
            ("proc/driver/nvidia/version", "none\n"),
            ("dev/nvidiactl", ""),
        ],
    ] {
        let root = machine(files);
        let Processor { model, cores, threads, affinity, group_cpus, .. } = Processor::read(root.path());
        assert_eq!((model, cores, threads, affinity, group_cpus), (None, None, None, None, None));
        let Memory {
            total_bytes,
            available_bytes,
            group_limit_bytes,
            group_room_bytes,
            free_bytes,
            huge_pages,
        } = Memory::read(root.path());
        assert_eq!(
            [total_bytes, available_bytes, group_limit_bytes, group_room_bytes, free_bytes],
            [None; 5]
        );
        assert_eq!(huge_pages, None);
        if !cfg!(feature = "cuda") {
            let gpus = Gpus::read(root.path());
            assert_eq!((gpus.driver, gpus.list), (None, Vec::new()));
        }
    }
}

/// A build without CUDA learns about GPUs from the driver's files.
#[cfg(not(feature = "cuda"))]
#[test]
fn gpus_are_found_without_the_drivers_library() {
    let version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\nGCC version:  gcc version 13.3.0\n";
    let mut files = vec![
        ("proc/driver/nvidia/version", version),
        ("dev/nvidia0", ""),
        ("dev/nvidia1", ""),
        ("dev/nvidiactl", ""),
        ("dev/nvidia-uvm", ""),
    ];
    let of_nodes = Gpus::read(machine(&files).path());
    assert_eq!(of_nodes.driver.as_deref(), Some("580.95.05"));
    assert_eq!(of_nodes.list, vec![GpuFacts::default(); 2]);
    files.push((
        "proc/driver/nvidia/gpus/0000:00:04.0/information",
        "Model: \t\t NVIDIA L4\nGPU UUID: \t GPU-1\n",
    ));
    let of_folders = Gpus::read(machine(&files).path());
    assert_eq!(of_folders.list.len(), 1);
    assert_eq!(of_folders.list[0].name.as_deref(), Some("NVIDIA L4"));
    assert_eq!(of_folders.list[0].uuid.as_deref(), Some("GPU-1"));
}

#[test]
fn a_folder_that_is_not_there_has_no_room() {
    let root = machine(&[]);
    assert!(Room::new("here", Some(root.path().to_path_buf())).free_bytes.is_some());
    assert_eq!(Room::new("nowhere", Some(root.path().join("none"))).free_bytes, None);
    assert_eq!(Room::new("unnamed", None::<&Path>.map(Path::to_path_buf)).free_bytes, None);
}

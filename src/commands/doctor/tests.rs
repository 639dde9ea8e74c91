//! Tests of the tables of two machines: one with all values known, and one with none.

use std::path::PathBuf;

use super::table::lines;
use crate::machine::survey::{
    Gpus, Libraries, Library, Looked, Memory, Processor, Product, Room, Run, Survey,
};
use crate::telemetry::GpuFacts;

fn product(compute: &'static str, instructions: &'static str, widened: bool) -> Product {
    Product { compute, instructions, widened }
}

fn known() -> Survey {
    Survey {
        version: "1.2.3",
        processor: Processor {
            model: Some("Xeon".to_string()),
            architecture: "x86_64",
            cores: Some(2),
            threads: Some(4),
            affinity: Some(3),
            group_cpus: Some(1.5),
            features: vec!["fma", "avx2"],
            instructions: "amx",
            cap: Some("avx512"),
            in_use: "avx512",
            products: [
                product("f32", "avx512", false),
                product("bf16", "avx512", true),
                product("f16", "avx512", true),
            ],
        },
        memory: Memory {
            total_bytes: Some(64 << 30),
            available_bytes: Some(60 << 30),
            group_limit_bytes: Some(8 << 30),
            group_room_bytes: Some(7 << 30),
            free_bytes: Some(7 << 30),
            huge_pages: Some("madvise".to_string()),
        },
        gpus: Gpus {
            built_with_cuda: true,
            code_for: Some("sm_80"),
            driver: Some("580.95.05".to_string()),
            list: vec![GpuFacts {
                name: Some("NVIDIA H200".to_string()),
                uuid: Some("GPU-1".to_string()),
                compute_capability: Some("9.0".to_string()),
                total_bytes: Some(139 << 30),
                free_bytes: Some(138 << 30),
            }],
        },
        cuda_libraries: Libraries {
            found: vec![
                Library { name: "libcuda.so.1", path: Some(PathBuf::from("/usr/lib/libcuda.so.1")) },
                Library { name: "libcublas.so.13", path: None },
            ],
            looked_in: vec![
                Looked { because: "LD_LIBRARY_PATH", folders: Vec::new() },
                Looked { because: "CUDA toolkits", folders: vec![PathBuf::from("/usr/local/cuda*/lib64")] },
            ],
        },
        disk: vec![Room {
            name: "current folder",
            path: Some(PathBuf::from("/work")),
            free_bytes: Some(1 << 40),
        }],
        run: Run {
            device: Some("cpu".to_string()),
            compute: Some("bf16"),
            compute_auto: Some("bf16"),
            threads: Some(2),
            notes: vec!["no GPU is used".to_string()],
            refused: None,
        },
    }
}

#[test]
fn known_values_are_shown() {
    insta::assert_snapshot!(lines(&known()).join("\n"), @"
    mlmtrain 1.2.3
    processor
      model                  Xeon
      architecture           x86_64
      cores                  2, threads 4
      this process may use   3 threads
      control group's quota  1.50 processors
      instructions           fma avx2
      best set of them       amx
      cap                    MLMTRAIN_CPU=avx512
      products               f32 by avx512, bf16 by avx512 (widened to f32), f16 by avx512 (widened to f32)
    memory
      free                   60GiB of 64GiB
      control group's limit  8GiB, of which 7GiB are left
      free for a run         7GiB
      huge pages             madvise
    GPUs
      code for GPUs          yes, for sm_80
      driver                 580.95.05
      GPU 0                  NVIDIA H200, compute capability 9.0, 138GiB of 139GiB free
    CUDA libraries
      libcuda.so.1           /usr/lib/libcuda.so.1
      libcublas.so.13        not found
      looked in              LD_LIBRARY_PATH: none
      looked in              CUDA toolkits: /usr/local/cuda*/lib64
    free disk
      current folder         1TiB in /work
    a run would take
      device                 cpu
      compute                bf16
      threads                2
      note                   no GPU is used
    ");
}

#[test]
fn unknown_values_are_shown_as_unknown() {
    let known = known();
    let mut survey = Survey {
        processor: Processor {
            model: None,
            cores: None,
            threads: None,
            affinity: None,
            group_cpus: None,
            features: Vec::new(),
            cap: None,
            ..known.processor
        },
        memory: Memory {
            total_bytes: None,
            available_bytes: None,
            group_limit_bytes: None,
            group_room_bytes: None,
            free_bytes: None,
            huge_pages: None,
        },
        gpus: Gpus { built_with_cuda: false, code_for: None, driver: None, list: vec![GpuFacts::default()] },
        cuda_libraries: Libraries { found: Vec::new(), looked_in: Vec::new() },
        disk: vec![Room { name: "shared memory", path: None, free_bytes: None }],
        run: Run { refused: Some("one of 4 processes".to_string()), ..Run::default() },
        ..known
    };
    insta::assert_snapshot!(lines(&survey).join("\n"), @"
    mlmtrain 1.2.3
    processor
      model                  unknown
      architecture           x86_64
      cores                  unknown, threads unknown
      this process may use   unknown
      control group's quota  none
      instructions           unknown
      best set of them       amx
      cap                    none (MLMTRAIN_CPU is not set)
      products               f32 by avx512, bf16 by avx512 (widened to f32), f16 by avx512 (widened to f32)
    memory
      free                   unknown of unknown
      control group's limit  none
      free for a run         unknown
      huge pages             unknown
    GPUs
      code for GPUs          no: this program was built without CUDA (feature `cuda`)
      driver                 not found
      GPU 0                  unknown, compute capability unknown, unknown of unknown free
    CUDA libraries
    free disk
      shared memory          unknown in unknown
    a run would take
      nothing                it would be refused: one of 4 processes
    ");
    survey.memory.huge_pages = Some("never".to_string());
    survey.processor.cap = Some("amx");
    let lines = lines(&survey).join("\n");
    assert!(lines.contains("never: products and updates are slower"), "{lines}");
    assert!(lines.contains("MLMTRAIN_CPU=amx, which has no effect"), "{lines}");
}

#[test]
fn unknown_values_are_null_in_json() {
    let mut survey = known();
    survey.processor.model = None;
    let object = serde_json::to_value(&survey).unwrap();
    assert!(object["processor"]["model"].is_null());
    assert_eq!(object["memory"]["group_limit_bytes"], 8u64 << 30);
    assert_eq!(object["gpus"]["list"][0]["compute_capability"], "9.0");
    assert_eq!(object["cuda_libraries"]["found"][0]["path"], "/usr/lib/libcuda.so.1");
    assert_eq!(object["run"]["compute_auto"], "bf16");
}

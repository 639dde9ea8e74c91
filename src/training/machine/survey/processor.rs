//! The processor: its model, how much of it this process may use, and which instructions will be used.

use std::collections::HashSet;
use std::path::Path;

use candle_core::DType;
use serde::Serialize;

use super::field;
use base::fs;
use base::fs::read_system_text;
use base::instructions;
use base::instructions::Instructions;
use ops::matmul::cpu::{instructions_for, is_native};

/// A processor, or several processors of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Processor {
    /// Name of the model, as the processor reports it.
    pub model: Option<String>,
    /// Architecture, such as `x86_64` or `aarch64`.
    pub architecture: &'static str,
    /// Number of cores in the whole machine.
    pub cores: Option<usize>,
    /// Number of hardware threads of these cores.
    pub threads: Option<usize>,
    /// Number of hardware threads that this process may run on.
    pub affinity: Option<usize>,
    /// Processor time that its control groups allow, in processors; `None` without a limit.
    pub group_cpus: Option<f64>,
    /// Instruction sets that matter for this program, by Linux's names.
    pub features: Vec<&'static str>,
    /// The best set of instructions for this program.
    pub instructions: &'static str,
    /// Cap that the user sets on the instructions (`MLMTRAIN_CPU`).
    pub cap: Option<&'static str>,
    /// The best set of instructions within the cap.
    pub in_use: &'static str,
    /// Computation of matrix products, for each number type.
    pub products: [Product; 3],
}

/// Computation of the matrix products of one number type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Product {
    /// Type of the operands.
    pub compute: &'static str,
    /// Instructions that compute the products.
    pub instructions: &'static str,
    /// True if the operands are converted to f32 first.
    pub widened: bool,
}

impl Processor {
    /// The processor of this machine.
    pub fn here() -> Self {
        Self::read(Path::new("/"))
    }

    /// Reads the system's files below `root`, which is `/` outside of tests, and asks the processor itself.
    pub(super) fn read(root: &Path) -> Self {
        let text = read_system_text(&root.join("proc/cpuinfo")).unwrap_or_default();
        let threads = text.lines().filter(|line| is_field(line, "processor")).count();
        let status = read_system_text(&root.join("proc/self/status"));
        let choice = instructions::choice().ok();
        let in_use = instructions::in_use();
        Self {
            // Boards with ARM processors have the fields `Hardware` and `Model`.
            model: ["model name", "Model", "Hardware"]
                .iter()
                .find_map(|name| field(&text, name))
                .map(str::to_string),
            architecture: std::env::consts::ARCH,
            cores: cores(&text),
            threads: (threads > 0).then_some(threads),
            affinity: status.and_then(|status| count_of_list(field(&status, "Cpus_allowed_list")?)),
            group_cpus: fs::group_limits(root).cpus,
            features: instructions::features(),
            instructions: choice.map_or(in_use, |choice| choice.machine).name(),
            cap: choice.and_then(|choice| choice.cap).map(Instructions::name),
            in_use: in_use.name(),
            products: [DType::F32, DType::BF16, DType::F16].map(|dtype| Product {
                compute: dtype.as_str(),
                instructions: instructions_for(dtype).name(),
                widened: !is_native(dtype),
            }),
        }
    }
}

/// Returns true if a line of `/proc/cpuinfo` has this field.
fn is_field(line: &str, name: &str) -> bool {
    line.split_once(':').is_some_and(|(found, _)| found.trim() == name)
}

/// Number of cores by their ids; `None` if a thread has no core id, as on ARM.
fn cores(cpuinfo: &str) -> Option<usize> {
    let threads = cpuinfo.split("\n\n").filter(|part| part.lines().any(|line| is_field(line, "processor")));
    let numbers: Option<HashSet<(&str, &str)>> =
        threads.map(|thread| Some((field(thread, "physical id")?, field(thread, "core id")?))).collect();
    numbers.map(|numbers| numbers.len()).filter(|&count| count > 0)
}

/// Number of elements in a list such as `0-3,8`.
fn count_of_list(list: &str) -> Option<usize> {
    list.split(',').try_fold(0usize, |count, part| {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        let first = first.parse::<usize>().ok()?;
        let last = last.parse::<usize>().ok()?;
        count.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_counted_and_nonsense_is_unknown() {
        assert_eq!(count_of_list("0"), Some(1));
        assert_eq!(count_of_list("0-3,8, 10-11"), Some(7));
        for nonsense in ["", "3-1", "a", "0-", "1,,2", "0-18446744073709551615"] {
            assert_eq!(count_of_list(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn cores_are_distinguished_from_threads() {
        let threads = [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 0, 0)];
        let threads = threads.map(|(number, package, core)| {
            format!("processor\t: {number}\nphysical id\t: {package}\ncore id\t\t: {core}\n\n")
        });
        let two_packages = threads.concat();
        assert_eq!(cores(&two_packages), Some(3));
        assert_eq!(cores(""), None);
        assert_eq!(cores(&format!("{two_packages}processor\t: 4\n")), None);
    }
}

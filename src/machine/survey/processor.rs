//! The processor: what it is, how much of it this process may use, and which code it will run.

use std::collections::HashSet;
use std::path::Path;

use candle_core::DType;
use serde::Serialize;

use super::field;
use crate::fs;
use crate::fs::read_system_text;
use crate::ops::instructions;
use crate::ops::instructions::Instructions;
use crate::ops::matmul::cpu::is_native;

/// A processor, or several of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Processor {
    /// As it calls itself.
    pub model: Option<String>,
    /// `x86_64`, `aarch64`.
    pub architecture: &'static str,
    /// Cores of the whole machine.
    pub cores: Option<usize>,
    /// Threads that run at the same time on these.
    pub threads: Option<usize>,
    /// How many of them this process may run on.
    pub affinity: Option<usize>,
    /// How many processors' worth of time its control groups allow; `None` without a limit.
    pub group_cpus: Option<f64>,
    /// Instructions that matter here, by Linux's names.
    pub features: Vec<&'static str>,
    /// The best set of them.
    pub instructions: &'static str,
    /// The cap that the user sets on them (`MLMTRAIN_CPU`).
    pub cap: Option<&'static str>,
    /// The best set within the cap.
    pub in_use: &'static str,
    /// How products of matrices are computed.
    pub products: [Product; 3],
}

/// How products of one number type are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Product {
    /// The type of the operands.
    pub compute: &'static str,
    /// The instructions.
    pub instructions: &'static str,
    /// Whether the operands become f32 for them.
    pub widened: bool,
}

impl Processor {
    /// That of this machine.
    pub fn here() -> Self {
        Self::below(Path::new("/"))
    }

    /// What the system tells where `root` is `/`, and what the processor itself says.
    pub(super) fn below(root: &Path) -> Self {
        let text = read_system_text(&root.join("proc/cpuinfo")).unwrap_or_default();
        let threads = text.lines().filter(|line| names(line, "processor")).count();
        let status = read_system_text(&root.join("proc/self/status"));
        let choice = instructions::choice().ok();
        let in_use = instructions::in_use();
        Self {
            // `Hardware` and `Model` are what boards with ARM say.
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
                instructions: in_use.of_products(dtype).name(),
                widened: !is_native(dtype),
            }),
        }
    }
}

/// Whether a line of `/proc/cpuinfo` is of this field.
fn names(line: &str, name: &str) -> bool {
    line.split_once(':').is_some_and(|(found, _)| found.trim() == name)
}

/// Cores by their numbers; `None` where any thread has none, as in a system on ARM.
fn cores(cpuinfo: &str) -> Option<usize> {
    let threads = cpuinfo.split("\n\n").filter(|part| part.lines().any(|line| names(line, "processor")));
    let numbers: Option<HashSet<(&str, &str)>> =
        threads.map(|thread| Some((field(thread, "physical id")?, field(thread, "core id")?))).collect();
    numbers.map(|numbers| numbers.len()).filter(|&count| count > 0)
}

/// How many numbers a list such as `0-3,8` has.
fn count_of_list(list: &str) -> Option<usize> {
    list.split(',').try_fold(0usize, |count, part| {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
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
    fn cores_are_told_from_threads() {
        let thread = |number, package, core| {
            format!("processor\t: {number}\nphysical id\t: {package}\ncore id\t\t: {core}\n\n")
        };
        let two_packages: String =
            [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 0, 0)].iter().map(|&(n, p, c)| thread(n, p, c)).collect();
        assert_eq!(cores(&two_packages), Some(3));
        assert_eq!(cores(""), None);
        assert_eq!(cores(&format!("{two_packages}processor\t: 4\n")), None);
    }
}

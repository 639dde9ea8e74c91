//! One measurement in a process of its own: the side that starts it and the side that is started.
//!
//! They talk over the child's standard output, a JSON [`Message`] a line.

use std::collections::HashSet;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;

use anyhow::Context;
use anyhow::Result;
use candle_core::DType;
use serde::Deserialize;
use serde::Serialize;

use crate::commands::bench::args::BenchJobArgs;
use crate::commands::terminal::stdout_line;
use crate::config::ComputeType;
use crate::config::DeviceChoice;
use crate::error::Problem;
use crate::fs;
use crate::machine;
use crate::ops::cuda;
use crate::ops::instructions;
use crate::ops::peak;
use crate::ops::peak::gpu::data_sheet;
use crate::precision;
use crate::precision::Hardware;
use crate::precision::Policy;
use crate::train::bench::Case;

/// What a child measures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Job {
    /// What the machine is, and its peaks.
    Machine(Place),
    /// Training steps.
    Steps(Box<Steps>),
}

/// Where to measure, and in which types.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) device: DeviceChoice,
    pub(super) tf32: bool,
    pub(super) computes: Vec<ComputeType>,
}

/// The training steps of one row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Steps {
    pub(super) case: Case,
    pub(super) device: DeviceChoice,
    pub(super) tf32: bool,
    /// Steps to time at least.
    pub(super) least: usize,
    /// Seconds to time at least.
    pub(super) least_seconds: f64,
}

/// What the machine can do at most.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) threads: usize,
    /// `cpu`, or `cuda:0` and so on.
    pub(super) device: String,
    /// In words, as a policy's messages have it.
    pub(super) name: String,
    /// By which instructions products of each type are computed, on a CPU.
    pub(super) instructions: Vec<(ComputeType, String)>,
    /// The cap on them that is set.
    pub(super) instructions_cap: Option<String>,
    /// Measured on a CPU, from the data sheet of a GPU; a type without an entry has no known peak.
    pub(super) flops_per_second: Vec<(ComputeType, f64)>,
    /// Measured on a CPU; not known of a GPU.
    pub(super) bytes_per_second: Option<f64>,
    /// Memory that may be taken.
    pub(super) memory_bytes: Option<u64>,
    /// What should be known of it.
    pub(super) notes: Vec<String>,
}

impl Machine {
    pub(super) fn is_gpu(&self) -> bool {
        self.device != "cpu"
    }

    /// By which instructions products of this type are computed, on a CPU.
    pub(super) fn path(&self, compute: ComputeType) -> Option<&str> {
        self.instructions.iter().find(|(of, _)| *of == compute).map(|(_, name)| name.as_str())
    }

    /// The peak of a compute type that was measured.
    pub(super) fn peak(&self, compute: ComputeType) -> Option<f64> {
        self.flops_per_second.iter().find(|(of, _)| *of == compute).map(|(_, flops)| *flops)
    }
}

/// How long steps took, and what they took of memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Timed {
    pub(super) median_seconds: f64,
    pub(super) least_seconds: f64,
    pub(super) steps: usize,
    pub(super) step_flops: f64,
    pub(super) peak_memory_bytes: Option<u64>,
}

/// A line of the child.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    Step,
    Timed(Timed),
    Machine(Machine),
}

/// How a child ended.
#[derive(Debug)]
pub(super) enum Ended {
    Machine(Machine),
    Steps(Timed),
    OutOfMemory,
    Failed(String),
}

/// What is sent to the child.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    job: Job,
    threads: usize,
}

/// Runs this program again for `job` and waits for it; `after_step` is called after each timed step. An error
/// when the program cannot be started, which is no matter of the row.
pub(super) fn start(job: &Job, threads: usize, after_step: impl Fn()) -> Result<Ended> {
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    let order = serde_json::to_string(&Order { job: job.clone(), threads })?;
    let mut command = Command::new(&program);
    command.args(["bench-job", &order]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start `{}` again", program.display()))?;
    let ended = follow(&mut child, after_step);
    if ended.is_err() {
        // It may still be computing; what it says will not be read.
        let _ = child.kill();
        let _ = child.wait();
    }
    ended
}

fn follow(child: &mut Child, after_step: impl Fn()) -> Result<Ended> {
    let mut result = None;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            match serde_json::from_str(&line?)? {
                Message::Step => after_step(),
                Message::Timed(timed) => result = Some(Ended::Steps(timed)),
                Message::Machine(machine) => result = Some(Ended::Machine(machine)),
            }
        }
    }
    let mut errors = Vec::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_end(&mut errors)?;
    }
    let status = child.wait()?;
    Ok(result.filter(|_| status.success()).unwrap_or_else(|| why(status, &String::from_utf8_lossy(&errors))))
}

/// Why a child brought no result.
pub(super) fn why(status: ExitStatus, errors: &str) -> Ended {
    // Rust aborts where an allocation fails; the system kills where it cannot keep the promise of an earlier
    // one.
    let refused = (errors.contains("memory allocation of") && errors.contains("failed"))
        || cuda::is_out_of_memory(errors);
    if refused || status.signal() == Some(libc::SIGKILL) {
        return Ended::OutOfMemory;
    }
    let message = errors.lines().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    let message = message.strip_prefix("error: ").unwrap_or(message);
    // Refused by the program itself; anything else is a crash, and its code says more than its last words.
    Ended::Failed(if matches!(status.code(), Some(1 | 2)) {
        message.to_string()
    } else {
        format!("{status}: {message}")
    })
}

/// The side of the child.
pub(in crate::commands) fn run(args: &BenchJobArgs) -> Result<()> {
    let order: Order = serde_json::from_str(&args.job).map_err(|e| {
        Problem::usage(format!("`bench-job` is for `mlmtrain bench` to start, not for you: {e}"))
    })?;
    // Should memory run out after all, this process goes, and not another one.
    fs::end_me_first();
    machine::use_threads(order.threads)?;
    let message = match order.job {
        Job::Machine(place) => Message::Machine(machine(&place)?),
        Job::Steps(steps) => Message::Timed(machine::in_pool(|| time(&steps))?),
    };
    say(&message)
}

/// What the machine is, and what it can do at most.
fn machine(place: &Place) -> Result<Machine> {
    let (device, without_gpu) = machine::pick_device(place.device)?;
    let hardware = Hardware::of(&device);
    let mut notes: Vec<String> =
        without_gpu.map(|why| format!("note: no GPU is used: {why}; {}", why.hint())).into_iter().collect();
    for &compute in &place.computes {
        notes.extend(Policy::plain(compute, &hardware)?.notes);
    }
    // The cap is a matter of the CPU, not of a type.
    let mut seen = HashSet::new();
    notes.retain(|note| seen.insert(note.clone()));
    let threads = rayon::current_num_threads();
    let path = |compute| instructions::in_use().of_products(precision::dtype(compute)).name().to_string();
    let peaks = |peak: &dyn Fn(DType) -> Option<f64>| {
        place
            .computes
            .iter()
            .filter_map(|&compute| Some((compute, peak(precision::dtype(compute))?)))
            .collect()
    };
    Ok(match cuda::properties(&device) {
        Some(gpu) => Machine {
            threads,
            device: format!("cuda:{}", gpu.ordinal),
            name: hardware.name,
            instructions: Vec::new(),
            instructions_cap: None,
            flops_per_second: peaks(&|dtype| data_sheet(&gpu.name, dtype, place.tf32)),
            bytes_per_second: None,
            memory_bytes: Some(gpu.memory_bytes),
            notes,
        },
        None => Machine {
            threads,
            device: "cpu".to_string(),
            name: hardware.name,
            instructions: place.computes.iter().map(|&compute| (compute, path(compute))).collect(),
            instructions_cap: instructions::choice()?.cap.map(|cap| cap.name().to_string()),
            flops_per_second: peaks(&|dtype| Some(peak::flops_per_second(dtype))),
            bytes_per_second: Some(peak::bytes_per_second()),
            memory_bytes: fs::available_bytes(),
            notes,
        },
    })
}

fn time(steps: &Steps) -> Result<Timed> {
    let (device, _) = machine::pick_device(steps.device)?;
    cuda::set_tf32(steps.tf32);
    let timing = steps.case.time_steps(&device, steps.least, steps.least_seconds, || {
        // Should the reader have gone, the last message will say so.
        let _ = say(&Message::Step);
    })?;
    Ok(Timed {
        median_seconds: timing.median_seconds(),
        least_seconds: timing.sorted_seconds[0],
        steps: timing.sorted_seconds.len(),
        step_flops: timing.step_flops,
        peak_memory_bytes: cuda::memory(&device)
            .map(|memory| memory.peak_bytes)
            .or_else(fs::peak_resident_bytes),
    })
}

fn say(message: &Message) -> Result<()> {
    stdout_line(&serde_json::to_string(message)?)
}

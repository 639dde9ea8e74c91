//! One measurement in a process of its own: the parent's side, which starts the process, and the child's
//! side.
//!
//! The child writes its results to its standard output, one JSON [`Message`] per line.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};
use candle_core::DType;
use serde::{Deserialize, Serialize};

use crate::commands::bench::args::BenchJobArgs;
use crate::commands::terminal::stdout_line;
use crate::config::{ComputeType, DeviceChoice};
use crate::error::Problem;
use crate::ops::matmul::cpu::instructions_for;
use crate::ops::peak::gpu::data_sheet;
use crate::ops::{cuda, peak};
use crate::precision::{Hardware, Policy};
use crate::train::bench::Case;
use crate::{fs, instructions, machine, precision};

/// The measurement that a child makes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Job {
    /// The facts and the peak speeds of the machine.
    Machine(Place),
    /// The speed of training steps.
    Steps(Box<Steps>),
}

/// The device and the number types to measure.
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
    /// Least number of steps to time.
    pub(super) least: usize,
    /// Least time for all timed steps, in seconds.
    pub(super) least_seconds: f64,
}

/// The facts and the peak speeds of the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) threads: usize,
    /// `cpu`, or `cuda:0` and so on.
    pub(super) device: String,
    /// Name for messages, such as the model of the GPU.
    pub(super) name: String,
    /// The instruction set that matrix products of each type use on a CPU.
    pub(super) instructions: Vec<(ComputeType, String)>,
    /// The largest instruction set that the user allows, if there is a limit.
    pub(super) instructions_cap: Option<String>,
    /// Peak of each type: measured on a CPU, from the data sheet of a GPU. A type without an entry has no
    /// known peak.
    pub(super) flops_per_second: Vec<(ComputeType, f64)>,
    /// Memory bandwidth: measured on a CPU, `None` for a GPU.
    pub(super) bytes_per_second: Option<f64>,
    /// Memory that a step may use: the total of a GPU, the free memory of a CPU.
    pub(super) memory_bytes: Option<u64>,
    /// Notes for the user.
    pub(super) notes: Vec<String>,
}

impl Machine {
    pub(super) fn is_gpu(&self) -> bool {
        self.device != "cpu"
    }

    /// The instruction set that matrix products of this type use on a CPU.
    pub(super) fn path(&self, compute: ComputeType) -> Option<&str> {
        self.instructions.iter().find(|(known, _)| *known == compute).map(|(_, name)| name.as_str())
    }

    /// The peak of a compute type in operations per second, if it is known.
    pub(super) fn peak(&self, compute: ComputeType) -> Option<f64> {
        self.flops_per_second.iter().find(|(known, _)| *known == compute).map(|(_, flops)| *flops)
    }
}

/// Time and memory of the measured steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Timed {
    pub(super) median_seconds: f64,
    pub(super) least_seconds: f64,
    pub(super) steps: usize,
    pub(super) step_flops: f64,
    pub(super) peak_memory_bytes: Option<u64>,
}

/// A line on the standard output of the child.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    Step,
    Timed(Timed),
    Machine(Machine),
}

/// The outcome of a child.
#[derive(Debug)]
pub(super) enum Ended {
    Machine(Machine),
    Steps(Timed),
    OutOfMemory,
    Failed(String),
}

/// The argument of the child.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    job: Job,
    threads: usize,
}

/// Starts this program again for `job` and waits for its result. `after_step` is called after each timed
/// step.
///
/// # Errors
/// Returns an error if the program cannot be started or sends no valid messages. A failed measurement is an
/// [`Ended`].
pub(super) fn start(job: &Job, threads: usize, after_step: impl Fn()) -> Result<Ended> {
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    let order = serde_json::to_string(&Order { job: job.clone(), threads })?;
    let mut command = Command::new(&program);
    command.args(["bench-job", &order]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start `{}` again", program.display()))?;
    let ended = follow(&mut child, after_step);
    if ended.is_err() {
        // The child may still be computing, and its results will not be read.
        let _ = child.kill();
        let _ = child.wait();
    }
    ended
}

/// Reads the messages of a child until it ends.
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
    let result = result.filter(|_| status.success());
    Ok(result.unwrap_or_else(|| failure(status, &String::from_utf8_lossy(&errors))))
}

/// The reason why a child gave no result, from its exit status and its standard error.
pub(super) fn failure(status: ExitStatus, errors: &str) -> Ended {
    // Rust aborts when an allocation fails. Linux kills a process when it has no memory left for an earlier
    // allocation.
    let refused = (errors.contains("memory allocation of") && errors.contains("failed"))
        || cuda::is_out_of_memory(errors);
    if refused || status.signal() == Some(libc::SIGKILL) {
        return Ended::OutOfMemory;
    }
    let message = errors.lines().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    let message = message.strip_prefix("error: ").unwrap_or(message);
    // With exit code 1 or 2 the message explains the error. Anything else is a crash, and the status explains
    // more.
    Ended::Failed(if matches!(status.code(), Some(1 | 2)) {
        message.to_string()
    } else {
        format!("{status}: {message}")
    })
}

/// Runs the measurement in the child.
pub(in crate::commands) fn run(args: &BenchJobArgs) -> Result<()> {
    let order: Order = serde_json::from_str(&args.job).map_err(|e| {
        Problem::usage(format!("`bench-job` is for `mlmtrain bench` to start, not for you: {e}"))
    })?;
    // If memory runs out after all, the system should kill this process, not another one.
    fs::end_me_first();
    machine::use_threads(order.threads)?;
    let message = match order.job {
        Job::Machine(place) => Message::Machine(machine(&place)?),
        Job::Steps(steps) => Message::Timed(machine::in_pool(|| time(&steps))?),
    };
    send(&message)
}

/// Measures the machine, or looks it up in data sheets if it is a GPU.
fn machine(place: &Place) -> Result<Machine> {
    let (device, without_gpu) = machine::pick_device(place.device)?;
    let hardware = Hardware::of(&device);
    let mut notes: Vec<String> =
        without_gpu.map(|why| format!("note: no GPU is used: {why}; {}", why.hint())).into_iter().collect();
    for &compute in &place.computes {
        notes.extend(Policy::plain(compute, &hardware)?.notes);
    }
    // Each type has the same note about the limit on instructions: it is kept once.
    let mut seen = HashSet::new();
    notes.retain(|note| seen.insert(note.clone()));
    let threads = rayon::current_num_threads();
    Ok(match cuda::properties(&device) {
        Some(gpu) => Machine {
            threads,
            device: format!("cuda:{}", gpu.ordinal),
            name: hardware.name,
            instructions: Vec::new(),
            instructions_cap: None,
            flops_per_second: peaks(&place.computes, |dtype| data_sheet(&gpu.name, dtype, place.tf32)),
            bytes_per_second: None,
            memory_bytes: Some(gpu.memory_bytes),
            notes,
        },
        None => Machine {
            threads,
            device: "cpu".to_string(),
            name: hardware.name,
            instructions: place
                .computes
                .iter()
                .map(|&compute| {
                    let path = instructions_for(precision::dtype(compute));
                    (compute, path.name().to_string())
                })
                .collect(),
            instructions_cap: instructions::choice()?.cap.map(|cap| cap.name().to_string()),
            flops_per_second: peaks(&place.computes, |dtype| Some(peak::flops_per_second(dtype))),
            bytes_per_second: Some(peak::bytes_per_second()),
            memory_bytes: fs::available_bytes(),
            notes,
        },
    })
}

/// The known peaks of some compute types.
fn peaks(computes: &[ComputeType], peak: impl Fn(DType) -> Option<f64>) -> Vec<(ComputeType, f64)> {
    computes.iter().filter_map(|&compute| Some((compute, peak(precision::dtype(compute))?))).collect()
}

/// Times the training steps of a row.
fn time(steps: &Steps) -> Result<Timed> {
    let (device, _) = machine::pick_device(steps.device)?;
    cuda::set_tf32(steps.tf32);
    let timing = steps.case.time_steps(&device, steps.least, steps.least_seconds, || {
        // If the reader has gone, sending the last message reports the error.
        let _ = send(&Message::Step);
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

fn send(message: &Message) -> Result<()> {
    stdout_line(&serde_json::to_string(message)?)
}

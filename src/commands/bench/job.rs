//! One measurement in a process of its own: the side that starts it and the side that is started.
//!
//! They talk over the child's standard output, a JSON [`Message`] a line.

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
use serde::Deserialize;
use serde::Serialize;

use crate::commands::bench_args::BenchJobArgs;
use crate::commands::terminal::stdout_line;
use crate::config::ComputeType;
use crate::config::ModelConfig;
use crate::error::Problem;
use crate::fs;
use crate::ops::peak;
use crate::precision;
use crate::train::assemble;
use crate::train::bench::Case;

/// What a child measures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Job {
    /// The peaks of the machine.
    Machine(Vec<ComputeType>),
    /// Training steps.
    Steps(Box<Steps>),
}

/// The training steps of one row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Steps {
    pub(super) model: ModelConfig,
    pub(super) compute: ComputeType,
    pub(super) batch: usize,
    pub(super) length: usize,
    pub(super) masked_share: f64,
    pub(super) short: bool,
    pub(super) gradient_checkpointing: bool,
    /// Steps to time at least.
    pub(super) least: usize,
    /// Seconds to time at least.
    pub(super) least_seconds: f64,
}

impl Steps {
    pub(super) fn case(&self) -> Case {
        Case {
            model: self.model.clone(),
            compute: self.compute,
            rows: self.batch,
            length: self.length,
            masked_share: self.masked_share,
            short_segments: self.short,
            gradient_checkpointing: self.gradient_checkpointing,
        }
    }
}

/// What the machine can do at most.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) threads: usize,
    pub(super) flops_per_second: Vec<(ComputeType, f64)>,
    pub(super) bytes_per_second: f64,
}

impl Machine {
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

/// Runs this program again for `job` and waits for it; `after_step` is called after each timed step. An error when the
/// program cannot be started, which is no matter of the row.
pub(super) fn start(job: &Job, threads: usize, after_step: impl Fn()) -> Result<Ended> {
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    let order = serde_json::to_string(&Order { job: job.clone(), threads })?;
    let mut command = Command::new(&program);
    command.args(["bench-job", &order]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start `{}` again", program.display()))?;
    let ended = follow(&mut child, after_step);
    if ended.is_err() {
        // It may still be computing; nobody will read what it says.
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
    // Rust aborts where an allocation fails; the system kills where it cannot keep the promise of an earlier one.
    let refused = errors.contains("memory allocation of") && errors.contains("failed");
    if refused || status.signal() == Some(libc::SIGKILL) {
        return Ended::OutOfMemory;
    }
    let message = errors.lines().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    let message = message.strip_prefix("error: ").unwrap_or(message);
    Ended::Failed(if status.code() == Some(1) { message.to_string() } else { format!("{status}: {message}") })
}

/// The side of the child.
pub(in crate::commands) fn run(args: &BenchJobArgs) -> Result<()> {
    let order: Order = serde_json::from_str(&args.job)
        .map_err(|e| Problem::usage(format!("`bench-job` is for `mlmtrain bench` to start, not for you: {e}")))?;
    // Should memory run out after all, this process goes, and not another one.
    fs::end_me_first();
    assemble::use_threads(order.threads)?;
    let message = match order.job {
        Job::Machine(computes) => Message::Machine(Machine {
            threads: rayon::current_num_threads(),
            flops_per_second: computes.into_iter().map(|compute| (compute, peak::flops_per_second(precision::dtype(compute)))).collect(),
            bytes_per_second: peak::bytes_per_second(),
        }),
        Job::Steps(steps) => Message::Timed(time(&steps)?),
    };
    say(&message)
}

fn time(steps: &Steps) -> Result<Timed> {
    let timing = steps.case().time_steps(steps.least, steps.least_seconds, || {
        // Should nobody listen any more, the last message will say so.
        let _ = say(&Message::Step);
    })?;
    Ok(Timed {
        median_seconds: timing.median_seconds(),
        least_seconds: timing.sorted_seconds[0],
        steps: timing.sorted_seconds.len(),
        step_flops: timing.step_flops,
        peak_memory_bytes: fs::peak_resident_bytes(),
    })
}

fn say(message: &Message) -> Result<()> {
    stdout_line(&serde_json::to_string(message)?)
}

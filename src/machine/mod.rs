//! What a run computes on: device, number types, threads, and the processes that it is one of.

pub mod survey;

use std::path::Path;

use anyhow::Result;
use candle_core::DType;
use candle_core::Device;
use serde_json::Value;
use serde_json::json;

use crate::config::DeviceChoice;
use crate::config::DistributedConfig;
use crate::config::PrecisionConfig;
use crate::config::RunSection;
use crate::distributed;
use crate::distributed::World;
use crate::error::Problem;
use crate::fs;
use crate::machine::survey::Processor;
use crate::ops::cuda;
use crate::ops::cuda::Unavailable;
use crate::precision::Hardware;
use crate::precision::Policy;
use crate::telemetry::Progress;

/// What a run computes on, and in which types.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Where parameters and activations are.
    pub device: Device,
    /// Number types.
    pub policy: Policy,
    /// Threads of the pool.
    pub threads: usize,
    /// Why there is no GPU, where one could have been taken.
    pub without_gpu: Option<Unavailable>,
    /// The processes that train together.
    pub world: World,
}

/// What the memory of a step depends on besides its sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Type of activations and products.
    pub compute: DType,
    /// Whether it is a GPU.
    pub on_gpu: bool,
    /// Processes that divide the moments of the optimizer among them.
    pub sharers: usize,
    /// Whether gradients that are final are copied for other processes while others are computed.
    pub overlaps: bool,
}

impl Place {
    /// Of one process alone.
    pub fn alone(compute: DType, on_gpu: bool) -> Self {
        Self { compute, on_gpu, sharers: 1, overlaps: false }
    }
}

impl Machine {
    /// Where steps are computed, and in which type.
    pub fn place(&self) -> Place {
        let world = self.world;
        let sharers = if world.shards_optimizer() { world.size } else { 1 };
        let alone = Place::alone(self.policy.compute, !self.device.is_cpu());
        Place { sharers, overlaps: world.copies_gradients(), ..alone }
    }

    /// One process on `device`, with the threads that the pool has.
    pub fn alone(device: &Device, policy: Policy) -> Self {
        let (device, threads) = (device.clone(), rayon::current_num_threads());
        Self { device, policy, threads, without_gpu: None, world: World::ALONE }
    }

    /// `bf16 on the CPU, 2 threads`.
    pub fn summary(&self) -> String {
        format!(
            "{} on {}, {}",
            self.policy.compute.as_str(),
            Hardware::of(&self.device).name,
            threads_text(self.threads)
        )
    }

    /// What a run folder keeps of it: program, device, number type, threads, processor, memory.
    pub fn to_json(&self) -> Value {
        let processor = Processor::here();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "device": Hardware::of(&self.device).name,
            "compute": self.policy.compute.as_str(),
            "threads": self.threads,
            "processor": processor.model,
            "instructions": processor.in_use,
            "cores": processor.cores,
            "memory_bytes": fs::system_bytes(Path::new("/"), "MemTotal:"),
            "system": std::env::consts::OS,
        })
    }

    /// Says what is computed on, and what should be known of it.
    pub fn announce(&self, progress: &Progress) {
        progress.note(&format!("computing in {}", self.summary()));
        if let Some(reason) = &self.without_gpu {
            progress.note(&format!("note: no GPU is used: {reason}; {}", reason.hint()));
        }
        self.policy.notes.iter().for_each(|note| progress.note(note));
        // Any other failure comes up again with the first batch.
        if let Ok(Some(false)) = cuda::locks_pages(&self.device) {
            progress.warn("no page-locked memory can be had, so copies of batches to the GPU hold up the program: look at the limits of its container and at `ulimit -l`");
        }
    }
}

/// Sets up threads, picks the device and the types; refuses to be one of several processes.
pub fn set_up(run: &RunSection, precision: &PrecisionConfig) -> Result<Machine> {
    set_up_in(World::detect(|name| std::env::var(name).ok())?, run, precision, 0)
}

/// As [`set_up`], as one of the processes that train together, where there are several.
pub fn set_up_as_one_of_many(
    run: &RunSection,
    precision: &PrecisionConfig,
    distributed: &DistributedConfig,
) -> Result<Machine> {
    let machine = set_up_beside_others(run, precision, distributed)?;
    let world = machine.world.adding_up_on(&machine.device)?;
    Ok(Machine { world, ..machine })
}

/// As [`set_up`], for one of the processes that runs are dealt out to: it computes alone, and the world of all is
/// beside it.
pub fn set_up_to_share_runs(
    run: &RunSection,
    precision: &PrecisionConfig,
    distributed: &DistributedConfig,
) -> Result<(Machine, World)> {
    let mut machine = set_up_beside_others(run, precision, distributed)?;
    let world = std::mem::take(&mut machine.world);
    Ok((machine, world))
}

/// Each process with a GPU of its own, where they have GPUs.
fn set_up_beside_others(
    run: &RunSection,
    precision: &PrecisionConfig,
    distributed: &DistributedConfig,
) -> Result<Machine> {
    // Those that meet by NCCL need their GPUs for it.
    let world = if distributed::has_no_launcher() { World::ALONE } else { World::join(distributed)? };
    let machine = set_up_in(world, run, precision, distributed::local_rank())?;
    let world = machine.world.or_meet(&machine.device, &run.output_dir, distributed)?;
    let world = world.with_own_gpus(&machine.device)?;
    Ok(Machine { world, ..machine })
}

fn set_up_in(
    world: World,
    run: &RunSection,
    precision: &PrecisionConfig,
    local_rank: usize,
) -> Result<Machine> {
    use_threads(run.threads)?;
    let (device, without_gpu) = pick_device_of(run.device, local_rank)?;
    cuda::set_tf32(precision.tf32);
    let policy = Policy::new(precision, &Hardware::of(&device))?;
    Ok(Machine { device, policy, threads: rayon::current_num_threads(), without_gpu, world })
}

/// The device of a choice; with the CPU where it was left open, why it is not a GPU. Asking for a GPU that
/// cannot be used is an error.
pub fn pick_device(choice: DeviceChoice) -> Result<(Device, Option<Unavailable>)> {
    pick_device_of(choice, 0)
}

/// The same for the process of this number on its machine: GPUs are counted from the one that is chosen.
fn pick_device_of(choice: DeviceChoice, local_rank: usize) -> Result<(Device, Option<Unavailable>)> {
    let open = |ordinal| match cuda::open(ordinal + local_rank) {
        // The launcher has given each process a GPU of its own, and it sees no other.
        Err(Unavailable::NoSuchDevice { count: 1, .. }) if ordinal == 0 => cuda::open(0),
        opened => opened,
    };
    match choice {
        DeviceChoice::Cpu => Ok((Device::Cpu, None)),
        DeviceChoice::Cuda(ordinal) => match open(ordinal) {
            Ok(device) => Ok((device, None)),
            Err(reason) => {
                let problem = Problem::usage(format!("cannot compute on `{}`: {reason}", choice.name()));
                Err(problem.at("run.device").hint(reason.hint()).into())
            }
        },
        DeviceChoice::Auto => Ok(match open(0) {
            Ok(device) => (device, None),
            // A program without CUDA on a machine without a GPU is no news.
            Err(Unavailable::NotBuilt) if !fs::exists(Path::new(GPU_NODE)) => (Device::Cpu, None),
            Err(reason) => (Device::Cpu, Some(reason)),
        }),
    }
}

/// There where the machine has an NVIDIA GPU with its driver.
const GPU_NODE: &str = "/dev/nvidia0";

/// Sets up threads alone, and says how many, and joins the other processes, where there are any.
pub fn set_up_threads_of_many(run: &RunSection, distributed: &DistributedConfig) -> Result<(usize, World)> {
    let world = World::join(distributed)?;
    use_threads(run.threads)?;
    Ok((rayon::current_num_threads(), world))
}

/// `1 thread`, `2 threads`.
pub fn threads_text(threads: usize) -> String {
    format!("{threads} {}", if threads == 1 { "thread" } else { "threads" })
}

/// Sizes the one pool that everything computes in; 0 means one thread for each core that this process may
/// use, by its CPU affinity and its cgroup's CPU quota: rayon asks `std::thread::available_parallelism`,
/// which knows both.
pub fn use_threads(threads: usize) -> Result<()> {
    if rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().is_err()
        && threads > 0
        && rayon::current_num_threads() != threads
    {
        // The pool is made once in a process; only a second run inside it can come here.
        return Err(Problem::new(format!(
            "the thread pool has {} threads already, {threads} were asked for",
            rayon::current_num_threads()
        ))
        .into());
    }
    Ok(())
}

/// Runs `f` on a thread of the pool. From outside of it every parallel loop of every op would put its caller
/// to sleep and wake a thread of the pool, and the other way round at its end: two thousand switches in a
/// step of twelve layers.
pub fn in_pool<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| f())
}

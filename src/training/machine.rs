//! The machine that a run computes on: device, number types, threads, and the group of processes that it is
//! one of.

pub mod survey;

use std::path::Path;

use anyhow::Result;
use candle_core::{DType, Device};
use serde_json::{Value, json};

use crate::machine::survey::Processor;
use crate::telemetry::Progress;
use base::error::Problem;
use base::fs;
use base::words::counted;
use config::{DeviceChoice, DistributedConfig, PrecisionConfig, RunSection};
use model::distributed;
use model::distributed::World;
use model::precision::{Hardware, Policy};
use ops::cuda;
use ops::cuda::Unavailable;

/// The machine of a run and the number types that it computes in.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Device of parameters and activations.
    pub device: Device,
    /// Number types.
    pub policy: Policy,
    /// Number of threads in the pool.
    pub threads: usize,
    /// Reason why no GPU is used, if one could have been chosen.
    pub without_gpu: Option<Unavailable>,
    /// The processes that train together.
    pub world: World,
}

/// Properties of a machine that decide the memory of a step, in addition to its sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Type of activations and matrix products.
    pub compute: DType,
    /// Type of the gradients that matrix products write.
    pub weight_gradients: DType,
    /// True on a GPU.
    pub on_gpu: bool,
    /// Number of processes that shard the moments of the optimizer.
    pub sharers: usize,
    /// True if final gradients are copied for other processes while others are still computed.
    pub overlaps: bool,
}

impl Place {
    /// The place of a single process, with gradients in f32.
    pub fn alone(compute: DType, on_gpu: bool) -> Self {
        Self { compute, weight_gradients: DType::F32, on_gpu, sharers: 1, overlaps: false }
    }
}

impl Machine {
    /// The place where steps are computed, and their type.
    pub fn place(&self) -> Place {
        let world = self.world;
        let sharers = if world.shards_optimizer() { world.size } else { 1 };
        let alone = Place::alone(self.policy.compute, !self.device.is_cpu());
        Place {
            sharers,
            overlaps: world.copies_gradients(),
            weight_gradients: self.policy.weight_gradients,
            ..alone
        }
    }

    /// A single process on `device`, with the current number of threads in the pool.
    pub fn alone(device: &Device, policy: Policy) -> Self {
        let threads = rayon::current_num_threads();
        Self { device: device.clone(), policy, threads, without_gpu: None, world: World::ALONE }
    }

    /// The same machine for runs that add up micro-batches, all of whose gradients are f32.
    #[must_use]
    pub fn with_f32_gradients(&self) -> Self {
        let mut machine = self.clone();
        machine.policy.weight_gradients = DType::F32;
        machine
    }

    /// A summary such as `bf16 on the CPU, 2 threads`.
    pub fn summary(&self) -> String {
        format!(
            "{} on {}, {}",
            self.policy.compute.as_str(),
            Hardware::of(&self.device).name,
            threads_text(self.threads)
        )
    }

    /// Facts that a run folder records about the machine: program, device, number type, threads, processor,
    /// memory.
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

    /// Reports device, number type and threads, with notes and warnings about them.
    pub fn announce(&self, progress: &Progress) {
        progress.note(&format!("computing in {}", self.summary()));
        if let Some(reason) = &self.without_gpu {
            progress.note(&format!("note: no GPU is used: {reason}; {}", reason.hint()));
        }
        self.policy.notes.iter().for_each(|note| progress.note(note));
        // Any other failure is reported with the first batch.
        if let Ok(Some(false)) = cuda::locks_pages(&self.device) {
            progress.warn("no page-locked memory can be had, so copies of batches to the GPU hold up the program: look at the limits of its container and at `ulimit -l`");
        }
    }
}

/// Sets up threads, device and number types. Refuses to be one of several processes.
pub fn set_up(run: &RunSection, precision: &PrecisionConfig) -> Result<Machine> {
    set_up_in(World::detect(|name| std::env::var(name).ok())?, run, precision, 0)
}

/// Same as [`set_up`], for a process that may be one of several that train together.
pub fn set_up_as_one_of_many(
    run: &RunSection,
    precision: &PrecisionConfig,
    distributed: &DistributedConfig,
) -> Result<Machine> {
    let machine = set_up_with_others(run, precision, distributed)?;
    require_f32_sums(&machine)?;
    let world = machine.world.adding_up_on(&machine.device)?;
    Ok(Machine { world, ..machine })
}

/// Refuses gradients in bf16 in one of several processes.
fn require_f32_sums(machine: &Machine) -> Result<(), Problem> {
    if machine.policy.weight_gradients == DType::F32 || !machine.world.is_shared() {
        return Ok(());
    }
    let message = format!("is `bf16`, and {} processes add up their gradients in f32", machine.world.size);
    let hint = "remove it, or train in one process; `distributed.wire: bf16` halves what is sent";
    Err(Problem::usage(message).at("precision.weight_gradients").hint(hint))
}

/// Same as [`set_up`], for one of the processes that divide runs among them: its machine computes alone, and
/// the world of all processes is returned with it.
pub fn set_up_to_share_runs(
    run: &RunSection,
    precision: &PrecisionConfig,
    distributed: &DistributedConfig,
) -> Result<(Machine, World)> {
    let mut machine = set_up_with_others(run, precision, distributed)?;
    let world = std::mem::take(&mut machine.world);
    Ok((machine, world))
}

/// Sets up a machine in the world of all processes. If they use GPUs, each process has its own.
fn set_up_with_others(
    run: &RunSection,
    precision: &PrecisionConfig,
    distributed: &DistributedConfig,
) -> Result<Machine> {
    // Processes that meet by NCCL need their GPUs for that, so they meet after the device is chosen.
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

/// Opens the device of a choice. If the choice was left open and no GPU can be used, returns the CPU and the
/// reason. A GPU that was asked for and cannot be used is an error.
pub fn pick_device(choice: DeviceChoice) -> Result<(Device, Option<Unavailable>)> {
    pick_device_of(choice, 0)
}

/// Same as [`pick_device`], for the process with this rank on its machine: GPUs are counted from the chosen
/// one.
fn pick_device_of(choice: DeviceChoice, local_rank: usize) -> Result<(Device, Option<Unavailable>)> {
    match choice {
        DeviceChoice::Cpu => Ok((Device::Cpu, None)),
        DeviceChoice::Cuda(ordinal) => match open_gpu(ordinal, local_rank) {
            Ok(device) => Ok((device, None)),
            Err(reason) => {
                let problem = Problem::usage(format!("cannot compute on `{}`: {reason}", choice.name()));
                Err(problem.at("run.device").hint(reason.hint()).into())
            }
        },
        DeviceChoice::Auto => Ok(match open_gpu(0, local_rank) {
            Ok(device) => (device, None),
            // A build without CUDA on a machine without a GPU needs no note.
            Err(Unavailable::NotBuilt) if !fs::exists(Path::new(GPU_NODE)) => (Device::Cpu, None),
            Err(reason) => (Device::Cpu, Some(reason)),
        }),
    }
}

fn open_gpu(ordinal: usize, local_rank: usize) -> Result<Device, Unavailable> {
    match cuda::open(ordinal + local_rank) {
        // The launcher gave each process a GPU of its own, and the process sees no other.
        Err(Unavailable::NoSuchDevice { count: 1, .. }) if ordinal == 0 => cuda::open(0),
        opened => opened,
    }
}

/// A file that exists if the machine has an NVIDIA GPU with its driver.
const GPU_NODE: &str = "/dev/nvidia0";

/// Joins the other processes, if there are any, and sets up threads only. Returns the number of threads.
pub fn set_up_threads_of_many(run: &RunSection, distributed: &DistributedConfig) -> Result<(usize, World)> {
    let world = World::join(distributed)?;
    use_threads(run.threads)?;
    Ok((rayon::current_num_threads(), world))
}

/// A number of threads in words: `1 thread`, `2 threads`.
pub fn threads_text(threads: usize) -> String {
    counted(threads, "thread")
}

/// Sets the size of the single thread pool that everything computes in. 0 means one thread for each core that
/// this process may use, by its CPU affinity and its cgroup's CPU quota: rayon asks
/// `std::thread::available_parallelism`, which respects both.
pub fn use_threads(threads: usize) -> Result<()> {
    if rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().is_err()
        && threads > 0
        && rayon::current_num_threads() != threads
    {
        // A process creates its pool only once, so only a second run in the same process can fail here.
        return Err(Problem::new(format!(
            "the thread pool has {} threads already, {threads} were asked for",
            rayon::current_num_threads()
        ))
        .into());
    }
    Ok(())
}

/// Runs `f` on a thread of the pool. Outside of the pool, every parallel loop of every op would put its
/// caller to sleep and wake a thread of the pool, and the reverse at its end: two thousand context switches
/// in a step of twelve layers.
pub fn in_pool<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| f())
}

//! Processes with a GPU each, whose gradients NCCL adds up on the GPUs; and processes without an MPI
//! launcher, which find each other by NCCL and environment variables alone.

use std::path::Path;

use anyhow::Result;
use candle_core::Device;

use crate::distributed::launch::{NCCL, has_no_launcher};
use crate::distributed::{World, nccl};
use base::error::Problem;
use config::DistributedConfig;
use ops::cuda;

/// Variable of NCCL (2.30 and later): set to 1, it lets several processes compute on one GPU, slowly.
const SHARED_GPU_VARIABLE: &str = "NCCL_MULTI_RANK_GPU_ENABLE";

impl World {
    /// Returns `self` if a launcher has connected the processes. Otherwise connects the processes that
    /// `WORLD_SIZE` counts by NCCL, if there are any: this one computes on `device`, and all of them see
    /// `folder`.
    pub fn or_meet(self, device: &Device, folder: &Path, config: &DistributedConfig) -> Result<Self> {
        if self.is_shared() || !has_no_launcher() {
            return Ok(self);
        }
        if device.is_cpu() {
            return Err(Problem::usage(
                "`WORLD_SIZE` says that this is one of several processes, and this one has no GPU",
            )
            .at("run.device")
            .hint(
                "`run.device: cuda` says why; on CPUs start them by `mpirun`, in a build with `--features mpi`: \
                 processes of which variables alone tell meet by NCCL",
            )
            .into());
        }
        meet(device, folder, config)
    }

    /// Checks that either no process has a GPU or each has one of its own. Several may share one GPU if
    /// `SHARED_GPU_VARIABLE` allows it.
    pub fn with_own_gpus(self, device: &Device) -> Result<Self> {
        if !self.is_shared() {
            return Ok(self);
        }
        let kind = if device.is_cpu() { "a CPU" } else { "a GPU" };
        self.require_same(&[("the kind of device", kind.to_string())])?;
        let all = self.gather(&cuda::properties(device).map(|gpu| gpu.uuid))?;
        let own = &all[self.rank];
        let other =
            all.iter().enumerate().find(|&(rank, gpu)| rank != self.rank && own.is_some() && gpu == own);
        let Some((other, _)) = other else { return Ok(self) };
        if std::env::var(SHARED_GPU_VARIABLE).is_ok_and(|value| value == "1") {
            return Ok(self);
        }
        let low = self.rank.min(other);
        let high = self.rank.max(other);
        Err(Problem::usage(format!("ranks {low} and {high} compute on one GPU"))
            .at("run.device")
            .hint(
                "start as many processes on a machine as it has GPUs, without a number in `run.device`; to try \
                 several on one GPU, set `NCCL_MULTI_RANK_GPU_ENABLE=1` (NCCL 2.30 and later)",
            )
            .into())
    }

    /// Returns this world set up to add up gradients on the GPUs if its processes have GPUs.
    pub fn adding_up_on(self, device: &Device) -> Result<Self> {
        if !self.is_shared() || device.is_cpu() {
            return Ok(self);
        }
        if !NCCL {
            let problem =
                Problem::usage("this build adds up gradients on CPUs only, and this process has a GPU");
            let hint = "build with `--features nccl`, set it to `cpu`, or start one process";
            return Err(problem.at("run.device").hint(hint).into());
        }
        let own = self.is_first().then(nccl::new_id).transpose()?;
        let id: Vec<u8> = self.from_first(own)?;
        let device = device.clone();
        let Some(engine) = self.engine else { return Ok(self) };
        engine.carry_by(Box::new(move || nccl::join(&device, self.rank, self.size, &id)))?;
        Ok(Self { on_gpus: true, ..self })
    }
}

#[cfg(not(feature = "nccl"))]
fn meet(_: &Device, _: &Path, _: &DistributedConfig) -> Result<World> {
    Err(Problem::new("this build has no NCCL").into())
}

#[cfg(feature = "nccl")]
fn meet(device: &Device, folder: &Path, config: &DistributedConfig) -> Result<World> {
    use crate::distributed::engine::Engine;
    use crate::distributed::launch::teller;
    World::by_variables(config, |rank, size, timeout| {
        let join = |id: Vec<u8>| {
            let device = device.clone();
            Engine::start(move || nccl::Nccl::join(&device, rank, size, &id), timeout, teller())
        };
        if std::env::var_os(nccl::ID_VARIABLE).is_some() {
            return join(nccl::new_id()?);
        }
        if rank == 0 {
            meeting::call(folder, &nccl::new_id()?, join)
        } else {
            join(meeting::come(folder, timeout)?)
        }
    })
}

/// How processes learn the id of their NCCL group without a launcher: rank 0 writes it to a file. The file
/// counts only while rank 0 holds the lock of its folder, so that a file left by an earlier run is ignored.
#[cfg(any(feature = "nccl", test))]
mod meeting {
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    use anyhow::Result;

    use base::error::{Class, Problem};
    use base::fs;

    /// Upper limit on the size of the file, far longer than an id.
    const NAME_BYTES_MAX: u64 = 1 << 10;

    const PAUSE: Duration = Duration::from_millis(20);

    /// The folder of the id and the file in it.
    fn paths(folder: &Path) -> (PathBuf, PathBuf) {
        let meeting_folder = folder.join("nccl");
        let id_file = meeting_folder.join("id");
        (meeting_folder, id_file)
    }

    /// Publishes the id `name` to the other processes while `join` runs.
    pub(super) fn call<T>(folder: &Path, name: &[u8], join: impl FnOnce(Vec<u8>) -> Result<T>) -> Result<T> {
        let (meeting_folder, id_file) = paths(folder);
        fs::create_folder(&meeting_folder)?;
        if fs::exists(&id_file) {
            fs::remove_file(&id_file)?;
        }
        let lock = fs::FolderLock::wait_for(&meeting_folder, || {})?;
        fs::write_bytes(&id_file, name)?;
        let joined = join(name.to_vec());
        fs::remove_folder(&meeting_folder)?;
        drop(lock);
        joined
    }

    /// Waits until rank 0 publishes the id, and returns it.
    pub(super) fn come(folder: &Path, timeout: Duration) -> Result<Vec<u8>> {
        let (meeting_folder, id_file) = paths(folder);
        let since = Instant::now();
        while since.elapsed() < timeout {
            if fs::is_locked(&meeting_folder) && fs::exists(&id_file) {
                return fs::read_capped(&id_file, NAME_BYTES_MAX);
            }
            std::thread::sleep(PAUSE);
        }
        let seconds = timeout.as_secs_f64();
        let message = format!("rank 0 has not come to `{}` within {seconds} s", meeting_folder.display());
        Err(Problem::new(message)
            .hint("all processes must see the folder of the run; start all of them, or give `NCCL_COMM_ID`")
            .class(Class::Restart)
            .into())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn an_id_is_read_while_rank_0_publishes_it_and_an_old_one_is_ignored() {
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            let (meeting_folder, id_file) = paths(folder);
            fs::create_folder(&meeting_folder).unwrap();
            fs::write_bytes(&id_file, b"left behind").unwrap();
            let error = come(folder, Duration::from_millis(60)).unwrap_err();
            assert!(error.to_string().contains("rank 0 has not come to `"), "{error}");
            assert_eq!(base::error::class_of(&error).exit_code(), 75);
            let ids = std::thread::scope(|scope| {
                let others = [0, 1].map(|_| scope.spawn(|| come(folder, Duration::from_secs(60)).unwrap()));
                call(folder, b"new", |name| {
                    assert_eq!(name, b"new");
                    Ok(others.map(|other| other.join().unwrap()))
                })
                .unwrap()
            });
            assert_eq!(ids, [b"new", b"new"]);
            assert!(!fs::exists(&meeting_folder));
        }
    }
}

//! Processes with a GPU each: gradients are added up there, by NCCL; and processes of which nothing but variables
//! tells, which meet by it.

use std::path::Path;

use anyhow::Result;
use candle_core::Device;

use crate::config::DistributedConfig;
use crate::distributed::World;
use crate::distributed::launch::NCCL;
use crate::distributed::launch::has_no_launcher;
use crate::distributed::nccl;
use crate::error::Problem;
use crate::ops::cuda;

/// Variable of NCCL's own (2.30 and later): with 1 several processes may compute on one GPU, slowly.
const SHARED_GPU_VARIABLE: &str = "NCCL_MULTI_RANK_GPU_ENABLE";

impl World {
    /// The processes that were started with this one, which computes on `device`: `self`, which a launcher has brought
    /// together, or those that meet by NCCL, where all see `folder`.
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

    /// These processes, each with a GPU of its own, or none with one. Several may have one GPU where NCCL is told to
    /// allow that.
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
        let (low, high) = (self.rank.min(other), self.rank.max(other));
        Err(Problem::usage(format!("ranks {low} and {high} compute on one GPU"))
            .at("run.device")
            .hint(
                "start as many processes on a machine as it has GPUs, without a number in `run.device`; to try \
                 several on one GPU, set `NCCL_MULTI_RANK_GPU_ENABLE=1` (NCCL 2.30 and later)",
            )
            .into())
    }

    /// These processes, where those with GPUs add up gradients on them.
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
        let (id, device): (Vec<u8>, _) = (self.from_first(own)?, device.clone());
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

/// How processes hear the name of their group: by a file in a folder, which counts as long as the first of them holds
/// it, so that one that was left behind misleads nobody.
#[cfg(any(feature = "nccl", test))]
mod meeting {
    use std::path::Path;
    use std::path::PathBuf;
    use std::time::Duration;
    use std::time::Instant;

    use anyhow::Result;

    use crate::error::Class;
    use crate::error::Problem;
    use crate::fs;

    /// Far longer than a name.
    const NAME_BYTES_MAX: u64 = 1 << 10;

    const PAUSE: Duration = Duration::from_millis(20);

    fn place(folder: &Path) -> (PathBuf, PathBuf) {
        let place = folder.join("nccl");
        (place.join("id"), place)
    }

    /// Tells all who come what the group is named, for as long as `join` takes.
    pub(super) fn call<T>(folder: &Path, name: &[u8], join: impl FnOnce(Vec<u8>) -> Result<T>) -> Result<T> {
        let (file, place) = place(folder);
        fs::create_folder(&place)?;
        if fs::exists(&file) {
            fs::remove_file(&file)?;
        }
        let held = fs::FolderLock::wait_for(&place, || {})?;
        fs::write_bytes(&file, name)?;
        let joined = join(name.to_vec());
        fs::remove_folder(&place)?;
        drop(held);
        joined
    }

    /// The name, once it is told.
    pub(super) fn come(folder: &Path, timeout: Duration) -> Result<Vec<u8>> {
        let ((file, place), since) = (place(folder), Instant::now());
        while since.elapsed() < timeout {
            if fs::is_locked(&place) && fs::exists(&file) {
                return fs::read_capped(&file, NAME_BYTES_MAX);
            }
            std::thread::sleep(PAUSE);
        }
        let message =
            format!("rank 0 has not come to `{}` within {} s", place.display(), timeout.as_secs_f64());
        Err(Problem::new(message)
            .hint("all processes must see the folder of the run; start all of them, or give `NCCL_COMM_ID`")
            .class(Class::Restart)
            .into())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_name_is_heard_while_it_is_called_and_one_that_was_left_behind_is_not() {
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            let (file, place) = place(folder);
            fs::create_folder(&place).unwrap();
            fs::write_bytes(&file, b"left behind").unwrap();
            let error = come(folder, Duration::from_millis(60)).unwrap_err();
            assert!(error.to_string().contains("rank 0 has not come to `"), "{error}");
            assert_eq!(crate::error::class_of(&error).exit_code(), 75);
            let heard = std::thread::scope(|scope| {
                let others = [0, 1].map(|_| scope.spawn(|| come(folder, Duration::from_secs(60)).unwrap()));
                call(folder, b"new", |name| {
                    assert_eq!(name, b"new");
                    Ok(others.map(|other| other.join().unwrap()))
                })
                .unwrap()
            });
            assert_eq!(heard, [b"new", b"new"]);
            assert!(!fs::exists(&place));
        }
    }
}

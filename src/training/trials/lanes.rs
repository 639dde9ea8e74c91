//! Trains several runs at the same time on a CPU. Each lane has an equal share of the threads and takes the
//! next run when its current one is done. Results do not depend on the number of threads, so a run writes the
//! same bytes as it would alone.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::Result;
use rayon::ThreadPoolBuilder;

use crate::machine::Machine;
use crate::tasks::finetuning_task::{Examples, FinetuningTask};
use crate::tasks::run::Kind;
use crate::trials::equipment::Equipment;
use base::error::Problem;
use base::fs;
use config::{BatchSize, FinetuneConfig};
use data::batches::BatchPlan;
use model::interop::PretrainedFolder;

/// A run that may be trained at the same time as others.
pub trait Job: Sync {
    /// The name in messages, which no other job has.
    fn name(&self) -> String;

    /// True if there is nothing left to train.
    fn is_done(&self) -> bool;
}

/// Returns how many of `jobs` are trained at the same time, if each needs as much memory as a run of
/// `config`: the key `runs_at_once`, or by default one per thread as long as they fit into half of the free
/// memory. It is 1 on a GPU, with several processes, and with an automatic batch size, which fills the
/// memory.
pub fn lanes<T: FinetuningTask>(
    jobs: &[impl Job],
    examples: &Examples<T>,
    config: &FinetuneConfig,
    folder: &PretrainedFolder,
    machine: &Machine,
) -> Result<usize> {
    let most = jobs.iter().filter(|job| !job.is_done()).count().clamp(1, machine.threads.max(1));
    // An automatic batch size leaves no memory for another run.
    let fills_memory = config.training.per_device_train_batch_size == BatchSize::Auto;
    if most == 1 || !machine.device.is_cpu() || machine.world.size > 1 || fills_memory {
        return Ok(1);
    }
    if config.runs_at_once > 0 {
        return Ok(config.runs_at_once.min(most));
    }
    let tokens = BatchPlan::new(&config.training, config.data.sequence_length()).most_tokens_at_once();
    let shapes = examples.kind(config, folder).shapes()?;
    let needed = shapes.prediction(tokens as u64, &config.training, machine.place()).total();
    let fit = fs::available_bytes().map_or(1, |free| free / 2 / needed.max(1));
    Ok((fit as usize).clamp(1, most))
}

/// Calls `run` with the index of each job, `lanes` at the same time, and passes each result to `done` on this
/// thread, as soon as it is there. After an error no further job starts, and the running ones are waited for.
/// With several processes, each process runs one job at a time instead, and `done` is called with every
/// result in all of them.
pub fn side_by_side<J: Job, R: Send>(
    jobs: &[J],
    lanes: usize,
    with: Equipment<'_>,
    run: impl Fn(usize, Equipment<'_>) -> Result<R> + Sync,
    mut done: impl FnMut(usize, R) -> Result<()>,
) -> Result<()> {
    let (ready, waiting): (Vec<usize>, Vec<usize>) = (0..jobs.len()).partition(|&at| jobs[at].is_done());
    // Rank 0 decides which jobs are done: one process may finish a job before another process checks.
    let (ready, waiting) = with.world.from_first(with.world.is_first().then_some((ready, waiting)))?;
    ready.into_iter().try_for_each(|at| done(at, run(at, with)?))?;
    if with.world.is_shared() {
        return among_processes(&waiting, with, &run, &mut done);
    }
    // If the last jobs do not fill all lanes, each gets more threads.
    let (full, rest) = waiting.split_at(waiting.len() - waiting.len() % lanes.max(1));
    for (places, lanes) in [(full, lanes), (rest, rest.len())] {
        if lanes <= 1 {
            places.iter().try_for_each(|&at| done(at, run(at, with)?))?;
        } else {
            in_lanes(places, lanes, with, &|at: usize| jobs[at].name(), &run, &mut done)?;
        }
    }
    Ok(())
}

/// Runs one job at a time on each process, and calls `done` on every process with every result. A result of
/// another process is read from its record.
fn among_processes<R>(
    places: &[usize],
    with: Equipment<'_>,
    run: &impl Fn(usize, Equipment<'_>) -> Result<R>,
    done: &mut impl FnMut(usize, R) -> Result<()>,
) -> Result<()> {
    let world = with.world;
    for round in places.chunks(world.size) {
        let own = round.get(world.rank).map(|&at| run(at, with)).transpose();
        // If a signal stopped all processes, the first error must not abort those that are still saving.
        world.wait_for_all()?;
        let failed = world.any(own.as_ref().err().map(|e| format!("{e:#}")))?;
        let mut own = own?;
        if let Some(why) = failed {
            return Err(Problem::new(format!("a run in another process came to no end: {why}")).into());
        }
        for (rank, &at) in round.iter().enumerate() {
            let result = if rank == world.rank { own.take() } else { None };
            done(at, result.map_or_else(|| run(at, with), Ok)?)?;
        }
    }
    Ok(())
}

/// Runs the jobs at `places` in `lanes` threads. Each thread has a pool with its share of the machine's
/// threads.
fn in_lanes<R: Send>(
    places: &[usize],
    lanes: usize,
    with: Equipment<'_>,
    name: &(impl Fn(usize) -> String + Sync),
    run: &(impl Fn(usize, Equipment<'_>) -> Result<R> + Sync),
    done: &mut impl FnMut(usize, R) -> Result<()>,
) -> Result<()> {
    let machine = Machine { threads: with.machine.threads / lanes, ..with.machine.clone() };
    let next = AtomicUsize::new(0);
    let is_over = AtomicBool::new(false);
    let (sender, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..lanes {
            let pool = ThreadPoolBuilder::new().num_threads(machine.threads).build()?;
            let (sender, next, is_over, machine) = (sender.clone(), &next, &is_over, &machine);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let Some(&at) = places.get(next.fetch_add(1, Ordering::SeqCst)) else { return };
                    let progress = with.progress.labelled(&name(at));
                    let with = Equipment { machine, progress: &progress, ..with };
                    let result = pool.install(|| run(at, with));
                    is_over.fetch_or(result.is_err(), Ordering::SeqCst);
                    if sender.send((at, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut first_error = Ok(());
        for (at, result) in results {
            let handled = result.and_then(|result| done(at, result));
            is_over.fetch_or(handled.is_err(), Ordering::SeqCst);
            first_error = first_error.and(handled);
        }
        first_error
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use anyhow::bail;
    use candle_core::Device;

    use super::*;
    use crate::telemetry::Progress;
    use crate::train::signals::Signals;
    use config::ComputeType;
    use model::distributed::World;
    use model::distributed::threads::{in_each, worlds};
    use model::precision::{Hardware, Policy};

    impl Job for usize {
        fn name(&self) -> String {
            self.to_string()
        }

        fn is_done(&self) -> bool {
            *self == 4
        }
    }

    /// Runs ten jobs in `lanes` lanes, some of which fail; the fifth is done already. Returns the outcome,
    /// and each finished job with its number of threads.
    fn run_ten(lanes: usize, fails: impl Fn(usize) -> bool + Sync) -> (Result<()>, Vec<(usize, usize)>) {
        let policy = Policy::plain(ComputeType::F32, &Hardware::cpu()).unwrap();
        let machine = Machine { threads: 6, ..Machine::alone(&Device::Cpu, policy) };
        let progress = Progress::silent();
        let signals = Signals::none();
        let with =
            Equipment { machine: &machine, progress: &progress, signals: &signals, world: World::ALONE };
        let jobs: Vec<usize> = (0..10).collect();
        let mut found = Vec::new();
        let end = side_by_side(
            &jobs,
            lanes,
            with,
            |at, with| {
                let in_pool =
                    with.machine.threads == 6 || rayon::current_num_threads() == with.machine.threads;
                assert!(in_pool, "a lane computes in a pool of its own");
                if fails(at) {
                    bail!("job {at}");
                }
                Ok((at, with.machine.threads))
            },
            |at, (job, threads)| {
                assert_eq!(at, job);
                found.push((job, threads));
                Ok(())
            },
        );
        found.sort_unstable();
        (end, found)
    }

    #[test]
    fn every_job_is_done_once_with_its_share_of_the_threads() {
        // Nine jobs are left to train: one is left over with two lanes and with four, four with five lanes.
        for (lanes, share, left) in [(1, 6, 0), (2, 3, 1), (4, 1, 1), (5, 1, 4)] {
            let (end, found) = run_ten(lanes, |_| false);
            end.unwrap();
            let last_share = 6_usize.checked_div(left).unwrap_or(share);
            let expected = (0..10).map(|job| match job {
                4 => (job, 6),
                job if job >= 10 - left => (job, last_share),
                _ => (job, share),
            });
            assert_eq!(found, expected.collect::<Vec<_>>());
        }
    }

    #[test]
    fn processes_have_a_job_each_and_get_all_results() {
        let policy = Policy::plain(ComputeType::F32, &Hardware::cpu()).unwrap();
        let machine = Machine::alone(&Device::Cpu, policy);
        let progress = Progress::silent();
        let signals = Signals::none();
        let jobs: Vec<usize> = (0..10).collect();
        for (size, failing) in [(2, None), (4, None), (3, Some(6))] {
            let trained = Mutex::new(Vec::new());
            let ends = in_each(&worlds(size, Duration::from_secs(60)), |world: World| {
                let with = Equipment { machine: &machine, progress: &progress, signals: &signals, world };
                let mut results = Vec::new();
                let end = side_by_side(
                    &jobs,
                    1,
                    with,
                    |at, _| {
                        let mut trained = trained.lock().unwrap();
                        // The second process to run a job finds its record.
                        if !trained.iter().any(|&(job, _)| job == at) {
                            if failing == Some(at) {
                                bail!("job {at}");
                            }
                            trained.push((at, world.rank));
                        }
                        Ok(at)
                    },
                    |at, job| {
                        assert_eq!(at, job);
                        results.push(job);
                        Ok(())
                    },
                );
                (end.map_err(|e| e.to_string()), results)
            });
            let trained = trained.into_inner().unwrap();
            for (rank, (end, results)) in ends.into_iter().enumerate() {
                if failing.is_some() {
                    // The fifth job is done already, so the second round has the jobs 3, 5 and 6.
                    let why =
                        if rank == 2 { "job 6" } else { "a run in another process came to no end: job 6" };
                    assert_eq!((end.unwrap_err().as_str(), &results[..]), (why, &[4, 0, 1, 2][..]));
                } else {
                    assert_eq!((end, results), (Ok(()), vec![4, 0, 1, 2, 3, 5, 6, 7, 8, 9]));
                    let own = trained.iter().filter(|(job, by)| *by == rank && *job != 4).count();
                    assert!(own >= 9 / size && own <= 9usize.div_ceil(size), "{trained:?}");
                }
            }
        }
    }

    #[test]
    fn no_job_starts_after_an_error() {
        for lanes in [1, 3] {
            let (end, found) = run_ten(lanes, |job| job == 2);
            assert_eq!(end.unwrap_err().to_string(), "job 2");
            assert!(!found.is_empty() && found.len() < 10, "{found:?}");
        }
        let (_, found) = run_ten(2, |_| true);
        assert_eq!(found, []);
    }
}

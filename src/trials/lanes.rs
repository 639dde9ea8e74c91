//! Runs side by side on a CPU: each lane has its share of the threads, and takes the next run when it is done
//! with one. No number of a run depends on its threads, so it leaves the bytes that it leaves alone.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use anyhow::Result;
use rayon::ThreadPoolBuilder;

use crate::batches::BatchPlan;
use crate::config::BatchSize;
use crate::config::FinetuneConfig;
use crate::error::Problem;
use crate::fs;
use crate::interop::PretrainedFolder;
use crate::machine::Machine;
use crate::tasks::finetuned::Finetuned;
use crate::tasks::run::Kind;
use crate::trials::equipment::Equipment;

/// A run that is to be trained beside others.
pub trait Job: Sync {
    /// What tells it from the others, for people.
    fn name(&self) -> String;

    /// Whether there is nothing left to train.
    fn is_done(&self) -> bool;
}

/// How many of these jobs, which are like that of `config`, are trained at once: as `runs_at_once` says, else
/// as many as there are threads and as half of the free memory holds. On a GPU, and among several processes,
/// one.
pub fn lanes<T: Finetuned>(
    jobs: &[impl Job],
    examples: &T,
    config: &FinetuneConfig,
    folder: &PretrainedFolder,
    machine: &Machine,
) -> Result<usize> {
    let most = jobs.iter().filter(|job| !job.is_done()).count().clamp(1, machine.threads.max(1));
    // Rows that are to fill the memory leave none for another run.
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

/// Gives each job, by its place, to `run`, so many at a time, and what comes of it to `done`, on this thread
/// and as it comes. After an error no job is begun; those that run are waited for. Several processes have a job
/// each at a time instead, and all of them are given what comes of every job.
pub fn side_by_side<J: Job, R: Send>(
    jobs: &[J],
    lanes: usize,
    with: Equipment<'_>,
    run: impl Fn(usize, Equipment<'_>) -> Result<R> + Sync,
    mut done: impl FnMut(usize, R) -> Result<()>,
) -> Result<()> {
    let (ready, waiting): (Vec<usize>, Vec<usize>) = (0..jobs.len()).partition(|&at| jobs[at].is_done());
    // One process may have ended a job before another has looked.
    let (ready, waiting) = with.world.from_first(with.world.is_first().then_some((ready, waiting)))?;
    ready.into_iter().try_for_each(|at| done(at, run(at, with)?))?;
    if with.world.is_shared() {
        return among_processes(&waiting, with, &run, &mut done);
    }
    // The last ones, if they do not fill all lanes, have more threads each.
    let (full, rest) = waiting.split_at(waiting.len() - waiting.len() % lanes.max(1));
    for (places, lanes) in [(full, lanes), (rest, rest.len())] {
        if lanes <= 1 {
            places.iter().try_for_each(|&at| done(at, run(at, with)?))?;
        } else {
            let name = |at: usize| jobs[at].name();
            in_lanes(places, lanes, with, &name, &run, &mut done)?;
        }
    }
    Ok(())
}

/// Deals jobs out, one at a time to each process, and gives every process what came of all of them: a job that
/// another one has trained is taken from its record.
fn among_processes<R>(
    places: &[usize],
    with: Equipment<'_>,
    run: &impl Fn(usize, Equipment<'_>) -> Result<R>,
    done: &mut impl FnMut(usize, R) -> Result<()>,
) -> Result<()> {
    let world = with.world;
    for round in places.chunks(world.size) {
        let own = round.get(world.rank).map(|&at| run(at, with)).transpose();
        // Where all were told to stop, the first error must not end those that are still saving.
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

fn in_lanes<R: Send>(
    places: &[usize],
    lanes: usize,
    with: Equipment<'_>,
    name: &(impl Fn(usize) -> String + Sync),
    run: &(impl Fn(usize, Equipment<'_>) -> Result<R> + Sync),
    done: &mut impl FnMut(usize, R) -> Result<()>,
) -> Result<()> {
    let machine = Machine { threads: with.machine.threads / lanes, ..with.machine.clone() };
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
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
            let told = result.and_then(|result| done(at, result));
            is_over.fetch_or(told.is_err(), Ordering::SeqCst);
            first_error = first_error.and(told);
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
    use crate::config::ComputeType;
    use crate::distributed::World;
    use crate::distributed::threads::in_each;
    use crate::distributed::threads::worlds;
    use crate::precision::Hardware;
    use crate::precision::Policy;
    use crate::telemetry::Progress;
    use crate::train::signals::Signals;

    impl Job for usize {
        fn name(&self) -> String {
            self.to_string()
        }

        fn is_done(&self) -> bool {
            *self == 4
        }
    }

    /// What becomes of ten jobs in so many lanes, of which some fail; the fifth is done already.
    fn of_ten(lanes: usize, fails: impl Fn(usize) -> bool + Sync) -> (Result<()>, Vec<(usize, usize)>) {
        let policy = Policy::plain(ComputeType::F32, &Hardware::cpu()).unwrap();
        let machine = Machine { threads: 6, ..Machine::alone(&Device::Cpu, policy) };
        let (progress, signals) = (Progress::silent(), Signals::none());
        let with =
            Equipment { machine: &machine, progress: &progress, signals: &signals, world: World::ALONE };
        let jobs: Vec<usize> = (0..10).collect();
        let run = |at: usize, with: Equipment<'_>| {
            let in_pool = with.machine.threads == 6 || rayon::current_num_threads() == with.machine.threads;
            assert!(in_pool, "a lane computes in a pool of its own");
            if fails(at) {
                bail!("job {at}");
            }
            Ok((at, with.machine.threads))
        };
        let mut found = Vec::new();
        let end = side_by_side(&jobs, lanes, with, run, |at, (job, threads)| {
            assert_eq!(at, job);
            found.push((job, threads));
            Ok(())
        });
        found.sort_unstable();
        (end, found)
    }

    #[test]
    fn every_job_is_done_once_with_its_share_of_the_threads() {
        // Nine are to be trained: of two lanes one is left over, of four as well, of five four.
        for (lanes, share, left) in [(1, 6, 0), (2, 3, 1), (4, 1, 1), (5, 1, 4)] {
            let (end, found) = of_ten(lanes, |_| false);
            end.unwrap();
            let of_last = 6_usize.checked_div(left).unwrap_or(share);
            let threads = |job| match job {
                4 => 6,
                job if job >= 10 - left => of_last,
                _ => share,
            };
            assert_eq!(found, (0..10).map(|job| (job, threads(job))).collect::<Vec<_>>());
        }
    }

    #[test]
    fn processes_have_a_job_each_and_hear_of_all() {
        let policy = Policy::plain(ComputeType::F32, &Hardware::cpu()).unwrap();
        let machine = Machine::alone(&Device::Cpu, policy);
        let (progress, signals) = (Progress::silent(), Signals::none());
        let jobs: Vec<usize> = (0..10).collect();
        for (size, failing) in [(2, None), (4, None), (3, Some(6))] {
            let trained = Mutex::new(Vec::new());
            let of_process = |world: World| {
                let with = Equipment { machine: &machine, progress: &progress, signals: &signals, world };
                let run = |at: usize, _: Equipment<'_>| {
                    let mut trained = trained.lock().unwrap();
                    // Whoever comes second finds a record.
                    if !trained.iter().any(|&(job, _)| job == at) {
                        if failing == Some(at) {
                            bail!("job {at}");
                        }
                        trained.push((at, world.rank));
                    }
                    Ok(at)
                };
                let mut heard = Vec::new();
                let end = side_by_side(&jobs, 1, with, run, |at, job| {
                    assert_eq!(at, job);
                    heard.push(job);
                    Ok(())
                });
                (end.map_err(|e| e.to_string()), heard)
            };
            let ends = in_each(&worlds(size, Duration::from_secs(60)), of_process);
            let trained = trained.into_inner().unwrap();
            for (rank, (end, heard)) in ends.into_iter().enumerate() {
                if failing.is_some() {
                    // The fifth is done already: the second round is of 3, 5 and 6.
                    let why =
                        if rank == 2 { "job 6" } else { "a run in another process came to no end: job 6" };
                    assert_eq!((end.unwrap_err().as_str(), &heard[..]), (why, &[4, 0, 1, 2][..]));
                } else {
                    assert_eq!((end, heard), (Ok(()), vec![4, 0, 1, 2, 3, 5, 6, 7, 8, 9]));
                    let own = trained.iter().filter(|(job, by)| *by == rank && *job != 4).count();
                    assert!(own >= 9 / size && own <= 9usize.div_ceil(size), "{trained:?}");
                }
            }
        }
    }

    #[test]
    fn after_an_error_no_job_is_begun() {
        for lanes in [1, 3] {
            let (end, found) = of_ten(lanes, |job| job == 2);
            assert_eq!(end.unwrap_err().to_string(), "job 2");
            assert!(!found.is_empty() && found.len() < 10, "{found:?}");
        }
        let (_, found) = of_ten(2, |_| true);
        assert_eq!(found, []);
    }
}

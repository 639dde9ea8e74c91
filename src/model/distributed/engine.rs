//! The communication thread of a process, the only one that talks to the other processes, and its queue of
//! exchanges.
//!
//! Callers move values into the queue and get them back with the answer, so they can compute in the meantime.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use candle_core::Tensor;

use crate::distributed::mark::Mark;
use crate::distributed::transport::{Carrier, Ended, Transport, Wait};
use crate::distributed::travelling::Travelling;
use crate::distributed::{Ways, narrow, tree};
use base::error::{Class, Problem};
use base::fs;
use base::processes::Link;
use config::{SumOrder, Wire};

/// Handle of the communication thread: the sending end of its queue.
#[derive(Debug)]
pub(crate) struct Engine {
    jobs: Mutex<Sender<Job>>,
    calls: Arc<Calls>,
    started: Instant,
    rank: usize,
    size: usize,
    timeout: Duration,
}

/// State that other threads share with the communication thread while it waits.
#[derive(Debug, Default)]
struct Calls {
    /// Exit code with which all processes are to end; 0 while no process aborts.
    aborting: AtomicI32,
    /// Step of this process, for messages.
    step: AtomicU64,
    /// True once a launcher that is about to kill this process has sent SIGTERM.
    has_end_signal: Arc<AtomicBool>,
}

impl Calls {
    /// Text such as "in step 12", for messages.
    fn step_text(&self) -> String {
        match self.step.load(Ordering::Relaxed) {
            0 => "before the first step".to_string(),
            step => format!("in step {step}"),
        }
    }
}

enum Job {
    Sum(Travelling, SumOrder, Reply<Travelling>),
    Join(Vec<f32>, Vec<usize>, Reply<Vec<f32>>),
    Gather(Vec<u8>, Option<Duration>, Reply<Vec<Vec<u8>>>),
    /// Uses this carrier for all later exchanges between GPUs.
    Carry(MakeCarrier, Sender<Result<()>>),
    OnGpus(OnGpus, Ways, Reply<()>),
    /// Asks for the processor seconds that this thread has used.
    Seconds(Reply<Option<f64>>),
    Leave(Sender<()>),
    /// Only wakes the thread. The caller waits until the sender is dropped.
    Abort {
        _sender: Sender<()>,
    },
}

type Reply<T> = Sender<Result<T, Ended>>;

/// Makes the carrier between GPUs, on the thread that will use it.
pub(super) type MakeCarrier = Box<dyn FnOnce() -> Result<Box<dyn Carrier>> + Send>;

/// An exchange of a tensor on the GPU, which starts after all work that was launched before `after`.
#[derive(Debug)]
pub(super) struct OnGpus {
    pub(super) tensor: Tensor,
    pub(super) after: Mark,
    /// Parts that each process shares with the others; `None` adds the tensor up over all processes.
    pub(super) parts: Option<Vec<Range<usize>>>,
}

/// Shortest time to wait for all processes at the start: machines of a cluster are not ready at the same
/// moment.
const ALL_HERE: Duration = Duration::from_secs(600);

/// Time added to the timeout for a library that may hang inside a call, since such a call cannot check the
/// timeout itself.
const GUARD: Duration = Duration::from_secs(5);

/// Answer of the communication thread that has not arrived yet.
#[derive(Debug)]
pub(super) struct Pending<'a, T> {
    answer: Receiver<Result<T, Ended>>,
    engine: &'a Engine,
}

impl<T> Pending<'_, T> {
    /// Waits for the answer.
    pub(super) fn wait(self) -> Result<T> {
        let answer = self.answer.recv().unwrap_or(Err(Ended::Aborted));
        answer.map_err(|ended| self.engine.problem(ended).into())
    }

    /// Waits for the answer of a library that may hang: at most the timeout and [`GUARD`].
    pub(super) fn wait_guarded(self) -> Result<T> {
        let answer = match self.answer.recv_timeout(self.engine.timeout + GUARD) {
            Err(RecvTimeoutError::Timeout) => Err(Ended::TimedOut(self.engine.timeout)),
            answer => answer.unwrap_or(Err(Ended::Aborted)),
        };
        answer.map_err(|ended| self.engine.problem(ended).into())
    }
}

impl Engine {
    /// Starts the communication thread, on which `make` builds the transport. Values that are exchanged for a
    /// step have to arrive within `timeout`. Messages of the thread while it waits go to `tell`.
    pub(super) fn start<T: Transport>(
        make: impl FnOnce() -> Result<T> + Send + 'static,
        timeout: Duration,
        tell: fn(&str),
    ) -> Result<Self> {
        let (jobs, queue) = channel();
        let (started, start) = channel();
        let calls = Arc::new(Calls::default());
        let thread_calls = Arc::clone(&calls);
        std::thread::Builder::new()
            .name("exchange".to_string())
            .spawn(move || match make() {
                Ok(transport) => {
                    let _ = started.send(Ok((transport.rank(), transport.size())));
                    serve(transport, &queue, timeout, &thread_calls, tell);
                }
                Err(e) => drop(started.send(Err(e))),
            })
            .context("cannot start the thread that talks to other processes")?;
        let (rank, size) = start
            .recv_timeout(timeout.max(ALL_HERE))
            .map_err(|_| Problem::new("the other processes did not come").class(Class::Restart))??;
        let started = Instant::now();
        Ok(Self { jobs: Mutex::new(jobs), calls, started, rank, size, timeout })
    }

    /// Number of this process, from 0.
    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    /// Number of processes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Sets the step that messages name from now on.
    pub(super) fn at_step(&self, step: u64) {
        self.calls.step.store(step, Ordering::Relaxed);
    }

    /// Flag to be set by a signal handler when a signal asks this process to end.
    pub(super) fn end_signal_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.calls.has_end_signal)
    }

    /// Text such as "rank 1 of 4, in step 12", for messages.
    pub(super) fn place(&self) -> String {
        format!("rank {} of {}, {}", self.rank, self.size, self.calls.step_text())
    }

    /// Starts an all-reduce (sum) of these values.
    pub(super) fn sum(&self, own: Travelling, order: SumOrder) -> Pending<'_, Travelling> {
        self.ask(|reply| Job::Sum(own, order, reply))
    }

    /// Starts an all-gather: concatenates the values of all processes in rank order. Process r has
    /// `counts[r]` values.
    pub(super) fn join(&self, own: Vec<f32>, counts: Vec<usize>) -> Pending<'_, Vec<f32>> {
        self.ask(|reply| Job::Join(own, counts, reply))
    }

    /// Uses the carrier that `make` builds for exchanges between GPUs. Waits until all processes have it.
    pub(super) fn carry_by(&self, make: MakeCarrier) -> Result<()> {
        let (reply, answer) = channel();
        self.send(Job::Carry(make, reply));
        answer.recv_timeout(self.timeout).unwrap_or_else(|e| {
            let ended = match e {
                RecvTimeoutError::Timeout => Ended::TimedOut(self.timeout),
                RecvTimeoutError::Disconnected => Ended::Aborted,
            };
            Err(self.problem(ended).into())
        })
    }

    /// Starts this exchange between GPUs. The tensor is kept alive until the exchange is done.
    pub(super) fn on_gpus(&self, what: OnGpus, ways: Ways) -> Pending<'_, ()> {
        self.ask(|reply| Job::OnGpus(what, ways, reply))
    }

    /// Processor seconds of the communication thread, if the system reports them, and wall-clock seconds
    /// since its start.
    pub(super) fn seconds(&self) -> Option<(f64, f64)> {
        let busy = self.ask(Job::Seconds).wait().ok().flatten()?;
        Some((busy, self.started.elapsed().as_secs_f64()))
    }

    /// Waits until all other processes leave as well.
    pub(super) fn leave(&self) {
        let (done, is_done) = channel();
        self.send(Job::Leave(done));
        let _ = is_done.recv();
    }

    /// Ends all processes with this exit code. Returns if that takes longer than `patience`.
    pub(super) fn abort(&self, code: i32, patience: Duration) {
        let (done, is_done) = channel();
        self.calls.aborting.store(code, Ordering::SeqCst);
        self.send(Job::Abort { _sender: done });
        let _ = is_done.recv_timeout(patience);
    }

    fn ask<T>(&self, job: impl FnOnce(Reply<T>) -> Job) -> Pending<'_, T> {
        let (reply, answer) = channel();
        self.send(job(reply));
        Pending { answer, engine: self }
    }

    fn send(&self, job: Job) {
        // If the thread has ended, the answer never arrives, and `Pending::wait` returns an error.
        let _ = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job);
    }

    fn problem(&self, ended: Ended) -> Problem {
        let step = self.calls.step_text();
        let rank = self.rank;
        let again = "the same command continues from the last checkpoint";
        let problem = match ended {
            Ended::TimedOut(timeout) => Problem::new(format!(
                "rank {rank} of {} has waited {} s for the others {step}: one of them has died or hangs",
                self.size,
                timeout.as_secs_f64()
            ))
            .hint(format!("{again}; `distributed.timeout` must be longer than rank 0 takes to save")),
            Ended::Aborted => Problem::new(format!("rank {rank} gave up {step}")).hint(again),
            Ended::Failed(reason) => {
                Problem::new(format!("rank {rank} failed with the others {step}: {reason}")).hint(again)
            }
        };
        problem.class(Class::Restart)
    }
}

impl Link for Engine {
    fn gather(&self, own: Vec<u8>, timeout: Option<Duration>) -> Result<Vec<Vec<u8>>> {
        self.ask(|reply| Job::Gather(own, timeout, reply)).wait()
    }
}

/// Reason why an exchange failed. The processes are then no longer in step with each other, so all later
/// exchanges fail at once with the same reason instead of waiting for a timeout.
#[derive(Debug, Default)]
struct Lost(Option<Ended>);

impl Lost {
    /// Runs `exchange` unless an earlier exchange has failed; keeps the reason if this one fails.
    fn unless<T>(&mut self, exchange: impl FnOnce() -> Result<T, Ended>) -> Result<T, Ended> {
        let done = self.0.take().map_or_else(exchange, Err);
        self.0 = done.as_ref().err().cloned();
        done
    }
}

/// Reports a signal that came while this process waited. If a process was lost, the launcher sends SIGTERM to
/// the others and kills them a moment later.
fn report_end_signal(calls: &Calls, tell: fn(&str), rank: usize, size: usize) {
    if calls.has_end_signal.swap(false, Ordering::SeqCst) {
        tell(&format!(
            "rank {rank} of {size} was told to end while it waited for the others {}",
            calls.step_text()
        ));
    }
}

/// Runs the queued jobs until all processes leave.
fn serve(
    mut transport: impl Transport,
    queue: &Receiver<Job>,
    timeout: Duration,
    calls: &Calls,
    tell: fn(&str),
) {
    let rank = transport.rank();
    let size = transport.size();
    let aborting = &calls.aborting;
    let look: &dyn Fn() = &|| report_end_signal(calls, tell, rank, size);
    let mut carrier: Option<Box<dyn Carrier>> = None;
    let mut lost = Lost::default();
    while let Ok(job) = queue.recv() {
        match aborting.load(Ordering::SeqCst) {
            0 => {}
            code => return transport.abort(code),
        }
        match job {
            Job::Sum(own, order, reply) => {
                let wait = Wait::new(Some(timeout), aborting, look);
                let _ = reply.send(lost.unless(|| match (own, order) {
                    (Travelling::F32(own), SumOrder::Fast) => {
                        transport.all_reduce(own, &wait).map(Travelling::F32)
                    }
                    (Travelling::F32(own), SumOrder::Tree) => {
                        tree::sum(&mut transport, own, &wait).map(Travelling::F32)
                    }
                    (Travelling::Bf16(own), _) => tree::sum(&mut transport, own, &wait).map(Travelling::Bf16),
                }));
            }
            Job::Join(own, counts, reply) => {
                let wait = Wait::new(Some(timeout), aborting, look);
                let _ = reply.send(lost.unless(|| transport.all_gather(own, &counts, &wait)));
            }
            Job::Gather(own, longer, reply) => {
                let wait = Wait::new(longer.or(Some(timeout)), aborting, look);
                let _ = reply.send(lost.unless(|| transport.gather(own, &wait)));
            }
            Job::Carry(make, reply) => {
                let made = make().map(|made| carrier = Some(made));
                let _ = reply.send(made);
            }
            Job::OnGpus(OnGpus { tensor, after, parts }, ways, reply) => {
                let wait = Wait::new(Some(timeout), aborting, look);
                let _ = reply.send(lost.unless(|| {
                    let carrier = carrier.as_deref_mut().ok_or(Ended::Aborted)?;
                    match (parts, ways.wire) {
                        (Some(parts), _) => carrier.share(&tensor, &parts, &after, &wait),
                        (None, Wire::F32) => carrier.sum(&tensor, &after, &wait),
                        (None, Wire::Bf16) => narrow::sum(carrier, &tensor, rank, size, &wait),
                    }
                }));
            }
            Job::Seconds(reply) => drop(reply.send(Ok(fs::thread_seconds()))),
            Job::Leave(done) => {
                transport.leave();
                let _ = done.send(());
                return;
            }
            Job::Abort { .. } => {}
        }
    }
}

//! The one thread of a process that talks to the others; it has a queue of what to exchange.
//!
//! Values are moved to it and back, so that whoever asks can go on meanwhile.

use std::ops::Range;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::Sender;
use std::sync::mpsc::channel;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use candle_core::Tensor;

use crate::config::SumOrder;
use crate::config::Wire;
use crate::distributed::Ways;
use crate::distributed::mark::Mark;
use crate::distributed::narrow;
use crate::distributed::transport::Carrier;
use crate::distributed::transport::Ended;
use crate::distributed::transport::Transport;
use crate::distributed::transport::Wait;
use crate::distributed::travelling::Travelling;
use crate::distributed::tree;
use crate::error::Class;
use crate::error::Problem;
use crate::fs;

/// The queue of the thread.
#[derive(Debug)]
pub(crate) struct Engine {
    jobs: Mutex<Sender<Job>>,
    calls: Arc<Calls>,
    started: Instant,
    rank: usize,
    size: usize,
    timeout: Duration,
}

/// What the thread is told while it waits, and what it can tell.
#[derive(Debug, Default)]
struct Calls {
    /// The exit code with which all are to end, 0 as long as none is.
    aborting: AtomicI32,
    /// The step that this process is in, for messages.
    step: AtomicU64,
    /// Whether a launcher that is about to kill this process has said so.
    is_told_to_end: Arc<AtomicBool>,
}

impl Calls {
    /// "in step 12".
    fn at(&self) -> String {
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
    /// From here on this carries between GPUs.
    Carry(MakeCarrier, Sender<Result<()>>),
    OnGpus(OnGpus, Ways, Reply<()>),
    /// How long this thread has had a processor.
    Seconds(Reply<Option<f64>>),
    Leave(Sender<()>),
    /// Only wakes the thread; whoever asks sees by the sender when that is over.
    Abort {
        _sender: Sender<()>,
    },
}

type Reply<T> = Sender<Result<T, Ended>>;

/// Makes what carries between GPUs, on the thread that will use it.
pub(super) type MakeCarrier = Box<dyn FnOnce() -> Result<Box<dyn Carrier>> + Send>;

/// What is to be done with a tensor on the GPU, behind what was launched before `after`.
#[derive(Debug)]
pub(super) struct OnGpus {
    pub(super) tensor: Tensor,
    pub(super) after: Mark,
    /// Its parts are given to all processes; without any it is added up over them.
    pub(super) parts: Option<Vec<Range<usize>>>,
}

/// At the start all are waited for so long at least: machines of a cluster are not ready at the same moment.
const ALL_HERE: Duration = Duration::from_secs(600);

/// A library that hangs in a call is waited for so much longer than one that can be asked.
const GUARD: Duration = Duration::from_secs(5);

/// What was asked of the thread.
#[derive(Debug)]
pub(super) struct Pending<'a, T> {
    answer: Receiver<Result<T, Ended>>,
    engine: &'a Engine,
}

impl<T> Pending<'_, T> {
    /// The answer; waits for it.
    pub(super) fn wait(self) -> Result<T> {
        let answer = self.answer.recv().unwrap_or(Err(Ended::Aborted));
        answer.map_err(|ended| self.engine.problem(ended).into())
    }

    /// The answer of a library that may hang.
    pub(super) fn wait_guarded(self) -> Result<T> {
        let answer = match self.answer.recv_timeout(self.engine.timeout + GUARD) {
            Err(RecvTimeoutError::Timeout) => Err(Ended::TimedOut(self.engine.timeout)),
            answer => answer.unwrap_or(Err(Ended::Aborted)),
        };
        answer.map_err(|ended| self.engine.problem(ended).into())
    }
}

impl Engine {
    /// Starts the thread, on which `make` makes what carries the values; what it carries for a step has to
    /// arrive within `timeout`. What it has to say while it waits goes to `tell`.
    pub(super) fn start<T: Transport>(
        make: impl FnOnce() -> Result<T> + Send + 'static,
        timeout: Duration,
        tell: fn(&str),
    ) -> Result<Self> {
        let (jobs, queue) = channel();
        let (started, start) = channel();
        let calls = Arc::new(Calls::default());
        let of_thread = Arc::clone(&calls);
        let run = move || match make() {
            Ok(transport) => {
                let _ = started.send(Ok((transport.rank(), transport.size())));
                serve(transport, &queue, timeout, (&of_thread, tell));
            }
            Err(e) => drop(started.send(Err(e))),
        };
        std::thread::Builder::new()
            .name("exchange".to_string())
            .spawn(run)
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

    /// Messages name this step from here on.
    pub(super) fn at_step(&self, step: u64) {
        self.calls.step.store(step, Ordering::Relaxed);
    }

    /// To be set by a signal that asks for an end.
    pub(super) fn told_to_end(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.calls.is_told_to_end)
    }

    /// "rank 1 of 4, in step 12".
    pub(super) fn place(&self) -> String {
        format!("rank {} of {}, {}", self.rank, self.size, self.calls.at())
    }

    /// Begins to add these values to those of all others.
    pub(super) fn sum(&self, own: Travelling, order: SumOrder) -> Pending<'_, Travelling> {
        self.ask(|reply| Job::Sum(own, order, reply))
    }

    /// Begins to put the values of all processes one behind the other; process r has `counts[r]`.
    pub(super) fn join(&self, own: Vec<f32>, counts: Vec<usize>) -> Pending<'_, Vec<f32>> {
        self.ask(|reply| Job::Join(own, counts, reply))
    }

    /// Begins to gather the bytes of all processes; `timeout` is for where some do more than others before.
    pub(super) fn gather(&self, own: Vec<u8>, timeout: Option<Duration>) -> Pending<'_, Vec<Vec<u8>>> {
        self.ask(|reply| Job::Gather(own, timeout, reply))
    }

    /// Has what `make` makes carry between GPUs; waits until all processes have it.
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

    /// Begins to do this; the tensor is held until it is done.
    pub(super) fn on_gpus(&self, what: OnGpus, ways: Ways) -> Pending<'_, ()> {
        self.ask(|reply| Job::OnGpus(what, ways, reply))
    }

    /// Seconds for which the thread has had a processor, where the system tells, and those since its start.
    pub(super) fn seconds(&self) -> Option<(f64, f64)> {
        let busy = self.ask(Job::Seconds).wait().ok().flatten()?;
        Some((busy, self.started.elapsed().as_secs_f64()))
    }

    /// Waits until all others leave as well.
    pub(super) fn leave(&self) {
        let (done, is_done) = channel();
        self.send(Job::Leave(done));
        let _ = is_done.recv();
    }

    /// Ends all processes with this exit code; returns where that takes longer than `patience`.
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
        // Where the thread has ended, the answer never comes, and that is an error for whoever waits for it.
        let _ = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job);
    }

    fn problem(&self, ended: Ended) -> Problem {
        let step = self.calls.at();
        let (rank, again) = (self.rank, "the same command continues from the last checkpoint");
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

/// Why an exchange came to no end. The others are at another place then: nothing more is exchanged with them, so
/// that what was asked for meanwhile does not wait, too.
#[derive(Debug, Default)]
struct Lost(Option<Ended>);

impl Lost {
    fn unless<T>(&mut self, exchange: impl FnOnce() -> Result<T, Ended>) -> Result<T, Ended> {
        let done = self.0.take().map_or_else(exchange, Err);
        self.0 = done.as_ref().err().cloned();
        done
    }
}

/// Does what is asked until all leave.
fn serve(
    mut transport: impl Transport,
    queue: &Receiver<Job>,
    timeout: Duration,
    (calls, tell): (&Calls, fn(&str)),
) {
    let (rank, size, aborting) = (transport.rank(), transport.size(), &calls.aborting);
    // Where a process was lost, the launcher kills the others, and gives them a moment.
    let look = || {
        if calls.is_told_to_end.swap(false, Ordering::SeqCst) {
            tell(&format!(
                "rank {rank} of {size} was told to end while it waited for the others {}",
                calls.at()
            ));
        }
    };
    let (mut carrier, mut lost): (Option<Box<dyn Carrier>>, _) = (None, Lost::default());
    while let Ok(job) = queue.recv() {
        match aborting.load(Ordering::SeqCst) {
            0 => {}
            code => return transport.abort(code),
        }
        match job {
            Job::Sum(own, order, reply) => {
                let wait = Wait::new(Some(timeout), aborting, &look);
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
                let wait = Wait::new(Some(timeout), aborting, &look);
                let _ = reply.send(lost.unless(|| transport.all_gather(own, &counts, &wait)));
            }
            Job::Gather(own, longer, reply) => {
                let wait = Wait::new(longer.or(Some(timeout)), aborting, &look);
                let _ = reply.send(lost.unless(|| transport.gather(own, &wait)));
            }
            Job::Carry(make, reply) => {
                let made = make().map(|made| carrier = Some(made));
                let _ = reply.send(made);
            }
            Job::OnGpus(OnGpus { tensor, after, parts }, ways, reply) => {
                let wait = Wait::new(Some(timeout), aborting, &look);
                let _ = reply.send(lost.unless(|| {
                    let carrier = carrier.as_deref_mut().ok_or(Ended::Aborted)?;
                    match (parts, ways.wire) {
                        (Some(parts), _) => carrier.share(&tensor, &parts, &after, &wait),
                        (None, Wire::F32) => carrier.sum(&tensor, &after, &wait),
                        (None, Wire::Bf16) => narrow::sum(carrier, &tensor, (rank, size), &wait),
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

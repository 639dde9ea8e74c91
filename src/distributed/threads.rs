//! Threads as processes, for tests: what is summed and agreed needs no launcher.

use std::ops::Range;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::Sender;
use std::sync::mpsc::channel;
use std::time::Duration;

use candle_core::DType;
use candle_core::Tensor;

use crate::config::DistributedConfig;
use crate::distributed::Ways;
use crate::distributed::World;
use crate::distributed::engine::Engine;
use crate::distributed::mark::Mark;
use crate::distributed::transport::Carrier;
use crate::distributed::transport::Ended;
use crate::distributed::transport::PAUSE;
use crate::distributed::transport::Transport;
use crate::distributed::transport::Value;
use crate::distributed::transport::Wait;
use crate::distributed::transport::bytes;
use crate::distributed::transport::values;

/// One of the threads.
struct Threads {
    rank: usize,
    /// To each of them.
    to: Vec<Sender<Vec<u8>>>,
    /// From each of them.
    from: Vec<Receiver<Vec<u8>>>,
}

/// The worlds of `size` threads that belong together.
pub(crate) fn worlds(size: usize, timeout: Duration) -> Vec<World> {
    worlds_of(size, timeout, &DistributedConfig::default())
}

/// The same with another configuration.
pub(crate) fn worlds_of(size: usize, timeout: Duration, config: &DistributedConfig) -> Vec<World> {
    let start = |threads: Threads| {
        let rank = threads.rank;
        let engine = Engine::start(move || Ok(threads), timeout, |_| {}).unwrap();
        let engine = Some(&*Box::leak(Box::new(engine)));
        World { rank, size, engine, ways: Ways::of(config), on_gpus: false }
    };
    connected(size).into_iter().map(start).collect()
}

/// The same where tensors are added up where they are, as those on GPUs.
pub(crate) fn worlds_on_gpus(size: usize, timeout: Duration, config: &DistributedConfig) -> Vec<World> {
    let worlds = worlds_of(size, timeout, config).into_iter().zip(connected(size));
    let carried = |(world, threads): (World, Threads)| {
        world.engine.unwrap().carry_by(Box::new(move || Ok(Box::new(threads)))).unwrap();
        World { on_gpus: true, ..world }
    };
    worlds.map(carried).collect()
}

fn connected(size: usize) -> Vec<Threads> {
    let (mut to, mut from): (Vec<Vec<_>>, Vec<Vec<_>>) = (vec![Vec::new(); size], vec![]);
    for _ in 0..size {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..size).map(|_| channel()).unzip();
        to.iter_mut().zip(senders).for_each(|(to, sender)| to.push(sender));
        from.push(receivers);
    }
    // Receiver `s` of process `r` is to belong to what `s` sends.
    let to: Vec<Vec<Sender<Vec<u8>>>> = to;
    let threads = to.into_iter().zip(from).enumerate();
    threads.map(|(rank, (to, from))| Threads { rank, to, from }).collect()
}

/// What `f` gives in each of these processes.
pub(crate) fn in_each<R: Send>(worlds: &[World], f: impl Fn(World) -> R + Sync) -> Vec<R> {
    let f = &f;
    std::thread::scope(|scope| {
        let threads: Vec<_> = worlds.iter().map(|&world| scope.spawn(move || f(world))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn gone() -> Ended {
    Ended::Failed("the other thread has ended".to_string())
}

impl Threads {
    /// Sends a message to each, and takes one from each.
    fn send_and_take(&self, messages: Vec<Vec<u8>>, wait: &Wait<'_>) -> Result<Vec<Vec<u8>>, Ended> {
        for (to, message) in self.to.iter().zip(messages) {
            to.send(message).map_err(|_| gone())?;
        }
        let receive = |from: &Receiver<Vec<u8>>| {
            loop {
                match from.recv_timeout(PAUSE) {
                    Ok(message) => return Ok(message),
                    Err(RecvTimeoutError::Timeout) => wait.check()?,
                    Err(RecvTimeoutError::Disconnected) => return Err(gone()),
                }
            }
        };
        self.from.iter().map(receive).collect()
    }
}

impl Transport for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn all_to_all<V: Value>(
        &mut self,
        own: Vec<V>,
        counts: &[usize],
        wait: &Wait<'_>,
    ) -> Result<Vec<V>, Ended> {
        let mut rest = own.as_slice();
        let mut next = |&count: &usize| {
            let (part, behind) = rest.split_at(count);
            rest = behind;
            bytes(part)
        };
        let messages = counts.iter().map(&mut next).collect();
        Ok(values(&self.send_and_take(messages, wait)?.concat()))
    }

    fn all_gather<V: Value>(&mut self, own: Vec<V>, _: &[usize], wait: &Wait<'_>) -> Result<Vec<V>, Ended> {
        Ok(values(&self.send_and_take(vec![bytes(&own); self.to.len()], wait)?.concat()))
    }

    fn all_reduce(&mut self, own: Vec<f32>, wait: &Wait<'_>) -> Result<Vec<f32>, Ended> {
        let all = self.send_and_take(vec![bytes(&own); self.to.len()], wait)?;
        let all: Vec<Vec<f32>> = all.into_iter().map(|message| values(&message)).collect();
        Ok((0..own.len()).map(|index| all.iter().map(|values| values[index]).sum()).collect())
    }

    fn gather_bytes(&mut self, own: Vec<u8>, _: &[usize], wait: &Wait<'_>) -> Result<Vec<u8>, Ended> {
        Ok(self.send_and_take(vec![own; self.to.len()], wait)?.concat())
    }

    fn abort(&mut self, _: i32) {}

    fn leave(self) {}
}

/// The values of a vector of any type.
fn held(vector: &Tensor) -> Vec<f32> {
    vector.to_dtype(DType::F32).unwrap().to_vec1().unwrap()
}

/// Writes all values of a vector.
fn put(vector: &Tensor, values: Vec<f32>) {
    let values = Tensor::new(values, vector.device()).unwrap().to_dtype(vector.dtype()).unwrap();
    vector.slice_set(&values, 0, 0).unwrap();
}

impl Carrier for Threads {
    fn sum(&mut self, values: &Tensor, _: &Mark, wait: &Wait<'_>) -> Result<(), Ended> {
        put(values, self.all_reduce(held(values), wait)?);
        Ok(())
    }

    fn swap(
        &mut self,
        own: &Tensor,
        parts: &[Range<usize>],
        given: &Tensor,
        _: &Mark,
        wait: &Wait<'_>,
    ) -> Result<(), Ended> {
        let counts: Vec<usize> = parts.iter().map(Range::len).collect();
        put(given, self.all_to_all(held(own), &counts, wait)?);
        Ok(())
    }

    fn share(
        &mut self,
        whole: &Tensor,
        parts: &[Range<usize>],
        _: &Mark,
        wait: &Wait<'_>,
    ) -> Result<(), Ended> {
        let own = parts[self.rank].clone();
        let own = held(&whole.narrow(0, own.start, own.len()).unwrap());
        put(whole, self.all_gather(own, &[], wait)?);
        Ok(())
    }
}

//! Threads that act as processes in tests, so that sums and decisions are tested without a launcher.

#![expect(clippy::unwrap_used, reason = "only tests call it")]

use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use candle_core::{DType, Tensor};

use crate::distributed::engine::Engine;
use crate::distributed::mark::Mark;
use crate::distributed::transport::{Carrier, Ended, PAUSE, Transport, Value, Wait, bytes, values};
use crate::distributed::{Ways, World};
use base::processes::Processes;
use base::processes::testing::{Channels, channels};
use config::DistributedConfig;

pub use base::processes::testing::in_each;

/// One of the threads, with its channels.
struct ThreadTransport {
    rank: usize,
    channels: Channels,
}

/// The worlds of `size` threads that form one group.
pub fn worlds(size: usize, timeout: Duration) -> Vec<World> {
    worlds_of(size, timeout, &DistributedConfig::default())
}

/// As [`worlds`], with this configuration.
pub fn worlds_of(size: usize, timeout: Duration, config: &DistributedConfig) -> Vec<World> {
    let mut worlds = Vec::with_capacity(size);
    for transport in connected(size) {
        let rank = transport.rank;
        let engine = Engine::start(move || Ok(transport), timeout, |_| {}).unwrap();
        let engine: &'static Engine = Box::leak(Box::new(engine));
        let processes = Processes::new(rank, size, engine);
        let ways = Ways::from_config(config);
        worlds.push(World { processes, engine: Some(engine), ways, on_gpus: false });
    }
    worlds
}

/// As [`worlds_of`], but tensors are added up through a [`Carrier`], as tensors on GPUs are.
pub fn worlds_on_gpus(size: usize, timeout: Duration, config: &DistributedConfig) -> Vec<World> {
    let mut worlds = worlds_of(size, timeout, config);
    for (world, transport) in worlds.iter_mut().zip(connected(size)) {
        world.engine.unwrap().carry_by(Box::new(move || Ok(Box::new(transport)))).unwrap();
        world.on_gpus = true;
    }
    worlds
}

/// One transport per thread, with a channel between each two threads.
fn connected(size: usize) -> Vec<ThreadTransport> {
    let channels = channels(size).into_iter().enumerate();
    channels.map(|(rank, channels)| ThreadTransport { rank, channels }).collect()
}

fn gone() -> Ended {
    Ended::Failed("the other thread has ended".to_string())
}

impl ThreadTransport {
    /// Sends one message to each thread, and receives one from each.
    fn send_and_take(&self, messages: Vec<Vec<u8>>, wait: &Wait<'_>) -> Result<Vec<Vec<u8>>, Ended> {
        for (to, message) in self.channels.to.iter().zip(messages) {
            to.send(message).map_err(|_| gone())?;
        }
        self.channels.from.iter().map(|from| receive(from, wait)).collect()
    }
}

/// The next message of a channel.
fn receive(from: &Receiver<Vec<u8>>, wait: &Wait<'_>) -> Result<Vec<u8>, Ended> {
    loop {
        match from.recv_timeout(PAUSE) {
            Ok(message) => return Ok(message),
            Err(RecvTimeoutError::Timeout) => wait.check()?,
            Err(RecvTimeoutError::Disconnected) => return Err(gone()),
        }
    }
}

impl Transport for ThreadTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.channels.to.len()
    }

    fn all_to_all<V: Value>(
        &mut self,
        own: Vec<V>,
        counts: &[usize],
        wait: &Wait<'_>,
    ) -> Result<Vec<V>, Ended> {
        let mut rest = own.as_slice();
        let mut messages = Vec::with_capacity(counts.len());
        for &count in counts {
            let (part, after) = rest.split_at(count);
            rest = after;
            messages.push(bytes(part));
        }
        Ok(values(&self.send_and_take(messages, wait)?.concat()))
    }

    fn all_gather<V: Value>(&mut self, own: Vec<V>, _: &[usize], wait: &Wait<'_>) -> Result<Vec<V>, Ended> {
        Ok(values(&self.send_and_take(vec![bytes(&own); self.channels.to.len()], wait)?.concat()))
    }

    fn all_reduce(&mut self, own: Vec<f32>, wait: &Wait<'_>) -> Result<Vec<f32>, Ended> {
        let all = self.send_and_take(vec![bytes(&own); self.channels.to.len()], wait)?;
        let all: Vec<Vec<f32>> = all.into_iter().map(|message| values(&message)).collect();
        Ok((0..own.len()).map(|index| all.iter().map(|values| values[index]).sum()).collect())
    }

    fn gather_bytes(&mut self, own: Vec<u8>, _: &[usize], wait: &Wait<'_>) -> Result<Vec<u8>, Ended> {
        Ok(self.send_and_take(vec![own; self.channels.to.len()], wait)?.concat())
    }

    fn abort(&mut self, _: i32) {}

    fn leave(self) {}
}

/// The values of a vector of any dtype, as f32.
fn to_f32(vector: &Tensor) -> Vec<f32> {
    vector.to_dtype(DType::F32).unwrap().to_vec1().unwrap()
}

/// Overwrites all values of a vector.
fn put(vector: &Tensor, values: Vec<f32>) {
    let values = Tensor::new(values, vector.device()).unwrap().to_dtype(vector.dtype()).unwrap();
    vector.slice_set(&values, 0, 0).unwrap();
}

impl Carrier for ThreadTransport {
    fn sum(&mut self, values: &Tensor, _: &Mark, wait: &Wait<'_>) -> Result<(), Ended> {
        put(values, self.all_reduce(to_f32(values), wait)?);
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
        put(given, self.all_to_all(to_f32(own), &counts, wait)?);
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
        let own = to_f32(&whole.narrow(0, own.start, own.len()).unwrap());
        put(whole, self.all_gather(own, &[], wait)?);
        Ok(())
    }
}

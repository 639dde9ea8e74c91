//! Threads that act as processes in tests.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;

use super::{Link, Processes};

/// Time to wait for the other threads: longer than any test, and short enough to see which one hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ends of the channels between one thread and all threads, itself included, by their ranks.
#[derive(Debug)]
pub struct Channels {
    /// Senders to each thread.
    pub to: Vec<Sender<Vec<u8>>>,
    /// Receivers from each thread.
    pub from: Vec<Receiver<Vec<u8>>>,
}

/// The channels of `size` threads, by rank.
pub fn channels(size: usize) -> Vec<Channels> {
    let mut senders: Vec<Vec<_>> = vec![Vec::new(); size];
    let mut all_receivers = Vec::with_capacity(size);
    for _ in 0..size {
        let mut receivers = Vec::with_capacity(size);
        // Receiver `s` of thread `r` gets what thread `s` sends to `r`.
        for to in &mut senders {
            let (sender, receiver) = channel();
            to.push(sender);
            receivers.push(receiver);
        }
        all_receivers.push(receivers);
    }
    senders.into_iter().zip(all_receivers).map(|(to, from)| Channels { to, from }).collect()
}

/// A thread with its channels. Only that thread locks them.
#[derive(Debug)]
struct ThreadLink(Mutex<Channels>);

impl Link for ThreadLink {
    fn gather(&self, own: Vec<u8>, _: Option<Duration>) -> Result<Vec<Vec<u8>>> {
        let channels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for to in &channels.to {
            to.send(own.clone())?;
        }
        channels.from.iter().map(|from| Ok(from.recv_timeout(PATIENCE)?)).collect()
    }
}

/// Threads that form one group of `size` processes.
pub fn threads(size: usize) -> Vec<Processes> {
    let links =
        channels(size).into_iter().map(|channels| Box::leak(Box::new(ThreadLink(Mutex::new(channels)))));
    links.enumerate().map(|(rank, link)| Processes::new(rank, size, link)).collect()
}

/// Runs `f` in each of these processes at the same time; returns the results in rank order.
pub fn in_each<P: Copy + Send + Sync, R: Send>(processes: &[P], f: impl Fn(P) -> R + Sync) -> Vec<R> {
    let f = &f;
    std::thread::scope(|scope| {
        let threads: Vec<_> = processes.iter().map(|&process| scope.spawn(move || f(process))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a process of the test panicked")).collect()
    })
}

//! Measurements of the latency and the throughput of the exchange between processes.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::distributed::{BUCKET_VALUES, BUCKETS_AHEAD, Ways, World};
use config::{SumOrder, Wire};

/// Number of small messages that are timed.
const MESSAGES: usize = 50;

/// Number of gradients that are added up at a time: twice the buckets that are in flight together.
const VALUES: usize = 2 * BUCKETS_AHEAD * BUCKET_VALUES;

impl World {
    /// Median seconds in which all processes gather a few bytes of each other; the slowest process counts.
    pub fn message_seconds(&self) -> Result<f64> {
        let mut seconds = Vec::with_capacity(MESSAGES);
        for _ in 0..MESSAGES {
            let begun = Instant::now();
            self.gather(&self.rank)?;
            seconds.push(begun.elapsed().as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        self.slowest(seconds[MESSAGES / 2])
    }

    /// Gradients per second that are added up over all processes if sent as `wire`, in the order of the tree.
    /// Measures for roughly the time `about`.
    pub fn values_per_second(&self, wire: Wire, about: Duration) -> Result<f64> {
        let world = Self { ways: Ways { wire, sum: SumOrder::Tree, ..self.ways }, ..*self };
        let mut values = vec![1.0 / self.size as f32; VALUES];
        // The first sum also allocates memory and opens connections.
        world.sum_values(&mut values)?;
        let begun = Instant::now();
        let mut rounds = 0;
        loop {
            // Adding up the sums of the last round again would overflow after some rounds.
            values.fill(1.0 / self.size as f32);
            world.sum_values(&mut values)?;
            rounds += 1;
            if self.agree(begun.elapsed() >= about)? {
                break;
            }
        }
        let seconds = self.slowest(begun.elapsed().as_secs_f64() / f64::from(rounds))?;
        Ok(VALUES as f64 / seconds)
    }
}

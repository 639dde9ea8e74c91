//! What the exchange between the processes can do, measured.

use std::time::Duration;
use std::time::Instant;

use anyhow::Result;

use crate::config::SumOrder;
use crate::config::Wire;
use crate::distributed::BUCKET_VALUES;
use crate::distributed::BUCKETS_AHEAD;
use crate::distributed::Ways;
use crate::distributed::World;

/// Small messages that are timed.
const MESSAGES: usize = 50;

/// Gradients that are added up at a time: as many buckets as travel together, twice.
const VALUES: usize = 2 * BUCKETS_AHEAD * BUCKET_VALUES;

impl World {
    /// Seconds until all processes have a few bytes of all, in the middle of many times.
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

    /// Gradients a second that are added up over all processes as they travel in `wire`, in the order of the tree;
    /// measured for about so long.
    pub fn values_per_second(&self, wire: Wire, about: Duration) -> Result<f64> {
        let world = Self { ways: Ways { wire, sum: SumOrder::Tree, ..self.ways }, ..*self };
        let mut values = vec![1.0 / self.size as f32; VALUES];
        // The first time also fetches memory and opens connections.
        world.sum_values(&mut values)?;
        let (begun, mut rounds) = (Instant::now(), 0);
        loop {
            // Sums of sums would leave the range of numbers.
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

    /// The largest of what the processes have measured.
    pub fn slowest(&self, own: f64) -> Result<f64> {
        Ok(self.gather(&own)?.into_iter().fold(own, f64::max))
    }
}

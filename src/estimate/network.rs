//! How long an update takes in several processes, from what was measured of one of them and of the network between
//! them.

use crate::config::Wire;

/// The share of a micro-batch's time in which gradients can travel: backward is two thirds of it, and the first
/// gradients are final some time after its beginning.
const OVERLAPPED_SHARE: f64 = 0.6;

/// The share of the time that is to be spent on micro-batches.
pub const WANTED_EFFICIENCY: f64 = 0.95;

/// The most micro-batches of a process that are advised.
const MOST_MICRO_BATCHES: usize = 64;

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exchange {
    /// Forward and backward of a micro-batch in a process, in seconds.
    pub micro_batch_seconds: f64,
    /// An update of the parameters, in seconds.
    pub update_seconds: f64,
    /// Gradients of the model.
    pub gradients: u64,
    /// Of them, those that are final at the very end: word embeddings are read by the first layer.
    pub last_gradients: u64,
    /// Gradients a second that are added up over all processes as f32, and as bf16.
    pub values_per_second: [f64; 2],
    /// Until all have a few bytes of all, in seconds; an update has about three such messages.
    pub message_seconds: f64,
}

/// What can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levers {
    /// Micro-batches of each process in an update.
    pub micro_batches: usize,
    /// The type in which gradients travel.
    pub wire: Wire,
    /// Whether they travel while others are computed.
    pub overlap: bool,
}

impl Exchange {
    /// Seconds of an update.
    pub fn update_seconds(&self, levers: Levers) -> f64 {
        let Levers { micro_batches, wire, overlap } = levers;
        let rate = self.values_per_second[usize::from(wire == Wire::Bf16)];
        let travel = self.gradients as f64 / rate;
        let early = travel * (1.0 - self.last_gradients as f64 / self.gradients.max(1) as f64);
        let hidden = if overlap { early.min(OVERLAPPED_SHARE * self.micro_batch_seconds) } else { 0.0 };
        let messages = 3.0 * self.message_seconds;
        self.computing_seconds(micro_batches) + travel - hidden + messages
    }

    /// The share of an update that the processes spend on what one would have to do as well.
    pub fn efficiency(&self, levers: Levers) -> f64 {
        self.computing_seconds(levers.micro_batches) / self.update_seconds(levers)
    }

    fn computing_seconds(&self, micro_batches: usize) -> f64 {
        micro_batches as f64 * self.micro_batch_seconds + self.update_seconds
    }

    /// What to set where a process has so many micro-batches now: what changes least and is efficient enough, bits
    /// before rows of an update. `None` where nothing is.
    pub fn advice(&self, micro_batches: usize) -> Option<Levers> {
        let more = std::iter::successors(Some(micro_batches.max(1)), |now| Some(2 * now));
        let more = more.take_while(|&now| now <= MOST_MICRO_BATCHES.max(micro_batches));
        let wires =
            |micro_batches| [Wire::F32, Wire::Bf16].map(|wire| Levers { micro_batches, wire, overlap: true });
        more.flat_map(wires).find(|&levers| self.efficiency(levers) >= WANTED_EFFICIENCY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second of computing, 50 million gradients, a tenth of them last; 25 million a second in f32.
    const SLOW: Exchange = Exchange {
        micro_batch_seconds: 1.0,
        update_seconds: 0.0,
        gradients: 50_000_000,
        last_gradients: 5_000_000,
        values_per_second: [25e6, 50e6],
        message_seconds: 0.0,
    };

    #[test]
    fn what_travels_beside_computing_costs_nothing_and_the_rest_does() {
        let seconds =
            |micro_batches, wire, overlap| SLOW.update_seconds(Levers { micro_batches, wire, overlap });
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        close(seconds(1, Wire::F32, false), 3.0);
        close(seconds(1, Wire::F32, true), 3.0 - 0.6);
        close(seconds(1, Wire::Bf16, false), 2.0);
        close(seconds(4, Wire::Bf16, true), 5.0 - 0.6);
        let fast = Exchange { values_per_second: [500e6, 1e9], ..SLOW };
        // A tenth of a second, nine tenths of which are hidden.
        close(fast.update_seconds(Levers { micro_batches: 1, wire: Wire::F32, overlap: true }), 1.01);
    }

    #[test]
    fn advice_changes_what_is_needed_and_no_more() {
        let fast = Exchange { values_per_second: [500e6, 1e9], ..SLOW };
        assert_eq!(fast.advice(1), Some(Levers { micro_batches: 1, wire: Wire::F32, overlap: true }));
        let middling = Exchange { values_per_second: [70e6, 140e6], ..SLOW };
        assert_eq!(middling.advice(1), Some(Levers { micro_batches: 1, wire: Wire::Bf16, overlap: true }));
        assert_eq!(SLOW.advice(1), Some(Levers { micro_batches: 8, wire: Wire::Bf16, overlap: true }));
        let hopeless = Exchange { values_per_second: [1e5, 2e5], ..SLOW };
        assert_eq!(hopeless.advice(1), None);
    }
}

//! Time of an update in several processes, from measurements of one process and of the network between them.

use crate::config::Wire;

/// Share of a micro-batch's time in which gradients can be sent: backward takes two thirds of the time, and
/// the first gradients are final some time after it starts.
const OVERLAPPED_SHARE: f64 = 0.6;

/// Share of the time that should be spent on micro-batches.
pub const WANTED_EFFICIENCY: f64 = 0.95;

/// The largest number of micro-batches per process that is advised.
const MOST_MICRO_BATCHES: usize = 64;

/// Measurements of a process and of the network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exchange {
    /// Seconds of forward and backward for one micro-batch in a process.
    pub micro_batch_seconds: f64,
    /// Seconds of an update of the parameters.
    pub update_seconds: f64,
    /// Number of gradients in the model.
    pub gradients: u64,
    /// Number of gradients that are final only at the very end: those of the word embeddings, which the first
    /// layer reads.
    pub last_gradients: u64,
    /// Gradients per second that are summed over all processes, as f32 and as bf16.
    pub values_per_second: [f64; 2],
    /// Seconds until all processes have received a few bytes from every process; an update has about three
    /// such messages.
    pub message_seconds: f64,
}

/// Settings that can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levers {
    /// Micro-batches per process in an update.
    pub micro_batches: usize,
    /// Type in which gradients are sent.
    pub wire: Wire,
    /// True if gradients are sent while others are computed.
    pub overlap: bool,
}

impl Exchange {
    /// Seconds of an update with its micro-batches.
    pub fn update_seconds(&self, levers: Levers) -> f64 {
        let Levers { micro_batches, wire, overlap } = levers;
        let rate = self.values_per_second[usize::from(wire == Wire::Bf16)];
        let travel = self.gradients as f64 / rate;
        let early = travel * (1.0 - self.last_gradients as f64 / self.gradients.max(1) as f64);
        let hidden = if overlap { early.min(OVERLAPPED_SHARE * self.micro_batch_seconds) } else { 0.0 };
        let messages = 3.0 * self.message_seconds;
        self.computing_seconds(micro_batches) + travel - hidden + messages
    }

    /// Share of an update that processes spend on work that a single process would do as well.
    pub fn efficiency(&self, levers: Levers) -> f64 {
        self.computing_seconds(levers.micro_batches) / self.update_seconds(levers)
    }

    fn computing_seconds(&self, micro_batches: usize) -> f64 {
        micro_batches as f64 * self.micro_batch_seconds + self.update_seconds
    }

    /// Advises settings for a process that has `micro_batches` in an update now: the smallest change that is
    /// efficient enough. Gradients in fewer bits come before larger updates. `None` if no setting is
    /// efficient enough.
    pub fn advice(&self, micro_batches: usize) -> Option<Levers> {
        let more = std::iter::successors(Some(micro_batches.max(1)), |now| Some(2 * now));
        let more = more.take_while(|&now| now <= MOST_MICRO_BATCHES.max(micro_batches));
        more.flat_map(|micro_batches| {
            [Wire::F32, Wire::Bf16].map(|wire| Levers { micro_batches, wire, overlap: true })
        })
        .find(|&levers| self.efficiency(levers) >= WANTED_EFFICIENCY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second of computing and 50 million gradients, the last tenth of them final at the end; 25 million
    /// per second in f32.
    const SLOW: Exchange = Exchange {
        micro_batch_seconds: 1.0,
        update_seconds: 0.0,
        gradients: 50_000_000,
        last_gradients: 5_000_000,
        values_per_second: [25e6, 50e6],
        message_seconds: 0.0,
    };

    #[test]
    fn gradients_sent_during_computing_cost_no_time_and_all_others_do() {
        for (micro_batches, wire, overlap, seconds) in [
            (1, Wire::F32, false, 3.0),
            (1, Wire::F32, true, 3.0 - 0.6),
            (1, Wire::Bf16, false, 2.0),
            (4, Wire::Bf16, true, 5.0 - 0.6),
        ] {
            assert_close(SLOW.update_seconds(Levers { micro_batches, wire, overlap }), seconds);
        }
        let fast = Exchange { values_per_second: [500e6, 1e9], ..SLOW };
        // Sending takes a tenth of a second, of which nine tenths are hidden.
        assert_close(fast.update_seconds(Levers { micro_batches: 1, wire: Wire::F32, overlap: true }), 1.01);
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

    fn assert_close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} {b}");
    }
}

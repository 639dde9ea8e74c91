//! Time of a run on several machines with several GPUs each, derived from its time on one of these GPUs.

use crate::config::Wire;
use crate::estimate::catalogue::Rentable;
use crate::estimate::cost::Estimate;
use crate::estimate::network::{Exchange, Levers};

/// Share of the bandwidth of a network, and of the links between the GPUs of a machine, that an all-reduce
/// reaches.
const LINE_SHARE: f64 = 0.7;

/// Seconds until all processes have received a few bytes from every process.
const MESSAGE_SECONDS: f64 = 1e-4;

/// Machines with the same number of GPUs, and the network between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cluster {
    /// Number of machines.
    pub machines: usize,
    /// Number of GPUs per machine, with one process each.
    pub gpus_each: usize,
    /// Bandwidth of the link of each machine, in Gb/s per direction.
    pub gigabits_per_second: f64,
}

/// Numbers of gradients in a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gradients {
    /// All gradients.
    pub all: u64,
    /// Gradients that are final only at the very end of a step.
    pub last: u64,
}

/// Time of a run on a cluster.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clustered {
    /// Seconds of training.
    pub seconds: f64,
    /// Micro-batches per process in the last update.
    pub micro_batches: usize,
    /// Share of the time that is spent computing.
    pub efficiency: f64,
}

impl Cluster {
    /// Number of GPUs in all machines.
    pub fn gpus(&self) -> usize {
        self.machines * self.gpus_each
    }

    /// Gradients per second that are summed over all GPUs, with `bytes` bytes for each gradient. One ring
    /// connects the GPUs of each machine, another one the machines.
    fn values_per_second(&self, gpu: &Rentable, bytes: f64) -> f64 {
        let inside = passes_in_ring(self.gpus_each) / (gpu.link_gigabytes_per_second * 1e9);
        let between = passes_in_ring(self.machines) / (self.gigabits_per_second * 1e9 / 8.0);
        LINE_SHARE / (bytes * (inside + between))
    }

    /// The time of a run on this cluster, where `alone` is its estimate on one of these GPUs.
    pub fn takes(
        &self,
        alone: &Estimate,
        gpu: &Rentable,
        gradients: Gradients,
        (wire, overlap): (Wire, bool),
    ) -> Clustered {
        let mut found = Clustered { seconds: 0.0, micro_batches: 1, efficiency: 1.0 };
        let mut computing_seconds = 0.0;
        for timed in &alone.timed {
            let exchange = Exchange {
                micro_batch_seconds: timed.micro_batch_seconds,
                update_seconds: timed.update_seconds,
                gradients: gradients.all,
                last_gradients: gradients.last,
                values_per_second: [4.0, 2.0].map(|bytes| self.values_per_second(gpu, bytes)),
                message_seconds: if self.gpus() > 1 { MESSAGE_SECONDS } else { 0.0 },
            };
            let of_update = timed.part.micro_batches.div_ceil(timed.part.updates.max(1));
            found.micro_batches = (of_update as usize).div_ceil(self.gpus());
            let levers = Levers { micro_batches: found.micro_batches, wire, overlap };
            let seconds = timed.part.updates as f64 * exchange.update_seconds(levers);
            found.seconds += seconds;
            computing_seconds += seconds * exchange.efficiency(levers);
        }
        if found.seconds > 0.0 {
            found.efficiency = computing_seconds / found.seconds;
        }
        found
    }
}

/// Number of times that a value passes the link of a member of a ring: twice, except for its own part.
fn passes_in_ring(members: usize) -> f64 {
    2.0 * (members - 1) as f64 / members as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{PrecisionConfig, TrainingConfig};
    use crate::estimate::Work;
    use crate::families::named_model;
    use crate::models::Blueprint;
    use crate::tasks::run::{Shapes, TargetShare};

    const GRADIENTS: Gradients = Gradients { all: 330_000_000, last: 30_000_000 };

    /// A model of the size of BERT-large, with 64 micro-batches of 32 rows per update.
    fn alone(gpu: &Rentable) -> Estimate {
        let model = named_model("large").expect("is known");
        let shapes = Shapes {
            outline: Box::new(Blueprint::masked_lm(&model)),
            model,
            length: 128,
            targets: TargetShare::OfTokens(0.15),
        };
        let training = TrainingConfig {
            per_device_train_batch_size: 32.into(),
            gradient_accumulation_steps: 64,
            ..TrainingConfig::default()
        };
        Estimate::on_gpu(gpu, &training, &shapes, &PrecisionConfig::default(), |training| {
            Work::new(training, 128, 100)
        })
        .expect("fits")
    }

    fn takes(machines: usize, gpus_each: usize, gigabits: f64, levers: (Wire, bool)) -> Clustered {
        let gpu = Rentable::named("a100-80").expect("is known");
        let cluster = Cluster { machines, gpus_each, gigabits_per_second: gigabits };
        cluster.takes(&alone(&gpu), &gpu, GRADIENTS, levers)
    }

    #[test]
    fn one_gpu_takes_what_it_takes_alone_and_many_share_the_micro_batches() {
        let gpu = Rentable::named("a100-80").expect("is known");
        let alone = alone(&gpu);
        let one = takes(1, 1, 10.0, (Wire::F32, true));
        assert!((one.seconds / alone.seconds - 1.0).abs() < 1e-9 && one.efficiency > 1.0 - 1e-9);
        assert_eq!(one.micro_batches, 64);
        let many = takes(4, 8, 1e9, (Wire::F32, true));
        assert_eq!(many.micro_batches, 2);
        let timed = alone.timed[0];
        let least = 100.0 * (2.0 * timed.micro_batch_seconds + timed.update_seconds);
        assert!((1.0..1.05).contains(&(many.seconds / least)), "{} {least}", many.seconds);
        assert_eq!(takes(5, 8, 1e9, (Wire::F32, true)).micro_batches, 2, "40 GPUs: some have one, all wait");
    }

    #[test]
    fn a_slow_network_costs_what_its_bytes_take() {
        let plain = (Wire::F32, false);
        let near = takes(4, 1, 1e9, plain);
        let far = takes(4, 1, 10.0, plain);
        // Each value passes the link of a machine 2 x 3/4 times: 330 M values of 4 bytes at 70 % of 1.25
        // GB/s.
        let travel = 330e6 * 4.0 * 1.5 / (0.7 * 1.25e9);
        assert!(((far.seconds - near.seconds) / 100.0 / travel - 1.0).abs() < 1e-6);
        let half = takes(4, 1, 10.0, (Wire::Bf16, false));
        assert!(((half.seconds - near.seconds) / 100.0 / travel - 0.5).abs() < 1e-6);
        let hidden = takes(4, 1, 10.0, (Wire::Bf16, true));
        assert!(hidden.seconds < half.seconds && far.efficiency < half.efficiency);
        assert!(half.efficiency < hidden.efficiency && hidden.efficiency < 1.0);
    }
}

//! The part of a plan for several machines: predictions for each GPU, number of machines and network.

use serde_json::{Value, json};

use crate::commands::plan::run::{Planned, Run};
use crate::commands::plan::table::Row;
use crate::commands::plan::{Device, PlanArgs};
use crate::config::{DistributedConfig, Wire};
use crate::estimate::{Cluster, Clustered, Estimate, Fitted, Gradients, WANTED_EFFICIENCY};
use crate::machine::Place;
use crate::pages::table::Table;
use crate::quantity::{format_amount, format_bytes, format_span};
use crate::tasks::run::Shapes;
use crate::train::auto_batch_size;
use crate::words::counted;

/// The prediction of a run on one cluster of GPUs.
pub(super) struct ClusterRun<'a> {
    device: &'static str,
    alone: &'a Estimate,
    usd_per_hour: Option<f64>,
    cluster: Cluster,
    /// Type in which gradients are sent.
    wire: Wire,
    /// Peak memory of each GPU.
    memory_bytes: u64,
    found: Clustered,
}

impl ClusterRun<'_> {
    /// Share of a step in which the GPUs only exchange gradients.
    fn communication_share(&self) -> f64 {
        1.0 - self.found.efficiency
    }

    /// True if communication takes more of a step than `advise-network` accepts.
    fn is_limited(&self) -> bool {
        self.found.efficiency < WANTED_EFFICIENCY
    }

    /// Micro-batches of an update, over all GPUs.
    fn accumulation_steps(&self) -> usize {
        self.alone.fitted.training.gradient_accumulation_steps
    }

    /// True if a run refuses the cluster: each GPU needs a micro-batch of each update.
    fn is_refused(&self) -> bool {
        self.cluster.gpus() > self.accumulation_steps()
    }

    fn usd(&self) -> Option<f64> {
        Some(self.usd_per_hour? * self.cluster.gpus() as f64 * self.found.seconds / 3600.0)
    }
}

/// Predicts the run for each GPU that it fits on, in each of the clusters that the user asks for. A single
/// machine needs no network, and is predicted once.
pub(super) fn cluster_runs<'a>(args: &PlanArgs, run: &Run<'_>, rows: &'a [Row]) -> Vec<ClusterRun<'a>> {
    // Only a run of pretraining is planned for several machines.
    let Planned::Pretraining(config) = run.planned else { return Vec::new() };
    let shape = &run.model().encoder;
    let words = shape.embedding_size.unwrap_or(shape.hidden_size) * shape.vocab_size;
    let gradients = Gradients { all: run.shapes.outline.num_parameters(), last: words as u64 };
    let distributed = &config.distributed;
    let mut all = Vec::new();
    for row in rows {
        let (Device::Rented(gpu), Ok(alone)) = (row.device, &row.found) else { continue };
        for &machines in &args.machines {
            let networks = if machines == 1 { &args.network[..1] } else { &args.network[..] };
            for &gigabits_per_second in networks {
                let cluster = Cluster {
                    machines: machines.into(),
                    gpus_each: args.gpus_per_machine.into(),
                    gigabits_per_second,
                };
                let wire = distributed.wire;
                let found = cluster.takes(alone, &gpu, gradients, (wire, distributed.overlap));
                let device = row.device.name();
                let memory_bytes = memory_bytes(alone, run.shapes, cluster.gpus(), distributed);
                let usd_per_hour = row.usd_per_hour;
                all.push(ClusterRun { device, alone, usd_per_hour, cluster, wire, memory_bytes, found });
            }
        }
    }
    all
}

/// Peak memory of each GPU of a cluster, where `alone` is the estimate for one of them.
fn memory_bytes(alone: &Estimate, shapes: &Shapes, gpus: usize, distributed: &DistributedConfig) -> u64 {
    let Fitted { training, room_bytes, .. } = &alone.fitted;
    let place = Place {
        sharers: if distributed.shard_optimizer { gpus } else { 1 },
        ..Place::alone(alone.compute, true)
    };
    auto_batch_size::predicted(training.rows_at_once(), training, shapes, place).peak(*room_bytes)
}

/// Returns the table of the cluster runs, or no lines if there are none.
pub(super) fn lines(runs: &[ClusterRun<'_>]) -> Vec<String> {
    if runs.is_empty() {
        return Vec::new();
    }
    let header = [
        "device",
        "machines x GPUs",
        "Gb/s",
        "type",
        "micro-batch x steps",
        "memory of a GPU",
        "communication",
        "time",
        "USD",
    ];
    let cells = runs.iter().map(|row| {
        let Cluster { machines, gpus_each, gigabits_per_second } = row.cluster;
        let rows = row.alone.fitted.training.rows_at_once();
        [
            row.device.to_string(),
            format!("{machines} x {gpus_each}"),
            if machines == 1 { "-".to_string() } else { gigabits_per_second.to_string() },
            row.alone.compute.as_str().to_string(),
            format!("{rows}, {} times", row.found.micro_batches),
            format_bytes(row.memory_bytes),
            of_accepted(row, || format!("{:.0} %", 100.0 * row.communication_share())),
            if row.is_refused() { "refused".to_string() } else { format_span(row.found.seconds) },
            of_accepted(row, || row.usd().map_or("-".to_string(), format_amount)),
        ]
    });
    let table =
        Table { names: 3, ..Table::new(header, cells.map(|row| row.into_iter().collect()).collect()) };
    let mut lines = vec![String::new()];
    lines.extend(table.lines());
    lines.extend(too_many(runs));
    lines.extend(limits(runs));
    lines.push(
        "several GPUs are predicted from one: rows of an update are divided, gradients are added up in rings as \
         NCCL does it, at 70 % of the lines; training on them takes a process for each GPU (`mpirun`), of a build \
         with NCCL and, on several machines, MPI"
            .to_string(),
    );
    lines
}

/// A cell of a run that is not refused.
fn of_accepted(row: &ClusterRun<'_>, cell: impl FnOnce() -> String) -> String {
    if row.is_refused() { "-".to_string() } else { cell() }
}

/// Returns a line about the largest cluster with more GPUs than an update has micro-batches, if there is one:
/// such a run is refused.
fn too_many(runs: &[ClusterRun<'_>]) -> Option<String> {
    let refused = runs.iter().filter(|row| row.is_refused());
    let row = refused.max_by_key(|row| row.cluster.gpus())?;
    let (gpus, steps) = (row.cluster.gpus(), row.accumulation_steps());
    let [several, batches] = [counted(steps, "GPU"), counted(steps, "micro-batch")];
    Some(format!(
        "more than {several} are refused: an update has {batches}, and each GPU needs one; {gpus} GPUs \
         want `training.gradient_accumulation_steps: {gpus}` and rows to match"
    ))
}

/// Returns a line for each network that says which of the runs on several machines it limits, and what helps.
fn limits(runs: &[ClusterRun<'_>]) -> Vec<String> {
    let several: Vec<&ClusterRun<'_>> =
        runs.iter().filter(|row| row.cluster.machines > 1 && !row.is_refused()).collect();
    let mut networks: Vec<f64> = several.iter().map(|row| row.cluster.gigabits_per_second).collect();
    networks.sort_by(f64::total_cmp);
    networks.dedup();
    let share = 100.0 * (1.0 - WANTED_EFFICIENCY);
    let mut lines = Vec::new();
    for network in networks {
        let on_it = several.iter().filter(|row| row.cluster.gigabits_per_second.total_cmp(&network).is_eq());
        let limited: Vec<String> = on_it
            .filter(|row| row.is_limited())
            .map(|row| format!("{} on {} x {}", row.device, row.cluster.machines, row.cluster.gpus_each))
            .collect();
        lines.push(if limited.is_empty() {
            format!("a network of {network} Gb/s limits none of the runs on several machines")
        } else {
            format!(
                "a network of {network} Gb/s limits {}: communication takes more than {share:.0} % of a step",
                limited.join(", ")
            )
        });
    }
    if several.iter().any(|row| row.is_limited()) {
        let wire = match several[0].wire {
            Wire::F32 => "`distributed.wire: bf16` sends half the bytes, ",
            Wire::Bf16 => "",
        };
        lines.push(format!(
            "what helps: {wire}a larger `training.gradient_accumulation_steps` sends them less often; \
             `mlmtrain advise-network` measures your network"
        ));
    }
    lines
}

/// Returns the cluster runs as JSON.
pub(super) fn json(runs: &[ClusterRun<'_>]) -> Value {
    runs.iter()
        .map(|row| {
            json!({
                "device": row.device,
                "machines": row.cluster.machines,
                "gpus_per_machine": row.cluster.gpus_each,
                "gigabits_per_second": row.cluster.gigabits_per_second,
                "per_device_train_batch_size": row.alone.fitted.training.rows_at_once(),
                "micro_batches": row.found.micro_batches,
                "is_refused": row.is_refused(),
                "memory_bytes": row.memory_bytes,
                "efficiency": row.found.efficiency,
                "communication_share": row.communication_share(),
                "train_seconds": row.found.seconds,
                "usd": row.usd(),
            })
        })
        .collect()
}

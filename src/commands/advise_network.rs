//! `mlmtrain advise-network`: measures the network between several processes, and advises which keys to set.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::commands::config_args::ConfigArgs;
use crate::commands::staging::Corpus;
use crate::commands::terminal::Output;
use crate::commands::{bench, staging, terminal};
use crate::config::{BatchSize, PretrainConfig, Wire};
use crate::distributed::World;
use crate::error::Problem;
use crate::estimate::{Exchange, Levers, WANTED_EFFICIENCY};
use crate::families::ModelConfig;
use crate::machine;
use crate::machine::Machine;
use crate::pages::table::{Row, Table};
use crate::quantity::format_count;
use crate::tasks::list::shapes;
use crate::tasks::pretraining::{origin, planned_model};
use crate::telemetry::{Progress, Unit};

/// Arguments of `advise-network`.
#[derive(Debug, Args)]
pub struct AdviseNetworkArgs {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Measure the network for about this many seconds
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = bench::some_seconds)]
    pub seconds: f64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs the subcommand.
pub fn run(args: &AdviseNetworkArgs) -> Result<()> {
    let config = staging::pretraining(args.config.load()?.config, Corpus::Skipped)?;
    let machine = machine::set_up_as_one_of_many(&config.run, &config.precision, &config.distributed)?;
    let world = machine.world;
    if !world.is_shared() {
        let problem = Problem::usage("there is one process, and nothing to measure between several");
        return Err(problem
            .hint(
                "start several, on the machines of the run: `mpirun -np 4 --hostfile hosts mlmtrain \
                 advise-network --config FILE`, in a build with `--features mpi`",
            )
            .into());
    }
    if !machine.device.is_cpu() {
        let problem = Problem::usage("what NCCL does between GPUs is not measured");
        return Err(problem.at("run.device").hint("NCCL's own `all_reduce_perf` tells").into());
    }
    let (config, _) = origin::resolve(&config)?;
    let model = planned_model(&config)?;
    let progress = Progress::detect(terminal::is_quiet() || !world.is_first());
    let measured = measure(args, &config, &model, &machine, &progress)?;
    if !world.is_first() {
        return Ok(());
    }
    let each = config.training.gradient_accumulation_steps.div_ceil(world.size).max(1);
    let mut output = Output::stdout();
    if args.json {
        output.line(&json(&measured, world, each).to_string())?;
    } else {
        lines(&measured, world, each).iter().try_for_each(|line| output.line(line))?;
    }
    output.finish()
}

/// Measures the network and a micro-batch, on all processes at the same time, as they train at the same time.
fn measure(
    args: &AdviseNetworkArgs,
    config: &PretrainConfig,
    model: &ModelConfig,
    machine: &Machine,
    progress: &Progress,
) -> Result<Exchange> {
    let world = machine.world;
    let BatchSize::Rows(rows) = config.training.per_device_train_batch_size else {
        let problem = Problem::usage("is `auto`, and how long a micro-batch takes depends on it");
        return Err(problem.at("training.per_device_train_batch_size").hint("give a number of rows").into());
    };
    let measuring = progress.stage("measuring", Unit::Items, Some(4));
    let message_seconds = world.message_seconds()?;
    measuring.advance(1);
    let about = Duration::from_secs_f64(args.seconds / 2.0);
    let mut values_per_second = [0.0; 2];
    for (rate, wire) in values_per_second.iter_mut().zip([Wire::F32, Wire::Bf16]) {
        *rate = world.values_per_second(wire, about)?;
        measuring.advance(1);
    }
    let compute = machine.policy.compute_type();
    let on = config.training.gradient_checkpointing.is_on();
    let shape = bench::BatchShape { rows, length: config.data.max_seq_length, is_causal: false };
    let found = bench::step_seconds(config, model, shape, compute, on)?;
    let Some(step_seconds) = world.all_of(found)? else {
        return Err(Problem::new("a micro-batch ran out of memory")
            .hint("take smaller micro-batches (`training.per_device_train_batch_size`)")
            .into());
    };
    measuring.finish("done");
    let step_seconds = world.slowest(step_seconds)?;
    let shapes = shapes(config, model)?;
    // The timed step includes an update.
    let work = bench::StepWork::new(&shapes, &config.training, shape, machine.place());
    let update_seconds = world.slowest(bench::update_seconds(&work, step_seconds))?;
    let shape = &model.encoder;
    Ok(Exchange {
        micro_batch_seconds: (step_seconds - update_seconds).max(0.0),
        update_seconds,
        gradients: shapes.outline.num_parameters(),
        last_gradients: (shape.vocab_size * shape.hidden_size) as u64,
        values_per_second,
        message_seconds,
    })
}

/// Returns the settings to compare: each wire type with and without overlap, for 1 micro-batch, for the
/// micro-batches that each process has now, and for those of the advice.
fn compared(measured: &Exchange, each: usize) -> Vec<Levers> {
    let mut counts = vec![1, each];
    counts.extend(measured.advice(each).map(|levers| levers.micro_batches));
    counts.sort_unstable();
    counts.dedup();
    counts
        .into_iter()
        .flat_map(|micro_batches| {
            let ways = [(Wire::F32, false), (Wire::F32, true), (Wire::Bf16, false), (Wire::Bf16, true)];
            ways.map(|(wire, overlap)| Levers { micro_batches, wire, overlap })
        })
        .collect()
}

fn lines(measured: &Exchange, world: World, each: usize) -> Vec<String> {
    let [f32_rate, bf16_rate] = measured.values_per_second.map(|rate| rate / 1e6);
    let mut lines = vec![
        format!(
            "network  {} processes: {:.2} ms a message; {f32_rate:.1} million gradients a second in f32, \
             {bf16_rate:.1} in bf16",
            world.size,
            1e3 * measured.message_seconds
        ),
        format!(
            "model    {} gradients; a micro-batch takes {:.3} s, an update {:.3} s",
            format_count(measured.gradients),
            measured.micro_batch_seconds,
            measured.update_seconds
        ),
        String::new(),
    ];
    let header = ["micro-batches each", "wire", "overlap", "step", "efficiency"];
    let rows = compared(measured, each).into_iter().map(|levers| {
        Row::from_iter([
            levers.micro_batches.to_string(),
            levers.wire.name().to_string(),
            if levers.overlap { "yes" } else { "no" }.to_string(),
            format!("{:.3} s", measured.update_seconds(levers)),
            format!("{:.0} %", 100.0 * measured.efficiency(levers)),
        ])
    });
    lines.extend(Table { names: 3, ..Table::new(header, rows.collect()) }.lines());
    lines.push(String::new());
    lines.push(advice(measured, world, each));
    lines
}

/// The keys to set, in a sentence.
fn advice(measured: &Exchange, world: World, each: usize) -> String {
    let Some(levers) = measured.advice(each) else {
        return "this network is too slow for this model: train in one process, or on machines that are nearer \
                to each other"
            .to_string();
    };
    let share = format!("{:.0} % of the time is computing", 100.0 * measured.efficiency(levers));
    let mut keys = vec!["distributed.overlap: true".to_string()];
    keys.extend((levers.wire == Wire::Bf16).then(|| "distributed.wire: bf16".to_string()));
    if levers.micro_batches != each {
        let all = levers.micro_batches * world.size;
        keys.push(format!("training.gradient_accumulation_steps: {all} (more rows in an update)"));
    }
    let wanted = 100.0 * WANTED_EFFICIENCY;
    format!("set {}: {share} (predicted; {wanted:.0} % are wanted)", keys.join(", "))
}

fn json(measured: &Exchange, world: World, each: usize) -> serde_json::Value {
    let compared = compared(measured, each).into_iter();
    json!({
        "processes": world.size,
        "message_seconds": measured.message_seconds,
        "values_per_second": {"f32": measured.values_per_second[0], "bf16": measured.values_per_second[1]},
        "gradients": measured.gradients,
        "micro_batch_seconds": measured.micro_batch_seconds,
        "update_seconds": measured.update_seconds,
        "predicted": compared.map(|levers| levers_json(measured, levers)).collect::<Vec<_>>(),
        "advice": measured.advice(each).map(|levers| levers_json(measured, levers)),
    })
}

/// The prediction for one choice of settings.
fn levers_json(measured: &Exchange, levers: Levers) -> serde_json::Value {
    json!({
        "micro_batches": levers.micro_batches,
        "wire": levers.wire.name(),
        "overlap": levers.overlap,
        "step_seconds": measured.update_seconds(levers),
        "efficiency": measured.efficiency(levers),
    })
}

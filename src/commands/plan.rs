//! `mlmtrain plan`: predicts memory, time, energy and cost of a pretraining run on this machine and on rented
//! GPUs.

mod clusters;
mod saved;
mod table;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use clap::Args;

use crate::batches::BatchPlan;
use crate::commands::config_args::ConfigArgs;
use crate::commands::plan::table::Row;
use crate::commands::staging::Corpus;
use crate::commands::terminal::Output;
use crate::commands::{bench, staging, terminal};
use crate::config::{DeviceChoice, PretrainConfig, RunSection, TrainingConfig, load_prices};
use crate::error::{Problem, Problems};
use crate::estimate::{Estimate, Fitted, Rentable, Work};
use crate::families::ModelConfig;
use crate::machine::Machine;
use crate::quantity::{format_count, parse_count, parse_duration};
use crate::shards::Manifest;
use crate::tasks::list::shapes;
use crate::tasks::pretraining::{origin, planned_model};
use crate::tasks::run::{Shapes, total_steps};
use crate::telemetry::{Progress, Unit};
use crate::train::{batch_size, horizon};
use crate::{machine, precision};

pub(in crate::commands) use saved::{Actual, compared};

/// Name of the device that the configuration chooses on this machine.
const HERE: &str = "here";

/// Name of the CPU of this machine.
const CPU: &str = "cpu";

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Devices: `here` and `cpu` are this machine and measured, GPUs by name (h100, a100-80, l4, t4, ...) are
    /// predicted
    #[arg(
        long,
        value_name = "DEVICE",
        value_delimiter = ',',
        default_values = [HERE, "h100", "a100-80", "l4", "t4"],
        value_parser = device
    )]
    pub device: Vec<Device>,
    /// Price of a device per hour, in US dollars: `h100=1.99`, `here=0.08`; may be repeated
    #[arg(long, value_name = "DEVICE=USD", value_delimiter = ',', value_parser = price)]
    pub price: Vec<(String, f64)>,
    /// A file of such prices, `h100: 1.99` a line (YAML or JSON); `--price` wins over it
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// Also predict for N machines, each with `--gpus-per-machine` of the GPUs, and a process for each GPU:
    /// `1,4,32`
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..))]
    pub machines: Vec<u16>,
    /// GPUs of each of `--machines`
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        requires = "machines",
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    pub gpus_per_machine: u16,
    /// Networks between `--machines`, in Gb/s
    #[arg(
        long,
        value_name = "GBITS",
        value_delimiter = ',',
        default_values = ["10", "25", "100"],
        requires = "machines",
        value_parser = gigabits
    )]
    pub network: Vec<f64>,
    /// Plan as many steps as this number of tokens needs, in the place of `training.max_steps`: `10B`
    #[arg(long, value_name = "COUNT", value_parser = tokens)]
    pub tokens: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Save the plan in the run's folder, so that `pretrain` compares the run with it at its end
    #[arg(long)]
    pub save: bool,
}

/// A device that a run is planned for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Device {
    /// The device of this machine that the configuration chooses.
    Here,
    /// The CPU of this machine.
    Cpu,
    /// A GPU of another machine, for rent.
    Rented(Rentable),
}

impl Device {
    /// True if the device is in this machine, so that it can be measured.
    fn is_here(&self) -> bool {
        !matches!(self, Self::Rented(_))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Here => HERE,
            Self::Cpu => CPU,
            Self::Rented(gpu) => gpu.name,
        }
    }
}

fn device(name: &str) -> Result<Device, String> {
    match name {
        HERE => Ok(Device::Here),
        CPU => Ok(Device::Cpu),
        _ => Rentable::named(name).map(Device::Rented).ok_or_else(|| {
            let known: Vec<&str> = Rentable::ALL.iter().map(|gpu| gpu.name).collect();
            format!("`{name}` is not known; take {HERE}, {CPU}, {}", known.join(", "))
        }),
    }
}

fn price(text: &str) -> Result<(String, f64), String> {
    let (name, usd) = text.split_once('=').ok_or("a price is written as `h100=1.99`")?;
    let name = device(name)?.name().to_string();
    let usd: f64 = usd.parse().map_err(|_| format!("`{usd}` is no number"))?;
    if usd.is_finite() && usd >= 0.0 { Ok((name, usd)) } else { Err("a price is not negative".to_string()) }
}

fn tokens(text: &str) -> Result<u64, String> {
    match parse_count(text) {
        Ok(0) => Err("at least 1 is wanted".to_string()),
        parsed => parsed.map_err(|e| e.to_string()),
    }
}

fn gigabits(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (1e-3..=1e5).contains(&value) => Ok(value),
        _ => Err("not a bandwidth in Gb/s from 0.001 to 100000".to_string()),
    }
}

/// Reads a file of prices. Returns the names of devices with their prices per hour.
fn prices(path: &Path) -> Result<Vec<(String, f64)>, Problems> {
    load_prices(path)?
        .into_iter()
        .map(|price| match device(&price.device) {
            Ok(device) => Ok((device.name().to_string(), price.usd_per_hour)),
            Err(message) => Err(Problems(vec![Problem::usage(message).at(price.place)])),
        })
        .collect()
}

/// Runs the subcommand.
pub fn run(args: &PlanArgs) -> Result<()> {
    let mut prices = args.prices.as_deref().map(prices).transpose()?.unwrap_or_default();
    prices.extend_from_slice(&args.price);
    let config = staging::pretraining(args.config.load()?.config, Corpus::Skipped)?;
    let (config, _) = origin::resolve(&config)?;
    let model = planned_model(&config)?;
    let run = Run {
        steps: steps(args, &config)?,
        shapes: shapes(&config, &model)?,
        config: &config,
        model: &model,
    };
    let progress = Progress::detect(terminal::is_quiet());
    let mut rows = Vec::new();
    for device in &args.device {
        let (found, watts) = match device {
            Device::Here => {
                // Not before: a run on a GPU can be planned on a machine without one.
                let machine = machine::set_up(&config.run, &config.precision)?;
                (run.here(&machine, &progress)?, None)
            }
            Device::Cpu => (run.on_cpu(&progress)?, None),
            Device::Rented(gpu) => (run.rented(gpu), Some(gpu.watts)),
        };
        let given = prices.iter().rev().find(|(name, _)| name == device.name()).map(|(_, usd)| *usd);
        let usd_per_hour = given.or(match device {
            Device::Here | Device::Cpu => config.run.usd_per_hour,
            Device::Rented(gpu) => Some(gpu.usd_per_hour),
        });
        let affordable_seconds = run.affordable_seconds(usd_per_hour)?;
        rows.push(Row { device: *device, found, watts, usd_per_hour, affordable_seconds });
    }
    let cluster_runs = clusters::cluster_runs(args, &run, &rows);
    if args.save {
        saved::save(&config.run.output_dir, &table::json(&run, &rows))?;
    }
    let mut output = Output::stdout();
    if args.json {
        let mut all = table::json(&run, &rows);
        all["clusters"] = clusters::json(&cluster_runs);
        output.line(&all.to_string())?;
    } else {
        let lines = [table::lines(&run, &rows), clusters::lines(&cluster_runs)].concat();
        lines.iter().try_for_each(|line| output.line(line))?;
    }
    output.finish()
}

/// The run that is planned.
struct Run<'a> {
    config: &'a PretrainConfig,
    model: &'a ModelConfig,
    shapes: Shapes,
    steps: u64,
}

/// Largest number of updates that is planned; more are a typing error.
const MOST_STEPS: u64 = 100_000_000;

/// Returns the number of updates of a run: for `--tokens`, else `training.max_steps`, else for the epochs.
/// The last needs the shards, to know the number of tokens.
fn steps(args: &PlanArgs, config: &PretrainConfig) -> Result<u64> {
    if let Some(tokens) = args.tokens {
        let plan = BatchPlan::new(&config.training, config.data.max_seq_length);
        let mut steps = 0;
        let mut planned = 0;
        while planned < tokens && steps < MOST_STEPS {
            planned += plan.at(steps).tokens();
            steps += 1;
        }
        if planned < tokens {
            let message = format!("are more than {} updates", format_count(MOST_STEPS));
            return Err(Problem::usage(message)
                .at("--tokens")
                .hint("ask for less, or for larger updates")
                .into());
        }
        return Ok(steps);
    }
    if config.training.max_steps >= 0 {
        return Ok(config.training.max_steps as u64);
    }
    let shards = config.prepared_dir().join("shards");
    let manifest = Manifest::read(&shards).map_err(|_| {
        Problem::usage("is not given, and how long an epoch is cannot be told before there are shards")
            .at("training.max_steps")
            .hint("say how many tokens to plan (`--tokens 10B`), or run `mlmtrain prepare` first")
    })?;
    // An estimate: each row has two special tokens, and rows are assumed to be full.
    let rows = manifest.train.tokens / (config.data.max_seq_length.saturating_sub(2).max(1) as u64);
    Ok(total_steps(&config.training, rows))
}

impl Run<'_> {
    /// All steps of the run with these batch sizes.
    fn work(&self, training: &TrainingConfig) -> Work {
        Work::new(training, self.config.data.max_seq_length, self.steps)
    }

    /// Returns the seconds of training that `run.budget_usd` and `run.deadline` allow at this price.
    fn affordable_seconds(&self, usd_per_hour: Option<f64>) -> Result<Option<f64>, Problem> {
        let run = RunSection { usd_per_hour, ..self.config.run.clone() };
        horizon::limit_seconds(&run, 0.0, SystemTime::now())
    }

    /// Key `training.max_train_time` in seconds.
    fn limit_seconds(&self) -> Option<f64> {
        let limit = self.config.training.max_train_time.as_deref()?;
        parse_duration(limit).ok().as_ref().map(Duration::as_secs_f64)
    }

    /// Predicts the run on a rented GPU from its data sheet.
    fn rented(&self, gpu: &Rentable) -> Result<Estimate, String> {
        let precision = &self.config.precision;
        let wanted = precision.compute.known().map(precision::dtype);
        let training = &self.config.training;
        Estimate::on_gpu(gpu, training, &self.shapes, wanted, precision.tf32, |training| self.work(training))
    }

    /// Measures the run like [`Self::here`], but on the CPU even if there is a GPU.
    fn on_cpu(&self, progress: &Progress) -> Result<Result<Estimate, String>> {
        let run = RunSection { device: DeviceChoice::Cpu, ..self.config.run.clone() };
        let machine = match machine::set_up(&run, &self.config.precision) {
            Ok(machine) => machine,
            Err(why) => return Ok(Err(why.to_string())),
        };
        let config = &PretrainConfig { run, ..self.config.clone() };
        let shapes = shapes(config, self.model)?;
        Run { config, shapes, ..*self }.here(&machine, progress)
    }

    /// Measures the run on this machine, a few seconds for each size of micro-batch. The inner error is the
    /// reason why the run is not possible here.
    fn here(&self, machine: &Machine, progress: &Progress) -> Result<Result<Estimate, String>> {
        let Some(room_bytes) = batch_size::room(machine) else {
            return Ok(Err("the free memory is not known".to_string()));
        };
        let fitted = Fitted::new(&self.config.training, &self.shapes, machine.place(), room_bytes);
        let Some(fitted) = fitted else {
            return Ok(Err("does not fit, not even a row at a time".to_string()));
        };
        let compute = machine.policy.compute_type();
        let on = fitted.training.gradient_checkpointing.is_on();
        let work = self.work(&fitted.training);
        let measuring = progress.stage("measuring steps", Unit::Items, Some(work.parts.len() as u64));
        let mut measured = Vec::new();
        for part in &work.parts {
            let shape = bench::BatchShape { rows: part.rows, length: part.length, is_causal: part.is_causal };
            let Some(seconds) = bench::step_seconds(self.config, self.model, shape, compute, on)? else {
                return Ok(Err("a step ran out of memory".to_string()));
            };
            // The timed step has an update for each micro-batch; with accumulation, most have none.
            let update = if part.updates < part.micro_batches {
                let work = bench::StepWork::new(&self.shapes, &fitted.training, shape, machine.place());
                bench::update_seconds(&work, seconds)
            } else {
                0.0
            };
            measured.push((seconds - update, update));
            measuring.advance(1);
        }
        measuring.finish("done");
        Ok(Ok(Estimate::of(fitted, machine.policy.compute, &work, &measured)))
    }
}

//! `mlmtrain plan`: predicts memory, time, energy and cost of a run of pretraining, or of runs of
//! fine-tuning, on this machine and on rented GPUs.

mod clusters;
mod run;
mod saved;
mod table;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use crate::commands::config_args::ConfigArgs;
use crate::commands::plan::run::{Planned, Run, finetuning_runs, steps};
use crate::commands::plan::table::Row;
use crate::commands::staging::Corpus;
use crate::commands::terminal::Output;
use crate::commands::{finetune, staging, terminal};
use crate::config::{AnyLoaded, load_prices};
use crate::error::{Problem, Problems};
use crate::estimate::Rentable;
use crate::machine;
use crate::quantity::parse_count;
use crate::tasks::list::shapes;
use crate::tasks::pretraining::{origin, planned_model};
use crate::telemetry::Progress;
use crate::trials::cell;

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

/// Refuses flags about GPUs that are not among `--device`.
fn refuse_flags_of_other_devices(args: &PlanArgs) -> Result<(), Problem> {
    if !args.machines.is_empty() && args.device.iter().all(Device::is_here) {
        let message = "is for GPUs by name, and `--device` has none";
        return Err(Problem::usage(message).at("--machines").hint("add one, such as `--device h100`"));
    }
    match args.price.iter().find(|(name, _)| args.device.iter().all(|device| device.name() != name)) {
        Some((name, _)) => {
            let message = format!("names `{name}`, which is not among `--device`");
            Err(Problem::usage(message).at("--price").hint(format!("add it there: `--device {name}`")))
        }
        None => Ok(()),
    }
}

/// Runs the subcommand.
pub fn run(args: &PlanArgs) -> Result<()> {
    refuse_flags_of_other_devices(args)?;
    match args.config.load_any()? {
        AnyLoaded::Pretrain(loaded) => {
            let config = staging::pretraining(loaded.config, Corpus::Skipped)?;
            let (config, _) = origin::resolve(&config)?;
            let shapes = &shapes(&config, &planned_model(&config)?)?;
            let steps = steps(args, &config)?;
            print(args, &Run { planned: Planned::Pretraining(&config), shapes, steps })
        }
        AnyLoaded::Finetune(loaded) => {
            refuse_flags_of_pretraining(args)?;
            let mut config = staging::finetuning(loaded.config)?;
            cell::require_files([&config])?;
            if let Some(note) = finetune::choose_length(&mut config)? {
                terminal::note(&note);
            }
            let runs = finetuning_runs(&config)?;
            let planned = Planned::Finetuning(&config, &runs);
            print(args, &Run { planned, shapes: &runs.shapes, steps: runs.steps })
        }
        AnyLoaded::Sweep(_) => Err(planned_elsewhere("is a sweep", "finetune --config FILE --dry-run", args)),
        AnyLoaded::Tasks(_) => {
            Err(planned_elsewhere("holds tasks of a comparison", "compare --tasks FILE --dry-run", args))
        }
    }
}

/// The error for a file of several kinds of runs.
fn planned_elsewhere(message: &str, command: &str, args: &PlanArgs) -> anyhow::Error {
    let hint = format!("`mlmtrain {command}` tells steps, time and cost of all its runs");
    Problem::usage(message).at(args.config.config.display()).hint(hint).into()
}

/// Refuses flags that plans of fine-tuning do not have.
fn refuse_flags_of_pretraining(args: &PlanArgs) -> Result<(), Problem> {
    let given = [
        ("--tokens", args.tokens.is_some()),
        ("--machines", !args.machines.is_empty()),
        ("--save", args.save),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => {
            let message = "is for configurations of `pretrain`, and this is one of `finetune`";
            Err(Problem::usage(message).at(flag).hint("leave it out"))
        }
        None => Ok(()),
    }
}

/// Makes the plan for each device and prints it.
fn print(args: &PlanArgs, run: &Run<'_>) -> Result<()> {
    let mut prices = args.prices.as_deref().map(prices).transpose()?.unwrap_or_default();
    prices.extend_from_slice(&args.price);
    let progress = Progress::detect(terminal::is_quiet());
    let mut rows = Vec::new();
    for device in &args.device {
        let (found, watts) = match device {
            Device::Here => {
                // Not before: a run on a GPU can be planned on a machine without one.
                let machine = machine::set_up(run.section(), run.precision())?;
                (run.here(&machine, &progress)?, None)
            }
            Device::Cpu => (run.on_cpu(&progress)?, None),
            Device::Rented(gpu) => (run.rented(gpu), Some(gpu.watts)),
        };
        let given = prices.iter().rev().find(|(name, _)| name == device.name()).map(|(_, usd)| *usd);
        let usd_per_hour = given.or(match device {
            Device::Here | Device::Cpu => run.section().usd_per_hour,
            Device::Rented(gpu) => Some(gpu.usd_per_hour),
        });
        let affordable_seconds = run.affordable_seconds(usd_per_hour)?;
        rows.push(Row { device: *device, found, watts, usd_per_hour, affordable_seconds });
    }
    let cluster_runs = clusters::cluster_runs(args, run, &rows);
    if args.save {
        saved::save(&run.section().output_dir, &table::json(run, &rows))?;
    }
    let mut output = Output::stdout();
    if args.json {
        let mut all = table::json(run, &rows);
        all["clusters"] = clusters::json(&cluster_runs);
        output.line(&all.to_string())?;
    } else {
        let lines = [table::lines(run, &rows), clusters::lines(&cluster_runs)].concat();
        lines.iter().try_for_each(|line| output.line(line))?;
    }
    output.finish()
}

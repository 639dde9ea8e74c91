//! The arguments of `bench`.

use clap::{Args, ValueEnum};

use crate::config::{ComputeType, DeviceChoice};
use crate::quantity::parse_bytes;

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct BenchArgs {
    /// tiny, small, base, large (RoBERTa's), FAMILY-small or FAMILY-base (electra, distilbert, modernbert,
    /// deberta-v3, albert, mpnet, neobert), a model folder (its shape), or a configuration of `pretrain` or
    /// `finetune` (its model, and its batch, length and precision where the flags say nothing); several with
    /// commas
    #[arg(long, value_name = "NAME|FILE,...", value_delimiter = ',', required = true)]
    pub model: Vec<String>,
    /// Task of the steps; when not given that of the configuration, `classify` for a fine-tuned model folder,
    /// else what the family is pretrained for
    #[arg(long, value_enum)]
    pub task: Option<BenchTask>,
    /// Labels of `--task classify`; 4 when not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub labels: Option<u32>,
    /// Rows of a step, e.g. `8,16`; 8 when not given
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub batch: Vec<u32>,
    /// Tokens of a row; 128 when not given
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub length: Vec<u32>,
    /// Type of activations and products; f32 when not given
    #[arg(long, value_name = "TYPE,...", value_delimiter = ',', value_enum)]
    pub compute: Vec<ComputeType>,
    /// Time at least this many steps; two untimed ones come first
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Time steps for at least this many seconds
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = some_seconds)]
    pub seconds: f64,
    /// Also print the minutes that N examples take, and with `--usd-per-hour` the cents
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub examples: Option<u64>,
    /// Price of this machine per hour, in US dollars
    #[arg(long, value_name = "USD", value_parser = price, requires = "examples")]
    pub usd_per_hour: Option<f64>,
    /// Fill the rows with documents of 20 to 60 tokens, instead of one document each
    #[arg(long)]
    pub short: bool,
    /// Save only the input of each layer and compute the rest again in backward
    #[arg(long)]
    pub gradient_checkpointing: bool,
    /// Measure nothing, but print the most rows that GPUs of these sizes should hold, e.g. `16GB,24GB`
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = parse_bytes, conflicts_with_all = ["batch", "json"])]
    pub most_rows_on: Vec<u64>,
    /// Where to compute: cpu, cuda, cuda:1, ...; auto takes the first GPU where there is one; several with
    /// commas
    #[arg(long, value_name = "DEVICE,...", value_delimiter = ',', default_value = "auto")]
    pub device: Vec<DeviceChoice>,
    /// Let a GPU round the operands of f32 products to TF32
    #[arg(long)]
    pub tf32: bool,
    /// Threads; 0 means one for each core that this process may use
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    /// Print a JSON object for each row instead of a table
    #[arg(long)]
    pub json: bool,
}

/// The tasks whose training steps `bench` can measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchTask {
    /// A masked language model, or what else its family is pretrained for
    Pretrain,
    /// One label for each row
    Classify,
}

/// Arguments of the process that measures one row.
#[derive(Debug, Args)]
pub struct BenchJobArgs {
    /// The measurement, as JSON.
    pub job: String,
}

fn price(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(usd) if usd.is_finite() && usd >= 0.0 => Ok(usd),
        _ => Err("not a price in US dollars".to_string()),
    }
}

/// Parses a time to measure for, in seconds.
pub(in crate::commands) fn some_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=86_400.0).contains(&value) => Ok(value),
        _ => Err("not a number of seconds from 0 to 86400".to_string()),
    }
}

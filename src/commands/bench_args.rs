//! Arguments of `bench`, as typed.

use candle_core::DType;
use clap::Args;
use clap::ValueEnum;
use serde::Deserialize;
use serde::Serialize;

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// tiny, small, base, large, or a configuration of `pretrain` (its model, and its batch, length and precision where the
    /// flags say nothing); several with commas
    #[arg(long, value_name = "NAME|FILE,...", value_delimiter = ',', required = true)]
    pub model: Vec<String>,
    /// Rows of a step, e.g. `8,16`; 8 when not given
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub batch: Vec<u32>,
    /// Tokens of a row; 128 when not given
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub length: Vec<u32>,
    /// Type of activations and products; f32 when not given
    #[arg(long, value_name = "TYPE,...", value_delimiter = ',', value_enum)]
    pub compute: Vec<Compute>,
    /// Time at least so many steps (two more come first, unseen)
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Time steps for at least so many seconds
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    pub seconds: f64,
    /// Fill the rows with documents of 20 to 60 tokens instead of one a row
    #[arg(long)]
    pub short: bool,
    /// Threads; 0 means one a core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
    /// Print one JSON object a row instead of a table
    #[arg(long)]
    pub json: bool,
}

/// In which type a step computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compute {
    /// 32-bit floats
    F32,
    /// bfloat16: the exponent of f32, 8 bits of precision
    Bf16,
    /// IEEE half precision
    F16,
}

impl Compute {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::F16];

    /// As candle names it.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }

    /// As it is typed and printed.
    pub fn name(self) -> &'static str {
        self.dtype().as_str()
    }

    /// The one that candle names so, if a model can compute in it.
    pub fn of(dtype: DType) -> Option<Self> {
        Self::ALL.into_iter().find(|compute| compute.dtype() == dtype)
    }
}

/// Arguments of the process that measures one row.
#[derive(Debug, Args)]
pub struct BenchJobArgs {
    /// What to measure, JSON.
    pub job: String,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=86_400.0).contains(&value) => Ok(value),
        _ => Err("not a number of seconds from 0 to 86400".to_string()),
    }
}

//! The command line as typed: subcommands, flags, help texts.
//!
//! It only describes; what a subcommand does is in the file of its name. Hyper-parameters have no flags of
//! their own: they live in the configuration, and `--set` changes any of them.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use clap::Parser;
use clap::Subcommand;
use clap::ValueEnum;

pub use crate::commands::bench::args::BenchArgs;
pub use crate::commands::bench::args::BenchJobArgs;
pub use crate::commands::finetune::args::FinetuneArgs;
pub use crate::commands::scoring_args::EvaluateArgs;
pub use crate::commands::scoring_args::PredictArgs;
pub use crate::commands::shards::args::ShardsCommand;
use crate::config;
use crate::config::Loaded;
use crate::config::Override;
use crate::config::PretrainConfig;
use crate::error::Problems;

/// Pretrain and fine-tune masked language models: one binary, no Python.
#[derive(Debug, Parser)]
#[command(
    name = "mlmtrain",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(after_help = "Examples:
  mlmtrain pretrain --config configs/quickstart.yaml
  mlmtrain finetune --task classify --model runs/quickstart/final --train train.csv --eval dev.csv
  mlmtrain predict --model runs/agnews/final --input headlines.txt
  mlmtrain config show configs/quickstart.yaml

Exit codes: 0 done, 1 failed, 2 wrong command line or configuration, 74 disk full or failing,
76 training diverged, 128 + n stopped by signal n after a checkpoint")]
pub struct Cli {
    /// Print no progress and no notes, only results and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a masked language model on raw text
    ///
    /// Runs whatever is missing (tokenizer, shards), then trains. A second run with the same configuration
    /// resumes.
    #[command(after_help = "Examples:
  mlmtrain pretrain --config configs/quickstart.yaml
  mlmtrain pretrain --config configs/quickstart.yaml --set training.max_steps=200 --set run.output_dir=runs/short
  mlmtrain pretrain --config configs/roberta-base.yaml --dry-run
  mlmtrain pretrain --config configs/quickstart.yaml --resume runs/quickstart/checkpoint-500")]
    Pretrain(PretrainArgs),
    /// Make the tokenizer and the shards of a configuration, without training
    ///
    /// Reads, cleans, filters and deduplicates the corpus, and leaves a report (report.html, report.json) of
    /// what was left out. It may be stopped at any moment: the same command continues after its last
    /// finished part.
    #[command(after_help = "Examples:
  mlmtrain prepare --config configs/quickstart.yaml
  mlmtrain prepare --config configs/corpus/sample.yaml --set data.filters.length.min_words=10
  zcat crawl.gz | mlmtrain prepare --config my.yaml --set 'data.sources.0.files=[\"-\"]'")]
    Prepare(PrepareArgs),
    /// Fine-tune a model on labelled examples
    ///
    /// Takes a configuration, or the flags that stand for its usual keys, or both: flags win.
    #[command(after_help = "Examples:
  mlmtrain finetune --task classify --config configs/finetune-sample.yaml
  mlmtrain finetune --task classify --model runs/quickstart/final --train train.csv --eval dev.csv
  mlmtrain finetune --task classify --model models/minilm --train train.tsv --eval dev.tsv \\
      --text-column sentence1 --text-pair-column sentence2 --label-column entailment
  mlmtrain finetune --task classify --config a.yaml --max-train-fraction 0.1 --seeds 1,2,3 --set training.learning_rate=3e-5")]
    Finetune(FinetuneArgs),
    /// Score a model on a file: a classifier on labelled examples, a masked language model on text
    #[command(after_help = "Examples:
  mlmtrain evaluate --model runs/agnews/final --data test.csv
  mlmtrain evaluate --model runs/quickstart/final --data novels.txt.zst --json")]
    Evaluate(EvaluateArgs),
    /// Label texts, or fill in their masks: one JSON line each on standard output
    ///
    /// A line has `text` (and `text_pair`), then `label`, `score` and `probabilities`, or `masks`, then all
    /// other columns of the input under their own names. A column whose name is taken is kept with `input_`
    /// before it: `label` becomes `input_label`.
    #[command(after_help = "Examples:
  mlmtrain predict --model runs/agnews/final --input headlines.txt > labels.jsonl
  mlmtrain predict --model runs/agnews/final --input news.csv.gz --text-column title
  zcat news.csv.gz | mlmtrain predict --model runs/agnews/final --input - --format csv
  echo 'The capital of France is <mask>.' | mlmtrain predict --model runs/quickstart/final --input -")]
    Predict(PredictArgs),
    /// Look into tokenised text as a model sees it, or check it for damage
    #[command(subcommand)]
    Shards(ShardsCommand),
    /// Use a tokenizer on its own
    #[command(subcommand)]
    Tokenizer(TokenizerCommand),
    /// Measure whole training steps: speed, share of the machine's peak, memory
    ///
    /// Each row trains on made batches in a process of its own: forward, backward, clipping, AdamW, 15 % of
    /// tokens masked. MFU is the share of the peak that this machine reaches in the row's compute type,
    /// measured at the beginning.
    #[command(after_help = "Examples:
  mlmtrain bench --model tiny,small,base --batch 8,16 --length 128 --compute f32,bf16
  mlmtrain bench --model configs/quickstart.yaml
  mlmtrain bench --model base --batch 8 --steps 20 --threads 2 --json > base.jsonl")]
    Bench(BenchArgs),
    /// One measurement of `bench`, in a process of its own
    #[command(hide = true)]
    BenchJob(BenchJobArgs),
    /// Check, show or describe configurations
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print completions for a shell
    #[command(after_help = "Examples:
  mlmtrain completions bash > ~/.local/share/bash-completion/completions/mlmtrain
  mlmtrain completions fish > ~/.config/fish/completions/mlmtrain.fish")]
    Completions(CompletionsArgs),
}

/// A configuration file and changes to it.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// YAML or JSON configuration
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Change one key for this run, e.g. `training.max_steps=100`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Threads; 0 means one for each core that this process may use (key `run.threads`)
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
}

impl ConfigArgs {
    /// The file's configuration with the flags and then the `--set` values put over it, checked as a whole.
    pub fn load(&self) -> Result<Loaded<PretrainConfig>, Problems> {
        let mut overrides =
            Vec::from_iter(self.threads.map(|threads| Override::flag("--threads", "run.threads", threads)));
        overrides.extend(config::overrides(&self.set)?);
        config::load_pretrain_with(&self.config, &overrides)
    }
}

/// Arguments of `pretrain`.
#[derive(Debug, Args)]
pub struct PretrainArgs {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Where to start: `auto` (the newest valid checkpoint, if any), `never` (refuses a used output folder),
    /// or a checkpoint
    #[arg(long, value_name = "auto|never|PATH", default_value = "auto")]
    pub resume: Resume,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Where `pretrain` starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resume {
    /// At the newest valid checkpoint of the output folder, or afresh.
    Auto,
    /// Afresh; an output folder with checkpoints is refused.
    Never,
    /// At this checkpoint folder.
    From(PathBuf),
}

impl FromStr for Resume {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "auto" => Self::Auto,
            "never" => Self::Never,
            path => Self::From(PathBuf::from(path)),
        })
    }
}

/// Arguments of `prepare`.
#[derive(Debug, Args)]
pub struct PrepareArgs {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// Subcommands of `tokenizer`.
#[derive(Debug, Subcommand)]
pub enum TokenizerCommand {
    /// Print the token ids of each line of a text: one JSON array a line
    ///
    /// Lines are content: a special token that is spelled out in one is text, and none are put around it.
    #[command(after_help = "Examples:
  mlmtrain tokenizer encode --tokenizer runs/quickstart/final --input novels.txt > ids.jsonl
  echo 'The capital of France' | mlmtrain tokenizer encode --tokenizer runs/quickstart/final --input -")]
    Encode(TokenizerEncodeArgs),
}

/// Arguments of `tokenizer encode`.
#[derive(Debug, Args)]
pub struct TokenizerEncodeArgs {
    /// Folder with a tokenizer.json, or the file itself
    #[arg(long, value_name = "DIR")]
    pub tokenizer: PathBuf,
    /// Text, plain or compressed (.gz, .zst, .bz2); `-` is standard input
    #[arg(long, value_name = "FILE|-")]
    pub input: PathBuf,
}

/// Subcommands of `config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Report every problem of a configuration with its line and column
    #[command(after_help = "Examples:
  mlmtrain config check configs/quickstart.yaml
  mlmtrain config check configs/quickstart.yaml --set data.max_seq_length=128")]
    Check(FileArgs),
    /// Print a configuration with all defaults, and where each value comes from
    #[command(after_help = "Examples:
  mlmtrain config show configs/quickstart.yaml --set run.seed=7
  mlmtrain config show configs/quickstart.yaml --json")]
    Show(ShowArgs),
    /// Print the JSON Schema, for completion in editors
    #[command(after_help = "Examples:
  mlmtrain config schema > mlmtrain.schema.json
Then put this line first in a configuration (VS Code with the YAML extension, Zed, Neovim):
  # yaml-language-server: $schema=mlmtrain.schema.json")]
    Schema {
        /// Which configuration to describe
        #[arg(value_enum, default_value_t = SchemaOf::Pretrain)]
        of: SchemaOf,
    },
}

/// A configuration file to look at, and changes to it.
#[derive(Debug, Args)]
pub struct FileArgs {
    /// YAML or JSON configuration of `pretrain` or of `finetune`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Change one key, as the other commands do; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Arguments of `config show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// What to show.
    #[command(flatten)]
    pub file: FileArgs,
    /// Print one JSON object with the values alone, which is a configuration, too
    #[arg(long)]
    pub json: bool,
}

/// Which configuration a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// Of `pretrain` and `prepare`
    Pretrain,
    /// Of `finetune`
    Finetune,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Which shell
    pub shell: clap_complete::Shell,
}

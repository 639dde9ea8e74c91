//! Arguments of `finetune`, and how they are combined with a configuration file.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::commands::config_args::RunChangeArgs;
use crate::commands::scoring_args::column;
use crate::commands::training_flags::TrainingFlags;
use crate::config;
use crate::config::{FinetunePlan, FinetuneTask, Override, Swept};
use crate::error::{Problem, Problems};

/// Help heading of the flags for data.
const EXAMPLES: &str = "Examples to learn from";
/// Help heading of the flags for several runs.
const SEVERAL_RUNS: &str = "Several runs";

/// Arguments of `finetune`.
#[derive(Debug, Args)]
pub struct FinetuneArgs {
    /// Task to fine-tune for (key `task`)
    #[arg(long, value_enum)]
    pub task: Option<FinetuneTask>,
    /// YAML or JSON configuration
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Model folder in the Hugging Face layout to start from (key `model`)
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// Fine-tuned model from whose probabilities the run learns, too (key `distillation.teacher`)
    #[arg(long, value_name = "DIR")]
    pub teacher: Option<PathBuf>,
    /// Training examples: .csv, .tsv, .jsonl, .parquet; tagged words: CoNLL, .jsonl, .parquet; all but
    /// Parquet also .gz, .zst, .bz2; or a folder of such files, or a pattern in quotes (key
    /// `data.train_file`)
    #[arg(long, help_heading = EXAMPLES, value_name = "FILE")]
    pub train: Option<PathBuf>,
    /// Evaluation examples (key `data.eval_file`)
    #[arg(long, help_heading = EXAMPLES, value_name = "FILE")]
    pub eval: Option<PathBuf>,
    /// Hold out this share of the training file for evaluation, instead of `--eval` (key
    /// `data.eval_fraction`)
    #[arg(long, help_heading = EXAMPLES, value_name = "SHARE", value_parser = number)]
    pub eval_fraction: Option<f64>,
    /// Column of the text (key `data.text_column`)
    #[arg(long, help_heading = EXAMPLES, value_name = "NAME")]
    pub text_column: Option<String>,
    /// Column of the second text of a pair (key `data.text_pair_column`)
    #[arg(long, help_heading = EXAMPLES, value_name = "NAME")]
    pub text_pair_column: Option<String>,
    /// Column of the label (key `data.label_column`)
    #[arg(long, help_heading = EXAMPLES, value_name = "NAME")]
    pub label_column: Option<String>,
    /// Whether each text has one label or any number of them: `single_label_classification` or
    /// `multi_label_classification` (key `problem_type`)
    #[arg(long, help_heading = EXAMPLES, value_name = "TYPE")]
    pub problem_type: Option<String>,
    /// Separator of the labels of a text that has any number of them, `,` when absent; not of the items of a
    /// list, as JSONL has them (key `data.label_separator`)
    #[arg(long, help_heading = EXAMPLES, value_name = "TEXT")]
    pub label_separator: Option<String>,
    /// Names of the labels in the order of their ids, e.g. `negative,positive` for 0 and 1 in the files (key
    /// `data.labels`)
    #[arg(long, help_heading = EXAMPLES, value_name = "NAME,NAME", value_delimiter = ',')]
    pub labels: Option<Vec<String>>,
    /// Column of the words in a CoNLL file: 1 is the first, -1 the last (key `data.token_column`)
    #[arg(long, help_heading = EXAMPLES, value_name = "N", allow_negative_numbers = true, value_parser = column)]
    pub token_column: Option<i64>,
    /// Column of the tags in a CoNLL file (key `data.tag_column`)
    #[arg(long, help_heading = EXAMPLES, value_name = "N", allow_negative_numbers = true, value_parser = column)]
    pub tag_column: Option<i64>,
    /// Share of the training examples to use, the same of each label (key `data.max_train_fraction`)
    #[arg(long, help_heading = EXAMPLES, value_name = "SHARE", value_parser = number)]
    pub max_train_fraction: Option<f64>,
    /// Most training examples to use (key `data.max_train_samples`)
    #[arg(long, help_heading = EXAMPLES, value_name = "N")]
    pub max_train_samples: Option<u64>,
    /// Seeds to train with, e.g. `1,2,3`; on a CPU side by side (key `seeds`)
    #[arg(long, help_heading = SEVERAL_RUNS, value_name = "N,N,...", value_delimiter = ',')]
    pub seeds: Option<Vec<u64>>,
    /// Runs that are trained at once on a CPU, each with its share of the threads; as many as threads and
    /// memory allow unless given (key `runs_at_once`)
    #[arg(long, help_heading = SEVERAL_RUNS, value_name = "N")]
    pub at_once: Option<u32>,
    /// Train with each of several values of a key, and with all of their combinations, e.g.
    /// `learning_rate=1e-5,3e-5`; may be repeated (table `sweep`)
    #[arg(long, help_heading = SEVERAL_RUNS, value_name = "KEY=VALUE,VALUE,...")]
    pub sweep: Vec<String>,
    /// Draw the curve of scores by shares of the training examples, e.g. `0.01,0.1,1`: each smaller share is
    /// part of the larger ones
    #[arg(long, help_heading = SEVERAL_RUNS, value_name = "SHARE,SHARE,...", value_delimiter = ',', value_parser = number)]
    pub fractions: Vec<f64>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Folder of the results (key `run.output_dir`)
    #[arg(long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,
    /// Changes of any other key.
    #[command(flatten)]
    pub changes: RunChangeArgs,
    // Last, because its help heading would also apply to the fields after it.
    /// Hyper-parameters that are changed often.
    #[command(flatten)]
    pub training: TrainingFlags,
}

impl FinetuneArgs {
    /// Loads the configuration of the file, applies the flags and then the `--set` values, and checks the
    /// result: one configuration, or those of all settings of a sweep.
    pub fn load(&self) -> Result<FinetunePlan, Problems> {
        self.need_file_or_flags().map_err(|problem| Problems(vec![problem]))?;
        let mut overrides = self.flags().map_err(|problem| Problems(vec![problem]))?;
        overrides.extend(self.changes.overrides()?);
        let swept = Swept { axes: &self.sweep, fractions: &self.fractions };
        config::load_plan(self.config.as_deref(), &overrides, swept)
    }

    fn need_file_or_flags(&self) -> Result<(), Problem> {
        let given = [
            ("--model", self.model.is_some()),
            ("--train", self.train.is_some()),
            ("--eval", self.eval.is_some() || self.eval_fraction.is_some()),
        ];
        let missing: Vec<String> =
            given.iter().filter(|(_, is_given)| !is_given).map(|(flag, _)| format!("`{flag}`")).collect();
        if self.config.is_some() || missing.is_empty() {
            return Ok(());
        }
        let message = format!("{} must be given, for there is no `--config`", missing.join(", "));
        let hint =
            "give `--model DIR --train FILE` with `--eval FILE` or `--eval-fraction 0.1`, or `--config FILE`";
        Err(Problem::usage(message).hint(hint))
    }

    fn flags(&self) -> Result<Vec<Override>, Problem> {
        let paths = [
            ("--model", "model", &self.model),
            ("--teacher", "distillation.teacher", &self.teacher),
            ("--train", "data.train_file", &self.train),
            ("--eval", "data.eval_file", &self.eval),
            ("--output-dir", "run.output_dir", &self.output_dir),
        ];
        let names = [
            ("--text-column", "data.text_column", &self.text_column),
            ("--text-pair-column", "data.text_pair_column", &self.text_pair_column),
            ("--label-column", "data.label_column", &self.label_column),
            ("--problem-type", "problem_type", &self.problem_type),
            ("--label-separator", "data.label_separator", &self.label_separator),
        ];
        let mut flags = Vec::new();
        let task = self.task.and_then(|task| task.to_possible_value());
        flags.extend(task.map(|task| Override::flag("--task", "task", task.get_name())));
        for (flag, key, path) in paths {
            if let Some(path) = path {
                flags.push(Override::flag(flag, key, text_of(flag, path)?));
            }
        }
        for (flag, key, name) in names {
            flags.extend(name.as_deref().map(|name| Override::flag(flag, key, name)));
        }
        for (flag, key, column) in [
            ("--token-column", "data.token_column", self.token_column),
            ("--tag-column", "data.tag_column", self.tag_column),
        ] {
            flags.extend(column.map(|column| Override::flag(flag, key, column)));
        }
        for (flag, key, share) in [
            ("--eval-fraction", "data.eval_fraction", self.eval_fraction),
            ("--max-train-fraction", "data.max_train_fraction", self.max_train_fraction),
        ] {
            flags.extend(share.map(|share| Override::flag(flag, key, share)));
        }
        flags.extend(
            self.max_train_samples
                .map(|count| Override::flag("--max-train-samples", "data.max_train_samples", count)),
        );
        flags.extend(self.at_once.map(|runs| Override::flag("--at-once", "runs_at_once", runs)));
        flags.extend(self.labels.clone().map(|names| Override::flag("--labels", "data.labels", names)));
        flags.extend(self.seeds.clone().map(|seeds| Override::flag("--seeds", "seeds", seeds)));
        flags.extend(self.training.of_finetuning());
        Ok(flags)
    }
}

/// Parses a finite number. Settings are passed on as JSON, which has no NaN and no infinity.
fn number(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|e| format!("{e}"))?;
    if number.is_finite() { Ok(number) } else { Err("a finite number is wanted".to_string()) }
}

/// Returns a path as text; an error if it is not UTF-8, because paths are saved in `config.yaml`, which is
/// UTF-8.
fn text_of<'a>(flag: &str, path: &'a Path) -> Result<&'a str, Problem> {
    path.to_str().ok_or_else(|| {
        Problem::usage(format!("`{}` is not UTF-8", path.display()))
            .at(flag)
            .hint("rename the file, or reach it over a link with a plain name")
    })
}

//! `mlmtrain evaluate`: scores a model on a file. The kind of model, or `--task`, decides how the file is
//! read.

pub mod args;
mod minimal_pairs;

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::commands::evaluate::args::{EvaluateArgs, ScoringTask};
use crate::commands::{device, model_folder, staging, terminal};
use crate::config::{AnyLoaded, CleaningConfig};
use crate::fs::Output;
use crate::ops::memory;
use crate::tasks::labelled::{Columns, TrainedColumns};
use crate::tasks::list;
use crate::tasks::trained::Evaluation;
use crate::telemetry::Progress;
use crate::{config, fs, machine};

/// Runs the subcommand.
pub fn run(args: &EvaluateArgs) -> Result<()> {
    machine::use_threads(args.compute.threads)?;
    let _keeping = memory::keep_freed_blocks();
    let device = device::pick(args.compute.device)?;
    if args.task == Some(ScoringTask::MinimalPairs) {
        return minimal_pairs::run(args, &device);
    }
    let data = staging::input(&args.data)?;
    let model = model_folder::resolve(&args.model)?;
    require_outputs(args, &data, &model)?;
    let cleaning = cleaning_of(&model);
    let trained = model_folder::trained_columns(&model, &args.columns, false)?;
    let evaluation = evaluation_of(args, &data, trained.as_ref(), &cleaning);
    let scores = list::open(&model, &device)?.evaluate(&evaluation)?;
    let progress = Progress::detect(terminal::is_quiet());
    scores.warnings.iter().for_each(|warning| progress.warn(warning));
    if args.json {
        return terminal::stdout_line(&Value::from(scores.json).to_string());
    }
    // Labels come from outside and are escaped.
    scores.lines.iter().try_for_each(|line| terminal::stdout_line(&terminal::printable(line)))
}

/// Returns the evaluation that the arguments describe.
fn evaluation_of<'a>(
    args: &'a EvaluateArgs,
    data: &'a Path,
    trained: Option<&'a TrainedColumns>,
    cleaning: &'a CleaningConfig,
) -> Evaluation<'a> {
    Evaluation {
        data,
        columns: Columns {
            label: args.label_column.as_deref(),
            label_separator: args.label_separator.as_deref(),
            label_names: &args.labels,
            trained,
            ..args.columns.named()
        },
        labels: &args.labels,
        tagging: args.tagging.tagging(args.columns.encoding),
        on_bad_record: args.on_bad_record,
        predictions: args.predictions.as_deref(),
        cleaning,
        batch_size: args.compute.batch_size as usize,
        dump_logits: args.dump_logits.as_deref(),
    }
}

/// Refuses output files that would replace an input, or another existing file.
fn require_outputs(args: &EvaluateArgs, data: &Path, model: &Path) -> Result<()> {
    let named = [
        ("--predictions", &args.predictions),
        ("--scores", &args.scores),
        ("--dump-logits", &args.dump_logits),
    ];
    let given = named.iter().filter_map(|(flag, path)| Some((*flag, path.as_deref()?)));
    let files = given.filter(|(_, path)| *path != Path::new("-"));
    let outputs: Vec<Output<'_>> = files.map(|(flag, path)| Output::new(flag, path)).collect();
    args.overwrite.require(&outputs, &[data, model])
}

/// Returns the cleaning of the text that a model was pretrained on, from the configuration in the run folder
/// above the model; without one the defaults of `prepare`.
fn cleaning_of(model: &Path) -> CleaningConfig {
    let saved = fs::canonical(model).parent().map(|run| run.join("config.yaml"));
    let loaded = saved.filter(|path| fs::exists(path)).and_then(|path| config::load_saved(&path).ok());
    match loaded {
        Some(AnyLoaded::Pretrain(loaded)) => loaded.config.data.cleaning,
        _ => CleaningConfig::default(),
    }
}

//! `mlmtrain predict`: labels texts, or fills in their masks, and prints one JSON line for each.

pub mod args;

use anyhow::Result;
use serde_json::{Map, Value};

use crate::commands::predict::args::PredictArgs;
use crate::commands::terminal::Output;
use crate::commands::{device, model_folder, staging, terminal};
use crate::machine;
use crate::ops::memory;
use crate::records::RowFormat;
use crate::tasks::labelled::{Columns, InputFile, InputText};
use crate::tasks::list;
use crate::tasks::trained::Answers;

/// Runs the subcommand.
pub fn run(args: &PredictArgs) -> Result<()> {
    machine::use_threads(args.compute.threads)?;
    let _keeping = memory::keep_freed_blocks();
    let device = device::pick(args.compute.device)?;
    let mut out = Output::stdout();
    let path = staging::input(&args.input)?;
    let folder = model_folder::resolve(&args.model)?;
    let format = args.format.map(Into::into).or_else(|| RowFormat::of(&path));
    let is_plain = format.is_none_or(|format| format == RowFormat::Text);
    let trained = model_folder::trained_columns(&folder, &args.columns, is_plain)?;
    let input = InputFile {
        path: &path,
        format: args.format.map(Into::into),
        columns: Columns { trained: trained.as_ref(), ..args.columns.named() },
        token_column: args.token_column,
    };
    let model = list::open(&folder, &device)?;
    model.predict(&input, args.compute.batch_size as usize, &mut out)?;
    out.finish()
}

impl Answers for Output {
    /// Writes a line with the prediction, followed by the other fields of the input.
    fn answer(&mut self, found: Value, text: &InputText) -> Result<()> {
        let mut line: Map<String, Value> = serde_json::from_value(found)?;
        let others = text.others_beside(&line);
        line.extend(others);
        self.line(&Value::from(line).to_string())
    }

    fn note(&mut self, text: &str) {
        terminal::note(text);
    }
}

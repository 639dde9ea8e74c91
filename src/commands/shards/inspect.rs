//! `mlmtrain shards inspect`: prints statistics and rows with their masks, or one document.

use std::sync::Arc;

use anyhow::Result;

use crate::batches::{Frame, Masking, Order};
use crate::commands::shards::args::{InspectArgs, SplitName};
use crate::commands::shards::rows::Rows;
use crate::commands::shards::{Folders, rows, statistics};
use crate::commands::terminal;
use crate::commands::terminal::Output;
use crate::config;
use crate::config::{DataConfig, MlmConfig, PretrainConfig, PretrainTask, RunSection};
use crate::corpus::Side;
use crate::error::Problem;
use crate::shards::{Manifest, ShardSet};
use crate::tasks::pretraining::origin;
use crate::tasks::pretraining::shown::{evaluation_rows, first_rows};
use crate::tokenizer::Tokenizer;

/// Seed of the masks of every evaluation, independent of the seed of the run.
const EVALUATION_SEED: u64 = 0;

pub(super) fn run(args: &InspectArgs) -> Result<()> {
    let folders = Folders::find(&args.folder)?;
    let manifest = Manifest::read(&folders.shards)?;
    let side = match args.split {
        SplitName::Train => Side::Train,
        SplitName::Validation => Side::Validation,
    };
    let set = ShardSet::open(&folders.shards, side)?;
    let tokenizer = folders.tokenizer.as_deref().map(Tokenizer::load).transpose()?;
    let mut output = Output::stdout();
    if let Some(document) = args.document {
        document_lines(&set, document, needed(tokenizer.as_ref(), args)?)?
            .iter()
            .try_for_each(|line| output.line(line))?;
        return output.finish();
    }
    statistics::lines(&folders.shards, &manifest, &set, side, tokenizer.as_ref())?
        .iter()
        .try_for_each(|line| output.line(line))?;
    if args.rows > 0 && set.num_tokens() > 0 {
        let tokenizer = needed(tokenizer.as_ref(), args)?;
        let config = settings(args)?;
        let seed = args.seed.unwrap_or(config.as_ref().map_or(RunSection::default().seed, |c| c.run.seed));
        let (order, frame) = match (&config, side) {
            (Some(config), Side::Train) => first_rows(config, tokenizer, &set, &manifest)?,
            (Some(config), Side::Validation) => evaluation_rows(config, tokenizer)?,
            (None, side) => {
                let frame = Frame::new(tokenizer, DataConfig::default().max_seq_length)?;
                match side {
                    Side::Train => (Order::Shuffled { seed }, frame.with_chunks()),
                    Side::Validation => (Order::Fixed, frame),
                }
            }
        };
        let masking = match side {
            Side::Train => {
                let mlm = config.as_ref().map_or_else(MlmConfig::default, |config| config.mlm.clone());
                Masking::new(&mlm, tokenizer)?
            }
            Side::Validation => {
                let task = config.as_ref().map_or(PretrainTask::MaskedLm, PretrainConfig::task);
                Masking::for_evaluation(task, tokenizer)?
            }
        };
        let seed = if side == Side::Train { seed } else { EVALUATION_SEED };
        let set = Arc::new(set);
        let in_color = terminal::shows_colors();
        let mut rows = Rows { set, tokenizer, order, frame, masking, seed, in_color };
        rows.print(args.rows, &mut output)?;
    }
    output.finish()
}

/// Returns the tokenizer, or an error if there is none: text cannot be shown without it.
fn needed<'a>(tokenizer: Option<&'a Tokenizer>, args: &InspectArgs) -> Result<&'a Tokenizer> {
    Ok(tokenizer.ok_or_else(|| {
        Problem::new("has no tokenizer beside the shards, so that ids cannot be shown as text")
            .at(args.folder.display())
            .hint("`--rows 0` prints the statistics alone")
    })?)
}

/// Loads the configuration that defines rows and masks, if the user names one. If it starts from a model
/// folder, the task is that of the folder.
fn settings(args: &InspectArgs) -> Result<Option<PretrainConfig>> {
    let Some(path) = &args.config else { return Ok(None) };
    let mut config = origin::resolve(&config::load_pretrain(path, &[])?.config)?.0;
    config.run.seed = args.seed.unwrap_or(config.run.seed);
    Ok(Some(config))
}

fn document_lines(set: &ShardSet, index: u64, tokenizer: &Tokenizer) -> Result<Vec<String>> {
    let ids = set.document(index)?;
    let source = set.sources().iter().rfind(|source| source.first_document <= index && source.documents > 0);
    let source = source.map(|source| terminal::printable(&source.name)).unwrap_or_default();
    let mut lines = vec![format!("document {index} of source `{source}`: {} tokens", ids.len())];
    // Line ends are kept, unlike in rows: a document is printed for reading.
    lines.extend(rows::decode(tokenizer, &ids)?.lines().map(terminal::printable));
    Ok(lines)
}

//! `mlmtrain shards inspect`: statistics, then rows with their masks, or one document.

use std::sync::Arc;

use anyhow::Result;

use crate::batches::Frame;
use crate::batches::Order;
use crate::batches::Packing;
use crate::commands::shards::Folders;
use crate::commands::shards::args::InspectArgs;
use crate::commands::shards::args::SplitName;
use crate::commands::shards::rows;
use crate::commands::shards::rows::Rows;
use crate::commands::shards::statistics;
use crate::commands::terminal;
use crate::commands::terminal::Output;
use crate::config;
use crate::config::DataConfig;
use crate::config::MlmConfig;
use crate::config::RunSection;
use crate::corpus::Side;
use crate::error::Problem;
use crate::shards::Manifest;
use crate::shards::ShardSet;
use crate::tasks::pretraining;
use crate::tokenizer::Tokenizer;

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
        rows_of(args, set, side, tokenizer)?.print(args.rows, &mut output)?;
    }
    output.finish()
}

/// Text needs the tokenizer that made the ids.
fn needed<'a>(tokenizer: Option<&'a Tokenizer>, args: &InspectArgs) -> Result<&'a Tokenizer> {
    let missing = || {
        Problem::new("has no tokenizer beside the shards, so that ids cannot be shown as text")
            .at(args.folder.display())
            .hint("`--rows 0` prints the statistics alone")
    };
    Ok(tokenizer.ok_or_else(missing)?)
}

/// Rows as they train, or as they are evaluated, by the configuration or by the defaults.
fn rows_of<'a>(args: &InspectArgs, set: ShardSet, side: Side, tokenizer: &'a Tokenizer) -> Result<Rows<'a>> {
    let config = args.config.as_ref().map(|path| config::load_pretrain(path, &[])).transpose()?;
    let mut rows = if let Some(mut config) = config.map(|loaded| loaded.config) {
        config.run.seed = args.seed.unwrap_or(config.run.seed);
        let (order, frame) = (pretraining::order(&config, &set), pretraining::frame(&config, tokenizer)?);
        let (seed, mlm) = (config.run.seed, config.mlm);
        Rows { set: Arc::new(set), tokenizer, side, seed, order, frame, mlm, in_color: false }
    } else {
        let seed = args.seed.unwrap_or(RunSection::default().seed);
        let frame = Frame::new(tokenizer, DataConfig::default().max_seq_length)?.with_chunks();
        let (order, mlm) = (Order::Shuffled { seed }, MlmConfig::default());
        Rows { set: Arc::new(set), tokenizer, side, seed, order, frame, mlm, in_color: false }
    };
    rows.in_color = terminal::shows_colors();
    if side == Side::Validation {
        rows.order = Order::Fixed;
        if !matches!(rows.frame.packing, Packing::Pairs(_)) {
            rows.frame.packing = Packing::Segments;
        }
    }
    Ok(rows)
}

fn document_lines(set: &ShardSet, index: u64, tokenizer: &Tokenizer) -> Result<Vec<String>> {
    let ids = set.document(index)?;
    let source = set.sources().iter().rfind(|source| source.first_document <= index && source.documents > 0);
    let source = source.map(|source| terminal::printable(&source.name)).unwrap_or_default();
    let mut lines = vec![format!("document {index} of source `{source}`: {} tokens", ids.len())];
    // Line ends are kept here: this is the document as people read it.
    lines.extend(rows::decode(tokenizer, &ids)?.lines().map(terminal::printable));
    Ok(lines)
}

//! `mlmtrain prepare`: the stages before training, run as far as they are missing.

use anyhow::Result;

use crate::commands::cli::PrepareArgs;
use crate::commands::terminal;
use crate::config;
use crate::config::PretrainConfig;
use crate::quantity::format_bytes;
use crate::quantity::format_count;
use crate::shards;
use crate::shards::Prepared;
use crate::telemetry::Progress;
use crate::telemetry::Stage;
use crate::telemetry::Unit;
use crate::train::assemble;

/// Runs the subcommand.
pub fn run(args: &PrepareArgs) -> Result<()> {
    let loaded = config::load_pretrain(&args.config.config, &args.config.set)?;
    assemble::set_up(&loaded.config.run)?;
    let prepared = ensure_prepared(&loaded.config, &Progress::detect(terminal::is_quiet()))?;
    for line in summary(&loaded.config, &prepared) {
        terminal::stdout_line(&line)?;
    }
    Ok(())
}

/// Makes what is missing, with a progress bar for each stage.
pub(super) fn ensure_prepared(config: &PretrainConfig, progress: &Progress) -> Result<Prepared> {
    let mut current: Option<(shards::Stage, Stage, u64)> = None;
    let mut observer = |now: shards::Progress| {
        if current.as_ref().is_none_or(|(stage, ..)| *stage != now.stage) {
            finish(current.take());
            let unit = if now.stage.is_bytes() { Unit::Bytes } else { Unit::Items };
            current = Some((now.stage, progress.stage(now.stage.name(), unit, Some(now.total)), 0));
        }
        if let Some((_, bar, done)) = &mut current {
            bar.advance(now.done.saturating_sub(*done));
            *done = now.done;
        }
    };
    let prepared = shards::ensure_prepared(config, &mut observer);
    finish(current);
    prepared
}

fn finish(stage: Option<(shards::Stage, Stage, u64)>) {
    if let Some((_, bar, _)) = stage {
        bar.finish("done");
    }
}

/// What lies in the prepared folder, and what was left out of it.
pub(super) fn summary(config: &PretrainConfig, prepared: &Prepared) -> Vec<String> {
    let (manifest, folder) = (&prepared.manifest, config.prepared_dir());
    let made = if prepared.was_reused { "found" } else { "made" };
    let lines = vec![format!(
        "{made} `{}`: vocabulary {}, {} documents, {} tokens ({} for validation) of {} of text",
        folder.display(),
        prepared.tokenizer.vocab_size(),
        format_count(manifest.documents()),
        format_count(manifest.tokens()),
        format_count(manifest.validation.tokens),
        format_bytes(manifest.train.text_bytes + manifest.validation.text_bytes),
    )];
    lines
}

//! `mlmtrain prepare`: runs the stages before training whose results are missing.

use anyhow::Result;

use crate::commands::config_args::PrepareArgs;
use crate::commands::staging::Corpus;
use crate::commands::{staging, terminal, together};
use crate::config::PretrainConfig;
use crate::corpus::report::REPORT_HTML;
use crate::distributed::World;
use crate::prepare::{Prepared, Space};
use crate::quantity::{format_bytes, format_count};
use crate::tasks::pretraining;
use crate::tasks::pretraining::origin;
use crate::telemetry::{Progress, Stage, Unit};
use crate::train::signals::EndAtOnce;
use crate::{config, fs, machine, prepare};

/// Note about a preparation that a signal ends.
pub(super) const KEPT: &str = "finished parts of the preparation are kept: the same command continues";

/// Runs the subcommand.
pub fn run(args: &PrepareArgs) -> Result<()> {
    // If the configuration names a model folder, its tokenizer is used.
    let (config, _) = origin::resolve(&staging::pretraining(args.config.load()?.config, Corpus::Included)?)?;
    let (threads, world) = machine::set_up_threads_of_many(&config.run, &config.distributed)?;
    let progress = Progress::detect(terminal::is_quiet());
    let progress = together::begin(world, || config::to_yaml(&config), &config.run, progress)?;
    progress.note(&format!("working with {}", machine::threads_text(threads)));
    let _end_at_once = EndAtOnce::listen(&progress, KEPT)?;
    let prepared = ensure_prepared(world, &config, &progress)?;
    if !world.is_first() {
        return Ok(());
    }
    warn_of_lost_text(&config, &progress)?;
    let folder = config.prepared_dir();
    if let Some(report) = prepare::read_report(&folder)? {
        report.to_table().iter().try_for_each(|line| terminal::stdout_line(line))?;
        terminal::stdout_line("")?;
    }
    let packing = pretraining::packing(&config, &prepared.tokenizer, &prepared.train)?;
    let more = [format!("packing: {packing}"), format!("report: {}", folder.join(REPORT_HTML).display())];
    summary(&config, &prepared).iter().chain(&more).try_for_each(|line| terminal::stdout_line(line))
}

/// Makes the tokenizer and the shards if they are missing, with a progress bar for each stage.
pub(super) fn ensure_prepared(
    world: World,
    config: &PretrainConfig,
    progress: &Progress,
) -> Result<Prepared> {
    if world.is_first() && !fs::exists(&config.prepared_dir().join("shards")) {
        match Space::predict(config) {
            Ok(space) if space.is_tight() => progress.warn(&format!("the disk may become full: {space}")),
            Ok(space) => progress.note(&format!("disk: {space}")),
            // A file that cannot be read is an error of the first stage, with a better message.
            Err(_) => {}
        }
    }
    let mut current: Option<(prepare::Stage, Stage, u64)> = None;
    let mut observer = |now: prepare::Progress| {
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
    let prepared = prepare::ensure_prepared(world.processes, config, &mut observer);
    finish(current);
    prepared
}

fn finish(stage: Option<(prepare::Stage, Stage, u64)>) {
    if let Some((_, bar, _)) = stage {
        bar.finish("done");
    }
}

/// Share of the text of a source that is left out with a warning.
const MUCH_OF_A_SOURCE: f64 = 0.9;

/// Warns of sources of which nearly all was left out, and of those with much text that is unknown to the
/// tokenizer, according to the report of the prepared folder.
pub(super) fn warn_of_lost_text(config: &PretrainConfig, progress: &Progress) -> Result<()> {
    let Some(report) = prepare::read_report(&config.prepared_dir())? else { return Ok(()) };
    for source in &report.sources {
        let share = 1.0 - source.kept.bytes as f64 / source.read.bytes.max(1) as f64;
        let most = source.dropped.iter().max_by_key(|(_, amount)| amount.bytes);
        if let Some((reason, _)) = most.filter(|_| share > MUCH_OF_A_SOURCE) {
            progress.warn(&format!(
                "source `{}`: {:.1} % of its text is left out, most of it by `{reason}`; the report has examples",
                source.name,
                100.0 * share
            ));
        }
    }
    for (source, share) in &report.unknown_text {
        progress.warn(&format!(
            "source `{source}`: {:.0} % of its text, by bytes, is unknown to the tokenizer: a model learns nothing of \
             it (a tokenizer of the language knows it, or a larger `tokenizer.vocab_size`; byte-level ones know all)",
            100.0 * share
        ));
    }
    Ok(())
}

/// Returns lines about the content of the prepared folder, and about documents that were left out of it.
pub(super) fn summary(config: &PretrainConfig, prepared: &Prepared) -> Vec<String> {
    let manifest = &prepared.manifest;
    let folder = config.prepared_dir();
    let made = if prepared.was_reused { "found" } else { "made" };
    let mut lines = vec![format!(
        "{made} `{}`: vocabulary {}, {} documents, {} tokens ({} for validation) of {} of text",
        folder.display(),
        prepared.tokenizer.vocab_size(),
        format_count(manifest.documents()),
        format_count(manifest.tokens()),
        format_count(manifest.validation.tokens),
        format_bytes(manifest.train.text_bytes + manifest.validation.text_bytes),
    )];
    if manifest.without_tokens > 0 {
        lines.push(format!(
            "{} documents have no token in this vocabulary and were left out",
            format_count(manifest.without_tokens)
        ));
    }
    lines.extend(prepared.notes.iter().cloned());
    lines
}

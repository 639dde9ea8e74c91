//! Statistics of a folder of shards: documents, tokens, sizes, sources and lengths.

use std::path::Path;

use anyhow::Result;

use crate::commands::terminal::printable;
use crate::corpus::Side;
use crate::corpus::report::Lengths;
use crate::quantity::{format_bytes, format_grouped};
use crate::shards::{Manifest, ShardSet};
use crate::tokenizer::Tokenizer;

/// Width of the longest bar of the histogram.
const BAR: u64 = 40;

/// Digits of a tokenizer's fingerprint that are shown.
const FINGERPRINT: usize = 16;

/// Returns the lines of all statistics.
pub(super) fn lines(
    folder: &Path,
    manifest: &Manifest,
    set: &ShardSet,
    side: Side,
    tokenizer: Option<&Tokenizer>,
) -> Result<Vec<String>> {
    let mut lines = vec![format!("{}", folder.display())];
    let mut row = |name: &str, text: String| lines.push(format!("  {name:12} {text}"));
    let train = &manifest.train;
    let validation = &manifest.validation;
    let disk_bytes: u64 =
        train.shards.iter().chain(&validation.shards).map(|shard| shard.bytes).fold(0, u64::saturating_add);
    let text_bytes = train.text_bytes.saturating_add(validation.text_bytes);
    let tokens = manifest.tokens().max(1) as f64;
    row("documents", counts(train.documents, validation.documents));
    row("tokens", counts(train.tokens, validation.tokens));
    row("text", format!("{}, {:.2} bytes a token", format_bytes(text_bytes), text_bytes as f64 / tokens));
    let ratio = disk_bytes as f64 / text_bytes.max(1) as f64;
    let files = train.shards.len() + validation.shards.len();
    row(
        "on the disk",
        format!(
            "{} in {files} files: {:.2} bytes a token, {ratio:.2} of the text",
            format_bytes(disk_bytes),
            disk_bytes as f64 / tokens
        ),
    );
    row("vocabulary", format_grouped(manifest.vocab_size as u64));
    row("tokenizer", fingerprint(manifest, tokenizer));
    let name = if side == Side::Train { "training" } else { "validation" };
    lines.extend(sources(set, name));
    lines.extend(lengths(set, name)?);
    Ok(lines)
}

/// The sum of two counts, and both of them.
fn counts(train: u64, validation: u64) -> String {
    let all = format_grouped(train.saturating_add(validation));
    format!("{all} ({} train, {} validation)", format_grouped(train), format_grouped(validation))
}

/// The fingerprint of the tokenizer that made the shards, compared with the one in the same folder.
fn fingerprint(manifest: &Manifest, tokenizer: Option<&Tokenizer>) -> String {
    let short: String = manifest.tokenizer.chars().take(FINGERPRINT).collect();
    let beside = match tokenizer {
        None => "there is none beside the shards",
        Some(tokenizer) if tokenizer.fingerprint() == manifest.tokenizer => "the one beside the shards",
        Some(_) => "NOT the one beside the shards",
    };
    format!("{}: {beside}", printable(&short))
}

fn sources(set: &ShardSet, name: &str) -> Vec<String> {
    let mut lines = vec![String::new(), format!("sources of the {name} documents")];
    let width =
        set.sources().iter().map(|source| printable(&source.name).chars().count()).max().unwrap_or(0).min(40);
    for source in set.sources() {
        let share = 100.0 * source.tokens as f64 / set.num_tokens().max(1) as f64;
        let documents = format_grouped(source.documents);
        let tokens = format_grouped(source.tokens);
        lines.push(format!(
            "  {:width$}  {documents:>13} documents  {tokens:>15} tokens  {share:5.1} %",
            printable(&source.name)
        ));
    }
    lines
}

fn lengths(set: &ShardSet, name: &str) -> Result<Vec<String>> {
    let mut lengths = set.lengths()?;
    lengths.sort_unstable();
    let mut lines = vec![String::new(), format!("tokens of the {name} documents")];
    let (Some(first), Some(last)) = (lengths.first(), lengths.last()) else {
        lines.push("  there are none".to_string());
        return Ok(lines);
    };
    let [median, most] =
        [50, 90].map(|part| format_grouped(u64::from(lengths[(lengths.len() - 1) * part / 100])));
    let mean = set.num_tokens() as f64 / lengths.len() as f64;
    let [first, last] = [*first, *last].map(|length| format_grouped(u64::from(length)));
    lines.push(format!(
        "  shortest {first}, median {median}, mean {mean:.1}, 90 % up to {most}, longest {last}"
    ));
    let mut histogram = Lengths::default();
    for length in &lengths {
        histogram.add(u64::from(*length));
    }
    let highest = histogram.0.iter().copied().max().unwrap_or(1).max(1);
    for (bucket, &documents) in histogram.0.iter().enumerate().skip_while(|(_, documents)| **documents == 0) {
        // Rounded up, so that even one document has a bar.
        let columns = (documents * BAR).div_ceil(highest) as usize;
        let from = format_grouped(Lengths::least(bucket));
        lines.push(
            format!("  from {from:>9}  {:>13}  {}", format_grouped(documents), "█".repeat(columns))
                .trim_end()
                .to_string(),
        );
    }
    Ok(lines)
}

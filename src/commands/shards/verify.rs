//! `mlmtrain shards verify`: checks every file of a folder of shards and prints a line for each; a damaged
//! file does not stop the check.

use std::path::Path;

use anyhow::Result;
use rayon::prelude::*;

use crate::commands::shards::Folders;
use crate::commands::shards::args::VerifyArgs;
use crate::commands::terminal;
use crate::commands::terminal::Output;
use crate::error::Problem;
use crate::quantity::{format_bytes, format_grouped};
use crate::shards::{Manifest, ShardEntry, Verdict};
use crate::telemetry::{Progress, Unit};
use crate::tokenizer::Tokenizer;
use crate::{fs, shards};

pub(super) fn run(args: &VerifyArgs) -> Result<()> {
    let folders = Folders::find(&args.folder)?;
    let manifest = Manifest::read(&folders.shards)?;
    let entries: Vec<&ShardEntry> = manifest.train.shards.iter().chain(&manifest.validation.shards).collect();
    let total = entries.iter().fold(0u64, |sum, entry| sum.saturating_add(entry.bytes));
    let bar = Progress::detect(terminal::is_quiet()).stage("verifying", Unit::Bytes, Some(total));
    let mut verdicts = vec![(shards::verify_manifest(&folders.shards, &manifest), totals(&manifest))];
    let of_shards: Vec<Verdict> = entries
        .par_iter()
        .map(|entry| {
            let verdict = shards::verify_shard(&folders.shards, &manifest, entry);
            bar.advance(entry.bytes);
            verdict
        })
        .collect();
    verdicts.extend(of_shards.into_iter().zip(entries.iter().map(|entry| contents(entry))));
    if let Some(tokenizer) = &folders.tokenizer {
        verdicts.push((
            verify_tokenizer(tokenizer, &manifest),
            format!("vocabulary {}", format_grouped(manifest.vocab_size as u64)),
        ));
    }
    bar.finish("done");
    print(&folders, &manifest, &verdicts)?;
    let bad = verdicts.iter().filter(|(verdict, _)| verdict.result.is_err()).count();
    if bad == 0 {
        return Ok(());
    }
    Err(Problem::new(format!("{bad} of {} files are bad", verdicts.len()))
        .at(args.folder.display())
        .hint("remove the folder of the shards and prepare the text again")
        .into())
}

fn print(folders: &Folders, manifest: &Manifest, verdicts: &[(Verdict, String)]) -> Result<()> {
    let mut output = Output::stdout();
    for (verdict, contents) in verdicts {
        match &verdict.result {
            Ok(()) => output.line(&format!("ok    {}  {contents}", terminal::printable(&verdict.file)))?,
            // A message of several lines is joined into one.
            Err(e) => output.line(&format!(
                "BAD   {}",
                terminal::printable(&format!("{e:#}").replace("\n  hint: ", "; "))
            ))?,
        }
    }
    if folders.tokenizer.is_none() {
        output.line("none  tokenizer: there is none beside the shards to compare with")?;
    }
    for path in fs::list(&folders.shards)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name != shards::MANIFEST_JSON && !verdicts.iter().any(|(verdict, _)| verdict.file == name) {
            output.line(&format!("extra {}: the manifest does not name it", terminal::printable(&name)))?;
        }
    }
    let kind = if manifest.documents() == 1 { "document" } else { "documents" };
    output.line(&format!(
        "{} {kind}, {} tokens",
        format_grouped(manifest.documents()),
        format_grouped(manifest.tokens())
    ))?;
    output.finish()
}

fn totals(manifest: &Manifest) -> String {
    format!(
        "{} shards",
        format_grouped((manifest.train.shards.len() + manifest.validation.shards.len()) as u64)
    )
}

fn contents(entry: &ShardEntry) -> String {
    let documents = format_grouped(entry.documents);
    let tokens = format_grouped(entry.tokens);
    format!("{}, {documents} documents, {tokens} tokens", format_bytes(entry.bytes))
}

fn verify_tokenizer(folder: &Path, manifest: &Manifest) -> Verdict {
    Verdict { file: "tokenizer".to_string(), result: check_tokenizer(folder, manifest) }
}

/// Returns an error if the tokenizer in `folder` is not the one that made the shards.
fn check_tokenizer(folder: &Path, manifest: &Manifest) -> Result<()> {
    let tokenizer = Tokenizer::load(folder)?;
    if tokenizer.fingerprint() != manifest.tokenizer {
        return Err(Problem::new("is not the tokenizer that made the shards").at(folder.display()).into());
    }
    if tokenizer.vocab_size() != manifest.vocab_size {
        let message =
            format!("has {} entries, the manifest says {}", tokenizer.vocab_size(), manifest.vocab_size);
        return Err(Problem::new(message).at(folder.display()).into());
    }
    Ok(())
}

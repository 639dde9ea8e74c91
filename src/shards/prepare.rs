//! From raw text to shards: scan and split, train the tokenizer, tokenize; only the stages that are missing run.
//!
//! The folder holds `settings.json` (what everything depends on), `tokenizer/` and `shards/`. Work made with other
//! settings is never overwritten. The bytes written do not depend on the number of threads.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use serde_json::Value;

use crate::config::PretrainConfig;
use crate::corpus::Corpus;
use crate::corpus::Document;
use crate::corpus::Item;
use crate::corpus::Scan;
use crate::corpus::Side;
use crate::error::Problem;
use crate::fs;
use crate::fs::FolderLock;
use crate::shards::MANIFEST_JSON;
use crate::shards::Manifest;
use crate::shards::ShardSet;
use crate::shards::ShardWriter;
use crate::shards::manifest;
use crate::shards::settings;
use crate::tokenizer::BpeOptions;
use crate::tokenizer::BpeTrainer;
use crate::tokenizer::Tokenizer;

/// Text is handed to the threads in portions of about this many bytes.
const PORTION_BYTES: u64 = 4 << 20;

/// A document gives the tokenizer's training a slice of at least this many bytes, or all that it has.
const SLICE_BYTES_MIN: u64 = 4 << 10;

const SETTINGS_BYTES_MAX: u64 = 64 << 20;

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Reading the corpus once to count and split it; progress in bytes of the files.
    Scan,
    /// Counting words for the tokenizer; progress in bytes of text.
    CountWords,
    /// Learning the vocabulary; progress in entries.
    LearnVocabulary,
    /// Tokenizing and writing shards; progress in bytes of text.
    Tokenize,
}

impl Stage {
    /// What to show beside a progress bar.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scan => "reading the corpus",
            Self::CountWords => "counting words",
            Self::LearnVocabulary => "learning the vocabulary",
            Self::Tokenize => "tokenizing",
        }
    }

    /// Whether progress is in bytes (else in entries of the vocabulary).
    pub fn is_bytes(self) -> bool {
        self != Self::LearnVocabulary
    }
}

/// How far a stage has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The stage.
    pub stage: Stage,
    /// Bytes or entries done.
    pub done: u64,
    /// Bytes or entries in all.
    pub total: u64,
}

/// The tokenizer and the shards, ready for training.
pub struct Prepared {
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// Documents for training.
    pub train: ShardSet,
    /// Documents for evaluation; empty when `data.validation_fraction` is 0.
    pub validation: ShardSet,
    /// Counts and hashes.
    pub manifest: Manifest,
    /// Whether everything was there already.
    pub was_reused: bool,
}

/// Makes what is missing of tokenizer and shards in the prepared folder, and opens them verified.
///
/// Work that was made with other settings is an error that names the settings that differ.
pub fn ensure_prepared(config: &PretrainConfig, observer: &mut dyn FnMut(Progress)) -> Result<Prepared> {
    let job = Job::new(config)?;
    let _lock = FolderLock::take(&job.folder)?;
    job.agree_on_settings()?;
    let tokenizer_folder = job.folder.join("tokenizer");
    let was_reused = job.is_complete;
    let mut scan = None;
    if !fs::is_folder(&tokenizer_folder) {
        let tokenizer = match &job.given {
            Some(given) => given,
            None => &train_tokenizer(config, job.corpus()?, job.scan(&mut scan, observer)?, observer)?,
        };
        write_tokenizer(tokenizer, &tokenizer_folder)?;
    }
    let tokenizer = Tokenizer::load(&tokenizer_folder)?;
    let shards = job.shards();
    if !was_reused {
        job.write_shards(&tokenizer, job.scan(&mut scan, observer)?, observer)?;
    }
    let manifest = Manifest::read(&shards)?;
    if manifest.tokenizer != tokenizer.fingerprint() || manifest.settings_sha256 != settings::sha256(&job.stored_settings()?) {
        return Err(Problem::new("was not made with the tokenizer and the settings that lie beside it")
            .at(shards.join(MANIFEST_JSON).display())
            .hint(format!("remove the folder `{}` to make the shards again", shards.display()))
            .into());
    }
    let train = ShardSet::open_with(&shards, &manifest, Side::Train)?;
    let validation = ShardSet::open_with(&shards, &manifest, Side::Validation)?;
    Ok(Prepared { tokenizer, train, validation, manifest, was_reused })
}

/// One call of [`ensure_prepared`].
struct Job<'a> {
    config: &'a PretrainConfig,
    folder: PathBuf,
    is_complete: bool,
    /// An error when files are missing, which matters only if they must be read.
    corpus: Result<Corpus>,
    given: Option<Tokenizer>,
    settings: Value,
}

impl<'a> Job<'a> {
    fn new(config: &'a PretrainConfig) -> Result<Self> {
        let folder = config.prepared_dir();
        let is_complete = fs::exists(&folder.join("shards").join(MANIFEST_JSON)) && fs::is_folder(&folder.join("tokenizer"));
        let corpus = Corpus::open(&config.data);
        let corpus = if is_complete { corpus } else { Ok(corpus?) };
        let given = config.tokenizer.path.as_deref().map(Tokenizer::load).transpose()?;
        if let Some(given) = &given {
            given.special().mask().context("`tokenizer.path` cannot be used for pretraining")?;
        }
        let settings = settings::of(config, corpus.as_ref().ok(), given.as_ref());
        Ok(Self { config, folder, is_complete, corpus, given, settings })
    }

    fn shards(&self) -> PathBuf {
        self.folder.join("shards")
    }

    fn corpus(&self) -> Result<&Corpus> {
        self.corpus.as_ref().map_err(|e| Problem::new(e.to_string()).into())
    }

    fn stored_settings(&self) -> Result<Value> {
        let path = self.folder.join("settings.json");
        let text = fs::read_text_capped(&path, SETTINGS_BYTES_MAX)?;
        Ok(serde_json::from_str(&text).map_err(|e| Problem::new(format!("is broken: {e}")).at(path.display()))?)
    }

    /// Writes the settings into an empty folder; elsewhere they must be those that lie there.
    fn agree_on_settings(&self) -> Result<()> {
        let path = self.folder.join("settings.json");
        let has_work = fs::exists(&self.folder.join("tokenizer")) || fs::exists(&self.shards());
        if !has_work {
            return fs::write_bytes(&path, format!("{:#}\n", self.settings).as_bytes());
        }
        let (mut stored, mut wanted) = (self.stored_settings()?, self.settings.clone());
        if self.corpus.is_err() {
            // Finished shards outlive the raw text: a machine that only trains need not have it.
            stored["files"].take();
            wanted["files"].take();
        }
        let differences = settings::differences(&stored, &wanted);
        if differences.is_empty() {
            return Ok(());
        }
        Err(Problem::usage(format!("was prepared with other settings: {}", differences.join("; ")))
            .at(self.folder.display())
            .hint("set the old values again, choose another `data.prepared_dir`, or remove this folder to prepare anew")
            .into())
    }

    fn scan(&self, known: &mut Option<Scan>, observer: &mut dyn FnMut(Progress)) -> Result<Scan> {
        if let Some(scan) = known {
            return Ok(*scan);
        }
        let corpus = self.corpus()?;
        let mut meter = Meter::new(Stage::Scan, corpus.size_bytes(), observer);
        let scan = Scan::of(corpus, self.config.data.validation_fraction, |position| meter.at(position))?;
        Ok(*known.insert(scan))
    }

    fn write_shards(&self, tokenizer: &Tokenizer, scan: Scan, observer: &mut dyn FnMut(Progress)) -> Result<()> {
        let folder = self.shards();
        // Without a manifest, whatever lies here is the rest of an interrupted run with the same settings.
        fs::remove_folder(&folder)?;
        let writer = |side| ShardWriter::new(&folder, side, tokenizer.fingerprint(), tokenizer.vocab_size(), self.config.data.shard_tokens);
        let (mut train, mut validation) = (writer(Side::Train), writer(Side::Validation));
        let (mut meter, mut without_tokens) = (Meter::new(Stage::Tokenize, scan.bytes, observer), 0);
        for_each_portion(self.corpus()?, |texts| {
            for (text, ids) in texts.iter().zip(tokenizer.encode_corpus(texts)?) {
                if ids.is_empty() {
                    without_tokens += 1;
                    continue;
                }
                let writer = if scan.split.side(text) == Side::Train { &mut train } else { &mut validation };
                writer.push(&ids, text.len() as u64)?;
            }
            meter.add(texts);
            Ok(())
        })?;
        let made = Manifest {
            version: Manifest::VERSION,
            settings_sha256: settings::sha256(&self.stored_settings()?),
            tokenizer: tokenizer.fingerprint().to_string(),
            vocab_size: tokenizer.vocab_size(),
            sources: self.corpus()?.source_names().to_vec(),
            documents_read: scan.documents,
            without_tokens,
            train: train.finish()?,
            validation: validation.finish()?,
        };
        if made.train.tokens == 0 {
            let message = format!("no {} document has a token", manifest::name_of(Side::Train));
            return Err(Problem::new(message).at("data.sources").into());
        }
        made.write(&folder)
    }
}

fn train_tokenizer(config: &PretrainConfig, corpus: &Corpus, scan: Scan, observer: &mut dyn FnMut(Progress)) -> Result<Tokenizer> {
    let model = config.model().ok_or_else(|| Problem::usage("wants exactly one family: `roberta` or `bert`").at("model"))?;
    let mut trainer = BpeTrainer::new(BpeOptions {
        family: model.family,
        vocab_size: config.tokenizer.vocab_size,
        min_frequency: config.tokenizer.min_frequency,
        model_max_length: model.max_sequence_length(),
    })?;
    let mut sample = Sample { budget: config.tokenizer.train_bytes, total: scan.train_bytes.max(1), seen: 0, taken: 0 };
    let mut meter = Meter::new(Stage::CountWords, scan.bytes, observer);
    for_each_portion(corpus, |texts| {
        // The tokenizer sees no validation text, as the model does not.
        let train = texts.iter().filter(|text| scan.split.side(text) == Side::Train);
        let slices: Vec<&str> = train.map(|text| sample.slice(text)).filter(|slice| !slice.is_empty()).collect();
        meter.add(texts);
        trainer.add(&slices)
    })?;
    let total = config.tokenizer.vocab_size as u64;
    trainer.finish(|entries| {
        if entries % 256 == 0 {
            observer(Progress { stage: Stage::LearnVocabulary, done: entries as u64, total });
        }
    })
}

fn write_tokenizer(tokenizer: &Tokenizer, folder: &Path) -> Result<()> {
    let temporary = folder.with_file_name(".tmp-tokenizer");
    fs::remove_folder(&temporary)?;
    for (name, bytes) in tokenizer.files() {
        fs::write_bytes(&temporary.join(name), bytes)?;
    }
    fs::publish_folder(&temporary, folder)
}

/// Takes at most `budget` of `total` bytes, spread evenly over the documents.
struct Sample {
    budget: u64,
    total: u64,
    seen: u64,
    taken: u64,
}

impl Sample {
    /// The part of `text` to train on: all of it, its beginning, or nothing.
    fn slice<'a>(&mut self, text: &'a str) -> &'a str {
        let len = text.len() as u64;
        self.seen += len;
        let due = (u128::from(self.budget) * u128::from(self.seen) / u128::from(self.total)).min(u128::from(self.budget)) as u64;
        let room = due.saturating_sub(self.taken);
        if self.budget >= self.total {
            return text;
        }
        // Slices below the minimum would be cut words; the room adds up until one is worth taking.
        if room < len.min(SLICE_BYTES_MIN.min(self.budget)) {
            return "";
        }
        let mut end = room.min(len) as usize;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.taken += end as u64;
        &text[..end]
    }
}

fn for_each_portion(corpus: &Corpus, mut work: impl FnMut(&[String]) -> Result<()>) -> Result<()> {
    let (mut texts, mut bytes) = (Vec::new(), 0);
    for document in corpus.documents() {
        let Item::Document(Document { text, .. }) = document? else { continue };
        bytes += text.len() as u64;
        texts.push(text);
        if bytes >= PORTION_BYTES {
            work(&texts)?;
            texts.clear();
            bytes = 0;
        }
    }
    work(&texts)
}

/// Tells the observer about each further mebibyte.
struct Meter<'a> {
    progress: Progress,
    told: u64,
    observer: &'a mut dyn FnMut(Progress),
}

impl<'a> Meter<'a> {
    fn new(stage: Stage, total: u64, observer: &'a mut dyn FnMut(Progress)) -> Self {
        let progress = Progress { stage, done: 0, total };
        observer(progress);
        Self { progress, told: 0, observer }
    }

    fn at(&mut self, done: u64) {
        self.progress.done = done;
        if done >= self.told + (1 << 20) || (done == self.progress.total && done > self.told) {
            self.told = done;
            (self.observer)(self.progress);
        }
    }

    fn add(&mut self, texts: &[String]) {
        self.at(self.progress.done + texts.iter().map(|text| text.len() as u64).sum::<u64>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_keeps_its_budget_and_is_spread_evenly() {
        let text = "a ".repeat(50_000);
        let mut sample = Sample { budget: 200_000, total: 1_000_000, seen: 0, taken: 0 };
        let taken: Vec<usize> = (0..10).map(|_| sample.slice(&text).len()).collect();
        assert_eq!(taken, [20_000; 10]);
        let mut whole = Sample { budget: 10, total: 10, seen: 0, taken: 0 };
        assert_eq!(whole.slice("short text"), "short text");
        let mut tiny = Sample { budget: 100, total: 1000, seen: 0, taken: 0 };
        let taken: usize = (0..100).map(|_| tiny.slice("ten bytes.").len()).sum();
        assert!((90..=100).contains(&taken), "{taken}");
    }
}

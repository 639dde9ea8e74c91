//! One call of [`ensure_prepared`]: finds the missing stages and runs them in order.
//!
//! Each stage has a file of its own.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::corpus::report::{REPORT_HTML, REPORT_JSON};
use crate::corpus::{Corpus, Curated, Scan, Side, Step, content_hashes, remove_documents};
use crate::prepare::files::Compared;
use crate::prepare::meter::{Meter, Progress, Stage};
use crate::prepare::space::Space;
use crate::prepare::{encode, files, report, settings, text, tokenize, vocabulary};
use crate::shards::{MANIFEST_JSON, Manifest, ShardSet};
use crate::tokenizer::{Fertility, MUCH_UNKNOWN, Tokenizer, UnknownText};
use base::error::Problem;
use base::fs;
use base::fs::{FolderLock, Output};
use base::pages::html::is_page;
use base::processes::Processes;
use base::sealed::write_sealed;
use config::PretrainConfig;

/// Shuffle windows whose shards are cached: the current one, the one before, from which rows may still be
/// made, and the one after.
const WINDOWS_AT_ONCE: usize = 3;

/// Recognizes by its first bytes a file that mlmtrain wrote.
type IsOwn = fn(&[u8]) -> bool;

const SETTINGS_JSON: &str = "settings.json";

const SETTINGS_BYTES_MAX: u64 = 64 << 20;

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
    /// True if nothing had to be made.
    pub was_reused: bool,
    /// Notes for the log about listing the files and training the tokenizer.
    pub notes: Vec<String>,
}

/// Makes the missing parts of tokenizer and shards in the prepared folder, and opens them verified.
///
/// A folder that was prepared with other settings is an error that names the settings that differ. Processes
/// that share the folder divide the work; rank 0 alone combines their results, learns the vocabulary from the
/// word counts of all, and writes the files that do not belong to a part of the documents.
pub fn ensure_prepared(
    processes: Processes,
    config: &PretrainConfig,
    observer: &mut dyn FnMut(Progress),
) -> Result<Prepared> {
    if processes.is_first() {
        let (job, notes) = make(processes, config, observer)?;
        processes.wait_for_all()?;
        return open(&job, notes);
    }
    let job = Job::new(config)?;
    if processes.from_first(None)? {
        job.help(processes, observer)?;
    }
    processes.wait_for_all()?;
    open(&Job::new(config)?, Vec::new())
}

/// Returns an error if [`ensure_prepared`] would refuse the prepared folder because of its settings. Writes
/// nothing, and compares the files of the corpus only if they are there.
pub fn require_same_settings(config: &PretrainConfig) -> Result<()> {
    let job = Job::with_any_corpus(config)?;
    if job.has_work() { job.require_same_settings().map(drop) } else { job.require_own_files() }
}

/// Runs the missing stages on rank 0, under the lock of the folder, and returns the notes about them.
fn make<'a>(
    processes: Processes,
    config: &'a PretrainConfig,
    observer: &mut dyn FnMut(Progress),
) -> Result<(Job<'a>, Vec<String>)> {
    let mut job = Job::new(config)?;
    let mut notes = Vec::new();
    if job.is_complete {
        processes.from_first(Some(false))?;
        // A complete folder no longer changes, so reading it needs no lock. Leftovers of a killed run only
        // take space: they are removed if the lock is free.
        job.agree_on_settings()?;
        if let Ok(Some(_lock)) = FolderLock::take_if_free(&job.folder) {
            job.tidy()?;
        }
    } else {
        let _lock = FolderLock::wait_for(&job.folder, || {
            observer(Progress { stage: Stage::Wait, done: 0, total: 0 });
        })?;
        // The run that held the lock may have prepared everything.
        job = Job::new(config)?;
        job.agree_on_settings()?;
        processes.from_first(Some(!job.is_complete))?;
        if !job.is_complete {
            notes = job.make(processes, observer)?;
        }
        job.tidy()?;
    }
    if config.data.save_text && !fs::is_folder(&job.text()) {
        notes.push(format!(
            "`data.save_text` has no effect: the shards were made without it; remove the folder `{}` to prepare anew",
            job.folder.display()
        ));
    }
    Ok((job, notes))
}

/// Opens the tokenizer and the shards of a complete folder, and checks that they belong together.
fn open(job: &Job<'_>, notes: Vec<String>) -> Result<Prepared> {
    let config = job.config;
    let tokenizer = Tokenizer::load(&job.tokenizer())?;
    let shards = job.shards();
    let manifest = Manifest::read(&shards)?;
    if manifest.tokenizer != tokenizer.fingerprint()
        || manifest.settings_sha256 != settings::sha256(&job.stored_settings()?)
    {
        return Err(Problem::new("was not made with the tokenizer and the settings that lie beside it")
            .at(shards.join(MANIFEST_JSON).display())
            .hint(format!("remove the folder `{}` to make the shards again", shards.display()))
            .into());
    }
    // Limits the cache of shards in a bucket: the shards of a window stay cached until the next window is
    // used up, while the window after that is downloaded.
    let most = config.data.shuffle_window_shards.map(|window| WINDOWS_AT_ONCE.saturating_mul(window));
    let train = ShardSet::open_with(&shards, &manifest, Side::Train, most)?;
    let validation = ShardSet::open_with(&shards, &manifest, Side::Validation, None)?;
    Ok(Prepared { tokenizer, train, validation, manifest, was_reused: job.is_complete, notes })
}

/// Inputs of one call of [`ensure_prepared`].
struct Job<'a> {
    config: &'a PretrainConfig,
    folder: PathBuf,
    is_complete: bool,
    /// An error if files are missing; reported only if they must be read.
    corpus: Result<Corpus>,
    given: Option<Tokenizer>,
    settings: Value,
}

impl<'a> Job<'a> {
    /// Returns the job of a configuration; an error if files of the corpus are missing and must be read.
    fn new(config: &'a PretrainConfig) -> Result<Self> {
        let job = Self::with_any_corpus(config)?;
        if job.is_complete { Ok(job) } else { Ok(Self { corpus: Ok(job.corpus?), ..job }) }
    }

    fn with_any_corpus(config: &'a PretrainConfig) -> Result<Self> {
        let folder = config.prepared_dir();
        let is_complete = fs::exists(&folder.join("shards").join(MANIFEST_JSON))
            && fs::is_folder(&folder.join("tokenizer"));
        let corpus = Corpus::open(&config.data);
        let given = config.tokenizer.path.as_deref().map(Tokenizer::load).transpose()?;
        if let Some(given) = &given {
            given.special().mask().context("`tokenizer.path` cannot be used for pretraining")?;
        }
        let settings = settings::from_config(config, corpus.as_ref().ok(), given.as_ref())?;
        Ok(Self { config, folder, is_complete, corpus, given, settings })
    }

    fn documents(&self) -> PathBuf {
        self.folder.join("documents")
    }

    fn tokenizer(&self) -> PathBuf {
        self.folder.join("tokenizer")
    }

    fn shards(&self) -> PathBuf {
        self.folder.join("shards")
    }

    fn text(&self) -> PathBuf {
        self.folder.join("text")
    }

    fn corpus(&self) -> Result<&Corpus> {
        self.corpus.as_ref().map_err(|e| Problem::new(e.to_string()).into())
    }

    fn stored_settings(&self) -> Result<Value> {
        let path = self.folder.join(SETTINGS_JSON);
        let text = fs::read_text_capped(&path, SETTINGS_BYTES_MAX)?;
        Ok(serde_json::from_str(&text)
            .map_err(|e| Problem::new(format!("is broken: {e}")).at(path.display()))?)
    }

    /// Returns true if the folder holds prepared work, finished or not.
    fn has_work(&self) -> bool {
        let folders = [self.documents(), self.tokenizer(), self.shards()];
        folders.iter().any(|folder| fs::list(folder).is_ok_and(|files| !files.is_empty()))
    }

    /// Writes the settings into a folder without prepared work; elsewhere they must equal the settings stored
    /// there.
    fn agree_on_settings(&self) -> Result<()> {
        if !self.has_work() {
            self.require_own_files()?;
            let path = self.folder.join(SETTINGS_JSON);
            return fs::write_bytes(&path, format!("{:#}\n", self.settings).as_bytes());
        }
        if self.require_same_settings()?.has_copies {
            self.store_times();
        }
        Ok(())
    }

    /// Returns an error if the settings differ from those stored in the folder.
    fn require_same_settings(&self) -> Result<Compared> {
        let mut stored = self.stored_settings()?;
        let mut wanted = self.settings.clone();
        let mut compared = Compared::default();
        if let Ok(corpus) = &self.corpus {
            compared = files::compare(&stored, &wanted, corpus)?;
        } else {
            // Finished shards outlive the raw text: a machine that only trains need not have it.
            stored["files"].take();
            wanted["files"].take();
        }
        files::forget(&mut stored);
        files::forget(&mut wanted);
        // A model that was trained on this folder has the tokenizer that was trained here.
        if stored["tokenizer"] != wanted["tokenizer"]
            && let Ok(trained) = Tokenizer::load(&self.tokenizer())
            && wanted["tokenizer"] == settings::given_tokenizer(&trained)
        {
            wanted["tokenizer"] = stored["tokenizer"].clone();
        }
        let mut differences = settings::differences(&stored, &wanted);
        differences.append(&mut compared.differences);
        if differences.is_empty() {
            return Ok(compared);
        }
        // The family is that of the model: `tokenizer.family` is no key to set again.
        let is_family = stored["tokenizer"]["family"] != wanted["tokenizer"]["family"];
        let restore = if is_family {
            "one text for several families is prepared once with `data.save_text: true`; "
        } else {
            "set the old values again, "
        };
        Err(Problem::usage(format!("was prepared with other settings: {}", differences.join("; ")))
            .at(self.folder.display())
            .hint(format!(
                "{restore}choose another `data.prepared_dir`, or remove this folder, if no other run needs it, to \
                 prepare anew"
            ))
            .into())
    }

    /// Refuses a folder in which files that mlmtrain did not write have the names of its outputs.
    fn require_own_files(&self) -> Result<()> {
        let own: [(&str, IsOwn); 3] = [
            (SETTINGS_JSON, |head| head.starts_with(b"{\n  \"version\": ")),
            (REPORT_JSON, |head| head.starts_with(b"{\n  \"version\": ")),
            (REPORT_HTML, is_page),
        ];
        let paths = own.map(|(name, is_own)| (self.folder.join(name), is_own));
        let outputs: Vec<Output<'_>> = paths
            .iter()
            .map(|(path, is_own)| Output { is_own: *is_own, ..Output::new("data.prepared_dir", path) })
            .collect();
        fs::require_outputs(&outputs, &[], false)
    }

    /// Stores the new modification times of files whose content is unchanged, so that they are not hashed
    /// again. If the settings cannot be written, the next call hashes these files again.
    fn store_times(&self) {
        let Ok(stored) = self.stored_settings() else { return };
        let hashes: Vec<Option<String>> = files::recorded(&stored);
        let mut settings = self.settings.clone();
        files::record(&mut settings, &hashes);
        let _ = fs::write_bytes(&self.folder.join(SETTINGS_JSON), format!("{settings:#}\n").as_bytes());
    }

    /// Stores the hashes of the files as they were read: by these, [`files::compare`] distinguishes a changed
    /// file from a copy.
    fn store_hashes(&self) -> Result<()> {
        let hashes = content_hashes(&self.documents())?;
        let mut stored = self.stored_settings()?;
        let before = stored.clone();
        files::record(&mut stored, &hashes);
        if stored == before {
            return Ok(());
        }
        fs::write_bytes(&self.folder.join(SETTINGS_JSON), format!("{stored:#}\n").as_bytes())
    }

    /// Does this process's share of the work of [`Self::make`], which rank 0 runs.
    fn help(&self, processes: Processes, observer: &mut dyn FnMut(Progress)) -> Result<()> {
        let corpus = self.corpus()?;
        let data = &self.config.data;
        let curated =
            Curated::make(processes, corpus, data, &self.documents(), &mut report_stages(observer))?;
        // If nothing is kept, rank 0 reports it.
        let is_to_train = processes.from_first(None)?;
        if is_to_train {
            vocabulary::help(processes, self.config, &curated.kept, &curated.scan()?)?;
        }
        encode::help(processes, &curated.kept, &self.tokenizer())
    }

    /// Runs all stages that are not done; returns notes about the files and the training of the tokenizer.
    fn make(&self, processes: Processes, observer: &mut dyn FnMut(Progress)) -> Result<Vec<String>> {
        let corpus = self.corpus()?;
        let data = &self.config.data;
        // Loaded first: a wrong path should fail now, not after hours of work.
        let compare_with = self.config.tokenizer.compare_with.as_deref().map(Tokenizer::load).transpose()?;
        for folder in [&self.folder, &self.documents(), &self.shards()] {
            fs::remove_leftovers(folder)?;
        }
        if !fs::exists(&self.documents()) && !fs::exists(&self.shards()) {
            Space::predict_for(self.config, corpus, &self.folder)?.require(&self.folder)?;
        }
        let curated =
            Curated::make(processes, corpus, data, &self.documents(), &mut report_stages(observer))?;
        self.store_hashes()?;
        let sources = corpus.source_names();
        let report_folder = &self.folder;
        report::without_tokens(&curated).write(report_folder)?;
        // If there is nothing to train on, the documents are removed, so that the next call starts afresh;
        // the report stays.
        let scan = curated.scan().or_else(|e| remove_documents(&self.documents()).and(Err(e)))?;
        let mut notes = self.given.as_ref().map_or_else(Vec::new, |given| given.notes().to_vec());
        notes.extend(corpus.notes().to_vec());
        let has_tokenizer = fs::is_folder(&self.tokenizer());
        let is_to_train = !has_tokenizer && self.given.is_none();
        processes.from_first(Some(is_to_train))?;
        if !has_tokenizer {
            let trained = if is_to_train {
                Some(vocabulary::train(processes, self.config, &curated.kept, &scan, observer)?)
            } else {
                None
            };
            let tokenizer = self.given.as_ref().or(trained.as_ref().map(|trained| &trained.tokenizer));
            write_tokenizer(tokenizer.context("a tokenizer is given or trained")?, &self.tokenizer())?;
            notes.extend(trained.map(|trained| trained.notes).unwrap_or_default());
        }
        let tokenizer = Tokenizer::load(&self.tokenizer())?;
        let Made { manifest, fertility, unknown_text } =
            self.write_shards(processes, &curated, &scan, &tokenizer, sources, observer)?;
        report::with_tokens(&curated, &scan, &tokenizer, compare_with.as_ref(), &manifest, &fertility)?
            .with_unknown_text(unknown_text)
            .write(report_folder)?;
        if data.save_text {
            let bytes = scan.train.bytes + scan.validation.bytes;
            let mut meter = Meter::new(Stage::WriteText, bytes, observer);
            text::write(&curated.kept, scan.split, sources, &self.text(), &mut meter)?;
        }
        manifest.write(&self.shards())?;
        Ok(notes)
    }

    /// Removes files that only unfinished work needs, and those left by a run that was killed before it did
    /// so.
    fn tidy(&self) -> Result<()> {
        tokenize::forget(&self.shards())?;
        if self.config.data.keep_documents { Ok(()) } else { remove_documents(&self.documents()) }
    }

    /// Tokenizes the kept documents into shards. The caller has to write the manifest, which makes them
    /// complete.
    fn write_shards(
        &self,
        processes: Processes,
        curated: &Curated,
        scan: &Scan,
        tokenizer: &Tokenizer,
        sources: &[String],
        observer: &mut dyn FnMut(Progress),
    ) -> Result<Made> {
        let folder = self.shards();
        let settings_sha256 = settings::sha256(&self.stored_settings()?);
        let options = tokenize::Options {
            folder: &folder,
            settings_sha256: &settings_sha256,
            shard_tokens: self.config.data.shard_tokens,
            sources: sources.len(),
        };
        let mut meter = Meter::new(Stage::Tokenize, scan.train.bytes + scan.validation.bytes, observer);
        let [train, validation] =
            tokenize::run(processes, &curated.kept, scan.split, tokenizer, &options, &mut meter)?;
        let unknown_text = unknown_text(sources, &train.unknown_text);
        let mut fertility = train.fertility;
        fertility.iter_mut().zip(&validation.fertility).for_each(|(all, more)| all.merge(more));
        let manifest = Manifest {
            version: Manifest::VERSION,
            settings_sha256,
            tokenizer: tokenizer.fingerprint().to_string(),
            vocab_size: tokenizer.vocab_size(),
            sources: sources.to_vec(),
            documents_read: curated.tally.sources.iter().map(|source| source.read.documents).sum(),
            without_tokens: train.without_tokens + validation.without_tokens,
            train: train.written,
            validation: validation.written,
        };
        if manifest.train.tokens == 0 {
            return Err(Problem::new("no train document has a token").at("data.sources").into());
        }
        Ok(Made { manifest, fertility, unknown_text })
    }
}

/// Results of tokenizing, other than the shards.
struct Made {
    manifest: Manifest,
    /// How well the tokenizer fits each source.
    fertility: Vec<Fertility>,
    /// Sources with much text that the tokenizer does not know, each with the unknown share of its text.
    unknown_text: Vec<(String, f64)>,
}

/// Returns the sources of whose text at least the share [`MUCH_UNKNOWN`] is unknown to the tokenizer, with
/// that share. `found` has for each source the unknown bytes and the bytes that were checked.
fn unknown_text(sources: &[String], found: &[(u64, u64)]) -> Vec<(String, f64)> {
    let shares = found
        .iter()
        .map(|&(unknown_bytes, looked_at_bytes)| UnknownText { unknown_bytes, looked_at_bytes }.share());
    sources.iter().cloned().zip(shares).filter(|(_, share)| *share >= MUCH_UNKNOWN).collect()
}

/// Returns a callback that reports the steps of curating to `observer` as stages.
fn report_stages(observer: &mut dyn FnMut(Progress)) -> impl FnMut(Step, u64, u64) {
    |step, done, total| {
        let stage = match step {
            Step::Read => Stage::Read,
            Step::Compare => Stage::Compare,
            Step::Count => Stage::Count,
        };
        observer(Progress { stage, done, total });
    }
}

fn write_tokenizer(tokenizer: &Tokenizer, folder: &Path) -> Result<()> {
    let temporary = folder.with_file_name(".tmp-tokenizer");
    fs::remove_folder(&temporary)?;
    write_sealed(&temporary, 0, tokenizer.files())?;
    fs::publish_folder(&temporary, folder)
}

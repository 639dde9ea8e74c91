//! One call of [`ensure_prepared`]: which stages are missing, and running them in order.
//!
//! What a stage does stands in its own file.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use serde_json::Value;

use crate::checkpoint::Part;
use crate::checkpoint::Snapshot;
use crate::checkpoint::write_sealed;
use crate::config::PretrainConfig;
use crate::corpus::Corpus;
use crate::corpus::Curated;
use crate::corpus::Scan;
use crate::corpus::Side;
use crate::corpus::Step;
use crate::corpus::content_hashes;
use crate::corpus::remove_documents;
use crate::corpus::report::REPORT_HTML;
use crate::corpus::report::REPORT_JSON;
use crate::distributed::World;
use crate::error::Problem;
use crate::fs;
use crate::fs::FolderLock;
use crate::fs::Output;
use crate::pages::html::is_page;
use crate::prepare::encode;
use crate::prepare::files;
use crate::prepare::files::Compared;
use crate::prepare::meter::Meter;
use crate::prepare::meter::Progress;
use crate::prepare::meter::Stage;
use crate::prepare::report;
use crate::prepare::settings;
use crate::prepare::space::Space;
use crate::prepare::tokenize;
use crate::prepare::vocabulary;
use crate::shards::MANIFEST_JSON;
use crate::shards::Manifest;
use crate::shards::ShardSet;
use crate::tokenizer::Fertility;
use crate::tokenizer::MUCH_UNKNOWN;
use crate::tokenizer::Tokenizer;
use crate::tokenizer::UnknownText;

/// The window at hand, the one before, from which rows may still be made, and the one after.
const WINDOWS_AT_ONCE: usize = 3;

/// Tells by its first bytes a file that was written here.
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
    /// Whether everything was there already.
    pub was_reused: bool,
    /// Notes for the log about listing the files and training the tokenizer.
    pub notes: Vec<String>,
}

/// Makes what is missing of tokenizer and shards in the prepared folder, and opens them verified.
///
/// Work that was made with other settings is an error that names the settings that differ. Several processes,
/// which share the folder, divide the work; the first one alone puts together what they have found, learns the
/// vocabulary from the counts of all, and writes what is not a part of the documents.
pub fn ensure_prepared(
    world: World,
    config: &PretrainConfig,
    observer: &mut dyn FnMut(Progress),
) -> Result<Prepared> {
    if world.is_first() {
        let (job, notes) = make(world, config, observer)?;
        world.wait_for_all()?;
        return open(&job, notes);
    }
    let job = Job::new(config)?;
    if world.from_first(None)? {
        job.help(world, observer)?;
    }
    world.wait_for_all()?;
    open(&Job::new(config)?, Vec::new())
}

/// What the first process does.
fn make<'a>(
    world: World,
    config: &'a PretrainConfig,
    observer: &mut dyn FnMut(Progress),
) -> Result<(Job<'a>, Vec<String>)> {
    let mut job = Job::new(config)?;
    let mut notes = Vec::new();
    if job.is_complete {
        world.from_first(Some(false))?;
        // What is complete no longer changes, so that reading it needs no lock. What a killed run left beside
        // it only takes room: it goes where that can be done.
        job.agree_on_settings()?;
        if let Ok(Some(_lock)) = FolderLock::take_if_free(&job.folder) {
            job.tidy()?;
        }
    } else {
        let waiting = || observer(Progress { stage: Stage::Wait, done: 0, total: 0 });
        let _lock = FolderLock::wait_for(&job.folder, waiting)?;
        // The run that held the lock may have made all of it.
        job = Job::new(config)?;
        job.agree_on_settings()?;
        world.from_first(Some(!job.is_complete))?;
        if !job.is_complete {
            notes = job.make(world, observer)?;
        }
        job.tidy()?;
    }
    Ok((job, notes))
}

/// What lies in a folder where nothing is missing.
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
    // Of shards in a bucket, those of a window stay until the next one is used up, while the one after it comes.
    let most = config.data.shuffle_window_shards.map(|window| WINDOWS_AT_ONCE.saturating_mul(window));
    let train = ShardSet::open_with(&shards, &manifest, Side::Train, most)?;
    let validation = ShardSet::open_with(&shards, &manifest, Side::Validation, None)?;
    Ok(Prepared { tokenizer, train, validation, manifest, was_reused: job.is_complete, notes })
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
        let is_complete = fs::exists(&folder.join("shards").join(MANIFEST_JSON))
            && fs::is_folder(&folder.join("tokenizer"));
        let corpus = Corpus::open(&config.data);
        let corpus = if is_complete { corpus } else { Ok(corpus?) };
        let given = config.tokenizer.path.as_deref().map(Tokenizer::load).transpose()?;
        if let Some(given) = &given {
            given.special().mask().context("`tokenizer.path` cannot be used for pretraining")?;
        }
        let settings = settings::of(config, corpus.as_ref().ok(), given.as_ref())?;
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

    fn corpus(&self) -> Result<&Corpus> {
        self.corpus.as_ref().map_err(|e| Problem::new(e.to_string()).into())
    }

    fn stored_settings(&self) -> Result<Value> {
        let path = self.folder.join(SETTINGS_JSON);
        let text = fs::read_text_capped(&path, SETTINGS_BYTES_MAX)?;
        Ok(serde_json::from_str(&text)
            .map_err(|e| Problem::new(format!("is broken: {e}")).at(path.display()))?)
    }

    /// Writes the settings into an empty folder; elsewhere they must be those that lie there.
    fn agree_on_settings(&self) -> Result<()> {
        let path = self.folder.join(SETTINGS_JSON);
        let has_work =
            [self.documents(), self.tokenizer(), self.shards()].iter().any(|folder| fs::exists(folder));
        if !has_work {
            self.require_own_files()?;
            return fs::write_bytes(&path, format!("{:#}\n", self.settings).as_bytes());
        }
        let (mut stored, mut wanted) = (self.stored_settings()?, self.settings.clone());
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
        let mut differences = settings::differences(&stored, &wanted);
        differences.extend(compared.differences);
        if differences.is_empty() {
            if compared.has_copies {
                self.put_down_times();
            }
            return Ok(());
        }
        Err(Problem::usage(format!("was prepared with other settings: {}", differences.join("; ")))
            .at(self.folder.display())
            .hint("set the old values again, choose another `data.prepared_dir`, or remove this folder to prepare anew")
            .into())
    }

    /// Refuses a folder in which files of others have the names of those that are written here.
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

    /// Puts down when files were written whose content is the same, so that it need not be looked at again.
    /// Where that cannot be written, it is.
    fn put_down_times(&self) {
        let Ok(stored) = self.stored_settings() else { return };
        let hashes: Vec<Option<String>> = files::recorded(&stored);
        let mut settings = self.settings.clone();
        files::record(&mut settings, &hashes);
        let _ = fs::write_bytes(&self.folder.join(SETTINGS_JSON), format!("{settings:#}\n").as_bytes());
    }

    /// Puts down what was read of the files: a later change of one is told from a copy by it.
    fn put_down_contents(&self) -> Result<()> {
        let hashes = content_hashes(&self.documents())?;
        let mut stored = self.stored_settings()?;
        let before = stored.clone();
        files::record(&mut stored, &hashes);
        if stored == before {
            return Ok(());
        }
        fs::write_bytes(&self.folder.join(SETTINGS_JSON), format!("{stored:#}\n").as_bytes())
    }

    /// Does this process's share of what [`Self::make`] does in the first one.
    fn help(&self, world: World, observer: &mut dyn FnMut(Progress)) -> Result<()> {
        let (corpus, data) = (self.corpus()?, &self.config.data);
        let curated = Curated::make(world, corpus, data, &self.documents(), &mut of_steps(observer))?;
        // Where nothing is kept, the first one says so.
        let is_to_train = world.from_first(None)?;
        if is_to_train {
            vocabulary::help(world, self.config, &curated.kept, &curated.scan()?)?;
        }
        encode::help(world, &curated.kept, &self.tokenizer())
    }

    /// Runs all stages that are not done; gives what is worth telling about the files and the training of the
    /// tokenizer.
    fn make(&self, world: World, observer: &mut dyn FnMut(Progress)) -> Result<Vec<String>> {
        let (corpus, data) = (self.corpus()?, &self.config.data);
        // Loaded first: a wrong path must not be told after hours.
        let compare_with = self.config.tokenizer.compare_with.as_deref().map(Tokenizer::load).transpose()?;
        for folder in [&self.folder, &self.documents(), &self.shards()] {
            fs::remove_leftovers(folder)?;
        }
        if !fs::exists(&self.documents()) && !fs::exists(&self.shards()) {
            Space::predict_for(self.config, corpus, &self.folder)?.require(&self.folder)?;
        }
        let curated = Curated::make(world, corpus, data, &self.documents(), &mut of_steps(observer))?;
        self.put_down_contents()?;
        let (sources, report_folder) = (corpus.source_names(), &self.folder);
        report::without_tokens(&curated).write(report_folder)?;
        // With nothing to train on, there is nothing to keep: the next call starts afresh, and the
        // report stays.
        let scan = curated.scan().or_else(|e| remove_documents(&self.documents()).and(Err(e)))?;
        let mut notes = self.given.as_ref().map_or_else(Vec::new, |given| given.notes().to_vec());
        notes.extend(corpus.notes().to_vec());
        let has_tokenizer = fs::is_folder(&self.tokenizer());
        let is_to_train = !has_tokenizer && self.given.is_none();
        world.from_first(Some(is_to_train))?;
        if !has_tokenizer {
            let train = || vocabulary::train(world, self.config, &curated.kept, &scan, observer);
            let trained = is_to_train.then(train).transpose()?;
            let tokenizer = self.given.as_ref().or(trained.as_ref().map(|trained| &trained.tokenizer));
            write_tokenizer(tokenizer.context("a tokenizer is given or trained")?, &self.tokenizer())?;
            notes.extend(trained.map(|trained| trained.notes).unwrap_or_default());
        }
        let tokenizer = Tokenizer::load(&self.tokenizer())?;
        let Made { manifest, fertility, unknown_text } =
            self.write_shards(world, &curated, &scan, &tokenizer, sources, observer)?;
        report::whole(&curated, &scan, &tokenizer, compare_with.as_ref(), (&manifest, &fertility))?
            .with_unknown_text(unknown_text)
            .write(report_folder)?;
        manifest.write(&self.shards())?;
        Ok(notes)
    }

    /// Removes what only unfinished work needs; also what a run left that was killed while it did so.
    fn tidy(&self) -> Result<()> {
        tokenize::forget(&self.shards())?;
        if self.config.data.keep_documents { Ok(()) } else { remove_documents(&self.documents()) }
    }

    /// The manifest of the new shards, which is yet to be written, how well the tokenizer fits each source, and
    /// those of which it does not know much, each with that share of its text.
    fn write_shards(
        &self,
        world: World,
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
            tokenize::run(world, &curated.kept, scan.split, tokenizer, &options, &mut meter)?;
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

/// The results from the documents other than the shards.
struct Made {
    manifest: Manifest,
    /// Of each source.
    fertility: Vec<Fertility>,
    /// Sources of which the tokenizer does not know much, each with that share of its text.
    unknown_text: Vec<(String, f64)>,
}

/// The sources of which much is unknown, with the share of their text; `found` has the bytes that are unknown, and
/// those that were looked at.
fn unknown_text(sources: &[String], found: &[(u64, u64)]) -> Vec<(String, f64)> {
    let share = |&(unknown_bytes, looked_at_bytes): &(u64, u64)| {
        UnknownText { unknown_bytes, looked_at_bytes }.share()
    };
    let shares = sources.iter().cloned().zip(found.iter().map(share));
    shares.filter(|(_, share)| *share >= MUCH_UNKNOWN).collect()
}

/// Tells the steps of curating as stages.
fn of_steps(observer: &mut dyn FnMut(Progress)) -> impl FnMut(Step, u64, u64) {
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
    let files = tokenizer.files().iter();
    let parts = files.map(|(name, bytes)| (name.clone(), Part::Bytes(bytes.clone()))).collect();
    write_sealed(&temporary, &Snapshot { step: 0, parts })?;
    fs::publish_folder(&temporary, folder)
}

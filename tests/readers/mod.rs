//! Every reader of outside data, in one list: small valid files of each kind, and how each is read. The tests
//! of damaged inputs, the rows `mutants` and `fuzz` of the torture table and the targets of `cargo fuzz` all
//! go through it.
//!
//! A new reader is a line in [`all`]. What is wrong with a file is decided in `mutate`, what came of reading
//! it by those who use the list.

pub(crate) mod compressed;
mod configurations;
mod corpora;
mod folders;
mod labelled;
mod lists;
mod models;
mod mutate;
mod parquet;
mod prepared;
mod records;
mod runs;
mod shards;
mod tokenizers;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use mlmtrain::rng::Stream;

pub(crate) use compressed::Compress;
pub(crate) use folders::{copy_tree, reseal};
pub(crate) use mutate::mutate;
pub(crate) use runs::Runs;

/// How many documents, examples or whatever else were read.
pub(crate) type Outcome = Result<u64>;

/// A reader; it finds the file where [`Input::write`] put it.
pub(crate) type Read = Arc<dyn Fn(&Path) -> Outcome + Send + Sync>;

/// A file and how it is read.
#[derive(Clone)]
pub(crate) struct Input {
    pub(crate) name: String,
    /// What it is an input of: the name of a target of `cargo fuzz`.
    pub(crate) target: &'static str,
    pub(crate) path: PathBuf,
    /// Its undamaged content.
    pub(crate) bytes: Vec<u8>,
    /// Contents that were once read wrongly, and are to be damaged further.
    pub(crate) kept: Vec<Vec<u8>>,
    /// Its content before compression, and how to compress it: damage inside passes every checksum.
    pub(crate) inside: Option<(Vec<u8>, Compress)>,
    /// What the undamaged one gives.
    pub(crate) documents: u64,
    /// What an error may name: the folder of the input, or the flag that it stands for.
    pub(crate) named: String,
    pub(crate) read: Read,
}

/// Every kind of input; each lies in a folder of its own below `folder`.
pub(crate) fn all(folder: &Path, runs: &Runs) -> Result<Vec<Input>> {
    let mut inputs = corpora::all(folder);
    inputs.extend(parquet::all(folder));
    inputs.extend(lists::all(folder));
    inputs.extend(labelled::all(folder));
    inputs.extend(configurations::all(folder, runs)?);
    inputs.extend(tokenizers::all(folder, runs)?);
    inputs.extend(models::all(folder, runs)?);
    inputs.extend(models::checkpoints(folder, runs)?);
    inputs.extend(shards::all(folder));
    inputs.extend(prepared::all(folder, runs)?);
    inputs.extend(records::all(folder, runs)?);
    let mut wrong = Vec::new();
    for input in &mut inputs {
        input.kept = kept(&input.name)?;
        wrong.extend(input.check().err().map(|e| format!("{e:#}")));
    }
    if wrong.is_empty() { Ok(inputs) } else { bail!("{}", wrong.join("\n")) }
}

/// Files that were once read wrongly, by the name of their input: `tests/readers/kept/NAME/`.
fn kept(name: &str) -> Result<Vec<Vec<u8>>> {
    let folder = tests_folder()?.join("readers/kept").join(name.replace([' ', '/'], "-"));
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    paths.sort();
    paths.iter().map(|path| Ok(fs::read(path)?)).collect()
}

/// The folder of the tests, in whichever package below the project this list is compiled.
fn tests_folder() -> Result<PathBuf> {
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("tests"));
    above.find(|tests| tests.join("readers").is_dir()).context("the sources of the tests are there")
}

impl Input {
    /// An input that is read by `read` from `folder/name/file`.
    pub(crate) fn new(
        target: &'static str,
        name: &str,
        path: PathBuf,
        bytes: Vec<u8>,
        read: impl Fn(&Path) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        let named = path.parent().unwrap_or(&path).display().to_string();
        let (name, read) = (name.to_string(), Arc::new(read));
        Self { name, target, path, bytes, kept: Vec::new(), inside: None, documents: 1, named, read }
    }

    /// The same for a file that is there already.
    pub(crate) fn of_file(
        target: &'static str,
        name: &str,
        path: PathBuf,
        read: impl Fn(&Path) -> Outcome + Send + Sync + 'static,
    ) -> Result<Self> {
        let bytes = fs::read(&path)?;
        Ok(Self::new(target, name, path, bytes, read))
    }

    /// What the undamaged one gives.
    pub(crate) fn giving(self, documents: u64) -> Self {
        Self { documents, ..self }
    }

    /// What else an error may name.
    pub(crate) fn named(self, named: impl Into<String>) -> Self {
        Self { named: named.into(), ..self }
    }

    /// The same content in every form of compression.
    pub(crate) fn packed(&self, extension: &str, compress: Compress) -> Self {
        let packed = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            format!("{name}{extension}")
        };
        let folder = self.path.parent().unwrap_or(&self.path);
        let name = packed(&self.path);
        let path = folder.with_file_name(packed(folder)).join(&name);
        let named = path.parent().unwrap_or(&path).display().to_string();
        let inside = Some((self.bytes.clone(), compress));
        let name = format!("{}{extension}", self.name);
        Self { name, path, bytes: compress(&self.bytes), inside, named, ..self.clone() }
    }

    /// A file that is read in a planted way.
    pub(crate) fn planted(read: fn(&Path) -> Outcome) -> Self {
        Self::new("planted", "planted", std::env::temp_dir().join("planted"), b"1".to_vec(), read)
    }

    pub(crate) fn write(&self, bytes: &[u8]) {
        // A planted one is never looked at.
        if self.name == "planted" {
            return;
        }
        if fs::write(&self.path, bytes).is_err() {
            // What is prepared removes kept text of which nothing is left to train on.
            fs::create_dir_all(self.path.parent().unwrap()).unwrap();
            fs::write(&self.path, bytes).unwrap();
        }
    }

    /// Reads `bytes` in the place of the file.
    pub(crate) fn read(&self, bytes: &[u8]) -> Outcome {
        self.write(bytes);
        (self.read)(&self.path)
    }

    /// Damage number `stream` of the file, or of a case that was kept, or of what is compressed in it.
    pub(crate) fn mutant(&self, stream: Stream) -> Vec<u8> {
        let base = match stream.below(0, 1 + self.kept.len() as u64) {
            0 => &self.bytes,
            kept => &self.kept[kept as usize - 1],
        };
        match &self.inside {
            Some((plain, compress)) if stream.below(1, 2) == 0 => compress(&mutate(plain, stream)),
            _ => mutate(base, stream),
        }
    }

    /// Without damage it must give all its documents, and leave no trace of earlier damage.
    fn check(&self) -> Result<()> {
        match self.read(&self.bytes) {
            Ok(documents) if documents == self.documents => Ok(()),
            outcome => bail!("the undamaged {} gives {outcome:?}, not {}", self.name, self.documents),
        }
    }

    /// Whether an error names the folder of the file, and in it a number (a line, a byte, a size), or a name
    /// in backticks (a key, a tensor), or a hash.
    pub(crate) fn names_file_and_place(&self, message: &str) -> bool {
        let Some(at) = message.find(&self.named) else { return false };
        let rest = message[at + self.named.len()..].split_once([':', '`']).map_or("", |(_, rest)| rest);
        let others = message[..at].to_string() + rest;
        others.contains(|c: char| c.is_ascii_digit() || c == '`') || others.contains("SHA-256")
    }
}

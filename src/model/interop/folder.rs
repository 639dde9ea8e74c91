//! Opens a pretrained model folder: reads its `config.json`, maps its weights to canonical names and finds
//! the files of its tokenizer.
//!
//! Pickle files (`pytorch_model.bin`) are never opened.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Result;
use candle_core::{DType, Tensor};
use serde_json::{Map, Value};

use crate::checkpoint::{TensorFile, TensorInfo};
use crate::interop::config_json::HubConfig;
use crate::interop::names::Mapped;
use crate::interop::{hub, names};
use base::error::Problem;
use base::families::{Family, HeadKind, ModelConfig};
use base::fs;
use base::fs::Sha256Sum;
use base::sealed::verify_sealed;
use ops::tensor::with_slice;

const INDEX_CAP_BYTES: u64 = 16 << 20;

/// Subfolder of the discriminator, in a folder with both models of replaced-token detection.
pub const DISCRIMINATOR: &str = "discriminator";
/// Subfolder of the generator, next to [`DISCRIMINATOR`].
pub const GENERATOR: &str = "generator";
/// [`DISCRIMINATOR`] with a slash at the end.
pub const DISCRIMINATOR_PLACE: &str = "discriminator/";
/// [`GENERATOR`] with a slash at the end.
pub const GENERATOR_PLACE: &str = "generator/";

/// Returns true if a folder contains a generator and a discriminator, each in its subfolder, and no model
/// itself.
pub fn holds_pair(folder: &Path) -> bool {
    !hub::is_model(folder)
        && hub::is_model(&folder.join(GENERATOR))
        && hub::is_model(&folder.join(DISCRIMINATOR))
}

/// The files of a tokenizer that are copied along with a model.
pub const TOKENIZER_FILES: [&str; 7] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
];

/// A model that was trained before: the contents of its `config.json`, and its tensors, which are read on
/// demand.
#[derive(Debug)]
pub struct PretrainedFolder {
    /// The folder.
    pub path: PathBuf,
    /// Family and encoder.
    pub config: ModelConfig,
    /// The head that `config.json` names, else the one that the names of the tensors imply.
    pub head: HeadKind,
    /// The names of the classes in the order of their ids (classifiers of sequences and of tokens only).
    pub id2label: Option<Vec<String>>,
    /// Keys of `config.json` that this program does not know, to be passed on.
    pub extra: Map<String, Value>,
    /// Notes for the log: ignored keys, unused tensors, and where the folder was found.
    pub notes: Vec<String>,
    /// Paths of those of [`TOKENIZER_FILES`] that exist.
    pub tokenizer_files: Vec<PathBuf>,
    pub(super) weights: Weights,
    /// From canonical name to the name in the file.
    pub(super) sources: BTreeMap<String, String>,
    /// If true, models made from this folder keep their initial values ([`PretrainedFolder::untrained`]).
    pub(super) is_untrained: bool,
}

/// Opens a model folder in Hugging Face's layout without reading its tensors. `folder` may also be the name
/// of a model in the local cache of the Hugging Face hub. In a folder with a generator and a discriminator,
/// opens the discriminator. Either is noted in `notes`. Errors name the file or key.
pub fn read_folder(folder: &Path) -> Result<PretrainedFolder> {
    if let Some(cached) = hub::cached_folder(folder) {
        let mut found = read_folder(&cached)?;
        found
            .notes
            .insert(0, format!("taken from the cache of the Hugging Face hub, `{}`", cached.display()));
        return Ok(found);
    }
    if holds_pair(folder) {
        let mut discriminator = read_folder(&folder.join(DISCRIMINATOR))?;
        let note = format!("holds a generator and a discriminator: `{DISCRIMINATOR}` is taken");
        discriminator.notes.insert(0, note);
        return Ok(discriminator);
    }
    hub::require_config(folder)?;
    // Files in subfolders, such as the optimizer's moments of a checkpoint, are not read here.
    verify_sealed(folder, |name| !name.contains('/'))?;
    open_folder(folder)
}

/// Like [`read_folder`], for a folder of one model and without checking the files against their hashes.
pub fn open_folder(folder: &Path) -> Result<PretrainedFolder> {
    hub::require_config(folder)?;
    let HubConfig { model, head, id2label, extra, mut notes } = HubConfig::read(&folder.join("config.json"))?;
    let weights = Weights::open(folder)?;
    let sources = canonical_sources(&model, &weights, &mut notes)?;
    notes.extend(names::unread_positions(&model, &sources));
    let head = match head.unwrap_or_else(|| head_from_names(model.family, &sources)) {
        // Many folders name the class with both heads and contain only the masked language model's.
        HeadKind::SentencePairs if !has_pair_head(model.family, &sources) => HeadKind::MaskedLm,
        head => head,
    };
    let id2label =
        head.has_labels().then(|| id2label.unwrap_or_else(|| vec!["LABEL_0".into(), "LABEL_1".into()]));
    let tokenizer_files =
        TOKENIZER_FILES.iter().map(|name| folder.join(name)).filter(|path| fs::exists(path)).collect();
    let path = folder.to_path_buf();
    Ok(PretrainedFolder {
        path,
        config: model,
        head,
        id2label,
        extra,
        notes,
        tokenizer_files,
        weights,
        sources,
        is_untrained: false,
    })
}

impl PretrainedFolder {
    /// Turns this model into its untrained twin: architecture and tokenizer are those of the folder, the
    /// weights keep the initial values that each run draws from its seed.
    #[must_use]
    pub fn untrained(mut self) -> Self {
        self.is_untrained = true;
        self.notes = vec!["its weights are not read: this is the untrained twin".to_string()];
        self
    }

    /// True if this is an untrained twin, so that nothing of a model is filled from it.
    pub fn is_untrained(&self) -> bool {
        self.is_untrained
    }

    /// Returns the SHA-256 of everything that a model takes from this folder: `config.json`, weights and
    /// tokenizer.
    pub fn sha256(&self) -> Result<String> {
        let mut sum = Sha256Sum::default();
        if self.is_untrained {
            sum.add(b"untrained");
        }
        let config = [self.path.join("config.json")];
        let weights = self.weights.files.iter().map(TensorFile::path);
        let files = config.iter().map(PathBuf::as_path).chain(weights);
        for path in files.chain(self.tokenizer_files.iter().map(PathBuf::as_path)) {
            sum.add(path.file_name().unwrap_or_default().as_encoded_bytes());
            sum.add(fs::sha256_of_file(path)?.as_bytes());
        }
        Ok(sum.finish())
    }
}

/// The safetensors files of a folder, one or several, as one set of names.
#[derive(Debug)]
pub(super) struct Weights {
    place: PathBuf,
    files: Vec<TensorFile>,
    /// From the name of each tensor to the index in `files` of the file that contains it.
    index: BTreeMap<String, usize>,
}

impl Weights {
    fn open(folder: &Path) -> Result<Self> {
        let single = folder.join("model.safetensors");
        let sharded = folder.join("model.safetensors.index.json");
        if fs::exists(&single) {
            let file = TensorFile::open(&single)?;
            let index = file.names().into_iter().map(|name| (name, 0)).collect();
            return Ok(Self { place: single, files: vec![file], index });
        }
        if fs::exists(&sharded) {
            return Self::open_sharded(folder, sharded);
        }
        if fs::exists(&folder.join("pytorch_model.bin"))
            || fs::exists(&folder.join("pytorch_model.bin.index.json"))
        {
            let hint = "convert it once in Python: `AutoModel.from_pretrained(dir).save_pretrained(dir)`";
            return Err(Problem::usage(
                "there is only a pickle file (`pytorch_model.bin`), which could run code and is not read",
            )
            .at(folder.display())
            .hint(hint)
            .into());
        }
        Err(Problem::new("there is no `model.safetensors`").at(folder.display()).into())
    }

    fn open_sharded(folder: &Path, place: PathBuf) -> Result<Self> {
        let bytes = fs::read_capped(&place, INDEX_CAP_BYTES)?;
        fs::refuse_mistaken(&place, &bytes, "a file of JSON")?;
        let index: Value = serde_json::from_slice(&bytes)
            .map_err(|e| problem_at(&place, format!("is not valid JSON: {e}")))?;
        let map = index
            .get("weight_map")
            .and_then(Value::as_object)
            .ok_or_else(|| problem_at(&place, "has no table `weight_map`"))?;
        let mut shards: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (tensor, file) in map {
            let file = file.as_str().filter(|name| {
                !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
            });
            let file = file.ok_or_else(|| {
                problem_at(&place, format!("`weight_map` names no file of this folder for tensor `{tensor}`"))
            })?;
            shards.entry(file).or_default().insert(tensor);
        }
        let mut files = Vec::new();
        let mut index = BTreeMap::new();
        for (shard, tensors) in shards {
            let file = TensorFile::open(&folder.join(shard))?;
            let present = file.names();
            for tensor in tensors {
                if !present.contains(tensor) {
                    let message = format!("says that tensor `{tensor}` is in `{shard}`, but it is not");
                    return Err(problem_at(&place, message).into());
                }
                index.insert(tensor.to_string(), files.len());
            }
            files.push(file);
        }
        Ok(Self { place, files, index })
    }

    /// Returns the names of all tensors, in alphabetical order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(String::as_str)
    }

    /// Returns the name of each tensor with the file that contains it.
    pub(super) fn tensors(&self) -> impl Iterator<Item = (&str, &TensorFile)> {
        self.index.iter().map(|(name, &file)| (name.as_str(), &self.files[file]))
    }

    /// Returns type, shape and size of a tensor.
    pub(super) fn info(&self, name: &str) -> Option<TensorInfo> {
        self.index.get(name).and_then(|&file| self.files[file].info(name))
    }

    /// Reads a tensor and converts it to f32. Whole numbers and values that are not finite are errors.
    pub(super) fn load(&self, name: &str) -> Result<Tensor> {
        let file = self.index.get(name).map(|&file| &self.files[file]);
        let tensor =
            file.ok_or_else(|| self.problem(&format!("tensor `{name}` is missing")))?.tensor(name)?;
        let tensor = match tensor.dtype() {
            DType::F32 => tensor,
            DType::F16 | DType::BF16 | DType::F64 => tensor.to_dtype(DType::F32)?,
            other => {
                let message =
                    format!("tensor `{name}` has type {other:?}, floating-point numbers are wanted");
                return Err(self.problem(&message).into());
            }
        };
        let not_finite = with_slice(&tensor, |values| values.iter().filter(|v| !v.is_finite()).count())?;
        if not_finite > 0 {
            let all = tensor.elem_count();
            let message = format!("{not_finite} of the {all} values of tensor `{name}` are not finite");
            return Err(self
                .problem(&message)
                .hint("the training that made this model diverged: use an earlier checkpoint of it")
                .into());
        }
        Ok(tensor)
    }

    pub(super) fn problem(&self, message: &str) -> Problem {
        problem_at(&self.place, message)
    }
}

fn problem_at(place: &Path, message: impl Into<String>) -> Problem {
    Problem::new(message).at(place.display())
}

/// Returns the canonical name of each tensor to keep, with its name in the file.
fn canonical_sources(
    model: &ModelConfig,
    weights: &Weights,
    notes: &mut Vec<String>,
) -> Result<BTreeMap<String, String>> {
    let mut sources: BTreeMap<String, String> = BTreeMap::new();
    let mut aliases = Vec::new();
    let mut unused = Vec::new();
    for name in weights.index.keys() {
        match names::canonical(model.family, name) {
            Mapped::Keep(canonical) => {
                if let Some(other) = sources.insert(canonical, name.clone()) {
                    return Err(weights
                        .problem(&format!("tensors `{other}` and `{name}` are the same one under two names"))
                        .into());
                }
            }
            Mapped::Alias(canonical) => aliases.push((canonical, name.clone())),
            Mapped::TiedDecoder => {}
            Mapped::Unused => unused.push(name.as_str()),
        }
    }
    for (canonical, name) in aliases {
        sources.entry(canonical).or_insert(name);
    }
    note_unused(notes, weights, &unused);
    Ok(sources)
}

fn has_weight(sources: &BTreeMap<String, String>, module: &str) -> bool {
    sources.contains_key(&format!("{module}.weight"))
}

fn head_from_names(family: Family, sources: &BTreeMap<String, String>) -> HeadKind {
    // A classifier first: its dense layer may have the name of the one in the masked language model's head.
    match () {
        // BERT's sequence classifier has the tensor names of its token classifier, plus a pooler.
        () if has_weight(sources, family.classification.output)
            && has_weight(sources, family.classification.dense) =>
        {
            HeadKind::SequenceClassification
        }
        () if has_weight(sources, family.masked_lm.first()) && has_pair_head(family, sources) => {
            HeadKind::SentencePairs
        }
        () if has_weight(sources, family.masked_lm.first()) => HeadKind::MaskedLm,
        () if family.token_classifier.is_some_and(|module| has_weight(sources, module)) => {
            HeadKind::TokenClassification
        }
        () if family.replaced_tokens.is_some_and(|names| has_weight(sources, names.dense)) => {
            HeadKind::ReplacedTokenDetection
        }
        () => HeadKind::None,
    }
}

/// Returns true if all tensors of the head that classifies pairs of segments (next sentence prediction) are
/// there.
fn has_pair_head(family: Family, sources: &BTreeMap<String, String>) -> bool {
    family.sentence_pairs.is_some_and(|names| {
        let mut maps = [family.classification.dense, names.output].into_iter();
        maps.all(|map| ["weight", "bias"].iter().all(|part| sources.contains_key(&format!("{map}.{part}"))))
    })
}

pub(super) fn note_unused(notes: &mut Vec<String>, weights: &Weights, unused: &[&str]) {
    if !unused.is_empty() {
        let shown = unused.iter().take(5).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let more = if unused.len() > 5 { format!(" and {} more", unused.len() - 5) } else { String::new() };
        notes.push(format!("{}: not used: {shown}{more}", weights.place.display()));
    }
}

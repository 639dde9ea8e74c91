//! A pretrained model folder: what its files say, its weights under canonical names, and where its tokenizer
//! lies.
//!
//! Pickle files (`pytorch_model.bin`) are never opened.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;
use candle_core::DType;
use candle_core::Tensor;
use serde_json::Map;
use serde_json::Value;

use crate::checkpoint::TensorFile;
use crate::checkpoint::TensorInfo;
use crate::checkpoint::verify_sealed;
use crate::error::Problem;
use crate::families::Family;
use crate::families::HeadKind;
use crate::families::ModelConfig;
use crate::fs;
use crate::fs::Sha256Sum;
use crate::interop::config_json::HubConfig;
use crate::interop::hub;
use crate::interop::names;
use crate::interop::names::Mapped;
use crate::ops::tensor::with_slice;

const INDEX_CAP_BYTES: u64 = 16 << 20;

/// Where the two models of replaced-token detection lie below the folder of both.
pub const DISCRIMINATOR: &str = "discriminator";
/// The model beside [`DISCRIMINATOR`].
pub const GENERATOR: &str = "generator";
/// [`DISCRIMINATOR`] with a slash at the end.
pub const DISCRIMINATOR_PLACE: &str = "discriminator/";
/// [`GENERATOR`] with a slash at the end.
pub const GENERATOR_PLACE: &str = "generator/";

/// Whether a folder holds generator and discriminator, each in a folder of its own.
pub fn holds_pair(folder: &Path) -> bool {
    let has = |name: &str| fs::exists(&folder.join(name).join("config.json"));
    !fs::exists(&folder.join("config.json")) && has(GENERATOR) && has(DISCRIMINATOR)
}

/// The files of a tokenizer that travel with a model.
pub const TOKENIZER_FILES: [&str; 7] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
];

/// A model that was trained before: what its files say, and its tensors when they are asked for.
#[derive(Debug)]
pub struct PretrainedFolder {
    /// Where it lies.
    pub path: PathBuf,
    /// Family and encoder.
    pub config: ModelConfig,
    /// The head, as `config.json` or else the names of the tensors tell it.
    pub head: HeadKind,
    /// The names of the classes in the order of their ids (classifiers of sequences and of tokens only).
    pub id2label: Option<Vec<String>>,
    /// Keys of `config.json` that this program does not know, to be passed on.
    pub extra: Map<String, Value>,
    /// What was ignored or renamed, for the log.
    pub notes: Vec<String>,
    /// Those of [`TOKENIZER_FILES`] that are there.
    pub tokenizer_files: Vec<PathBuf>,
    pub(super) weights: Weights,
    /// The name in the file, by canonical name.
    pub(super) sources: BTreeMap<String, String>,
    /// Whether models made from it keep their initial values.
    pub(super) is_untrained: bool,
}

/// Opens a model folder in Hugging Face's layout, without reading its tensors; an error names file or key. Of
/// a generator and a discriminator it takes the discriminator, and says so in a note; so it does of a model
/// that is found by its name in the cache of the Hugging Face hub.
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
    // What lies deeper, as the moments of a checkpoint do, is not read here.
    verify_sealed(folder, |name| !name.contains('/'))?;
    open_folder(folder)
}

/// As [`read_folder`] for a folder of one model, whose files are not held against their hashes.
pub fn open_folder(folder: &Path) -> Result<PretrainedFolder> {
    hub::require_config(folder)?;
    let HubConfig { model, head, id2label, extra, mut notes } = HubConfig::read(&folder.join("config.json"))?;
    let weights = Weights::open(folder)?;
    let sources = canonical_sources(&model, &weights, &mut notes)?;
    notes.extend(names::positions_left_out(&model, &sources));
    let head = match head.unwrap_or_else(|| head_from_names(model.family, &sources)) {
        // Many folders name the class of both heads and hold one of them.
        HeadKind::SentencePairs if !tells_pairs(model.family, &sources) => HeadKind::MaskedLm,
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
    /// The same model as if it had never been trained: architecture and tokenizer are those of the folder,
    /// weights keep the initial values that each run draws from its seed.
    #[must_use]
    pub fn untrained(mut self) -> Self {
        self.is_untrained = true;
        self.notes = vec!["its weights are not read: this is the untrained twin".to_string()];
        self
    }

    /// SHA-256 of what a model is made of from this folder: `config.json`, weights and tokenizer.
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
    /// Name of each tensor and the file it lies in.
    index: BTreeMap<String, usize>,
}

impl Weights {
    fn open(folder: &Path) -> Result<Self> {
        let (single, sharded) =
            (folder.join("model.safetensors"), folder.join("model.safetensors.index.json"));
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
        let refuse = |message: String| Problem::new(message).at(place.display());
        let bytes = fs::read_capped(&place, INDEX_CAP_BYTES)?;
        fs::refuse_mistaken(&place, &bytes, "a file of JSON")?;
        let index: Value =
            serde_json::from_slice(&bytes).map_err(|e| refuse(format!("is not valid JSON: {e}")))?;
        let map = index
            .get("weight_map")
            .and_then(Value::as_object)
            .ok_or_else(|| refuse("has no table `weight_map`".to_string()))?;
        let mut shards: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (tensor, file) in map {
            let file = file.as_str().filter(|name| {
                !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
            });
            let file = file.ok_or_else(|| {
                refuse(format!("`weight_map` names no file of this folder for tensor `{tensor}`"))
            })?;
            shards.entry(file).or_default().insert(tensor);
        }
        let (mut files, mut index) = (Vec::new(), BTreeMap::new());
        for (shard, tensors) in shards {
            let file = TensorFile::open(&folder.join(shard))?;
            let present = file.names();
            for tensor in tensors {
                if !present.contains(tensor) {
                    return Err(refuse(format!(
                        "says that tensor `{tensor}` is in `{shard}`, but it is not"
                    ))
                    .into());
                }
                index.insert(tensor.to_string(), files.len());
            }
            files.push(file);
        }
        Ok(Self { place, files, index })
    }

    /// The names of all tensors.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(String::as_str)
    }

    /// The names of all tensors, each with the file that it lies in.
    pub(super) fn tensors(&self) -> impl Iterator<Item = (&str, &TensorFile)> {
        self.index.iter().map(|(name, &file)| (name.as_str(), &self.files[file]))
    }

    /// What a tensor is like.
    pub(super) fn info(&self, name: &str) -> Option<TensorInfo> {
        self.index.get(name).and_then(|&file| self.files[file].info(name))
    }

    /// A tensor in f32, of finite values.
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
        Problem::new(message).at(self.place.display())
    }
}

/// The canonical name of each tensor to keep, and the name it has in the file.
fn canonical_sources(
    model: &ModelConfig,
    weights: &Weights,
    notes: &mut Vec<String>,
) -> Result<BTreeMap<String, String>> {
    let mut sources: BTreeMap<String, String> = BTreeMap::new();
    let (mut aliases, mut unused) = (Vec::new(), Vec::new());
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

fn head_from_names(family: Family, sources: &BTreeMap<String, String>) -> HeadKind {
    let has = |module: &str| sources.contains_key(&format!("{module}.weight"));
    // A classifier first: its first map may be that of the masked language model it was made of.
    match () {
        // BERT's sequence classifier has the name of the token classifier, and a pooler besides.
        () if has(family.classification.output) && has(family.classification.dense) => {
            HeadKind::SequenceClassification
        }
        () if has(family.masked_lm.dense) && tells_pairs(family, sources) => HeadKind::SentencePairs,
        () if has(family.masked_lm.dense) => HeadKind::MaskedLm,
        () if family.token_classifier.is_some_and(has) => HeadKind::TokenClassification,
        () if family.replaced_tokens.is_some_and(|names| has(names.dense)) => {
            HeadKind::ReplacedTokenDetection
        }
        () => HeadKind::None,
    }
}

/// Whether all of the head is there that tells pairs of segments.
fn tells_pairs(family: Family, sources: &BTreeMap<String, String>) -> bool {
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

//! Checks that the tensors of a model folder are those of the model that its `config.json` describes: all
//! there, in the right shapes, and finite.
//!
//! Does not compare files with their hashes and does not build the model: one tensor is in memory at a time.

use std::collections::BTreeSet;

use anyhow::{Error, Result};
use candle_core::Tensor;

use crate::interop::folder::PretrainedFolder;
use crate::layers::{Layout, Part};
use crate::models::Blueprint;
use base::families::{HeadKind, ModelConfig};
use ops::tensor::with_slice;

/// Largest number of values of a plausible model, more than any disk can store. Below it, sums over shapes
/// fit into 64 bits.
const MOST_VALUES: u128 = 1 << 50;

/// Upper bound of usable weights. No real weight comes near it; sums of products of larger ones overflow in
/// f32.
const LARGEST_WEIGHT: f32 = 1e18;

impl PretrainedFolder {
    /// Returns the number of tensors in the files.
    pub fn num_tensors(&self) -> usize {
        self.weights.tensors().count()
    }

    /// Returns the size in bytes of the values of all tensors.
    pub fn tensor_bytes(&self) -> u64 {
        self.weights.tensors().filter_map(|(name, file)| Some(file.info(name)?.bytes)).sum()
    }

    /// Returns the parameters of the model that would be built with the folder's head; `None` if
    /// `config.json` describes a model larger than any disk. For a folder without a head, the layout is that
    /// of a masked language model, and callers must not look for the tensors of its head.
    pub fn layout(&self) -> Option<Layout> {
        if described_values(&self.config) > MOST_VALUES {
            return None;
        }
        let labels = self.id2label.as_ref().map_or(0, Vec::len);
        Some(match (self.head, self.config.family.replaced_tokens) {
            (head, _) if head.is_of_sequences() => Blueprint::classifier(&self.config, labels).layout,
            (HeadKind::TokenClassification, _) => {
                Blueprint::token_classifier(&self.config, labels).ok()?.layout
            }
            (HeadKind::ReplacedTokenDetection, Some(names)) => {
                Blueprint::replaced_tokens(&self.config, names).layout
            }
            (HeadKind::SentencePairs, _) => Blueprint::sentence_pairs(&self.config).ok()?.layout,
            _ => Blueprint::masked_lm(&self.config).layout,
        })
    }

    /// Returns the error with which a run with a head of this kind would refuse the weights, if any. The head
    /// may be missing, since a run may start with a new one.
    pub fn check_encoder(&self, head: HeadKind) -> Result<()> {
        let labels = self.id2label.as_ref().map_or(1, Vec::len);
        let layout = match head {
            HeadKind::TokenClassification => Blueprint::token_classifier(&self.config, labels)?.layout,
            _ => Blueprint::classifier(&self.config, labels).layout,
        };
        self.check(&layout, &layout.own_names(), None)
    }

    /// Reads every tensor and returns all that is wrong, each with its file and tensor. Tensors that the
    /// model does not use must be finite as well. Calls `read` with the size of each tensor in bytes once it
    /// is read.
    pub fn faults(&self, read: &dyn Fn(u64)) -> Vec<Error> {
        let mut faults = Vec::new();
        let mut taken = BTreeSet::new();
        if let Some(layout) = self.layout() {
            self.check_shapes(&layout, &mut taken, &mut faults);
        } else {
            faults.push(self.weights.problem("`config.json` beside it describes no real model").into());
        }
        for (name, file) in self.weights.tensors() {
            let info = file.info(name);
            // Constants such as position ids are whole numbers that enter no computation.
            let has_values = taken.contains(name) || info.as_ref().is_some_and(|info| info.is_float);
            let result = if has_values {
                self.weights.load(name).and_then(|tensor| {
                    if taken.contains(name) { self.require_usable(name, &tensor) } else { Ok(()) }
                })
            } else {
                file.bytes(name).map(drop)
            };
            faults.extend(result.err());
            read(info.map_or(0, |info| info.bytes));
        }
        if matches!(self.head, HeadKind::MaskedLm | HeadKind::SentencePairs) && faults.is_empty() {
            faults.extend(self.check_tied_decoder().err());
        }
        faults
    }

    /// Refuses values so large that their products overflow in f32: the training that left them diverged.
    fn require_usable(&self, name: &str, tensor: &Tensor) -> Result<()> {
        let largest = with_slice(tensor, |values| values.iter().fold(0.0, |most: f32, v| most.max(v.abs())))?;
        if largest < LARGEST_WEIGHT {
            return Ok(());
        }
        let message =
            format!("tensor `{name}` holds {largest:e}, and what a model computes with it is not finite");
        Err(self.weights.problem(&message).into())
    }

    /// Adds an error for each tensor that is missing or has another shape. Adds the names, as in the files,
    /// of the tensors that exist to `taken`.
    fn check_shapes<'a>(&'a self, layout: &Layout, taken: &mut BTreeSet<&'a str>, faults: &mut Vec<Error>) {
        for spec in layout.specs().filter(|spec| self.head != HeadKind::None || spec.part != Part::Head) {
            let Some(source) = self.sources.get(&spec.name) else {
                faults.push(self.missing(&spec.name, spec.part).into());
                continue;
            };
            taken.insert(source.as_str());
            let found = self.weights.info(source).map(|info| info.shape).unwrap_or_default();
            if found != spec.shape {
                faults.push(self.misshapen(source, &found, &spec.shape).into());
            }
        }
    }
}

/// Returns the number of values in the tables and matrices that every encoder of these sizes has.
fn described_values(config: &ModelConfig) -> u128 {
    let shape = &config.encoder;
    let [width, hidden, inner, layers] =
        [shape.embedding_width(), shape.hidden_size, shape.intermediate_size, shape.num_hidden_layers]
            .map(|size| size as u128);
    let rows = [shape.vocab_size, shape.max_position_embeddings, shape.type_vocab_size];
    let tables = rows.iter().map(|&rows| rows as u128 * width).sum::<u128>();
    tables + width * hidden + layers * (4 * hidden * hidden + 2 * hidden * inner)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use candle_core::{DType, Device, Tensor};

    use crate::checkpoint::{TensorFile, write_tensors};
    use crate::interop::open_folder;

    type Tensors = BTreeMap<String, Tensor>;

    /// Copies a golden folder, applies `change` and returns what is wrong with the copy.
    fn faults(golden: &str, change: impl FnOnce(&mut Tensors, &Path)) -> Vec<String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(golden);
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.json");
        std::fs::copy(source.join("config.json"), &config).unwrap();
        let mut tensors = TensorFile::open(&source.join("model.safetensors")).unwrap().tensors().unwrap();
        change(&mut tensors, &config);
        let tensors: Vec<(String, Tensor)> = tensors.into_iter().collect();
        let mut bytes = Vec::new();
        write_tensors(&mut bytes, &tensors).unwrap();
        std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
        let read = std::cell::Cell::new(0);
        let opened = open_folder(folder.path()).unwrap();
        let faults = opened.faults(&|count| read.set(read.get() + count));
        assert_eq!(read.get(), opened.tensor_bytes(), "every byte is read once");
        assert_eq!(opened.num_tensors(), tensors.len());
        faults.iter().map(|fault| format!("{fault:#}")).collect()
    }

    const QUERY: &str = "encoder.layer.1.attention.self.query.weight";

    fn ending<'a>(tensors: &'a mut Tensors, end: &str) -> (&'a String, &'a mut Tensor) {
        tensors.iter_mut().find(|(name, _)| name.ends_with(end)).unwrap()
    }

    #[test]
    fn folders_that_transformers_wrote_have_no_faults() {
        let folders = [
            "roberta",
            "bert",
            "roberta_cls",
            "bert_cls",
            "electra_cls",
            "roberta_tok",
            "bert_tok",
            "electra_tok",
            "roberta_reg",
            "bert_reg",
            "modernbert",
            "modernbert_mean",
            "distilbert",
            "distilbert_cls",
            "xlm_roberta",
            "camembert",
            "deberta_v2",
            "deberta_v2_emd",
            "deberta_v2_cls",
            "deberta_v2_tok",
            "deberta_v2_rtd/generator",
            "deberta_v2_rtd/discriminator",
            "albert",
            "albert_cls",
            "albert_tok",
            "mpnet",
            "mpnet_cls",
            "mpnet_tok",
            "neobert",
            "neobert_cls",
            "neobert_tok",
            "electra_rtd/generator",
            "electra_rtd/discriminator",
        ];
        for folder in folders {
            assert_eq!(faults(folder, |_, _| {}), [""; 0], "{folder}");
        }
    }

    #[test]
    fn every_fault_is_reported_with_its_tensor() {
        let found = faults("roberta", |tensors, _| {
            let weight = ending(tensors, QUERY).1;
            *weight = weight.affine(f64::NAN, 0.0).unwrap();
            let bias = ending(tensors, "encoder.layer.0.output.dense.bias").1;
            *bias = bias.narrow(0, 0, 3).unwrap();
            tensors.retain(|name, _| !name.ends_with("lm_head.dense.weight"));
        });
        let all = found.join("\n");
        assert_eq!(found.len(), 3, "{all}");
        for words in
            ["query.weight` are not finite", "dense.bias` is [3], the model", "dense.weight` is missing"]
        {
            assert!(all.contains(words), "`{words}` is not in:\n{all}");
        }
        assert!(found.iter().all(|fault| fault.contains("model.safetensors: ")), "{all}");
    }

    #[test]
    fn unused_tensors_must_be_finite_unless_they_are_whole_numbers() {
        assert_eq!(faults_with_spare(2.0, DType::F32), [""; 0]);
        assert_eq!(faults_with_spare(2.0, DType::I64), [""; 0]);
        let found = faults_with_spare(f32::INFINITY, DType::F16);
        assert!(
            found.len() == 1 && found[0].contains("1 of the 2 values of tensor `bert.spare`"),
            "{found:?}"
        );
    }

    /// Returns what is wrong with a model that has one more tensor, `bert.spare`, with the values 1 and
    /// `value`.
    fn faults_with_spare(value: f32, dtype: DType) -> Vec<String> {
        faults("bert", move |tensors, _| {
            let spare = Tensor::new(&[1.0, value], &Device::Cpu).unwrap().to_dtype(dtype).unwrap();
            tensors.insert("bert.spare".to_string(), spare);
        })
    }

    #[test]
    fn a_model_larger_than_any_disk_is_refused_before_its_layout_is_built() {
        let found = faults("roberta", |_, config| {
            let text = std::fs::read_to_string(config).unwrap();
            let mut keys: serde_json::Value = serde_json::from_str(&text).unwrap();
            keys["num_hidden_layers"] = 4096.into();
            keys["intermediate_size"] = (1 << 30).into();
            keys["hidden_size"] = (1 << 30).into();
            std::fs::write(config, keys.to_string()).unwrap();
        });
        assert!(found.len() == 1 && found[0].contains("describes no real model"), "{found:?}");
    }

    #[test]
    fn another_configuration_does_not_fit() {
        let found = faults("roberta_cls", |_, config| {
            let text = std::fs::read_to_string(config).unwrap();
            let mut keys: serde_json::Value = serde_json::from_str(&text).unwrap();
            let rows = keys["vocab_size"].as_u64().unwrap();
            keys["vocab_size"] = (rows + 1).into();
            std::fs::write(config, keys.to_string()).unwrap();
        });
        assert!(found.len() == 1 && found[0].contains("word_embeddings.weight` is ["), "{found:?}");
    }
}

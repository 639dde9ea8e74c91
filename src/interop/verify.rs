//! Whether the tensors of a model folder are those of the model that its `config.json` describes: all there,
//! in the right shapes, and finite.
//!
//! It holds no file against a hash, and builds no model: one tensor is in memory at a time.

use std::collections::BTreeSet;

use anyhow::Error;
use anyhow::Result;
use candle_core::Tensor;

use crate::families::HeadKind;
use crate::families::ModelConfig;
use crate::interop::folder::PretrainedFolder;
use crate::layers::Layout;
use crate::layers::Part;
use crate::models::Blueprint;
use crate::ops::tensor::with_slice;

/// More values than any disk holds; sums of shapes stay within 64 bits below it.
const MOST_VALUES: u128 = 1 << 50;

/// No weight comes near this: sums of products of such are infinite in f32.
const LARGEST_WEIGHT: f32 = 1e18;

impl PretrainedFolder {
    /// How many tensors its files hold.
    pub fn num_tensors(&self) -> usize {
        self.weights.tensors().count()
    }

    /// Bytes of the values of all tensors.
    pub fn tensor_bytes(&self) -> u64 {
        self.weights.tensors().filter_map(|(name, file)| Some(file.info(name)?.bytes)).sum()
    }

    /// The parameters of the model that would be built, by the head that the folder has; none where
    /// `config.json` describes more than any disk holds. Without a head it is that of a masked language
    /// model, whose head is not to be looked for.
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

    /// The error with which a run with a head of this kind would refuse the weights, if there is one: its head may be
    /// new.
    pub fn check_encoder(&self, head: HeadKind) -> Result<()> {
        let labels = self.id2label.as_ref().map_or(1, Vec::len);
        let layout = match head {
            HeadKind::TokenClassification => Blueprint::token_classifier(&self.config, labels)?.layout,
            _ => Blueprint::classifier(&self.config, labels).layout,
        };
        self.check(&layout, &layout.own_names(), None)
    }

    /// Reads every tensor; `read` is told how many more bytes. All that is wrong, each with its file and
    /// tensor; tensors that the model has no use for must be finite as well.
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
            // Constants such as position ids have whole numbers, and nobody computes with them.
            let has_values = taken.contains(name) || info.as_ref().is_some_and(|info| info.is_float);
            let loaded = || {
                let tensor = self.weights.load(name)?;
                if taken.contains(name) { self.require_usable(name, &tensor) } else { Ok(()) }
            };
            let fault = if has_values { loaded().err() } else { file.bytes(name).err() };
            faults.extend(fault);
            read(info.map_or(0, |info| info.bytes));
        }
        if matches!(self.head, HeadKind::MaskedLm | HeadKind::SentencePairs) && faults.is_empty() {
            faults.extend(self.check_tied_decoder().err());
        }
        faults
    }

    /// Refuses values of which products are no numbers in f32: training diverged that left them.
    fn require_usable(&self, name: &str, tensor: &Tensor) -> Result<()> {
        let largest = with_slice(tensor, |values| values.iter().fold(0.0, |most: f32, v| most.max(v.abs())))?;
        if largest < LARGEST_WEIGHT {
            return Ok(());
        }
        let message =
            format!("tensor `{name}` holds {largest:e}, and what a model computes with it is not finite");
        Err(self.weights.problem(&message).into())
    }

    /// Adds an error for each tensor that is missing or has another shape; `taken` are the names of those
    /// that are there, as the files have them.
    fn check_shapes<'a>(&'a self, layout: &Layout, taken: &mut BTreeSet<&'a str>, faults: &mut Vec<Error>) {
        let is_wanted = |part: Part| self.head != HeadKind::None || part != Part::Head;
        for spec in layout.specs().filter(|spec| is_wanted(spec.part)) {
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

/// Values of the tables and matrices that every encoder of these sizes has.
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

    use candle_core::DType;
    use candle_core::Device;
    use candle_core::Tensor;

    use crate::checkpoint::TensorFile;
    use crate::checkpoint::write_tensors;
    use crate::interop::open_folder;

    type Tensors = BTreeMap<String, Tensor>;

    /// A copy of a golden folder after `change`, and what is wrong with it.
    fn faults(golden: &str, change: impl FnOnce(&mut Tensors, &Path)) -> Vec<String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(golden);
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.json");
        std::fs::copy(source.join("config.json"), &config).unwrap();
        let mut tensors = TensorFile::open(&source.join("model.safetensors")).unwrap().tensors().unwrap();
        change(&mut tensors, &config);
        let tensors: Vec<(String, Tensor)> = tensors.into_iter().collect();
        let mut bytes = Vec::new();
        write_tensors(&mut bytes, &tensors).unwrap();
        std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
        let (read, opened) = (std::cell::Cell::new(0), open_folder(folder.path()).unwrap());
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
    fn the_folders_that_transformers_wrote_are_right() {
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
            "electra_rtd/generator",
            "electra_rtd/discriminator",
        ];
        for folder in folders {
            assert_eq!(faults(folder, |_, _| {}), [""; 0], "{folder}");
        }
    }

    #[test]
    fn every_fault_is_told_with_its_tensor() {
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
    fn what_the_model_does_not_use_must_be_finite_too_unless_it_counts() {
        let spare = |value: f32, dtype: DType| {
            faults("bert", move |tensors, _| {
                let spare = Tensor::new(&[1.0, value], &Device::Cpu).unwrap().to_dtype(dtype).unwrap();
                tensors.insert("bert.spare".to_string(), spare);
            })
        };
        assert_eq!(spare(2.0, DType::F32), [""; 0]);
        assert_eq!(spare(2.0, DType::I64), [""; 0]);
        let found = spare(f32::INFINITY, DType::F16);
        assert!(
            found.len() == 1 && found[0].contains("1 of the 2 values of tensor `bert.spare`"),
            "{found:?}"
        );
    }

    #[test]
    fn a_model_beyond_all_disks_is_refused_without_being_described() {
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

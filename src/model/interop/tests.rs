//! Tests of folders that other programs or this one wrote: names, shapes, keys, and clear refusals.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::checkpoint::write_tensors;
use crate::layers::parameters::ParameterSpec;
use crate::layers::{Layout, Parameters, Part};
use crate::models::Blueprint;
use base::families::{EncoderConfig, Family, HeadKind, ModelConfig};
use base::fs::testing::skipped;
use base::rng::{Purpose, Stream, hash_name};

const LABELS: [&str; 3] = ["bad", "good", "so so"];

fn model(family: Family) -> ModelConfig {
    let encoder = EncoderConfig {
        vocab_size: 11,
        hidden_size: 4,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        intermediate_size: 6,
        max_position_embeddings: 9,
        position_buckets: family.defaults.position_buckets.min(4),
        ..EncoderConfig::of(family)
    };
    ModelConfig { family, encoder }
}

fn random(name: &str, shape: &[usize]) -> Tensor {
    let stream = Stream::new(3, Purpose::Test, hash_name(name));
    let values: Vec<f32> =
        (0..shape.iter().product::<usize>()).map(|index| stream.normal(index as u64) as f32).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// Returns the layout of a model. Without a head it is that of a masked language model, whose head the caller
/// drops.
fn layout(config: &ModelConfig, head: HeadKind) -> Layout {
    match head {
        head if head.is_of_sequences() => Blueprint::classifier(config, LABELS.len()).layout,
        HeadKind::ReplacedTokenDetection => {
            Blueprint::replaced_tokens(config, config.family.replaced_tokens.unwrap()).layout
        }
        HeadKind::TokenClassification => Blueprint::token_classifier(config, LABELS.len()).unwrap().layout,
        HeadKind::SentencePairs => Blueprint::sentence_pairs(config).unwrap().layout,
        _ => Blueprint::masked_lm(config).layout,
    }
}

fn specs(config: &ModelConfig, head: HeadKind) -> Vec<ParameterSpec> {
    let all = layout(config, head);
    all.specs().filter(|spec| head != HeadKind::None || spec.part != Part::Head).cloned().collect()
}

/// Fills a model with the folder's own head from the folder; returns its tensors and the notes.
fn tensors_in(folder: &Path) -> anyhow::Result<(BTreeMap<String, Tensor>, Filled)> {
    let read = read_folder(folder)?;
    let parameters = Parameters::initialise(layout(&read.config, read.head), 0.02, 1, &Device::Cpu)?;
    let filled = read.fill(&parameters, read.head == HeadKind::None)?;
    let wanted = specs(&read.config, read.head);
    let named =
        parameters.named()?.into_iter().filter(|(name, _)| wanted.iter().any(|spec| spec.name == *name));
    Ok((named.collect(), filled))
}

fn tensors_of(config: &ModelConfig, head: HeadKind) -> BTreeMap<String, Tensor> {
    let specs = specs(config, head);
    specs.into_iter().map(|spec| (spec.name.clone(), random(&spec.name, &spec.shape))).collect()
}

fn write_folder(config: &Value, tensors: &BTreeMap<String, Tensor>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), serde_json::to_vec(config).unwrap()).unwrap();
    write_weights(&folder.path().join("model.safetensors"), tensors);
    folder
}

fn write_weights(path: &Path, tensors: &BTreeMap<String, Tensor>) {
    let list: Vec<(String, Tensor)> =
        tensors.iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
    write_tensors(&mut std::fs::File::create(path).unwrap(), &list).unwrap();
}

fn config_json(family: Family, head: HeadKind) -> Value {
    let labels = head.has_labels().then(|| LABELS.map(String::from).to_vec());
    HubConfig::new(model(family), head, labels).to_json()
}

fn refusal(config: &Value, tensors: &BTreeMap<String, Tensor>) -> String {
    format!("{:#}", tensors_in(write_folder(config, tensors).path()).unwrap_err())
}

fn assert_same(left: &BTreeMap<String, Tensor>, right: &BTreeMap<String, Tensor>) {
    assert_eq!(left.keys().collect::<Vec<_>>(), right.keys().collect::<Vec<_>>());
    for (name, tensor) in left {
        assert_eq!(tensor.dtype(), DType::F32, "{name}");
        assert_eq!(values(tensor), values(&right[name]), "{name}");
    }
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn written_folders_are_read_back() {
    // ALBERT and ELECTRA are left out: their `embedding_size` is always written, so it is set after reading.
    for family in Family::ALL.into_iter().filter(|family| family.embedding_map.is_none()) {
        for head in HeadKind::ALL.into_iter().filter(|&head| family.has(head)) {
            let tensors = tensors_of(&model(family), head);
            let folder = write_folder(&config_json(family, head), &tensors);
            std::fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
            let read = read_folder(folder.path()).unwrap();
            assert_eq!((read.config, read.head), (model(family), head));
            let (found, filled) = tensors_in(folder.path()).unwrap();
            assert_same(&found, &tensors);
            assert_eq!((filled.notes, filled.new.is_empty()), (Vec::new(), head != HeadKind::None));
            assert_eq!(read.id2label.is_some(), head.has_labels());
            assert_eq!(read.tokenizer_files, [folder.path().join("tokenizer.json")]);
            assert_eq!(read.notes, [""; 0]);
        }
    }
}

// The expected names are those that `save_pretrained` of transformers 5.23.0 writes for one layer, without
// the encoder's layers. Tied decoders and their bias are not among them.
#[test]
fn the_canonical_names_are_those_that_transformers_saves() {
    assert_eq!(
        head_names(Family::ROBERTA, HeadKind::MaskedLm),
        [
            "lm_head.bias",
            "lm_head.dense.bias",
            "lm_head.dense.weight",
            "lm_head.layer_norm.bias",
            "lm_head.layer_norm.weight"
        ]
    );
    assert_eq!(
        head_names(Family::ROBERTA, HeadKind::SequenceClassification),
        [
            "classifier.dense.bias",
            "classifier.dense.weight",
            "classifier.out_proj.bias",
            "classifier.out_proj.weight"
        ]
    );
    assert_eq!(
        head_names(Family::BERT, HeadKind::SequenceClassification),
        ["bert.pooler.dense.bias", "bert.pooler.dense.weight", "classifier.bias", "classifier.weight"]
    );
    let mut bert = head_names(Family::BERT, HeadKind::MaskedLm);
    bert.retain(|name| !name.contains("pooler"));
    let transform = "cls.predictions.transform";
    assert_eq!(
        bert,
        [
            "cls.predictions.bias".to_string(),
            format!("{transform}.LayerNorm.bias"),
            format!("{transform}.LayerNorm.weight"),
            format!("{transform}.dense.bias"),
            format!("{transform}.dense.weight")
        ]
    );
    assert_eq!(specs(&model(Family::ROBERTA), HeadKind::None).len(), 5 + 16);
}

/// Returns the sorted names of a model's parameters outside of the embeddings and the encoder's layers.
fn head_names(family: Family, head: HeadKind) -> Vec<String> {
    let mut names: Vec<String> = specs(&model(family), head).into_iter().map(|spec| spec.name).collect();
    names.retain(|name| !name.contains("encoder.layer") && !name.contains("embeddings"));
    names.sort();
    names
}

#[test]
fn an_old_bert_checkpoint_is_brought_up_to_date() {
    let wanted = tensors_of(&model(Family::BERT), HeadKind::MaskedLm);
    let mut old = BTreeMap::new();
    for (name, tensor) in &wanted {
        let name =
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta");
        old.insert(name.replace("cls.predictions.bias", "cls.predictions.decoder.bias"), tensor.clone());
    }
    let embedding = wanted["bert.embeddings.word_embeddings.weight"].clone();
    old.insert("cls.predictions.decoder.weight".to_string(), embedding.clone());
    old.insert("bert.embeddings.position_ids".to_string(), Tensor::new(&[[0_i64, 1]], &Device::Cpu).unwrap());
    old.insert("cls.seq_relationship.weight".to_string(), random("nsp", &[2, 4]));
    let mut config = config_json(Family::BERT, HeadKind::MaskedLm);
    config["architectures"] = json!(["BertForPreTraining"]);
    let (found, filled) = tensors_in(write_folder(&config, &old).path()).unwrap();
    assert_same(&found, &wanted);
    assert!(filled.notes[0].contains("not used: `cls.seq_relationship.weight`"), "{:?}", filled.notes);
    old.insert("cls.predictions.decoder.weight".to_string(), (embedding + 1.0).unwrap());
    let message = refusal(&config, &old);
    assert!(
        message.contains("`cls.predictions.decoder.weight` differs from the word embedding"),
        "{message}"
    );
}

#[test]
fn a_bare_encoder_in_half_precision_and_in_shards_is_read() {
    let wanted = tensors_of(&model(Family::ROBERTA), HeadKind::None);
    let half: BTreeMap<String, Tensor> = wanted
        .iter()
        .map(|(name, tensor)| (name.replace("roberta.", ""), tensor.to_dtype(DType::BF16).unwrap()))
        .collect();
    let folder = write_folder(&config_json(Family::ROBERTA, HeadKind::None), &half);
    let read = read_folder(folder.path()).unwrap();
    assert_eq!(read.head, HeadKind::None);
    let rounded: BTreeMap<String, Tensor> = half
        .iter()
        .map(|(name, tensor)| (format!("roberta.{name}"), tensor.to_dtype(DType::F32).unwrap()))
        .collect();
    assert_same(&tensors_in(folder.path()).unwrap().0, &rounded);

    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let mut shards = [BTreeMap::new(), BTreeMap::new()];
    let mut weight_map = serde_json::Map::new();
    for (index, (name, tensor)) in half.iter().enumerate() {
        shards[index % 2].insert(name.clone(), tensor.clone());
        weight_map.insert(name.clone(), json!(format!("model-{}.safetensors", index % 2)));
    }
    for (index, shard) in shards.iter().enumerate() {
        write_weights(&folder.path().join(format!("model-{index}.safetensors")), shard);
    }
    let index_path = folder.path().join("model.safetensors.index.json");
    std::fs::write(&index_path, json!({ "weight_map": weight_map }).to_string()).unwrap();
    assert_same(&tensors_in(folder.path()).unwrap().0, &rounded);

    weight_map.insert("encoder.extra".to_string(), json!("../elsewhere.safetensors"));
    std::fs::write(&index_path, json!({ "weight_map": weight_map }).to_string()).unwrap();
    let message = format!("{:#}", read_folder(folder.path()).unwrap_err());
    assert!(message.contains("index.json") && message.contains("`encoder.extra`"), "{message}");
}

#[test]
fn a_wrong_shape_names_tensor_and_both_shapes() {
    let mut tensors = tensors_of(&model(Family::BERT), HeadKind::SequenceClassification);
    tensors.insert("classifier.weight".to_string(), random("c", &[2, 4]));
    let config = config_json(Family::BERT, HeadKind::SequenceClassification);
    let message = refusal(&config, &tensors);
    assert!(
        message.contains("`classifier.weight` is [2, 4], the model of `config.json` wants [3, 4]"),
        "{message}"
    );
    tensors.remove("bert.encoder.layer.0.output.dense.bias");
    let message = refusal(&config, &tensors);
    assert!(message.contains("`bert.encoder.layer.0.output.dense.bias` is missing"), "{message}");
}

#[test]
fn the_head_is_found_without_architectures() {
    for family in Family::ALL {
        for head in HeadKind::ALL.into_iter().filter(|&head| family.has(head)) {
            let mut config = config_json(family, head);
            config.as_object_mut().unwrap().remove("architectures");
            let tensors = tensors_of(&model(family), head);
            let folder = write_folder(&config, &tensors);
            // A tagger of ModernBERT has the same tensor names as a classifier, and is taken for one.
            let is_either = family == Family::MODERNBERT && head == HeadKind::TokenClassification;
            let wanted = if is_either { HeadKind::SequenceClassification } else { head };
            assert_eq!(read_folder(folder.path()).unwrap().head, wanted, "{family:?}");
        }
    }
}

/// Uses the head's names of DeBERTa's authors, which transformers writes with `legacy: false`.
#[test]
fn a_head_is_read_by_its_other_names() {
    let head = HeadKind::MaskedLm;
    let tensors = tensors_of(&model(Family::DEBERTA_V2), head);
    let renamed: BTreeMap<String, Tensor> = tensors
        .iter()
        .map(|(name, tensor)| {
            let name = name.replace("cls.predictions.transform.", "lm_predictions.lm_head.");
            (name.replace("cls.predictions.bias", "lm_predictions.lm_head.bias"), tensor.clone())
        })
        .collect();
    assert_eq!(renamed.keys().filter(|name| name.starts_with("lm_predictions.")).count(), 5);
    let mut config = config_json(Family::DEBERTA_V2, head);
    config["legacy"] = false.into();
    let (found, filled) = tensors_in(write_folder(&config, &renamed).path()).unwrap();
    assert_same(&found, &tensors);
    assert_eq!(filled.notes, [""; 0]);
}

#[test]
fn a_missing_head_is_reported_if_it_may_be_new_and_an_error_if_not() {
    let tensors = tensors_of(&model(Family::BERT), HeadKind::MaskedLm);
    let folder = write_folder(&config_json(Family::BERT, HeadKind::MaskedLm), &tensors);
    let read = read_folder(folder.path()).unwrap();
    let layout = layout(&model(Family::BERT), HeadKind::SequenceClassification);
    let parameters = Parameters::initialise(layout, 0.02, 1, &Device::Cpu).unwrap();
    let filled = read.fill(&parameters, true).unwrap();
    let names =
        ["bert.pooler.dense.bias", "bert.pooler.dense.weight", "classifier.bias", "classifier.weight"];
    assert_eq!(filled.new, names);
    assert!(filled.notes[0].contains("not used: `cls.predictions.bias`"), "{:?}", filled.notes);
    let message = format!("{:#}", read.fill(&parameters, false).unwrap_err());
    assert!(message.contains("tensor `bert.pooler.dense.bias` is missing"), "{message}");
}

#[test]
fn an_untrained_twin_keeps_its_initial_values_and_is_another_model() {
    let (config, head) = (model(Family::ROBERTA), HeadKind::MaskedLm);
    let folder = write_folder(&config_json(Family::ROBERTA, head), &tensors_of(&config, head));
    let filled_values = |folder: &PretrainedFolder| {
        let parameters = Parameters::initialise(layout(&config, head), 0.02, 1, &Device::Cpu).unwrap();
        assert_eq!(folder.fill(&parameters, false).unwrap().new, [""; 0]);
        parameters.flat().to_vec1::<f32>().unwrap()
    };
    let initial = Parameters::initialise(layout(&config, head), 0.02, 1, &Device::Cpu).unwrap();
    let initial = initial.flat().to_vec1::<f32>().unwrap();
    let trained = read_folder(folder.path()).unwrap();
    let hash = trained.sha256().unwrap();
    let trained_values = filled_values(&trained);
    let twin = trained.untrained();
    assert!(filled_values(&twin) == initial && trained_values != initial);
    assert_ne!(twin.sha256().unwrap(), hash);
}

#[test]
fn a_pickle_or_an_empty_folder_is_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let message = format!("{:#}", read_folder(folder.path()).unwrap_err());
    assert!(message.contains("no `config.json`"), "{message}");
    std::fs::write(folder.path().join("config.json"), config_json(Family::BERT, HeadKind::None).to_string())
        .unwrap();
    std::fs::write(folder.path().join("pytorch_model.bin"), b"pickle").unwrap();
    let message = format!("{:#}", read_folder(folder.path()).unwrap_err());
    assert!(message.contains("pickle") && message.contains("hint: convert it"), "{message}");
}

#[test]
fn unsupported_and_wrong_keys_are_all_named_at_once() {
    let mut config = config_json(Family::ROBERTA, HeadKind::None);
    config["hidden_act"] = json!("relu");
    config["position_embedding_type"] = json!("relative_key");
    config["hidden_size"] = json!("wide");
    config["num_hidden_layers"] = json!(1e18);
    config["is_decoder"] = json!(true);
    let message = HubConfig::parse("config.json", config.to_string().as_bytes()).unwrap_err().to_string();
    for part in [
        "`hidden_act` \"relu\"",
        "`position_embedding_type`",
        "`hidden_size` must be",
        "`num_hidden_layers` must be",
        "`is_decoder`",
    ] {
        assert!(message.contains(part), "{part} in {message}");
    }
    let message = HubConfig::parse("config.json", br#"{"model_type": "gpt2"}"#).unwrap_err().to_string();
    assert!(message.contains("`model_type` \"gpt2\" is not supported"), "{message}");
}

#[test]
fn unknown_keys_are_passed_on_and_an_unsupported_head_is_ignored() {
    let mut config = config_json(Family::BERT, HeadKind::SequenceClassification);
    config["bos_token_id"] = json!(5);
    config["_name_or_path"] = json!("/home/somebody/model");
    config["problem_type"] = json!("ordinal_classification");
    let read = HubConfig::parse("config.json", config.to_string().as_bytes()).unwrap();
    assert_eq!(read.head, Some(HeadKind::None));
    assert!(read.notes[0].contains("ordinal_classification"), "{:?}", read.notes);
    let written = read.to_json();
    assert_eq!((&written["bos_token_id"], written.get("_name_or_path")), (&json!(5), None));
}

/// Transformers takes a model with one output for a regression.
#[test]
fn regression_and_multi_label_heads_are_recognised_by_their_problem_type() {
    let mut config = config_json(Family::BERT, HeadKind::SequenceClassification);
    config["problem_type"] = json!("regression");
    assert_eq!(head_of(&config), Some(HeadKind::Regression));
    config["id2label"] = json!({"0": "LABEL_0"});
    assert_eq!(head_of(&config), Some(HeadKind::Regression));
    config["problem_type"] = Value::Null;
    assert_eq!(head_of(&config), Some(HeadKind::Regression));
    config["problem_type"] = json!("single_label_classification");
    assert_eq!(head_of(&config), Some(HeadKind::None));
    for labels in [json!({"0": "spam"}), json!({"0": "a", "1": "b"})] {
        config["id2label"] = labels;
        config["problem_type"] = json!("multi_label_classification");
        assert_eq!(head_of(&config), Some(HeadKind::MultiLabelClassification));
    }
}

fn head_of(config: &Value) -> Option<HeadKind> {
    HubConfig::parse("config.json", config.to_string().as_bytes()).unwrap().head
}

/// Returns the folder of all-MiniLM-L6-v2, if `MLMTRAIN_MINILM` names one.
fn minilm() -> Option<PathBuf> {
    let folder = std::env::var_os("MLMTRAIN_MINILM")
        .map(PathBuf::from)
        .filter(|folder| folder.join("config.json").exists());
    if folder.is_none() {
        skipped("`MLMTRAIN_MINILM` names no model folder");
    }
    folder
}

#[test]
fn a_published_checkpoint_is_read() {
    let Some(folder) = minilm() else { return };
    let read = read_folder(&folder).unwrap();
    assert_eq!(
        (read.config.family, read.head, read.config.encoder.hidden_size),
        (Family::BERT, HeadKind::None, 384)
    );
    let (tensors, _) = tensors_in(&folder).unwrap();
    assert_eq!(tensors.len(), 5 + 6 * 16);
    assert_eq!(tensors["bert.embeddings.word_embeddings.weight"].dims(), [30522, 384]);
    assert!(read.notes.iter().any(|note| note.contains("embeddings.position_ids")), "{:?}", read.notes);
    assert!(read.tokenizer_files.iter().any(|path| path.ends_with("tokenizer.json")));
}

fn read_config(bytes: &[u8]) -> Result<HubConfig, String> {
    HubConfig::parse("some/config.json", bytes).map_err(|e| e.to_string())
}

proptest! {
    #[test]
    fn arbitrary_bytes_as_a_config_are_refused_by_name(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let message = read_config(&bytes).unwrap_err();
        prop_assert!(message.contains("some/config.json"), "{message}");
    }

    #[test]
    fn a_key_of_any_value_is_read_or_refused_by_name(key in 0..24_usize, value in any_json()) {
        let mut config = config_json(Family::BERT, HeadKind::SequenceClassification);
        let key = config.as_object().unwrap().keys().nth(key % config.as_object().unwrap().len()).unwrap().clone();
        config[&key] = value;
        match read_config(config.to_string().as_bytes()) {
            Ok(read) => { read.to_json(); }
            Err(message) => prop_assert!(message.contains("some/config.json") && message.contains('`'), "{message}"),
        }
    }

    #[test]
    fn arbitrary_bytes_as_an_index_are_refused_by_name(bytes in proptest::collection::vec(any::<u8>(), 0..100), map in any_json()) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), config_json(Family::BERT, HeadKind::None).to_string()).unwrap();
        for content in [bytes, json!({ "weight_map": map }).to_string().into_bytes()] {
            std::fs::write(folder.path().join("model.safetensors.index.json"), content).unwrap();
            let message = format!("{:#}", tensors_in(folder.path()).unwrap_err());
            prop_assert!(message.contains(&folder.path().display().to_string()), "{message}");
        }
    }

    #[test]
    fn a_folder_with_damaged_weights_is_read_or_refused_by_name(position in 0..4096_usize, byte in any::<u8>()) {
        let folder = write_folder(&config_json(Family::ROBERTA, HeadKind::MaskedLm), &tensors_of(&model(Family::ROBERTA), HeadKind::MaskedLm));
        let path = folder.path().join("model.safetensors");
        let mut bytes = std::fs::read(&path).unwrap();
        let position = position % bytes.len();
        bytes[position] = byte;
        std::fs::write(&path, bytes).unwrap();
        if let Err(e) = tensors_in(folder.path()) {
            prop_assert!(format!("{e:#}").contains("model.safetensors"), "{e:#}");
        }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(|v| json!(v)),
        any::<i64>().prop_map(|v| json!(v)),
        any::<f64>().prop_map(|v| json!(v)),
        "[a-z0-9]{0,8}".prop_map(|v| json!(v)),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(|v| json!(v)),
            proptest::collection::btree_map("[0-3]", inner, 0..3).prop_map(|v| json!(v)),
        ]
    })
}

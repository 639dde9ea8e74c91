//! Reads the `config.json` of transformers into a [`ModelConfig`] and writes it back.
//!
//! Absent keys take the defaults of transformers' own classes (5.23), which are not those of our
//! configuration files.

mod labels;
mod relative;
mod rotary;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::Result;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use base::error::{Problem, Problems};
use base::families::{
    EncoderConfig, Family, HeadKind, MOST_INITIALIZER_RANGE, MOST_LAYER_NORM_EPS, ModelConfig, PositionKind,
    ROPE_THETA,
};
use base::fs;

const CAP_BYTES: u64 = 1 << 20;
/// Name in errors of the file that a model which is not trained yet will have.
const PLACE: &str = "the `config.json` of the model";
/// Largest accepted width or number of rows. No model comes near; the product of two such sizes fits into 64
/// bits.
const LARGEST_SIZE: u64 = 1 << 30;
/// Largest accepted number of layers. A list of tensor names is made for each layer, so a mistyped number
/// must not exhaust memory.
const MOST_LAYERS: u64 = 4096;

/// The contents of a `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct HubConfig {
    /// Family and encoder.
    pub model: ModelConfig,
    /// The head; `None` if the file does not name one (no `architectures`).
    pub head: Option<HeadKind>,
    /// The names of the classes in the order of their ids.
    pub id2label: Option<Vec<String>>,
    /// Keys that this program does not know (`bos_token_id`, ...), passed on as they are.
    pub extra: Map<String, Value>,
    /// Notes for the log on contradictory keys and on heads that were ignored.
    pub notes: Vec<String>,
}

impl HubConfig {
    /// Returns the config of a model that this program trains; `id2label` is for a classifier.
    pub fn new(model: ModelConfig, head: HeadKind, id2label: Option<Vec<String>>) -> Self {
        Self { model, head: Some(head), id2label, extra: Map::new(), notes: Vec::new() }
    }

    /// Reads and checks the file at `path`; every problem is named with its key.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read_capped(path, CAP_BYTES)?;
        fs::refuse_mistaken(path, &bytes, "a file of JSON")?;
        Self::parse(&path.display().to_string(), &bytes)
    }

    /// Reads and checks the bytes of a file called `place`.
    pub fn parse(place: &str, bytes: &[u8]) -> Result<Self> {
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|e| Problem::new(format!("is not valid JSON: {e}")).at(place))?;
        let Value::Object(keys) = value else {
            return Err(Problem::new("is not a JSON object").at(place).into());
        };
        let mut reader = Reader { place, keys, problems: Vec::new() };
        let config = reader.config();
        match (config, reader.problems) {
            (Some(config), problems) if problems.is_empty() => Ok(config),
            (_, problems) => Err(Problems(problems).into()),
        }
    }

    /// Returns an error if [`Self::read`] would refuse these bytes, which this program is about to write: a
    /// model that cannot be read again is not worth training.
    pub fn require_readable(bytes: &[u8]) -> Result<()> {
        if bytes.len() as u64 > CAP_BYTES {
            let message = format!("would have {} bytes, and {CAP_BYTES} are read", bytes.len());
            return Err(Problem::usage(message)
                .at(PLACE)
                .hint("give the labels shorter names, or fewer")
                .into());
        }
        Self::parse(PLACE, bytes).map(drop)
    }

    /// Returns the JSON that transformers reads, with its keys sorted as transformers sorts them.
    pub fn to_json(&self) -> Value {
        let mut keys: BTreeMap<String, Value> = self.extra.clone().into_iter().collect();
        keys.extend(self.model.to_table());
        let family = self.model.family;
        if family.embedding_map.is_some() {
            keys.insert("embedding_size".to_string(), json!(self.model.encoder.embedding_width()));
        }
        keys.extend(family.keys.constants.iter().map(|(key, value)| (key.to_string(), value.json())));
        let class = family.architecture(self.head.unwrap_or(HeadKind::None));
        keys.insert("model_type".to_string(), json!(family.name));
        keys.extend(class.map(|class| ("architectures".to_string(), json!([class]))));
        keys.insert("tie_word_embeddings".to_string(), json!(family.masked_lm.is_tied));
        if let Some(code) = family.remote_code {
            let classes = code.classes.iter().map(|(auto, class)| (auto, format!("{}.{class}", code.module)));
            keys.insert("auto_map".to_string(), json!(classes.collect::<BTreeMap<_, _>>()));
        }
        keys.insert("dtype".to_string(), json!("float32"));
        if let Some(labels) = &self.id2label {
            let id2label: Map<String, Value> =
                labels.iter().enumerate().map(|(id, label)| (id.to_string(), json!(label))).collect();
            let label2id: Map<String, Value> =
                labels.iter().enumerate().map(|(id, label)| (label.clone(), json!(id))).collect();
            keys.insert("id2label".to_string(), Value::Object(id2label));
            keys.insert("label2id".to_string(), Value::Object(label2id));
            if let Some(problem_type) = self.head.and_then(HeadKind::problem_type) {
                keys.insert("problem_type".to_string(), json!(problem_type));
            }
        }
        Value::Object(keys.into_iter().collect())
    }
}

/// Takes the known keys out of `keys` and collects problems; the keys that are left are unknown.
struct Reader<'a> {
    place: &'a str,
    keys: Map<String, Value>,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn config(&mut self) -> Option<HubConfig> {
        let mut notes = Vec::new();
        let family = self.family()?;
        let mut head = self.head(family, &mut notes);
        match family.positions {
            PositionKind::Rotary => self.unfold_layers(),
            PositionKind::Relative => self.unfold_positions(),
            PositionKind::Table | PositionKind::TableBehindPadding => {}
        }
        let encoder = self.encoder(family);
        self.refuse_other_models(family);
        let id2label = self.labels(&mut notes);
        let problem_type = self.keys.shift_remove("problem_type").unwrap_or(Value::Null);
        let one_label = id2label.as_ref().is_some_and(|labels| labels.len() == 1);
        // Without `problem_type`, transformers takes a model with one output for a regression.
        let declared = match problem_type.as_str() {
            None => (one_label && problem_type.is_null()).then_some(HeadKind::Regression),
            Some(name) => HeadKind::ALL
                .into_iter()
                .find(|head| head.problem_type() == Some(name))
                .filter(|head| *head != HeadKind::SequenceClassification),
        };
        // The names of tensors do not distinguish these heads, so `problem_type` also counts if the file
        // names no class.
        let is_named = head == Some(HeadKind::SequenceClassification);
        if declared.is_some() && (is_named || head.is_none() && !problem_type.is_null()) {
            head = declared;
        }
        if head == Some(HeadKind::SequenceClassification)
            && (one_label || !matches!(problem_type.as_str(), None | Some("single_label_classification")))
        {
            notes.push(format!(
                "{}: the head is not one class out of several (problem_type {problem_type}) and is ignored",
                self.place
            ));
            head = Some(HeadKind::None);
        }
        for key in ["dtype", "torch_dtype", "_name_or_path", "transformers_version", "tie_word_embeddings"] {
            self.keys.shift_remove(key);
        }
        let extra = std::mem::take(&mut self.keys);
        Some(HubConfig { model: ModelConfig { family, encoder }, head, id2label, extra, notes })
    }

    fn refuse(&mut self, message: String) {
        self.problems.push(Problem::new(message).at(self.place));
    }

    fn family(&mut self) -> Option<Family> {
        let supported = Family::names("and");
        match self.keys.shift_remove("model_type") {
            Some(name) => match name.as_str().and_then(Family::named) {
                Some(family) => return Some(family),
                None => self.refuse(format!("`model_type` {name} is not supported: {supported} are")),
            },
            None => self.refuse(format!("key `model_type` is missing: {supported} are supported")),
        }
        None
    }

    fn head(&mut self, family: Family, notes: &mut Vec<String>) -> Option<HeadKind> {
        let names = self.keys.shift_remove("architectures")?;
        let name = names.get(0)?.as_str()?;
        let head = family.head_of(name);
        if head.is_none() {
            notes.push(format!("{}: the head of `{name}` is not known and is ignored", self.place));
        }
        Some(head.unwrap_or(HeadKind::None))
    }

    fn encoder(&mut self, family: Family) -> EncoderConfig {
        let absent = &family.hub_defaults;
        let key = |field| family.key(field);
        let encoder = EncoderConfig {
            vocab_size: self.size(key("vocab_size"), absent.vocab_size),
            embedding_size: absent.embedding_size.map(|width| self.size(key("embedding_size"), width)),
            hidden_size: self.size(key("hidden_size"), absent.hidden_size),
            num_hidden_layers: self.whole(
                key("num_hidden_layers"),
                absent.num_hidden_layers as u64,
                1,
                MOST_LAYERS,
            ) as usize,
            num_attention_heads: self.size(key("num_attention_heads"), absent.num_attention_heads),
            intermediate_size: self.size(key("intermediate_size"), absent.intermediate_size),
            hidden_act: self.word(key("hidden_act"), absent.hidden_act, "`gelu` or `gelu_new`"),
            hidden_dropout_prob: self.share(key("hidden_dropout_prob"), absent.hidden_dropout_prob),
            attention_probs_dropout_prob: self
                .share(key("attention_probs_dropout_prob"), absent.attention_probs_dropout_prob),
            embedding_dropout: self.share(key("embedding_dropout"), absent.embedding_dropout),
            mlp_dropout: self.share(key("mlp_dropout"), absent.mlp_dropout),
            classifier_dropout: self.classifier_dropout(family),
            classifier_pooling: self.word(
                key("classifier_pooling"),
                absent.classifier_pooling,
                "`cls` or `mean`",
            ),
            max_position_embeddings: self
                .size(key("max_position_embeddings"), absent.max_position_embeddings),
            local_attention: self.whole(
                key("local_attention"),
                absent.local_attention as u64,
                2,
                LARGEST_SIZE,
            ) as usize,
            global_attn_every_n_layers: self
                .size(key("global_attn_every_n_layers"), absent.global_attn_every_n_layers),
            global_rope_theta: self.number(key("global_rope_theta"), absent.global_rope_theta, ROPE_THETA),
            local_rope_theta: self.number(key("local_rope_theta"), absent.local_rope_theta, ROPE_THETA),
            position_buckets: self.count(key("position_buckets"), absent.position_buckets),
            max_relative_positions: self.count(key("max_relative_positions"), absent.max_relative_positions),
            pos_att_type: self.word(
                key("pos_att_type"),
                absent.pos_att_type,
                "`p2c|c2p`, `c2p`, `p2c` or `none`",
            ),
            share_att_key: self.flag(key("share_att_key"), absent.share_att_key),
            norm_rel_ebd: self.word(key("norm_rel_ebd"), absent.norm_rel_ebd, "`layer_norm` or `none`"),
            position_biased_input: self.flag(key("position_biased_input"), absent.position_biased_input),
            enhanced_mask_decoder: self.flag(key("enhanced_mask_decoder"), absent.enhanced_mask_decoder),
            pooler_dropout: self.share(key("pooler_dropout"), absent.pooler_dropout),
            type_vocab_size: if absent.type_vocab_size == 0 {
                self.count(key("type_vocab_size"), 0)
            } else {
                self.size(key("type_vocab_size"), absent.type_vocab_size)
            },
            layer_norm_eps: self.number(
                key("layer_norm_eps"),
                absent.layer_norm_eps,
                0.0..=MOST_LAYER_NORM_EPS,
            ),
            initializer_range: self.number(
                key("initializer_range"),
                absent.initializer_range,
                0.0..=MOST_INITIALIZER_RANGE,
            ),
            pad_token_id: self.whole(key("pad_token_id"), absent.pad_token_id.into(), 0, LARGEST_SIZE) as u32,
        };
        let model = ModelConfig { family, encoder };
        self.refuse_sizes(&model);
        model.encoder
    }

    /// Refuses sizes that do not go together.
    fn refuse_sizes(&mut self, model: &ModelConfig) {
        let ModelConfig { family, encoder } = model;
        if !encoder.hidden_size.is_multiple_of(encoder.num_attention_heads) {
            self.refuse(format!(
                "`{}` {} is not a multiple of `{}` {}",
                family.key("hidden_size").unwrap_or("hidden_size"),
                encoder.hidden_size,
                family.key("num_attention_heads").unwrap_or("num_attention_heads"),
                encoder.num_attention_heads
            ));
        } else if family.positions == PositionKind::Rotary && !encoder.head_size().is_multiple_of(2) {
            self.refuse(format!(
                "heads of {} do not fall into pairs for rotary positions",
                encoder.head_size()
            ));
        }
        if family.positions == PositionKind::Relative && !encoder.buckets_fit() {
            self.refuse(format!(
                "`position_buckets` {} and `max_relative_positions` {} do not go together: half of the buckets are for one distance each, the others for farther ones",
                encoder.position_buckets,
                encoder.farthest_position()
            ));
        }
        if model.feed_forward_width() == 0 {
            self.refuse(format!(
                "`intermediate_size` {} leaves no feed-forward width",
                model.encoder.intermediate_size
            ));
        }
        if model.max_sequence_length() == 0 {
            self.refuse(format!(
                "`max_position_embeddings` {} leaves no position for a token",
                model.encoder.max_position_embeddings
            ));
        }
    }

    /// Returns the dropout of the classifier. `None`, from `null` or from a family without a default of its
    /// own, means `hidden_dropout_prob`.
    fn classifier_dropout(&mut self, family: Family) -> Option<f64> {
        let key = family.key("classifier_dropout")?;
        let absent = &family.hub_defaults;
        match self.keys.get(key) {
            None => absent.classifier_dropout,
            Some(Value::Null) => {
                self.keys.shift_remove(key);
                None
            }
            Some(_) => Some(self.share(Some(key), absent.hidden_dropout_prob)),
        }
    }

    /// Takes one of a few words; `wanted` lists them for the error.
    fn word<W: DeserializeOwned>(&mut self, key: Option<&str>, absent: W, wanted: &str) -> W {
        let Some((key, value)) = self.take(key) else { return absent };
        serde_json::from_value(value.clone()).unwrap_or_else(|_| {
            self.refuse(format!("`{key}` must be {wanted}, not {}", shown(&value)));
            absent
        })
    }

    fn flag(&mut self, key: Option<&str>, absent: bool) -> bool {
        self.word(key, absent, "`true` or `false`")
    }

    fn refuse_other_models(&mut self, family: Family) {
        for (key, wanted) in family.keys.constants {
            let wanted = wanted.json();
            match self.keys.shift_remove(*key) {
                Some(other) if other != wanted => {
                    let wanted = wanted.as_str().map_or(wanted.to_string(), str::to_string);
                    self.refuse(format!("`{key}` {other} is not supported, only `{wanted}` is"));
                }
                _ => {}
            }
        }
        for key in ["is_decoder", "add_cross_attention"] {
            if self.keys.get(key) == Some(&Value::Bool(true)) {
                self.refuse(format!("`{key}` is true: this is a decoder, and only encoders are supported"));
            }
        }
        if self
            .keys
            .get("pruned_heads")
            .is_some_and(|heads| heads.as_object().is_none_or(|heads| !heads.is_empty()))
        {
            self.refuse("`pruned_heads` is not supported".to_string());
        }
        if self.keys.contains_key("quantization_config") {
            self.refuse(
                "the weights are quantized (`quantization_config`), which is not supported".to_string(),
            );
        }
    }

    fn take<'k>(&mut self, key: Option<&'k str>) -> Option<(&'k str, Value)> {
        let value = self.keys.shift_remove(key?).filter(|value| !value.is_null())?;
        Some((key?, value))
    }

    fn size(&mut self, key: Option<&str>, default: usize) -> usize {
        self.whole(key, default as u64, 1, LARGEST_SIZE) as usize
    }

    /// Like [`Self::size`], but 0 is allowed.
    fn count(&mut self, key: Option<&str>, default: usize) -> usize {
        self.whole(key, default as u64, 0, LARGEST_SIZE) as usize
    }

    fn share(&mut self, key: Option<&str>, default: f64) -> f64 {
        // The largest f32 below 1: dropout computes in f32.
        self.number(key, default, 0.0..=f64::from(1.0_f32.next_down()))
    }

    /// Takes a whole number. Returns `default` if the family has no such key (`None`) or the file lacks it.
    fn whole(&mut self, key: Option<&str>, default: u64, least: u64, most: u64) -> u64 {
        let Some((key, value)) = self.take(key) else { return default };
        match value.as_u64() {
            Some(number) if (least..=most).contains(&number) => number,
            _ => {
                self.refuse(format!(
                    "`{key}` must be a whole number from {least} to {most}, not {}",
                    shown(&value)
                ));
                default
            }
        }
    }

    /// Like [`Self::whole`], for any number in `range`.
    fn number(&mut self, key: Option<&str>, default: f64, range: RangeInclusive<f64>) -> f64 {
        let Some((key, value)) = self.take(key) else { return default };
        match value.as_f64() {
            Some(number) if range.contains(&number) => number,
            _ => {
                self.refuse(format!(
                    "`{key}` must be a number from {} to {}, not {}",
                    range.start(),
                    range.end(),
                    shown(&value)
                ));
                default
            }
        }
    }
}

/// Shows a number or truth value as it is and any other value by its kind, so that a message stays one line.
fn shown(value: &Value) -> String {
    match value {
        Value::String(_) | Value::Array(_) | Value::Object(_) => kind_of(value).to_string(),
        small => format!("`{small}`"),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::load_pretrain;

    #[test]
    fn every_accepted_configuration_gives_a_readable_config_json() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yaml");
        let mut taken = 0;
        let mut refused = 0;
        for family in Family::ALL {
            let defaults = ModelConfig { family, encoder: family.defaults.clone() }.to_table();
            for (key, value) in defaults.iter().filter(|(_, value)| value.is_number()) {
                let whole = ["0", "1", "3", "5000", "70000", "2000000000"];
                let others = ["1.0e-13", "1.0e-12", "0.5", "1.0", "5.0", "2.0e3", "1.0e12", "1.0e13"];
                let values = if value.is_f64() { &others[..] } else { &whole };
                for value in values {
                    let text = format!(
                        "data: {{sources: [{{files: [a.txt]}}], max_seq_length: 16}}\n\
                         model: {{{}: {{{key}: {value}}}}}\n",
                        family.name
                    );
                    std::fs::write(&path, text).unwrap();
                    let Ok(loaded) = load_pretrain(&path, &[]) else {
                        refused += 1;
                        continue;
                    };
                    taken += 1;
                    let mut model = loaded.config.model().unwrap();
                    model.encoder.vocab_size = model.encoder.vocab_size.max(1 << 16);
                    let bytes = HubConfig::new(model, HeadKind::None, None).to_json().to_string();
                    let read = HubConfig::require_readable(bytes.as_bytes());
                    assert!(read.is_ok(), "{} {key}: {value}: {:#}", family.name, read.unwrap_err());
                }
            }
        }
        assert!(taken > 300 && refused > 100, "{taken} {refused}");
    }

    #[test]
    fn labels_that_no_reader_takes_are_refused_before_training() {
        assert!(HubConfig::require_readable(&with_long_labels(100)).is_ok());
        let message = HubConfig::require_readable(&with_long_labels(5000)).unwrap_err().to_string();
        assert!(message.contains("and 1048576 are read") && message.contains("labels"), "{message}");
    }

    /// Returns the `config.json` of a classifier with `count` labels of 200 characters each.
    fn with_long_labels(count: usize) -> Vec<u8> {
        let labels = (0..count).map(|id| format!("{id:0200}")).collect();
        let model = ModelConfig { family: Family::BERT, encoder: Family::BERT.hub_defaults.clone() };
        let config = HubConfig::new(model, HeadKind::SequenceClassification, Some(labels));
        config.to_json().to_string().into_bytes()
    }
}

//! Names and shapes of tensors: the canonical ones (those that transformers 5.23 saves) and how others map to
//! them.

use crate::config::EncoderConfig;
use crate::config::Family;
use crate::config::ModelConfig;
use crate::interop::config_json::HeadKind;

/// What becomes of a tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mapped {
    /// It is kept under this canonical name.
    Keep(String),
    /// It is the decoder's weight, which must equal the word embedding and is then dropped.
    TiedDecoder,
    /// It is the decoder's bias, a second name of the canonical one given here.
    Alias(String),
    /// It is a constant or belongs to something that this program does not have.
    Unused,
}

impl Family {
    /// What the names of encoder tensors begin with.
    fn prefix(self) -> &'static str {
        match self {
            Self::Roberta => "roberta",
            Self::Bert => "bert",
        }
    }
}

/// Maps a name of any age to the canonical one.
pub(super) fn canonical(family: Family, name: &str) -> Mapped {
    let mut name = name.to_string();
    for (old, new) in [("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")] {
        if let Some(start) = name.strip_suffix(old) {
            name = format!("{start}{new}");
        }
    }
    if ["embeddings.", "encoder.", "pooler."].iter().any(|start| name.starts_with(start)) {
        name = format!("{}.{name}", family.prefix());
    }
    match name.as_str() {
        "lm_head.decoder.weight" | "cls.predictions.decoder.weight" => Mapped::TiedDecoder,
        "lm_head.decoder.bias" => Mapped::Alias("lm_head.bias".to_string()),
        "cls.predictions.decoder.bias" => Mapped::Alias("cls.predictions.bias".to_string()),
        // A RoBERTa pooler is never trained: transformers makes one for `RobertaModel` and no head reads it.
        _ if family == Family::Roberta && name.starts_with("roberta.pooler.") => Mapped::Unused,
        _ if name.ends_with(".position_ids") || name.ends_with("embeddings.token_type_ids") => Mapped::Unused,
        _ => Mapped::Keep(name),
    }
}

/// The word embedding, to which the decoder is tied.
pub(super) fn word_embedding(family: Family) -> String {
    format!("{}.embeddings.word_embeddings.weight", family.prefix())
}

/// Whether a model without this tensor is complete: BERT's pooler is read by its classifier only.
pub(super) fn is_optional(head: HeadKind, name: &str) -> bool {
    head != HeadKind::SequenceClassification && name.starts_with("bert.pooler.")
}

/// Every tensor of a model, by canonical name, with its shape; `num_labels` matters to a classifier only.
///
/// BERT's pooler is listed with every head, as transformers' base model has it.
pub fn tensor_shapes(config: &ModelConfig, head: HeadKind, num_labels: usize) -> Vec<(String, Vec<usize>)> {
    let mut list = List { tensors: Vec::new() };
    let prefix = config.family.prefix();
    let encoder = &config.encoder;
    list.embeddings(&format!("{prefix}.embeddings"), encoder);
    for layer in 0..encoder.num_hidden_layers {
        list.layer(&format!("{prefix}.encoder.layer.{layer}"), encoder);
    }
    let (hidden, vocab) = (encoder.hidden_size, encoder.vocab_size);
    if config.family == Family::Bert {
        list.linear("bert.pooler.dense", hidden, hidden);
    }
    match (config.family, head) {
        (_, HeadKind::None) => {}
        (Family::Roberta, HeadKind::MaskedLm) => {
            list.linear("lm_head.dense", hidden, hidden);
            list.norm("lm_head.layer_norm", hidden);
            list.push("lm_head.bias", vec![vocab]);
        }
        (Family::Bert, HeadKind::MaskedLm) => {
            list.linear("cls.predictions.transform.dense", hidden, hidden);
            list.norm("cls.predictions.transform.LayerNorm", hidden);
            list.push("cls.predictions.bias", vec![vocab]);
        }
        (Family::Roberta, HeadKind::SequenceClassification) => {
            list.linear("classifier.dense", hidden, hidden);
            list.linear("classifier.out_proj", num_labels, hidden);
        }
        (Family::Bert, HeadKind::SequenceClassification) => list.linear("classifier", num_labels, hidden),
    }
    list.tensors
}

struct List {
    tensors: Vec<(String, Vec<usize>)>,
}

impl List {
    fn push(&mut self, name: &str, shape: Vec<usize>) {
        self.tensors.push((name.to_string(), shape));
    }

    fn linear(&mut self, name: &str, outputs: usize, inputs: usize) {
        self.push(&format!("{name}.weight"), vec![outputs, inputs]);
        self.push(&format!("{name}.bias"), vec![outputs]);
    }

    fn norm(&mut self, name: &str, width: usize) {
        self.push(&format!("{name}.weight"), vec![width]);
        self.push(&format!("{name}.bias"), vec![width]);
    }

    fn embeddings(&mut self, name: &str, encoder: &EncoderConfig) {
        let hidden = encoder.hidden_size;
        self.push(&format!("{name}.word_embeddings.weight"), vec![encoder.vocab_size, hidden]);
        self.push(
            &format!("{name}.position_embeddings.weight"),
            vec![encoder.max_position_embeddings, hidden],
        );
        self.push(&format!("{name}.token_type_embeddings.weight"), vec![encoder.type_vocab_size, hidden]);
        self.norm(&format!("{name}.LayerNorm"), hidden);
    }

    fn layer(&mut self, name: &str, encoder: &EncoderConfig) {
        let hidden = encoder.hidden_size;
        for part in ["query", "key", "value"] {
            self.linear(&format!("{name}.attention.self.{part}"), hidden, hidden);
        }
        self.linear(&format!("{name}.attention.output.dense"), hidden, hidden);
        self.norm(&format!("{name}.attention.output.LayerNorm"), hidden);
        self.linear(&format!("{name}.intermediate.dense"), encoder.intermediate_size, hidden);
        self.linear(&format!("{name}.output.dense"), hidden, encoder.intermediate_size);
        self.norm(&format!("{name}.output.LayerNorm"), hidden);
    }
}

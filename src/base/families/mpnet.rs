//! MPNet: RoBERTa without token types, with a learnt attention bias for each head and distance, and with
//! BERT's WordPiece between RoBERTa's special tokens. Here its models are trained on masked tokens; permuted
//! language modelling, which gave MPNet its name, is not implemented. arXiv:2004.09297; `modeling_mpnet.py`
//! of transformers.

use crate::families::{
    AttentionNames, Constant, Descriptor, EncoderConfig, EncoderNames, Family, Keys, NormNames, SpecialNames,
    roberta,
};

impl Family {
    /// MPNet.
    pub const MPNET: Self = Self(&DESCRIPTOR);
}

static DESCRIPTOR: Descriptor = Descriptor {
    name: "mpnet",
    title: "MPNet",
    class: "MPNet",
    prefix: "mpnet",
    defaults: EncoderConfig { max_position_embeddings: 514, layer_norm_eps: 1e-5, ..BASE },
    hub_defaults: EncoderConfig { vocab_size: 30_527, ..BASE },
    keys: Keys {
        renamed: &[],
        own: &[],
        absent: &["embedding_size", "type_vocab_size", "classifier_dropout", "pad_token_id"],
        constants: &[
            ("hidden_act", Constant::Text("gelu")),
            // Whatever these keys say, transformers divides distances into 32 buckets and counts positions
            // from 2.
            ("relative_attention_num_buckets", Constant::Number(32)),
            ("pad_token_id", Constant::Number(1)),
        ],
    },
    names: EncoderNames {
        token_type: None,
        attention: AttentionNames::Apart(["attention.attn.q", "attention.attn.k", "attention.attn.v"]),
        attention_output: "attention.attn.o",
        norms: NormNames::After { attention: "attention.LayerNorm", feed_forward: "output.LayerNorm" },
        position_bias: Some("encoder.relative_attention_bias"),
        ..EncoderNames::BERT
    },
    // transformers adds a pooler to `MPNetModel`, which no head reads.
    unused_tensors: &["mpnet.pooler."],
    special: SpecialNames {
        order: ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"],
        cls: "<s>",
        sep: "</s>",
        pad: "<pad>",
        unk: "[UNK]",
        mask: "<mask>",
        unused: ("[unused", "]"),
    },
    byte_level_class: None,
    word_piece_class: Some("MPNetTokenizer"),
    ..roberta::DESCRIPTOR
};

const BASE: EncoderConfig = EncoderConfig { type_vocab_size: 1, pad_token_id: 1, ..EncoderConfig::BASE };

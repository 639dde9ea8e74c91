//! Names of the parameters of an encoder, without the family's prefix.

/// Names of all parameters of an encoder.
#[derive(Debug, Clone, Copy)]
pub struct EncoderNames {
    /// Word embedding.
    pub word: &'static str,
    /// Position embedding, if there is one.
    pub position: Option<&'static str>,
    /// Token type embedding, if there is one.
    pub token_type: Option<&'static str>,
    /// Norm after the embeddings. `None` if the first layer begins with a norm.
    pub embedding_norm: Option<&'static str>,
    /// Part of a name before the number of a layer; names inside of a layer follow the number.
    pub layers: &'static str,
    /// Linear layers to queries, keys and values.
    pub attention: AttentionNames,
    /// Last linear layer of the attention block.
    pub attention_output: &'static str,
    /// First linear layer of the feed-forward block.
    pub intermediate: &'static str,
    /// Last linear layer of the feed-forward block.
    pub output: &'static str,
    /// Norms of a layer.
    pub norms: NormNames,
    /// Relative positions in attention between contents and positions, if the family has them.
    pub relative: Option<RelativeNames>,
    /// Table of biases by distance that are added to the attention scores of each head, if there is one. It
    /// belongs to the encoder: all layers share it.
    pub position_bias: Option<&'static str>,
}

/// Names of the linear layers to queries, keys and values.
#[derive(Debug, Clone, Copy)]
pub enum AttentionNames {
    /// A tensor for each.
    Apart([&'static str; 3]),
    /// A single tensor: the rows of queries, keys and values, in this order.
    Together(&'static str),
    /// A single tensor: for each head its rows of queries, keys and values, in this order. Rotary positions
    /// turn rows `2i` and `2i + 1` of a head's queries and keys; elsewhere they turn row `i` of the first
    /// half with row `i` of the second.
    ByHead(&'static str),
}

/// Names of the parameters of relative positions.
#[derive(Debug, Clone, Copy)]
pub struct RelativeNames {
    /// Embedding table, relative to the encoder.
    pub table: &'static str,
    /// Norm of the table, relative to the encoder.
    pub norm: &'static str,
    /// Linear layer to keys of positions, relative to the layer, unless the layer to keys of contents is
    /// used.
    pub key: &'static str,
    /// Linear layer to queries of positions, likewise.
    pub query: &'static str,
}

/// Names and places of the norms.
#[derive(Debug, Clone, Copy)]
pub enum NormNames {
    /// After each block (post-norm).
    After {
        /// After attention, relative to the layer.
        attention: &'static str,
        /// After feed-forward, relative to the layer.
        feed_forward: &'static str,
    },
    /// Before each block (pre-norm).
    Before {
        /// Before attention, relative to the layer. The first layer has no such norm if there is a norm after
        /// the embeddings.
        attention: &'static str,
        /// Before feed-forward, relative to the layer.
        feed_forward: &'static str,
        /// After the last layer, relative to the encoder.
        last: &'static str,
    },
}

impl EncoderNames {
    /// Names of BERT, RoBERTa and ELECTRA.
    pub(super) const BERT: Self = Self {
        word: "embeddings.word_embeddings",
        position: Some("embeddings.position_embeddings"),
        token_type: Some("embeddings.token_type_embeddings"),
        embedding_norm: Some("embeddings.LayerNorm"),
        layers: "encoder.layer",
        attention: AttentionNames::Apart([
            "attention.self.query",
            "attention.self.key",
            "attention.self.value",
        ]),
        attention_output: "attention.output.dense",
        intermediate: "intermediate.dense",
        output: "output.dense",
        norms: NormNames::After { attention: "attention.output.LayerNorm", feed_forward: "output.LayerNorm" },
        relative: None,
        position_bias: None,
    };

    /// Returns true if `name` starts like a parameter of the encoder: bare encoders are saved without the
    /// family's prefix.
    pub fn begins(&self, name: &str) -> bool {
        let last = match self.norms {
            NormNames::Before { last, .. } => last,
            NormNames::After { .. } => self.layers,
        };
        let first = name.split('.').next();
        [self.word, "embeddings_project", "pooler", self.layers, last]
            .into_iter()
            .any(|module| module.split('.').next() == first)
    }
}

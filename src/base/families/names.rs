//! Names of the parameters of an encoder, behind the family's prefix.

/// All of them.
#[derive(Debug, Clone, Copy)]
pub struct EncoderNames {
    /// The word embedding.
    pub word: &'static str,
    /// The table of positions, where there is one.
    pub position: Option<&'static str>,
    /// The table of token types, where there is one.
    pub token_type: Option<&'static str>,
    /// The norm behind the embeddings.
    pub embedding_norm: &'static str,
    /// What stands before the number of a layer. Names of the maps stand behind that.
    pub layers: &'static str,
    /// The maps to queries, keys and values.
    pub attention: AttentionNames,
    /// The last map of the attention block.
    pub attention_output: &'static str,
    /// The first map of the feed-forward block.
    pub intermediate: &'static str,
    /// The last map of the feed-forward block.
    pub output: &'static str,
    /// The norms of a layer.
    pub norms: NormNames,
    /// Of relative positions that queries and keys meet, where there are any.
    pub relative: Option<RelativeNames>,
    /// The table of what distances add to the scores of each head, in the encoder, where there is one; all
    /// layers share it.
    pub position_bias: Option<&'static str>,
}

/// Names of the maps to queries, keys and values.
#[derive(Debug, Clone, Copy)]
pub enum AttentionNames {
    /// A tensor each.
    Apart([&'static str; 3]),
    /// One tensor for all three, one below the other.
    Together(&'static str),
}

/// Names of the parameters of relative positions.
#[derive(Debug, Clone, Copy)]
pub struct RelativeNames {
    /// The table, in the encoder.
    pub table: &'static str,
    /// Its norm, in the encoder.
    pub norm: &'static str,
    /// The map to keys of positions, in the layer, where that is not the one to keys of contents.
    pub key: &'static str,
    /// The map to queries of positions, as well.
    pub query: &'static str,
}

/// Names of the norms, and where they stand.
#[derive(Debug, Clone, Copy)]
pub enum NormNames {
    /// Behind each block (post-norm).
    After {
        /// Behind attention, in the layer.
        attention: &'static str,
        /// Behind feed-forward, in the layer.
        feed_forward: &'static str,
    },
    /// Before each block (pre-norm).
    Before {
        /// Before attention, in the layer; the first layer has none: it reads embeddings, which are normed.
        attention: &'static str,
        /// Before feed-forward, in the layer.
        feed_forward: &'static str,
        /// Behind the last layer, in the encoder.
        last: &'static str,
    },
}

impl EncoderNames {
    /// Those of BERT, RoBERTa and ELECTRA.
    pub(super) const BERT: Self = Self {
        word: "embeddings.word_embeddings",
        position: Some("embeddings.position_embeddings"),
        token_type: Some("embeddings.token_type_embeddings"),
        embedding_norm: "embeddings.LayerNorm",
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

    /// Whether a name begins as those of the encoder do: bare encoders are saved without their prefix.
    pub fn begins(&self, name: &str) -> bool {
        let last = match self.norms {
            NormNames::Before { last, .. } => last,
            NormNames::After { .. } => self.layers,
        };
        let first = name.split('.').next();
        ["embeddings", "embeddings_project", "pooler", self.layers, last]
            .into_iter()
            .any(|module| module.split('.').next() == first)
    }
}

//! Builds the embeddings and layers of a family's encoder, registered under the family's names.

use std::sync::Arc;

use crate::layers::embeddings::Embeddings;
use crate::layers::encoder_layer::EncoderLayer;
use crate::layers::feed_forward::{Activation, FeedForward};
use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::layers::output_block::OutputBlock;
use crate::layers::relative_positions::{PositionTable, RelativePositions};
use crate::layers::self_attention::{Positions, SelfAttention};
use crate::layers::{NormPlacement, ParameterId, Part, Registry, Site};
use crate::models::initial::Role;
use crate::models::{activation_function, initial, norm};
use base::families::{
    AttentionNames, EncoderConfig, EncoderNames, FeedForwardKind, ModelConfig, NormNames, PositionKind,
    PositionNorm, PositionScores,
};
use ops::disentangled_attention::Buckets;
use ops::indices::KeptKeys;
use ops::rotary::Angles;
use ops::{biased_attention, gated};

/// Builder of the parts of one encoder.
pub(super) struct Parts<'a> {
    registry: &'a mut Registry,
    config: &'a ModelConfig,
    names: &'static EncoderNames,
    /// Angles of layers that attend to all tokens, and of local layers, if positions are rotary.
    angles: Option<[Arc<Angles>; 2]>,
}

impl<'a> Parts<'a> {
    pub(super) fn new(registry: &'a mut Registry, config: &'a ModelConfig) -> Self {
        let shape = &config.encoder;
        let family = config.family;
        let is_rotary = family.positions == PositionKind::Rotary;
        let angles = is_rotary.then(|| {
            [shape.global_rope_theta, shape.local_rope_theta]
                .map(|theta| Arc::new(Angles::new(shape.head_size(), theta)))
        });
        Self { registry, config, names: family.encoder_names(), angles }
    }

    /// The name of a module of the encoder.
    fn name(&self, module: &str) -> String {
        format!("{}.{module}", self.config.family.prefix)
    }

    /// The name of a module of a layer.
    fn layer_name(&self, layer: usize, module: &str) -> String {
        self.name(&format!("{}.{layer}.{module}", self.names.layers))
    }

    pub(super) fn embeddings(&mut self) -> Embeddings {
        let shape = &self.config.encoder;
        let padding = self.config.padding_rows();
        let width = shape.embedding_width();
        let names = self.names;
        let (placement, norm) = self.norm_of_embeddings();
        Embeddings {
            word: self.table(names.word, [shape.vocab_size, width], padding.word),
            shared_word: None,
            position: if shape.position_biased_input { self.absolute_positions() } else { None },
            token_type: names
                .token_type
                .filter(|_| shape.type_vocab_size > 0)
                .map(|name| self.table(name, [shape.type_vocab_size, width], None)),
            norm: self.norm(&norm, width),
            placement,
            width,
            word_padding: padding.word,
            position_padding: padding.position,
            hidden_dropout: (self.config.family.dropouts)(shape).embeddings,
        }
    }

    /// The position and the name of the norm after the embeddings: in pre-norm models without one, it is the
    /// norm with which the first layer begins.
    fn norm_of_embeddings(&self) -> (NormPlacement, String) {
        match (self.names.embedding_norm, self.names.norms) {
            (None, NormNames::Before { attention, .. }) => {
                (NormPlacement::Before, self.layer_name(0, attention))
            }
            (name, _) => (NormPlacement::After, self.name(name.expect("post-norm models have one"))),
        }
    }

    /// The table of absolute positions.
    pub(super) fn absolute_positions(&mut self) -> Option<ParameterId> {
        let shape = &self.config.encoder;
        let padding = self.config.padding_rows().position;
        let size = [shape.max_position_embeddings, shape.embedding_width()];
        self.names.position.map(|name| self.table(name, size, padding))
    }

    /// The map from the width of the embeddings to D, if there is one.
    pub(super) fn projection(&mut self, width: usize) -> Option<Linear> {
        let map = self.config.family.embedding_map?;
        let hidden = self.config.encoder.hidden_size;
        let name = self.name(map.name);
        (map.is_always_there || width != hidden).then(|| Linear::new(self.registry, &name, width, hidden))
    }

    /// The table of relative positions that layers share; its gradient is final when the first layer's is.
    pub(super) fn position_table(&mut self) -> Option<PositionTable> {
        let shape = &self.config.encoder;
        if let Some(name) = self.names.position_bias {
            let rows = biased_attention::ROWS;
            let width = shape.num_attention_heads;
            let table = self.table(name, [rows, width], None);
            return Some(PositionTable { table, norm: None, rows, width, is_bias: true });
        }
        let names = self.names.relative?;
        let width = shape.hidden_size;
        let rows = Buckets::new(shape.position_buckets, shape.farthest_position()).rows();
        let has_norm = shape.norm_rel_ebd == PositionNorm::LayerNorm;
        Some(PositionTable {
            table: self.table(names.table, [rows, width], None),
            norm: has_norm.then(|| self.norm(&self.name(names.norm), width)),
            rows,
            width,
            is_bias: false,
        })
    }

    /// All layers. If they share their parameters, the gradients of these are final when those of layer 0
    /// are.
    pub(super) fn layers(&mut self) -> Vec<EncoderLayer> {
        let layers = 0..self.config.encoder.num_hidden_layers;
        if !self.config.family.shares_layers {
            return layers.map(|layer| self.layer(layer)).collect();
        }
        let shared = self.layer(0);
        self.registry.share_part(Part::Layer(0));
        layers.map(|layer| shared.again_as(layer)).collect()
    }

    fn layer(&mut self, layer: usize) -> EncoderLayer {
        self.registry.enter(Part::Layer(layer));
        let shape = &self.config.encoder;
        let names = self.names;
        let family = self.config.family;
        let hidden = shape.hidden_size;
        let intermediate = self.config.feed_forward_width();
        let (placement, [attention_norm, feed_forward_norm]) = self.norms(layer);
        let [query, key, value] = self.attention_maps(layer);
        let (window, positions) = self.positions(layer, [query, key]);
        let (activation, halves) = match family.feed_forward {
            FeedForwardKind::Plain => (Activation::Pointwise(activation_function(shape.hidden_act)), 1),
            FeedForwardKind::Geglu => (Activation::Gated(gated::Function::Gelu), 2),
            FeedForwardKind::SwiGlu => (Activation::Gated(gated::Function::Silu), 2),
        };
        let dropouts = (family.dropouts)(shape);
        let attention = SelfAttention {
            heads: shape.num_attention_heads,
            positions,
            window,
            dropout: dropouts.attention_probabilities,
            site: Site::AttentionProbabilities(layer),
            query,
            key,
            value,
            output: OutputBlock {
                dense: self.map(layer, names.attention_output, [hidden, hidden], Role::Output),
                norm: self.norm(&attention_norm, hidden),
                placement,
                site: Site::AttentionOutput(layer),
                dropout: dropouts.attention_output,
            },
        };
        let feed_forward = FeedForward {
            intermediate: self.map(layer, names.intermediate, [hidden, halves * intermediate], Role::Input),
            activation,
            dropout: dropouts.feed_forward_input,
            output: OutputBlock {
                dense: self.map(layer, names.output, [intermediate, hidden], Role::Output),
                norm: self.norm(&feed_forward_norm, hidden),
                placement,
                site: Site::FeedForward(layer),
                dropout: dropouts.feed_forward_output,
            },
        };
        EncoderLayer { attention, feed_forward }
    }

    /// The position of norms, and the names of those at the end of both blocks of a layer. In pre-norm
    /// models, these are the norms with which the next block begins; each is a parameter of the layer before,
    /// whose backward pass computes its gradient.
    fn norms(&self, layer: usize) -> (NormPlacement, [String; 2]) {
        match self.names.norms {
            NormNames::After { attention, feed_forward } => {
                (NormPlacement::After, [attention, feed_forward].map(|name| self.layer_name(layer, name)))
            }
            NormNames::Before { attention, feed_forward, last } => {
                let is_last = layer + 1 == self.config.encoder.num_hidden_layers;
                let next = if is_last { self.name(last) } else { self.layer_name(layer + 1, attention) };
                (NormPlacement::Before, [self.layer_name(layer, feed_forward), next])
            }
        }
    }

    /// The attention window of a layer, and the form of its positions.
    fn positions(&mut self, layer: usize, [query, key]: [Linear; 2]) -> (Option<usize>, Positions) {
        if self.config.family.positions == PositionKind::Relative {
            return (None, self.relative_positions(layer, [query, key]));
        }
        if self.names.position_bias.is_some() {
            return (None, Positions::Biased);
        }
        let Some(angles) = &self.angles else { return (None, Positions::Absolute) };
        let window = self.config.encoder.window(layer);
        (window, Positions::Rotary(Arc::clone(&angles[usize::from(window.is_some())])))
    }

    /// The use of the table of relative positions in a layer, projected by the maps of contents or by
    /// separate maps.
    fn relative_positions(&mut self, layer: usize, [query, key]: [Linear; 2]) -> Positions {
        let shape = &self.config.encoder;
        let hidden = self.config.encoder.hidden_size;
        let Some(names) = self.names.relative.filter(|_| shape.pos_att_type != PositionScores::None) else {
            return Positions::Absolute;
        };
        let buckets = Buckets::new(shape.position_buckets, shape.farthest_position());
        let [key, query] = [
            (shape.pos_att_type.content_to_position(), key, names.key),
            (shape.pos_att_type.position_to_content(), query, names.query),
        ]
        .map(|(is_there, of_contents, name)| {
            let shared = shape.share_att_key.then_some(of_contents);
            is_there.then(|| shared.unwrap_or_else(|| self.map(layer, name, [hidden, hidden], Role::Input)))
        });
        Positions::Relative(Box::new(RelativePositions {
            key,
            query,
            dropout: (self.config.family.dropouts)(shape).embeddings,
            site: Site::RelativePositions(layer),
            row_keys: Arc::new(KeptKeys::new((0..buckets.rows() as u64).collect())),
            buckets,
        }))
    }

    /// The maps to queries, keys and values.
    fn attention_maps(&mut self, layer: usize) -> [Linear; 3] {
        let hidden = self.config.encoder.hidden_size;
        match self.names.attention {
            AttentionNames::Apart(names) => {
                let maps = names.map(|name| self.map(layer, name, [hidden, hidden], Role::Input));
                // The products of these maps sum the gradients of their biases, too.
                maps.iter().filter_map(|map| map.bias).for_each(|bias| self.registry.mark_product(bias));
                maps
            }
            AttentionNames::Together(name) => self.maps_of_one_tensor(layer, name),
            AttentionNames::ByHead(name) => {
                let maps = self.maps_of_one_tensor(layer, name);
                self.registry.order_in_files(maps[0].weight, rows_by_head(&self.config.encoder));
                maps
            }
        }
    }

    fn maps_of_one_tensor(&mut self, layer: usize, name: &str) -> [Linear; 3] {
        let hidden = self.config.encoder.hidden_size;
        let name = self.layer_name(layer, name);
        let init = initial::init(self.config, Role::Input);
        let weights = self.registry.weight_of_maps(format!("{name}.weight"), hidden, hidden, init);
        weights.map(|weight| Linear { weight, bias: None, inputs: hidden, outputs: hidden })
    }

    fn table(&mut self, module: &str, shape: [usize; 2], padding: Option<u32>) -> ParameterId {
        let name = format!("{}.weight", self.name(module));
        self.registry.weight(name, &shape, initial::table(self.config, padding))
    }

    /// A map of a layer, with `sizes` inputs and outputs.
    fn map(&mut self, layer: usize, module: &str, sizes: [usize; 2], role: Role) -> Linear {
        let name = self.layer_name(layer, module);
        let init = initial::init(self.config, role);
        Linear::initialised(self.registry, &name, sizes, init, self.config.family.has_biases)
    }

    fn norm(&mut self, name: &str, size: usize) -> Norm {
        norm(self.registry, self.config, name, size)
    }
}

/// The order of rows that [`AttentionNames::ByHead`] describes: for each row of the tensor in files, the row
/// of queries, keys and values one below the other, whose rotary pairs are halves of a head apart.
fn rows_by_head(shape: &EncoderConfig) -> Arc<[u32]> {
    let hidden = shape.hidden_size as u32;
    let size = shape.head_size() as u32;
    let heads = (0..hidden).step_by(size as usize);
    heads
        .flat_map(|head| {
            let [query, key, value] = [0, hidden, 2 * hidden].map(|start| start + head);
            let turned = [query, key].into_iter().flat_map(move |start| rows_by_pair(start, size));
            turned.chain(value..value + size)
        })
        .collect()
}

/// Rows `start` and `start + size / 2`, then the rows after them, and so on: rotary pairs side by side.
fn rows_by_pair(start: u32, size: u32) -> impl Iterator<Item = u32> {
    (start..start + size / 2).flat_map(move |row| [row, row + size / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_by_head_are_pairs_of_queries_and_keys_and_plain_values() {
        let shape = EncoderConfig { hidden_size: 8, num_attention_heads: 2, ..EncoderConfig::default() };
        let first = [0, 2, 1, 3, 8, 10, 9, 11, 16, 17, 18, 19];
        let rows = rows_by_head(&shape);
        assert_eq!(rows[..12], first);
        assert_eq!(rows[12..], first.map(|row| row + 4));
    }
}

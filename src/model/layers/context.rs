//! The inputs of a layer that belong to the batch and the step: segments, dropout keys, and the active
//! dropout.

use candle_core::{Result, Tensor};

use crate::layers::Parameters;
use base::rng::{Purpose, Stream};
use ops::attention::{Reach, Segments};
use ops::dropout::Dropout;
use ops::gather_rows;
use ops::indices::Indices;

/// Segments of the `T` tokens of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// Start of each segment, and `T` at the end.
    pub cu_seqlens: Indices<'a>,
    /// Key of each token for dropout, `[T]`.
    pub token_keys: Indices<'a, u64>,
    /// True if a token attends to itself and the tokens before it only.
    pub is_causal: bool,
}

/// The rows of a batch whose last hidden states are read. After its attention, the last layer computes only
/// these rows.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'a> {
    /// Positions of the rows in the batch, `[M]`.
    pub positions: Indices<'a>,
    /// Keys of the rows for dropout, `[M]`.
    pub keys: Indices<'a, u64>,
}

impl Chosen<'_> {
    /// Gathers the chosen rows, `[M, D]`, of `[T, D]`; all rows if `chosen` is `None`.
    pub fn gather(chosen: Option<Self>, x_td: &Tensor) -> Result<Tensor> {
        match chosen {
            None => Ok(x_td.clone()),
            Some(chosen) => gather_rows::forward(x_td, chosen.positions),
        }
    }

    /// The gradient of all `tokens` rows, `[T, D]`, from that of the chosen rows.
    pub fn backward(chosen: Option<Self>, dy_md: Tensor, tokens: usize) -> Result<Tensor> {
        match chosen {
            None => Ok(dy_md),
            Some(chosen) => gather_rows::backward(&dy_md, chosen.positions, tokens),
        }
    }
}

/// A point in the model where dropout is applied; each site draws from its own random stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// After the embeddings.
    Embeddings,
    /// Attention probabilities of a layer.
    AttentionProbabilities(usize),
    /// Attention output of a layer.
    AttentionOutput(usize),
    /// Feed-forward output of a layer.
    FeedForward(usize),
    /// The table of relative positions in a layer.
    RelativePositions(usize),
    /// Before the first map of a head.
    HeadInput,
    /// Before the last map of a head.
    HeadOutput,
}

/// Bits of the number of a site.
const SITE_BITS: u32 = 14;

impl Site {
    fn number(self) -> u64 {
        match self {
            Self::Embeddings => 0,
            Self::HeadInput => 1,
            Self::HeadOutput => 2,
            Self::AttentionProbabilities(layer) => 3 + 3 * layer as u64,
            Self::AttentionOutput(layer) => 4 + 3 * layer as u64,
            Self::FeedForward(layer) => 5 + 3 * layer as u64,
            // Numbered from the end of the range, which the other sites do not use.
            Self::RelativePositions(layer) => (1 << SITE_BITS) - 1 - layer as u64,
        }
    }
}

/// Identifies a training pass, for dropout and for final gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Seed of the run.
    pub seed: u64,
    /// The step (update) that is being computed.
    pub step: u64,
    /// Number of the model in the run, from 0 to 3: each model draws its own dropout.
    pub model: u8,
    /// True if no micro-batch of this step follows: gradients are final when the backward pass leaves them.
    pub last_micro_batch: bool,
}

impl Pass {
    /// The pass of a step of one micro-batch, through the only model of a run.
    pub fn new(seed: u64, step: u64) -> Self {
        Self { seed, step, model: 0, last_micro_batch: true }
    }
}

/// Everything that a layer needs in addition to its input.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Values of all parameters.
    pub parameters: &'a Parameters,
    /// Segments of the batch.
    pub rows: Rows<'a>,
    /// The training pass; `None` in evaluation.
    pub pass: Option<Pass>,
}

impl<'a> Context<'a> {
    /// The dropout of a site; `None` in evaluation or at probability 0.
    pub fn dropout_at(&self, site: Site, probability: f64) -> Option<Dropout> {
        let Pass { seed, step, model, .. } = self.pass?;
        // The id has 56 bits: 40 for the step, 2 for the model and 14 for the site, enough for 4,094 layers.
        debug_assert!(model < 4 && site.number() < 1 << SITE_BITS, "model {model}, {site:?}");
        let id = step << 16 | u64::from(model) << SITE_BITS | site.number();
        let stream = Stream::new(seed, Purpose::Dropout, id);
        (probability > 0.0).then_some(Dropout { probability: probability as f32, stream })
    }

    /// The context of blocks that compute only the chosen rows: it has their dropout keys.
    #[must_use]
    pub fn for_rows(&self, chosen: Option<Chosen<'a>>) -> Self {
        let token_keys = chosen.map_or(self.rows.token_keys, |chosen| chosen.keys);
        Self { rows: Rows { token_keys, ..self.rows }, ..*self }
    }

    /// The batch in the form that the attention op takes.
    pub fn segments<'b>(
        &self,
        heads: usize,
        window: Option<usize>,
        dropout: Option<&'b Dropout>,
    ) -> Segments<'b>
    where
        'a: 'b,
    {
        let Rows { cu_seqlens, token_keys, is_causal } = self.rows;
        let both_sides = window.map_or(Reach::ALL, Reach::window);
        let reach = if is_causal { both_sides.causal() } else { both_sides };
        Segments { heads, cu_seqlens, token_keys, reach, dropout }
    }
}

//! Masked-LM head together with a head that classifies pairs of segments: pooler, dropout if the family has
//! it, map to two classes.
//!
//! These are `BertPreTrainingHeads` of transformers, and `AlbertMLMHead` and `AlbertSOPHead` for ALBERT.

use candle_core::{DType, Result, Tensor};

use crate::layers::{Context, Gradients, ParameterId, Part, Registry};
use crate::models::heads::masked_lm::MaskedLmHead;
use crate::models::heads::sequence_classification::ClassificationHead;
use crate::models::heads::{Head, HeadMemory, Targets};
use base::families::{ModelConfig, SentencePairNames};
use ops::gather_rows;

/// Both heads.
#[derive(Debug, Clone)]
pub struct SentencePairHeads {
    /// Predicts masked tokens.
    pub masked_lm: MaskedLmHead,
    /// Classifies pairs: class 0 if the second segment follows the first.
    pub pairs: ClassificationHead,
}

impl SentencePairHeads {
    /// Registers both; the decoder's weight is `word_embedding`.
    pub fn new(
        registry: &mut Registry,
        config: &ModelConfig,
        names: SentencePairNames,
        word_embedding: ParameterId,
    ) -> Self {
        Self {
            masked_lm: MaskedLmHead::new(registry, config, word_embedding),
            pairs: ClassificationHead::of_pairs(registry, config, names),
        }
    }

    /// Floating-point operations of forward and backward of `masked` masked rows and `pairs` pairs.
    pub fn flops(&self, masked: f64, pairs: f64) -> f64 {
        self.masked_lm.flops(masked) + self.pairs.flops(pairs)
    }

    /// Memory of `masked` masked rows and `pairs` pairs, as in [`Head::memory`].
    pub fn memory(&self, masked: u64, pairs: u64, compute: DType, on_gpu: bool) -> HeadMemory {
        let heads =
            [self.masked_lm.memory(masked, compute, on_gpu), self.pairs.memory(pairs, compute, on_gpu)];
        HeadMemory {
            saved_bytes: heads.iter().map(|head| head.saved_bytes).sum(),
            temporary_bytes: heads.iter().map(|head| head.temporary_bytes).sum(),
        }
    }

    /// The summed loss and the number of correct predictions, f64 `[2]`, for masked tokens and for pairs;
    /// `None` for pairs if the batch has no pair.
    pub fn losses(
        &self,
        hidden_td: &Tensor,
        [masked, pairs]: [Targets<'_>; 2],
        ctx: &Context<'_>,
    ) -> Result<[Option<Tensor>; 2]> {
        let rows_md = gather_rows::forward(hidden_td, masked.positions)?;
        let of_masked = self.masked_lm.loss(&rows_md, masked, ctx)?;
        if pairs.positions.is_empty() {
            return Ok([Some(of_masked), None]);
        }
        let rows_pd = gather_rows::forward(hidden_td, pairs.positions)?;
        Ok([Some(of_masked), Some(self.pairs.loss(&rows_pd, pairs, ctx)?)])
    }

    /// [`SentencePairHeads::losses`], with `None` for masked tokens as well if the batch has none; and the
    /// gradient of the sum of both losses, each times its scale, with respect to the hidden states of all
    /// tokens, `[T, D]`. A batch has at least one target.
    pub fn loss_and_gradient(
        &self,
        hidden_td: &Tensor,
        [masked, pairs]: [Targets<'_>; 2],
        scales: [f32; 2],
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<([Option<Tensor>; 2], Tensor)> {
        let mut of_pairs = None;
        if !pairs.positions.is_empty() {
            let rows_pd = gather_rows::forward(hidden_td, pairs.positions)?;
            of_pairs = Some(self.pairs.rows_and_gradient(&rows_pd, pairs, scales[1], ctx, gradients)?);
        }
        // The masked-LM head comes last: it marks the gradients of both heads as final.
        let (masked_totals, d_hidden) = if masked.positions.is_empty() {
            gradients.left(ctx.pass, Part::Head)?;
            (None, None)
        } else {
            let rows_md = gather_rows::forward(hidden_td, masked.positions)?;
            let (totals, d_rows) =
                self.masked_lm.loss_and_gradient(&rows_md, masked, scales[0], ctx, gradients)?;
            (Some(totals), Some(gather_rows::backward(&d_rows, masked.positions, hidden_td.dim(0)?)?))
        };
        let Some((pair_totals, d_rows)) = of_pairs else {
            let d_hidden = d_hidden.map_or_else(|| hidden_td.zeros_like(), Ok)?;
            return Ok(([masked_totals, None], d_hidden));
        };
        let d_hidden = match d_hidden {
            Some(d_hidden) => {
                gather_rows::backward_onto(&d_rows, pairs.positions, &d_hidden)?;
                d_hidden
            }
            None => gather_rows::backward(&d_rows, pairs.positions, hidden_td.dim(0)?)?,
        };
        Ok(([masked_totals, Some(pair_totals)], d_hidden))
    }
}

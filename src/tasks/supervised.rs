//! One pass of a model with a head over a batch: cross-entropy at the label positions, forward and backward.
//!
//! The tasks differ in their heads and examples; the pass is the same for all of them.

use candle_core::Result;
use candle_core::Tensor;

use crate::batches::Batch;
use crate::layers::Context;
use crate::layers::Gradients;
use crate::layers::Parameters;
use crate::layers::Rows;
use crate::layers::context::DropoutSeed;
use crate::models::Head;
use crate::models::Input;
use crate::models::Model;
use crate::models::Targets;
use crate::tasks::Loss;

/// Adds `scale` times the gradient of the summed loss of `batch` to `gradients`; a batch without labels has none.
pub(super) fn accumulate<H: Head>(
    model: &Model<H>,
    batch: &Batch,
    dropout: DropoutSeed,
    scale: f32,
    gradients: &Gradients,
) -> Result<Loss> {
    if batch.num_labels() == 0 {
        return Ok(Loss::default());
    }
    let ctx = context(&model.parameters, batch, Some(dropout));
    let (hidden_td, saved) = model.encoder.forward(input(batch), &ctx)?;
    let (entropy, d_hidden) = model.head.loss_and_gradient(&hidden_td, targets(batch), scale, &ctx, gradients)?;
    drop(hidden_td);
    model.encoder.backward(d_hidden, input(batch), saved, &ctx, gradients)?;
    Ok(Loss::of(&entropy, batch.num_labels()))
}

/// The loss of `batch` without dropout and without gradients.
pub(super) fn evaluate<H: Head>(model: &Model<H>, batch: &Batch) -> Result<Loss> {
    let ctx = context(&model.parameters, batch, None);
    let (hidden_td, _) = model.encoder.forward(input(batch), &ctx)?;
    Ok(Loss::of(&model.head.loss(&hidden_td, targets(batch), &ctx)?, batch.num_labels()))
}

/// Logits at the label positions, `[M, classes]`, without dropout.
pub(super) fn logits<H: Head>(model: &Model<H>, batch: &Batch) -> Result<Tensor> {
    let ctx = context(&model.parameters, batch, None);
    let (hidden_td, _) = model.encoder.forward(input(batch), &ctx)?;
    model.head.logits(&hidden_td, &batch.label_positions, &ctx)
}

/// Length of the segment that a token attends to, averaged over tokens.
pub(super) fn mean_length(batch: &Batch) -> f64 {
    let squares: f64 = batch.cu_seqlens.windows(2).map(|w| f64::from(w[1] - w[0]).powi(2)).sum();
    squares / batch.num_tokens().max(1) as f64
}

fn context<'a>(parameters: &'a Parameters, batch: &'a Batch, dropout: Option<DropoutSeed>) -> Context<'a> {
    Context { parameters, rows: Rows { cu_seqlens: &batch.cu_seqlens, token_keys: &batch.token_keys }, dropout }
}

fn targets(batch: &Batch) -> Targets<'_> {
    Targets { positions: &batch.label_positions, labels: &batch.labels }
}

fn input(batch: &Batch) -> Input<'_> {
    Input { ids: &batch.ids, position_ids: &batch.position_ids, token_type_ids: &batch.token_type_ids }
}

//! One pass of a model with a head over a batch: cross-entropy at the label positions, forward and backward.
//!
//! The tasks differ in their heads and examples; the pass is the same for all of them.

use candle_core::Result;
use candle_core::Tensor;

use crate::batches::Batch;
use crate::layers::Context;
use crate::layers::Gradients;
use crate::layers::context::DropoutSeed;
use crate::models::Head;
use crate::models::Model;
use crate::tasks::Loss;
use crate::tasks::PendingLoss;
use crate::tasks::inputs::Inputs;

/// Adds `scale` times the gradient of the summed loss of `batch` to `gradients`; a batch without labels has
/// none.
pub(super) fn accumulate<H: Head>(
    model: &Model<H>,
    batch: &Batch,
    dropout: DropoutSeed,
    scale: f32,
    gradients: &Gradients,
) -> Result<PendingLoss> {
    if batch.num_labels() == 0 {
        return Ok(PendingLoss::default());
    }
    let inputs = inputs(model, batch, true)?;
    let ctx = Context { parameters: &model.parameters, rows: inputs.rows(), dropout: Some(dropout) };
    let (hidden_td, saved) = model.encoder.forward(inputs.tokens(), &ctx)?;
    let (entropy, d_hidden) =
        model.head.loss_and_gradient(&hidden_td, inputs.targets(), scale, &ctx, gradients)?;
    drop(hidden_td);
    model.encoder.backward(d_hidden, inputs.tokens(), saved, &ctx, gradients)?;
    Ok(PendingLoss::of(entropy, batch.num_labels()))
}

/// The loss of `batch` without dropout and without gradients.
pub(super) fn evaluate<H: Head>(model: &Model<H>, batch: &Batch) -> Result<Loss> {
    let inputs = inputs(model, batch, false)?;
    let ctx = Context { parameters: &model.parameters, rows: inputs.rows(), dropout: None };
    let hidden_td = model.encoder.infer(inputs.tokens(), &ctx)?;
    PendingLoss::of(model.head.loss(&hidden_td, inputs.targets(), &ctx)?, batch.num_labels()).read()
}

/// Logits at the label positions, `[M, classes]`, without dropout.
pub(super) fn logits<H: Head>(model: &Model<H>, batch: &Batch) -> Result<Tensor> {
    let inputs = inputs(model, batch, false)?;
    let ctx = Context { parameters: &model.parameters, rows: inputs.rows(), dropout: None };
    let hidden_td = model.encoder.infer(inputs.tokens(), &ctx)?;
    model.head.logits(&hidden_td, inputs.targets(), &ctx)
}

/// Length of the segment that a token attends to, averaged over tokens.
pub(super) fn mean_length(batch: &Batch) -> f64 {
    let squares: f64 = batch.cu_seqlens.windows(2).map(|w| f64::from(w[1] - w[0]).powi(2)).sum();
    squares / batch.num_tokens().max(1) as f64
}

fn inputs<'a, H>(model: &Model<H>, batch: &'a Batch, backward: bool) -> Result<Inputs<'a>> {
    Inputs::new(batch, &model.config, model.parameters.flat().device(), backward)
}

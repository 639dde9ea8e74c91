//! The task of a model with one head: its loss at the label positions, forward and backward.
//!
//! Masked language modelling and classification differ only in their heads and examples.

use candle_core::{DType, Result, Tensor};

use crate::tasks::inputs::Inputs;
use crate::tasks::{Loss, PendingLoss, Seen, Task, inputs};
use data::batches::{Batch, Planner};
use model::layers::context::Pass;
use model::layers::{Context, Gradients, Parameters};
use model::models::{Head, Model};

/// A model that is trained on labels.
#[derive(Debug)]
pub struct Supervised<H> {
    /// Encoder and head.
    pub model: Model<H>,
}

impl<H: Head> Supervised<H> {
    /// Converts the model to compute in `dtype`.
    pub fn computing_in(self, dtype: DType) -> Result<Self> {
        Ok(Self { model: self.model.computing_in(dtype)? })
    }

    fn inputs<'a>(&self, batch: &'a Batch, backward: bool) -> Result<Inputs<'a>> {
        Inputs::new(batch, &self.model.config, self.model.parameters.flat().device(), backward)
    }

    /// Runs the encoder without dropout and without gradients, and calls `f` with the last hidden states.
    fn inferred<R>(
        &self,
        batch: &Batch,
        f: impl FnOnce(&H, &Tensor, &Inputs<'_>, &Context<'_>) -> Result<R>,
    ) -> Result<R> {
        let inputs = self.inputs(batch, false)?;
        let ctx = Context { parameters: &self.model.parameters, rows: inputs.rows(), pass: None };
        let Model { encoder, head, .. } = &self.model;
        let hidden = encoder.infer(inputs.tokens(), head.chosen(inputs.targets()), &ctx)?;
        f(head, &hidden, &inputs, &ctx)
    }
}

impl<H: Head> Task for Supervised<H> {
    /// A batch without labels has no loss and no gradient.
    fn accumulate(
        &self,
        batch: &Batch,
        pass: Pass,
        scales: &[f32],
        gradients: &Gradients,
    ) -> Result<Vec<PendingLoss>> {
        if batch.num_labels() == 0 {
            return Ok(vec![PendingLoss::default()]);
        }
        let Model { encoder, head, parameters, .. } = &self.model;
        let inputs = self.inputs(batch, true)?;
        let ctx = Context { parameters, rows: inputs.rows(), pass: Some(pass) };
        let chosen = head.chosen(inputs.targets());
        let (hidden, saved) = encoder.forward(inputs.tokens(), chosen, &ctx)?;
        let (totals, d_hidden) =
            head.loss_and_gradient(&hidden, inputs.targets(), scales[0], &ctx, gradients)?;
        drop(hidden);
        encoder.backward(d_hidden, inputs.tokens(), chosen, saved, &ctx, gradients)?;
        Ok(vec![PendingLoss::of_totals(totals, batch.num_labels())])
    }

    fn planner(&self) -> Option<Planner> {
        inputs::planner(&self.model.config, self.model.parameters.flat().device())
    }

    fn send(&self, batch: &mut Batch) -> Result<()> {
        inputs::send(batch, &self.model.config, self.model.parameters.flat().device())
    }

    fn observe(&self, batch: &Batch, pass: Pass, seen: &mut Seen<'_>) -> Result<()> {
        let Model { encoder, parameters, .. } = &self.model;
        let inputs = self.inputs(batch, true)?;
        let ctx = Context { parameters, rows: inputs.rows(), pass: Some(pass) };
        encoder.observed(inputs.tokens(), None, &ctx, &mut |part, hidden_td| seen("", part, hidden_td))?;
        Ok(())
    }

    fn logits(&self, batch: &Batch) -> Result<Tensor> {
        self.inferred(batch, |head, hidden, inputs, ctx| head.logits(hidden, inputs.targets(), ctx))
    }

    fn evaluate(&self, batch: &Batch) -> Result<Vec<Loss>> {
        let totals =
            self.inferred(batch, |head, hidden, inputs, ctx| head.loss(hidden, inputs.targets(), ctx))?;
        Ok(vec![PendingLoss::of_totals(totals, batch.num_labels()).read()?])
    }

    fn parameters(&self) -> &Parameters {
        &self.model.parameters
    }

    fn set_global_rope_theta(&self, theta: f64) {
        self.model.encoder.set_global_rope_theta(theta);
    }

    fn flops(&self, batch: &Batch) -> f64 {
        self.model.flops(batch.num_tokens() as f64, mean_length(batch), batch.label_positions.len() as f64)
    }
}

/// Returns the number of tokens that a token attends to, averaged over tokens: those of its segment, or in a
/// causal batch itself and those before it.
pub(super) fn mean_length(batch: &Batch) -> f64 {
    let lengths = batch.cu_seqlens.windows(2).map(|bounds| f64::from(bounds[1] - bounds[0]));
    let pairs: f64 = if batch.is_causal {
        lengths.map(|length| length * (length + 1.0) / 2.0).sum()
    } else {
        lengths.map(|length| length * length).sum()
    };
    pairs / batch.num_tokens().max(1) as f64
}

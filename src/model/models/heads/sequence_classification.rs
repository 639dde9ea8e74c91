//! Sequence classifier: first token or mean of each segment, map, tanh, GELU or ReLU, norm if there is one,
//! dropout, map to labels, or to predicted numbers (regression).
//!
//! RoBERTa and ELECTRA have dropout before the first map as well; BERT's first map is its pooler without
//! dropout before it, and DeBERTa has a separate dropout rate there. ELECTRA, ModernBERT and DeBERTa use
//! GELU; the mean and the norm are ModernBERT's (`ModernBertForSequenceClassification` and
//! `ModernBertPredictionHead` of transformers).

use candle_core::{DType, Result, Tensor, bail};

use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::layers::{Context, Footprint, Gradients, Part, Registry, Site};
use crate::models::heads::{Head, HeadMemory, Targets};
use crate::models::initial::Role;
use crate::models::{initial, norm};
use base::families::{
    ClassificationNames, HeadActivation, HeadKind, ModelConfig, Pooling, SentencePairNames,
};
use ops::activation::Function;
use ops::cross_entropy::{Entropy, Totals};
use ops::indices::Indices;
use ops::soft_cross_entropy::SoftTargets;
use ops::tensor::from_vec;
use ops::{
    activation, cross_entropy, distillation, dropout, layer_norm, mean_squared_error, segment_mean,
    sigmoid_cross_entropy, soft_cross_entropy,
};

/// A sequence classification head.
#[derive(Debug, Clone)]
pub struct ClassificationHead {
    pooling: Pooling,
    dense: Linear,
    norm: Option<Norm>,
    output: Linear,
    activation: Function,
    dropout: f64,
    input_dropout: f64,
    objective: Objective,
}

/// The meaning of the outputs, which determines the loss.
#[derive(Debug, Clone, PartialEq)]
pub enum Objective {
    /// One class of several: softmax cross-entropy.
    OneClass,
    /// One class of several, with targets that are smoothed or weighted in training; the loss of an
    /// evaluation is that of `OneClass`, so that runs can be compared.
    SoftClass(SoftTargets),
    /// One class of several, learnt from labels and from the probabilities of a teacher; the loss of an
    /// evaluation is that of `OneClass`.
    Distilled {
        /// The objective of the labels: `OneClass` or `SoftClass`.
        of_labels: Box<Self>,
        /// Share of the teacher in the loss, from 0 to 1; the rest is that of the labels.
        weight: f64,
        /// Divisor of the logits of both models.
        temperature: f64,
    },
    /// Any number of labels: binary cross-entropy of each. Their targets are 0 or 1 for each label.
    Labels,
    /// Numbers: squared error. Their targets are the bits of f32 numbers.
    Numbers,
}

impl Objective {
    /// The objective of a head for whole texts, without smoothing or weights.
    pub fn of(head: HeadKind) -> Self {
        match head {
            HeadKind::MultiLabelClassification => Self::Labels,
            HeadKind::Regression => Self::Numbers,
            _ => Self::OneClass,
        }
    }

    /// The loss of an evaluation, without smoothing or weights: totals for these logits and labels.
    pub fn totals(&self, logits: &Tensor, labels: Indices<'_>) -> Result<Tensor> {
        match self {
            Self::OneClass | Self::SoftClass(_) | Self::Distilled { .. } => {
                Ok(cross_entropy::forward(logits, labels)?.totals)
            }
            Self::Labels => sigmoid_cross_entropy::forward(logits, labels.host()),
            Self::Numbers => mean_squared_error::forward(logits, &numbers(labels)),
        }
    }

    /// The totals of training, as in [`Head::loss`], and the gradient of `scale` times the loss with respect
    /// to the logits, which may be written over them.
    fn loss_and_gradient(
        &self,
        logits: Tensor,
        targets: Targets<'_>,
        scale: f32,
    ) -> Result<(Tensor, Tensor)> {
        match self {
            Self::OneClass => {
                let Entropy { totals, log_sum_exp_m } = cross_entropy::forward(&logits, targets.labels)?;
                Ok((totals, cross_entropy::backward(logits, targets.labels, &log_sum_exp_m, scale)?))
            }
            Self::SoftClass(soft) => {
                let labels = targets.labels.host();
                let totals = soft_cross_entropy::forward(&logits, labels, soft)?;
                Ok((totals, soft_cross_entropy::backward(&logits, labels, soft, scale)?))
            }
            Self::Distilled { of_labels, weight, temperature } => {
                let teacher: Vec<f32> = targets.teacher.iter().map(|&bits| f32::from_bits(bits)).collect();
                let divergence = distillation::forward(&logits, &teacher, *temperature)?;
                let scale_of_teacher = (f64::from(scale) * weight) as f32;
                let d_divergence = distillation::backward(&logits, &teacher, *temperature, scale_of_teacher)?;
                let scale_of_labels = (f64::from(scale) * (1.0 - weight)) as f32;
                let (totals, d_logits) = of_labels.loss_and_gradient(logits, targets, scale_of_labels)?;
                let Totals { loss_sum, correct } = Totals::read(&totals)?;
                let loss_sum = (1.0 - weight) * loss_sum + weight * divergence;
                let both = from_vec(vec![loss_sum, correct as f64], 2)?.to_device(totals.device())?;
                Ok((both, (d_logits + d_divergence)?))
            }
            Self::Labels => {
                let labels = targets.labels.host();
                let totals = sigmoid_cross_entropy::forward(&logits, labels)?;
                Ok((totals, sigmoid_cross_entropy::backward(&logits, labels, scale)?))
            }
            Self::Numbers => {
                let numbers = numbers(targets.labels);
                let totals = mean_squared_error::forward(&logits, &numbers)?;
                Ok((totals, mean_squared_error::backward(&logits, &numbers, scale)?))
            }
        }
    }
}

/// Values saved for the backward pass; `M` is the number of segments.
#[derive(Debug)]
struct Saved {
    /// Input of the first map, `[M, D]`.
    input: Tensor,
    /// Output of tanh or ReLU, or the input of bias and GELU, `[M, D]`.
    activation: Tensor,
    /// The input of the norm, `[M, D]`, and what the norm saved.
    norm: Option<(Tensor, layer_norm::Saved)>,
    /// Input of the second map, `[M, D]`.
    output_input: Tensor,
}

impl ClassificationHead {
    /// Registers both maps.
    pub fn new(registry: &mut Registry, config: &ModelConfig, num_labels: usize) -> Self {
        Self::with_names(registry, config, config.family.classification, num_labels)
    }

    fn with_names(
        registry: &mut Registry,
        config: &ModelConfig,
        names: ClassificationNames,
        num_labels: usize,
    ) -> Self {
        registry.enter(Part::Head);
        let shape = &config.encoder;
        let dropout = shape.classifier_dropout.unwrap_or(shape.hidden_dropout_prob);
        let hidden = shape.hidden_size;
        let [first, last] = [Role::Output, Role::Labels].map(|role| initial::init(config, role));
        Self {
            pooling: shape.classifier_pooling,
            dense: Linear::initialised(registry, names.dense, [hidden, hidden], first, names.has_bias),
            norm: names.norm.map(|name| norm(registry, config, name, hidden)),
            output: Linear::initialised(registry, names.output, [hidden, num_labels], last, true),
            activation: match names.activation {
                HeadActivation::Tanh => Function::Tanh,
                HeadActivation::Gelu => Function::Gelu,
                HeadActivation::Relu => Function::Relu,
            },
            dropout,
            input_dropout: if names.drops_input { dropout } else { shape.pooler_dropout },
            objective: Objective::OneClass,
        }
    }

    /// The pooler and a map to the two classes of pairs of segments, for a model that also has a masked-LM
    /// head.
    pub fn of_pairs(registry: &mut Registry, config: &ModelConfig, names: SentencePairNames) -> Self {
        let form = config.family.classification;
        let hidden = config.encoder.hidden_size;
        let head =
            Self::with_names(registry, config, ClassificationNames { output: names.output, ..form }, 2);
        debug_assert_eq!(
            (head.pooling, head.output.inputs),
            (Pooling::Cls, hidden),
            "a pooler takes one row"
        );
        Self { dropout: if names.drops_input { head.dropout } else { 0.0 }, ..head }
    }

    /// The same head for another objective.
    #[must_use]
    pub fn with_objective(self, objective: Objective) -> Self {
        Self { objective, ..self }
    }
}

impl ClassificationHead {
    /// One row for each segment, `[M, D]`.
    fn pooled(&self, hidden: &Tensor, targets: Targets<'_>, ctx: &Context<'_>) -> Result<Tensor> {
        match self.pooling {
            Pooling::Cls => Ok(hidden.clone()),
            Pooling::Mean => {
                let segments = ctx.rows.cu_seqlens.len() - 1;
                if segments != targets.positions.len() {
                    bail!("classifier: {segments} segments have {} labels", targets.positions.len());
                }
                segment_mean::forward(hidden, ctx.rows.cu_seqlens)
            }
        }
    }

    /// The gradient of the hidden states from that of the pooled rows.
    fn pooled_backward(&self, d_pooled: Tensor, ctx: &Context<'_>) -> Result<Tensor> {
        match self.pooling {
            Pooling::Cls => Ok(d_pooled),
            Pooling::Mean => segment_mean::backward(&d_pooled, ctx.rows.cu_seqlens),
        }
    }

    fn forward(&self, hidden: &Tensor, targets: Targets<'_>, ctx: &Context<'_>) -> Result<(Tensor, Saved)> {
        let keys = targets.keys;
        let pooled = self.pooled(hidden, targets, ctx)?;
        let input_md =
            dropout::forward(&pooled, keys, ctx.dropout_at(Site::HeadInput, self.input_dropout).as_ref())?;
        let pre_activation = self.dense.forward_without_bias(&input_md, ctx)?;
        let bias = self.dense.bias(ctx);
        let activated_md = activation::forward(self.activation, &pre_activation, bias)?;
        let kept_md = if self.activation.saves_output() { activated_md.clone() } else { pre_activation };
        let (normed_md, norm) = match self.norm {
            None => (activated_md, None),
            Some(norm) => {
                let (normed_md, saved) = norm.forward(&activated_md, ctx)?;
                (normed_md, Some((activated_md, saved)))
            }
        };
        let output_input_md =
            dropout::forward(&normed_md, keys, ctx.dropout_at(Site::HeadOutput, self.dropout).as_ref())?;
        let logits = self.output.forward(&output_input_md, ctx)?;
        Ok((logits, Saved { input: input_md, activation: kept_md, norm, output_input: output_input_md }))
    }

    /// Gradient of the head's input rows, `[M, D]`.
    fn backward(
        &self,
        d_logits: &Tensor,
        keys: Indices<'_, u64>,
        saved: &Saved,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<Tensor> {
        let d_output_input = self.output.backward(d_logits, &saved.output_input, ctx, gradients)?;
        let mut d_activation = dropout::backward(
            &d_output_input,
            keys,
            ctx.dropout_at(Site::HeadOutput, self.dropout).as_ref(),
        )?;
        if let (Some(norm), Some((activated_md, saved))) = (&self.norm, &saved.norm) {
            d_activation = norm.backward(&d_activation, activated_md, saved, ctx, gradients)?;
        }
        let kept = &saved.activation;
        let d_bias = self.dense.d_bias(gradients);
        let bias = self.dense.bias(ctx);
        let d_pre = activation::backward(self.activation, &d_activation, kept, bias, d_bias)?;
        let d_input = self.dense.backward_without_bias(&d_pre, &saved.input, ctx, gradients)?;
        dropout::backward(&d_input, keys, ctx.dropout_at(Site::HeadInput, self.input_dropout).as_ref())
    }
}

impl Head for ClassificationHead {
    fn chooses(&self) -> bool {
        self.pooling == Pooling::Cls
    }

    fn flops(&self, rows: f64) -> f64 {
        rows * (self.dense.flops() + self.output.flops())
    }

    fn memory(&self, rows: u64, compute: DType, _on_gpu: bool) -> HeadMemory {
        // Saved: the inputs of both maps and of the norm, and the value between them. In addition: the
        // gradients of these, of the pooled rows and of the logits, which are f32.
        let norm = u64::from(self.norm.is_some());
        let moment_bytes = self.norm.map_or(0, |norm| norm.form.saved_bytes());
        let hidden = self.dense.inputs as u64;
        let labels = self.output.outputs as u64;
        let kept = Footprint { values: (3 + norm) * hidden, statistics_bytes: moment_bytes };
        let besides = Footprint { values: (4 + norm) * hidden + labels, statistics_bytes: 4 * labels };
        let value_bytes = compute.size_in_bytes() as u64;
        HeadMemory {
            saved_bytes: kept.bytes(rows, value_bytes),
            temporary_bytes: besides.bytes(rows, value_bytes),
        }
    }

    fn logits(&self, hidden: &Tensor, targets: Targets<'_>, ctx: &Context<'_>) -> Result<Tensor> {
        Ok(self.forward(hidden, targets, ctx)?.0)
    }

    fn loss(&self, hidden: &Tensor, targets: Targets<'_>, ctx: &Context<'_>) -> Result<Tensor> {
        self.objective.totals(&self.logits(hidden, targets, ctx)?, targets.labels)
    }

    fn loss_and_gradient(
        &self,
        hidden: &Tensor,
        targets: Targets<'_>,
        scale: f32,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<(Tensor, Tensor)> {
        let (totals, d_pooled) = self.rows_and_gradient(hidden, targets, scale, ctx, gradients)?;
        gradients.left(ctx.pass, Part::Head)?;
        Ok((totals, self.pooled_backward(d_pooled, ctx)?))
    }
}

impl ClassificationHead {
    /// [`Head::loss_and_gradient`], except that the gradient is that of the pooled rows, `[M, D]`, and the
    /// gradients of heads are not marked as final.
    pub(super) fn rows_and_gradient(
        &self,
        hidden: &Tensor,
        targets: Targets<'_>,
        scale: f32,
        ctx: &Context<'_>,
        gradients: &Gradients,
    ) -> Result<(Tensor, Tensor)> {
        let (logits, saved) = self.forward(hidden, targets, ctx)?;
        let (totals, d_logits) = self.objective.loss_and_gradient(logits, targets, scale)?;
        Ok((totals, self.backward(&d_logits, targets.keys, &saved, ctx, gradients)?))
    }
}

/// The targets of [`Objective::Numbers`].
fn numbers(labels: Indices<'_>) -> Vec<f32> {
    labels.host().iter().map(|&bits| f32::from_bits(bits)).collect()
}

#[cfg(test)]
mod tests {
    use candle_core::Var;
    use ops::testing::{assert_close, double, fresh};

    use super::*;

    #[test]
    fn a_teacher_has_its_share_of_loss_and_gradient() {
        let weight = 0.25;
        let temperature = 3.0;
        let scale = 0.5f32;
        let logits = fresh((3, 4), 1);
        let labels = [2, 0, 3];
        let shares = fresh((3, 4), 2).exp().unwrap();
        let teacher = shares.broadcast_div(&shares.sum_keepdim(1).unwrap()).unwrap();
        let bits: Vec<u32> =
            teacher.flatten_all().unwrap().to_vec1::<f32>().unwrap().into_iter().map(f32::to_bits).collect();
        let objective =
            Objective::Distilled { of_labels: Box::new(Objective::OneClass), weight, temperature };
        let none: [u32; 0] = [];
        let targets = Targets {
            positions: none.as_slice().into(),
            labels: labels.as_slice().into(),
            teacher: &bits,
            keys: [].as_slice().into(),
        };
        let (totals, d_logits) = objective.loss_and_gradient(logits.copy().unwrap(), targets, scale).unwrap();

        let variable = Var::from_tensor(&double(&logits)).unwrap();
        let entropy = cross_entropy::reference::forward(variable.as_tensor(), &labels).unwrap();
        let divergence =
            distillation::reference::forward(variable.as_tensor(), &double(&teacher), temperature).unwrap();
        let loss = ((entropy * (1.0 - weight)).unwrap() + (divergence * weight).unwrap()).unwrap();
        let gradient = loss.backward().unwrap().get(&variable).unwrap().clone();
        let [sum, _] = totals.to_vec1::<f64>().unwrap()[..] else { panic!("two totals") };
        assert!((sum - loss.to_scalar::<f64>().unwrap()).abs() < 1e-5, "{sum}");
        assert_close("d_logits", &d_logits, &(gradient * f64::from(scale)).unwrap(), 1e-5);
        // An evaluation knows no teacher.
        let evaluated = objective.totals(&logits, labels.as_slice().into()).unwrap();
        let plain = Objective::OneClass.totals(&logits, labels.as_slice().into()).unwrap();
        assert_eq!(evaluated.to_vec1::<f64>().unwrap(), plain.to_vec1::<f64>().unwrap());
    }
}

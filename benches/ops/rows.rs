//! Ops that go over rows and multiply no matrices: GELU, norms, dropout.

use std::hint::black_box;
use std::io::Write;

use candle_core::Tensor;
use mlmtrain::ops::activation::Function::Gelu;
use mlmtrain::ops::layer_norm::Form::LayerNorm;
use mlmtrain::ops::{activation, dropout, layer_norm, residual_norm};

use super::inputs::{dropped, row_keys, vector, zeros};
use super::{Bench, EPS, Going, Work};

impl<W: Write> Bench<'_, W> {
    pub(super) fn rows(&mut self) -> Going {
        let (tokens, d, f) = (self.tokens(), self.shape.hidden_size, self.shape.intermediate_size);
        let wide = tokens * f;
        let activation = |bench: &Self| {
            Ok((bench.activations(tokens, f)?, bench.activations(tokens, f)?, vector(f)?, zeros(&[f])?))
        };
        self.line("gelu forward", &Work::Values(2 * wide, 0), activation, |(x, _, bias, _)| {
            black_box(activation::forward(Gelu, x, Some(bias))?);
            Ok(())
        })?;
        self.line("gelu backward", &Work::Values(3 * wide, 0), activation, |(x, dy, bias, gradient)| {
            black_box(activation::backward(Gelu, dy, x, Some(bias), Some(gradient))?);
            Ok(())
        })?;
        let narrow = tokens * d;
        let normed = |bench: &Self| {
            let (x, weight, bias) = (bench.activations(tokens, d)?, vector(d)?, vector(d)?);
            let saved = layer_norm::forward(LayerNorm, &x, &weight, Some(&bias), EPS)?.1;
            Ok((x, weight, bias, saved, bench.activations(tokens, d)?, zeros(&[d])?, zeros(&[d])?))
        };
        self.line("layer_norm forward", &Work::Values(2 * narrow, 0), normed, |(x, weight, bias, ..)| {
            black_box(layer_norm::forward(LayerNorm, x, weight, Some(bias), EPS)?);
            Ok(())
        })?;
        self.line(
            "layer_norm backward",
            &Work::Values(3 * narrow, 0),
            normed,
            |(x, weight, _, saved, dy, dweight, dbias)| {
                black_box(layer_norm::backward(dy, x, weight, saved, dweight, Some(dbias))?);
                Ok(())
            },
        )?;
        let (keys, dropout) = (row_keys(tokens), dropped());
        self.line(
            "dropout",
            &Work::Values(2 * narrow, 0),
            |bench| bench.activations(tokens, d),
            |x| {
                black_box(dropout::forward(x, &keys, Some(&dropout))?);
                Ok(())
            },
        )
    }

    pub(super) fn residual_norm(&mut self) -> Going {
        let (tokens, d) = (self.tokens(), self.shape.hidden_size);
        let (keys, dropout) = (row_keys(tokens), dropped());
        let inputs = |bench: &Self| {
            let (x, residual, vectors) = (
                bench.activations(tokens, d)?,
                bench.activations(tokens, d)?,
                [vector(d)?, vector(d)?, vector(d)?],
            );
            let saved = residual_norm::forward(&x, &residual, &weights(&vectors), &keys, Some(&dropout))?.1;
            Ok((x, residual, vectors, saved, [zeros(&[d])?, zeros(&[d])?, zeros(&[d])?]))
        };
        // Two inputs; the sum and the output.
        self.line(
            "residual_norm forward",
            &Work::Values(4 * tokens * d, 0),
            inputs,
            |(x, residual, vectors, ..)| {
                black_box(residual_norm::forward(x, residual, &weights(vectors), &keys, Some(&dropout))?);
                Ok(())
            },
        )?;
        // The gradient and the sum; two gradients.
        self.line(
            "residual_norm backward",
            &Work::Values(4 * tokens * d, 0),
            inputs,
            |(x, _, [_, norm_weight, _], saved, gradients)| {
                let [dbias, dnorm_weight, dnorm_bias] = gradients;
                let into = residual_norm::WeightGradients {
                    dbias: Some(dbias.into()),
                    dnorm_weight: dnorm_weight.into(),
                    dnorm_bias: Some(dnorm_bias.into()),
                };
                black_box(residual_norm::backward(
                    x,
                    None,
                    saved,
                    norm_weight,
                    &into,
                    &keys,
                    Some(&dropout),
                )?);
                Ok(())
            },
        )
    }
}

fn weights([bias, norm_weight, norm_bias]: &[Tensor; 3]) -> residual_norm::Weights<'_> {
    let norm_bias = Some(norm_bias);
    residual_norm::Weights { bias: Some(bias), norm_weight, norm_bias, eps: EPS, form: LayerNorm }
}

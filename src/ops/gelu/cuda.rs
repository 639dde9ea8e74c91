//! Bias and GELU on the GPU, one pass over the rows each way.

use candle_core::{Result, Tensor};

use crate::accumulator::Accumulator;
use crate::cuda::{Gpu, Kernel, activation};
use crate::gelu::Form;

fn kernels(form: Form) -> [Kernel; 2] {
    let names = match form {
        Form::Erf => ["gelu_forward", "gelu_backward"],
        Form::Tanh => ["gelu_tanh_forward", "gelu_tanh_backward"],
    };
    names.map(|name| Kernel { op: "gelu", name })
}

pub(super) fn forward(form: Form, gpu: &Gpu, x_tf: &Tensor, bias_f: Option<&Tensor>) -> Result<Tensor> {
    activation::forward(gpu, kernels(form)[0], x_tf, bias_f)
}

pub(super) fn backward(
    form: Form,
    gpu: &Gpu,
    dy_tf: &Tensor,
    x_tf: &Tensor,
    bias_f: Option<&Tensor>,
    dbias_f: Option<Accumulator<'_>>,
) -> Result<Tensor> {
    activation::backward(gpu, kernels(form)[1], dy_tf, x_tf, bias_f, dbias_f)
}

//! Several maps of one input on the GPU as one product each way, where their weights lie at equal distances,
//! as those of queries, keys and values do in the buffer of all parameters. Elsewhere, and where the library
//! has no such product, nothing is done here, and each map is one by itself.

use candle_core::DType;
use candle_core::Result;
use candle_core::Tensor;

use crate::accumulator::Accumulator;
use crate::cuda::Gpu;
use crate::cuda::apart::Apart;
use crate::cuda::gemm::Batch;
use crate::cuda::gemm::Bias;
use crate::cuda::gemm::Gemm;
use crate::cuda::gemm::Operand;
use crate::cuda::sums::Partials;
use crate::linear::Map;
use crate::linear::MapGradients;

/// f32 values that vectors of a batch lie apart, or a multiple: 16 bytes.
const VECTOR_VALUES: usize = 4;

/// The outputs, views of one tensor that lie to one another as the weights do; `None` where nothing was done.
pub(super) fn forward<const N: usize>(
    gpu: &Gpu,
    x: &Tensor,
    maps: [Map<'_>; N],
) -> Result<Option<[Tensor; N]>> {
    let (dtype, (rows, inputs)) = (x.dtype(), x.dims2()?);
    let outputs = maps[0].weight_oi.dim(0)?;
    if rows == 0 || maps.iter().any(|map| map.weight_oi.dims() != [outputs, inputs]) {
        return Ok(None);
    }
    let Some(weights) = Apart::of(&maps, dtype, |map| gpu.input(map.weight_oi, dtype))? else {
        return Ok(None);
    };
    let given: Vec<&Tensor> = maps.iter().filter_map(|map| map.bias_o).collect();
    let biases = match <[&Tensor; N]>::try_from(given) {
        Ok(biases) if biases.iter().all(|bias| bias.dtype() == dtype) => {
            let biases = Apart::of(&biases, dtype, |bias| gpu.input(bias, dtype))?;
            let fits = |biases: &Apart<N>| {
                biases.ranks == weights.ranks && biases.stride.is_multiple_of(2 * VECTOR_VALUES)
            };
            let Some(biases) = biases.filter(fits) else { return Ok(None) };
            Some(biases)
        }
        Err(given) if given.is_empty() => None,
        _ => return Ok(None),
    };
    let y = gpu.uninitialised((N, rows, outputs), dtype)?;
    let gemm = Gemm {
        m: rows,
        n: outputs,
        k: inputs,
        a: Operand::rows(gpu.input(x, dtype)?, inputs),
        b: Operand::rows(weights.first, inputs).transposed(),
        out: Operand::rows(gpu.output(&y, dtype)?, outputs),
        dtype,
        out_dtype: dtype,
        accumulate: false,
        bias: biases.map(|biases| Bias { address: biases.first, dtype }),
        batch: Batch {
            count: N,
            a: 0,
            b: weights.stride,
            out: rows * outputs,
            vector: biases.map_or(0, |biases| biases.stride),
        },
    };
    // SAFETY: `x` is `[rows, inputs]`; of each map, so far apart, the weight is `[outputs, inputs]`, the bias
    // `[outputs]`, and the output `[rows, outputs]`.
    if !unsafe { gpu.gemm_batch(&gemm, None) }? {
        return Ok(None);
    }
    let views = weights.ranks.iter().map(|&rank| y.get(rank)).collect::<Result<Vec<Tensor>>>()?;
    Ok(Some(views.try_into().expect("there is a view for each map")))
}

/// Accumulates the gradients of all weights and biases; false where nothing was done.
pub(super) fn backward_parameters<const N: usize>(
    gpu: &Gpu,
    x: &Tensor,
    maps: [MapGradients<'_>; N],
) -> Result<bool> {
    let (dtype, (rows, inputs)) = (x.dtype(), x.dims2()?);
    let (outputs, begun) = (maps[0].dy_to.dim(1)?, maps[0].dweight_oi.begun);
    let differs =
        |map: &MapGradients<'_>| map.dy_to.dims() != [rows, outputs] || map.dweight_oi.begun != begun;
    if rows == 0 || maps.iter().any(differs) {
        return Ok(false);
    }
    let weights = Apart::of(&maps, DType::F32, |map| gpu.output(map.dweight_oi.sum, DType::F32))?;
    let dys = Apart::of(&maps, dtype, |map| gpu.input(map.dy_to, dtype))?;
    let Some((weights, dys)) = weights.zip(dys).filter(|(weights, dys)| weights.ranks == dys.ranks) else {
        return Ok(false);
    };
    let of_weights = Gemm {
        m: outputs,
        n: inputs,
        k: rows,
        a: Operand::rows(dys.first, outputs).transposed(),
        b: Operand::rows(gpu.input(x, dtype)?, inputs),
        out: Operand::rows(weights.first, inputs),
        dtype,
        out_dtype: DType::F32,
        accumulate: begun,
        bias: None,
        batch: Batch { count: N, a: dys.stride, b: 0, out: weights.stride, vector: 0 },
    };
    let given: Vec<Accumulator<'_>> = maps.iter().filter_map(|map| map.dbias_o).collect();
    match <[Accumulator<'_>; N]>::try_from(given) {
        // SAFETY: `x` is `[rows, inputs]`; of each map, so far apart, `dy` is `[rows, outputs]`, and the
        // gradient of the weight `[outputs, inputs]` in f32.
        Ok(biases) => unsafe { with_biases(gpu, &of_weights, weights, biases) },
        // SAFETY: as above.
        Err(given) if given.is_empty() => unsafe { gpu.gemm_batch(&of_weights, None) },
        Err(_) => Ok(false),
    }
}

/// The product of the weights with the sums of the biases beside it. It can only overwrite these: where they
/// were begun, or lie elsewhere, they go by way of vectors.
///
/// # Safety
/// As [`Gpu::gemm_batch`].
unsafe fn with_biases<const N: usize>(
    gpu: &Gpu,
    of_weights: &Gemm,
    weights: Apart<N>,
    biases: [Accumulator<'_>; N],
) -> Result<bool> {
    let product = |vector: usize| Gemm { batch: Batch { vector, ..of_weights.batch }, ..*of_weights };
    if biases.iter().all(|bias| !bias.begun) {
        let there = Apart::of(&biases, DType::F32, |bias| gpu.output(bias.sum, DType::F32))?;
        let fits =
            |there: &Apart<N>| there.ranks == weights.ranks && there.stride.is_multiple_of(VECTOR_VALUES);
        if let Some(there) = there.filter(fits) {
            // SAFETY: the caller's promise; there is a sum for each output of each map, so far apart.
            return unsafe { gpu.gemm_batch(&product(there.stride), Some(there.first)) };
        }
    }
    let outputs = of_weights.m;
    if !outputs.is_multiple_of(VECTOR_VALUES) {
        return Ok(false);
    }
    let beside = Partials::new(gpu, 1, N * outputs)?;
    // SAFETY: as above.
    if !unsafe { gpu.gemm_batch(&product(outputs), Some(beside.address(gpu)?)) }? {
        return Ok(false);
    }
    let mut in_order = biases.map(Some);
    for (&rank, bias) in weights.ranks.iter().zip(biases) {
        in_order[rank] = Some(bias);
    }
    beside.add_to(gpu, in_order)?;
    Ok(true)
}

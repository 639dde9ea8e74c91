//! Several linear maps of one input on the GPU, computed as one batched product in forward and one in
//! backward. This needs weights at equal distances in memory, as those of queries, keys and values in the
//! flat buffer of parameters. If the distances differ, or cuBLASLt has no such product, the functions here do
//! nothing and report it, and the caller computes each map by itself.

use candle_core::{DType, Result, Tensor};

use crate::accumulator::Accumulator;
use crate::cuda::Gpu;
use crate::cuda::apart::Apart;
use crate::cuda::gemm::{Batch, Bias, Gemm, Operand, Varying};
use crate::cuda::sums::Partials;
use crate::linear::{Map, MapGradients};

/// The distance between the vectors of a batch must be a multiple of this number of f32 values, which is 16
/// bytes.
const VECTOR_VALUES: usize = 4;

/// Number of values of a type, at least 16 bits wide, whose multiples are multiples of 16 bytes.
fn vector_values(dtype: DType) -> usize {
    VECTOR_VALUES * DType::F32.size_in_bytes() / dtype.size_in_bytes()
}

/// Returns the outputs, views of one tensor in the order of the weights in memory; `None` if nothing was
/// done.
pub(super) fn forward<const N: usize>(
    gpu: &Gpu,
    x: &Tensor,
    maps: [Map<'_>; N],
) -> Result<Option<[Tensor; N]>> {
    let dtype = x.dtype();
    let (rows, inputs) = x.dims2()?;
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
            let biases = biases.filter(|biases| {
                biases.ranks == weights.ranks && biases.stride.is_multiple_of(2 * VECTOR_VALUES)
            });
            if biases.is_none() {
                return Ok(None);
            }
            biases
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
        varying: Varying::Rows,
    };
    // SAFETY: `x` is `[rows, inputs]`. At the given strides, each map has a weight `[outputs, inputs]`, a
    // bias `[outputs]`, and an output `[rows, outputs]`.
    if !unsafe { gpu.gemm_batch(&gemm, None) }? {
        return Ok(None);
    }
    let views = weights.ranks.iter().map(|&rank| y.get(rank)).collect::<Result<Vec<Tensor>>>()?;
    Ok(Some(views.try_into().expect("there is a view for each map")))
}

/// Adds the gradients of all weights and biases; returns false if nothing was done.
pub(super) fn backward_parameters<const N: usize>(
    gpu: &Gpu,
    x: &Tensor,
    maps: [MapGradients<'_>; N],
) -> Result<bool> {
    let dtype = x.dtype();
    let (rows, inputs) = x.dims2()?;
    let outputs = maps[0].dy_to.dim(1)?;
    let begun = maps[0].dweight_oi.begun;
    let out_dtype = maps[0].dweight_oi.sum.dtype();
    let are_alike = maps.iter().all(|map| {
        map.dy_to.dims() == [rows, outputs]
            && map.dweight_oi.begun == begun
            && map.dweight_oi.sum.dtype() == out_dtype
    });
    if rows == 0 || !are_alike {
        return Ok(false);
    }
    let weights = Apart::of(&maps, out_dtype, |map| gpu.output(map.dweight_oi.sum, out_dtype))?;
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
        out_dtype,
        accumulate: begun,
        bias: None,
        batch: Batch { count: N, a: dys.stride, b: 0, out: weights.stride, vector: 0 },
        varying: Varying::Depth,
    };
    let given: Vec<Accumulator<'_>> = maps.iter().filter_map(|map| map.dbias_o).collect();
    match <[Accumulator<'_>; N]>::try_from(given) {
        // SAFETY: `x` is `[rows, inputs]`. At the given strides, each map has a `dy` `[rows, outputs]`, and a
        // gradient of the weight `[outputs, inputs]` in `out_dtype`.
        Ok(biases) => unsafe { with_biases(gpu, &of_weights, weights, biases) },
        // SAFETY: as above.
        Err(given) if given.is_empty() => unsafe { gpu.gemm_batch(&of_weights, None) },
        Err(_) => Ok(false),
    }
}

/// Computes the gradients of the weights, and in the same product the gradients of the biases, which it can
/// only overwrite. If they must be added to, or are not at equal distances, they are computed into temporary
/// vectors, which are then added; that is for f32 only. Returns false if nothing was done.
///
/// # Safety
/// As [`Gpu::gemm_batch`].
unsafe fn with_biases<const N: usize>(
    gpu: &Gpu,
    of_weights: &Gemm,
    weights: Apart<N>,
    biases: [Accumulator<'_>; N],
) -> Result<bool> {
    // cuBLASLt writes the sums in the type of the product.
    let dtype = of_weights.out_dtype;
    if biases.iter().any(|bias| bias.sum.dtype() != dtype) {
        return Ok(false);
    }
    if biases.iter().all(|bias| !bias.begun) {
        let in_place = Apart::of(&biases, dtype, |bias| gpu.output(bias.sum, dtype))?;
        if let Some(in_place) = in_place
            && in_place.ranks == weights.ranks
            && in_place.stride.is_multiple_of(vector_values(dtype))
        {
            // SAFETY: the caller's promise; at the given stride, each map has a sum for each output.
            return unsafe {
                gpu.gemm_batch(&with_vector_stride(of_weights, in_place.stride), Some(in_place.first))
            };
        }
    }
    let outputs = of_weights.m;
    if dtype != DType::F32 || !outputs.is_multiple_of(VECTOR_VALUES) {
        return Ok(false);
    }
    let partials = Partials::new(gpu, 1, N * outputs)?;
    let product = with_vector_stride(of_weights, outputs);
    // SAFETY: as above.
    if !unsafe { gpu.gemm_batch(&product, Some(partials.address(gpu)?)) }? {
        return Ok(false);
    }
    let mut in_order = biases.map(Some);
    for (&rank, bias) in weights.ranks.iter().zip(biases) {
        in_order[rank] = Some(bias);
    }
    partials.add_to(gpu, in_order)?;
    Ok(true)
}

/// The batched product `gemm` whose vectors are `vector` values apart.
fn with_vector_stride(gemm: &Gemm, vector: usize) -> Gemm {
    Gemm { batch: Batch { vector, ..gemm.batch }, ..*gemm }
}

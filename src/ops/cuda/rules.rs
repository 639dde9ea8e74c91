//! Rules of cuBLASLt for a product, as far as its documentation states them: which products it refuses, and
//! which are slow. A product can be checked without the library itself.
//!
//! Source: cuBLAS 13 documentation, `cublasLtMatmul()` (table of types for regular column-major matrices),
//! `cublasLtMatrixLayoutAttribute_t`, `cublasLtMatmulDescAttributes_t`, `cublasLtEpilogue_t`, and "Tensor
//! Core Usage" for what has to be a multiple of 16 bytes.

use candle_core::DType;

use super::described::{Description, Epilogue, Layout};

/// Alignment of the workspace's start and size, in bytes.
const WORKSPACE_ALIGNMENT: usize = 256;

/// Alignment of a bias vector, in bytes: on Ampere some kernels read 16 bytes of it at a time.
const VECTOR_ALIGNMENT: u32 = 16;

/// Bytes that one load of a tensor core's operand reads.
const FAST_BYTES: usize = 16;

const NAMES: [&str; 3] = ["A", "B", "D"];

/// Checks a product; the error is the first rule that it breaks.
pub fn check(product: &Description) -> Result<(), String> {
    for (name, layout) in NAMES.iter().zip(&product.layouts) {
        matrix(layout).map_err(|problem| format!("{name}: {problem}"))?;
    }
    sizes(product)?;
    types(product)?;
    batch(product)?;
    vector(product)?;
    for (name, (layout, alignment)) in NAMES.iter().zip(product.layouts.iter().zip(product.alignments)) {
        let size = layout.dtype.size_in_bytes();
        if !(alignment as usize).is_multiple_of(size) {
            return Err(format!(
                "{name}: its address is a multiple of {alignment} bytes, a value has {size}"
            ));
        }
    }
    if !product.workspace_bytes.is_multiple_of(WORKSPACE_ALIGNMENT) {
        return Err(format!("the workspace of {} bytes is no multiple of 256", product.workspace_bytes));
    }
    Ok(())
}

fn matrix(layout: &Layout) -> Result<(), String> {
    let Layout { rows, cols, leading, .. } = *layout;
    if rows == 0 || cols == 0 {
        return Err(format!("a matrix of {rows} x {cols} has no values"));
    }
    if leading < rows {
        return Err(format!("its leading dimension {leading} is less than its {rows} rows"));
    }
    Ok(())
}

fn sizes(product: &Description) -> Result<(), String> {
    let a = operand_size(product, 0);
    let b = operand_size(product, 1);
    let d = product.layouts[2];
    if a[1] != b[0] || [a[0], b[1]] != [d.rows, d.cols] {
        return Err(format!("op(A) {a:?} times op(B) {b:?} does not give D [{}, {}]", d.rows, d.cols));
    }
    Ok(())
}

/// Rows and columns of op(A) for index 0, of op(B) for index 1.
fn operand_size(product: &Description, index: usize) -> [usize; 2] {
    let Layout { rows, cols, .. } = product.layouts[index];
    if product.transposed[index] { [cols, rows] } else { [rows, cols] }
}

/// Checks the types for products that are computed and scaled in f32.
fn types(product: &Description) -> Result<(), String> {
    let [a, b, d] = product.layouts.map(|layout| layout.dtype);
    let is_known = a == b
        && match a {
            DType::F32 => d == DType::F32,
            DType::BF16 | DType::F16 => d == a || d == DType::F32,
            _ => false,
        };
    if !is_known {
        return Err(format!("there is no product of {a:?} and {b:?} to {d:?} with sums in f32"));
    }
    Ok(())
}

/// Checks that all matrices have the same number of products, and that no product overwrites the output of
/// another: each output begins after the end of the previous one, or all write columns side by side.
fn batch(product: &Description) -> Result<(), String> {
    let counts = product.layouts.map(|layout| layout.batch_count);
    if counts[0] == 0 || counts != [counts[0]; 3] {
        return Err(format!("batches of {counts:?} products are not one batch"));
    }
    let Layout { rows, cols, leading, batch_stride, .. } = product.layouts[2];
    let values = leading * (cols - 1) + rows;
    let are_side_by_side = batch_stride >= rows && (counts[0] - 1) * batch_stride + rows <= leading;
    if counts[0] > 1 && batch_stride < values && !are_side_by_side {
        return Err(format!("D: products lie {batch_stride} values apart, and each has {values}"));
    }
    let sums = product.epilogue == Epilogue::ColumnSumsOfB;
    if counts[0] > 1 && sums && product.vector_stride < cols {
        return Err(format!("vectors of {cols} sums lie {} values apart", product.vector_stride));
    }
    Ok(())
}

fn vector(product: &Description) -> Result<(), String> {
    if product.epilogue == Epilogue::Nothing {
        return Ok(());
    }
    let vector = product.vector;
    let d = product.layouts[2].dtype;
    if vector != d {
        return Err(format!(
            "the vector of {:?} is {vector:?}, beside D it has to be {d:?}",
            product.epilogue
        ));
    }
    let alignment = product.alignments[3];
    if alignment < VECTOR_ALIGNMENT {
        return Err(format!("the vector begins at a multiple of {alignment} bytes, 16 are wanted"));
    }
    let bytes = product.vector_stride * vector.size_in_bytes();
    if !bytes.is_multiple_of(VECTOR_ALIGNMENT as usize) {
        return Err(format!("vectors lie {bytes} bytes apart, no multiple of 16"));
    }
    Ok(())
}

/// Lists what keeps a product from the fast kernels: each matrix whose columns do not all begin at multiples
/// of 16 bytes.
pub fn slow(product: &Description) -> Vec<String> {
    let mut reasons = Vec::new();
    for (name, (layout, alignment)) in NAMES.iter().zip(product.layouts.iter().zip(product.alignments)) {
        let bytes = layout.leading * layout.dtype.size_in_bytes();
        if !bytes.is_multiple_of(FAST_BYTES) {
            reasons.push(format!("{name}: leading dimension of {bytes} bytes"));
        }
        let bytes = layout.batch_stride * layout.dtype.size_in_bytes();
        if !bytes.is_multiple_of(FAST_BYTES) {
            reasons.push(format!("{name}: products {bytes} bytes apart"));
        }
        if (alignment as usize) < FAST_BYTES {
            reasons.push(format!("{name}: address at a multiple of {alignment} bytes"));
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::super::Address;
    use super::super::gemm::tests::forward as forward_of;
    use super::super::gemm::{Batch, Bias, Gemm, Operand, Varying};
    use super::*;

    /// The product of a linear map with a bias for 96 rows.
    fn forward() -> Gemm {
        forward_of(96)
    }

    /// Batch of three such products that share the input and have their own weights, biases and outputs.
    fn three() -> Gemm {
        let parameters = 768 * 512 + 768;
        let batch = Batch { count: 3, a: 0, b: parameters, out: 96 * 768, vector: parameters };
        Gemm { batch, ..forward() }
    }

    /// Checks the product of [`forward`] after a change to its description.
    fn check_changed(change: impl FnOnce(&mut Description)) -> Result<(), String> {
        let mut product = Description::of(&forward(), None);
        change(&mut product);
        check(&product)
    }

    #[test]
    fn a_linear_map_and_its_gradients_keep_the_rules() {
        let map = forward();
        let of_input = Gemm {
            n: 512,
            k: 768,
            a: map.out,
            b: map.b.transposed(),
            out: Operand::rows(Address(3 << 20), 512),
            accumulate: true,
            bias: None,
            ..map
        };
        let of_weight = Gemm {
            m: 768,
            n: 512,
            k: 96,
            a: of_input.a.transposed(),
            b: map.a,
            out_dtype: DType::F32,
            varying: Varying::Depth,
            ..of_input
        };
        for product in [
            Description::of(&map, None),
            Description::of(&of_input, None),
            Description::of(&of_weight, Some(Address(5 << 20))),
        ] {
            check(&product).unwrap();
            assert!(slow(&product).is_empty(), "{product:?}");
            assert_eq!(product.flops().to_bits(), (2.0 * (96 * 768 * 512) as f64).to_bits());
        }
    }

    #[test]
    fn a_wrong_leading_dimension_is_found() {
        assert_eq!(check_changed(|_| ()), Ok(()));
        // The output gets the input's leading dimension, and the weight's is one too small.
        assert_eq!(
            check_changed(|product| product.layouts[2].leading = 512).unwrap_err(),
            "D: its leading dimension 512 is less than its 768 rows"
        );
        assert_eq!(
            check_changed(|product| product.layouts[0].leading -= 1).unwrap_err(),
            "A: its leading dimension 511 is less than its 512 rows"
        );
    }

    #[test]
    fn three_maps_of_one_input_are_a_product_and_a_wrong_batch_is_found() {
        type Change = fn(&mut Description);
        let product = Description::of(&three(), None);
        check(&product).unwrap();
        assert!(slow(&product).is_empty(), "{product:?}");
        let one = Description::of(&forward(), None);
        assert_eq!(product.flops().to_bits(), (3.0 * one.flops()).to_bits());
        // The shared input is read once.
        assert_eq!(product.bytes(), 3 * one.bytes() - 2 * 2 * 96 * 512);
        let broken: [(&str, Change); 5] = [
            ("batches of [3, 1, 3] products are not one batch", |p| p.layouts[1].batch_count = 1),
            ("batches of [0, 0, 0] products are not one batch", |p| {
                p.layouts.iter_mut().for_each(|layout| layout.batch_count = 0);
            }),
            ("D: products lie 73727 values apart, and each has 73728", |p| p.layouts[2].batch_stride -= 1),
            ("vectors lie 2 bytes apart, no multiple of 16", |p| p.vector_stride = 1),
            ("vectors of 96 sums lie 95 values apart", |p| {
                (p.epilogue, p.vector_stride) = (Epilogue::ColumnSumsOfB, 95);
            }),
        ];
        for (message, change) in broken {
            let mut product = Description::of(&three(), None);
            change(&mut product);
            assert_eq!(check(&product).unwrap_err(), message);
        }
        let mut odd = product;
        odd.layouts[0].batch_stride -= 1;
        assert_eq!((check(&odd), slow(&odd)), (Ok(()), vec!["A: products 787966 bytes apart".to_string()]));
    }

    /// Attention heads each write their own columns of one matrix. With a smaller distance, or with one more
    /// head, two of them would write the same value.
    #[test]
    fn products_may_write_columns_side_by_side() {
        for (count, out, is_valid) in [(12, 64, true), (12, 63, false), (13, 64, false)] {
            let batch = Batch { count, a: 0, b: 64 * 512, out, vector: 0 };
            let heads = Gemm { n: 64, bias: None, batch, ..forward() };
            let message = format!("D: products lie {out} values apart, and each has 73024");
            let want = if is_valid { Ok(()) } else { Err(message) };
            assert_eq!(check(&Description::of(&heads, None)), want);
        }
    }

    #[test]
    fn every_other_broken_rule_is_reported() {
        type Change = fn(&mut Description);
        let broken: [(&str, Change); 7] = [
            ("B: a matrix of 512 x 0 has no values", |p| p.layouts[1].cols = 0),
            ("op(A) [512, 768] times op(B) [512, 96] does not give D [768, 96]", |p| p.transposed[0] = false),
            ("there is no product of BF16 and F16 to BF16 with sums in f32", |p| {
                p.layouts[1].dtype = DType::F16;
            }),
            ("the vector of Bias is F32, beside D it has to be BF16", |p| p.vector = DType::F32),
            ("the vector begins at a multiple of 4 bytes, 16 are wanted", |p| p.alignments[3] = 4),
            ("A: its address is a multiple of 1 bytes, a value has 2", |p| p.alignments[0] = 1),
            ("the workspace of 100 bytes is no multiple of 256", |p| p.workspace_bytes = 100),
        ];
        for (message, change) in broken {
            assert_eq!(check_changed(change).unwrap_err(), message);
        }
    }

    #[test]
    fn an_odd_vocabulary_is_reported_as_slow() {
        let bias = Some(Bias { address: Address(4 << 20), dtype: DType::F32 });
        let out = Operand::rows(Address(3 << 20), 50_265);
        let logits = Gemm { n: 50_265, out, out_dtype: DType::F32, bias, ..forward() };
        let product = Description::of(&logits, None);
        check(&product).unwrap();
        assert_eq!(slow(&product), ["D: leading dimension of 201060 bytes"]);
    }
}

//! Plan of one product: its cuBLASLt descriptors, and questions to the library about it: which algorithms
//! its heuristic proposes, and whether it accepts a given one.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use candle_core::DType;
use candle_core::cuda::cudarc::cublas::sys::cublasOperation_t;
use candle_core::cuda::cudarc::cublaslt::result::CublasError;
use candle_core::cuda::cudarc::cublaslt::sys::{
    cublasLtMatmulDescAttributes_t as Attribute, cublasLtMatmulPreferenceAttributes_t as PreferenceOf,
    cublasLtMatrixLayoutAttribute_t as LayoutOf,
};
use candle_core::cuda::cudarc::cublaslt::{result, sys};

use super::super::Address;
use super::super::algorithms::Algorithm;
use super::super::described::{Description, Epilogue, Layout};

/// True if f32 products may round their operands to TF32.
static TF32: AtomicBool = AtomicBool::new(false);

/// Allows f32 products to round their operands to TF32 (10 bits of mantissa), on generations that support it.
/// Plans made earlier do not change.
pub(in super::super) fn set_tf32(on: bool) {
    TF32.store(on, Ordering::Relaxed);
}

/// Returns true if products of this type round their operands to TF32.
pub(super) fn rounds_to_tf32(dtype: DType) -> bool {
    dtype == DType::F32 && TF32.load(Ordering::Relaxed)
}

/// Descriptors of one product.
pub(super) struct Plan {
    pub(super) product: sys::cublasLtMatmulDesc_t,
    /// Layouts of b, a and out, in cuBLASLt's order.
    pub(super) layouts: [sys::cublasLtMatrixLayout_t; 3],
}

impl Plan {
    /// Makes the descriptors of a product.
    pub(super) fn new(asked: &Description) -> Result<Self, CublasError> {
        let compute = if rounds_to_tf32(asked.layouts[0].dtype) {
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32
        } else {
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F
        };
        let product = result::create_matmul_desc(compute, sys::cudaDataType_t::CUDA_R_32F)?;
        // If a later call fails, the plan is dropped and frees the descriptors made so far.
        let mut plan = Self { product, layouts: [std::ptr::null_mut(); 3] };
        let [of_a, of_b] = asked.transposed.map(operation);
        plan.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &of_a)?;
        plan.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &of_b)?;
        let epilogue = match asked.epilogue {
            Epilogue::Nothing => None,
            Epilogue::Bias => Some(sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS),
            Epilogue::ColumnSumsOfB => Some(sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BGRADB),
        };
        if let Some(epilogue) = epilogue {
            plan.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
            plan.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &data_type(asked.vector)?)?;
            if asked.batch_count() > 1 {
                let stride = asked.vector_stride as i64;
                plan.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &stride)?;
            }
        }
        for (made, layout) in plan.layouts.iter_mut().zip(asked.layouts) {
            let Layout { dtype, rows, cols, leading, batch_count, batch_stride } = layout;
            *made =
                result::create_matrix_layout(data_type(dtype)?, rows as u64, cols as u64, leading as i64)?;
            if batch_count > 1 {
                set_layout(*made, LayoutOf::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &(batch_count as i32))?;
                let stride = batch_stride as i64;
                set_layout(*made, LayoutOf::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride)?;
            }
        }
        Ok(plan)
    }

    /// Returns up to `most` algorithms for this product in the order of the library's heuristic, at least
    /// one; an error if the library has no such product.
    pub(super) fn proposals(
        &self,
        handle: sys::cublasLtHandle_t,
        asked: &Description,
        most: usize,
    ) -> Result<Vec<Algorithm>, CublasError> {
        let preference = Preference(result::create_matmul_pref()?);
        preference.set(PreferenceOf::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &asked.workspace_bytes)?;
        let [a, b, out, _] = asked.alignments;
        preference.set(PreferenceOf::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a)?;
        preference.set(PreferenceOf::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b)?;
        preference.set(PreferenceOf::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out)?;
        preference.set(PreferenceOf::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out)?;
        let [first, second, out] = self.layouts;
        let mut found = vec![no_result(); most];
        let mut count = 0;
        // SAFETY: all descriptors were just made and are alive, and there is room for as many results as are
        // requested.
        unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle,
                self.product,
                first,
                second,
                out,
                out,
                preference.0,
                found.len() as c_int,
                found.as_mut_ptr(),
                &raw mut count,
            )
            .result()?;
        }
        found.truncate(usize::try_from(count).unwrap_or(0));
        let works = |found: &&sys::cublasLtMatmulHeuristicResult_t| {
            found.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS
        };
        let algorithms: Vec<_> = found.iter().filter(works).map(|found| Algorithm(found.algo.data)).collect();
        if algorithms.is_empty() {
            return Err(CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED));
        }
        Ok(algorithms)
    }

    /// Returns true if the library can run this product by an algorithm that was chosen for a product of
    /// another number of rows, in this process or an earlier one.
    pub(super) fn accepts(
        &self,
        handle: sys::cublasLtHandle_t,
        asked: &Description,
        algorithm: Algorithm,
    ) -> bool {
        let [first, second, out] = self.layouts;
        let algorithm = sys::cublasLtMatmulAlgo_t { data: algorithm.0 };
        let mut found = no_result();
        // SAFETY: all descriptors are alive; the library checks the bytes of the algorithm.
        let checked = unsafe {
            sys::cublasLtMatmulAlgoCheck(
                handle,
                self.product,
                first,
                second,
                out,
                out,
                &raw const algorithm,
                &raw mut found,
            )
            .result()
        };
        checked.is_ok()
            && found.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS
            && found.workspaceSize <= asked.workspace_bytes
    }

    /// Sets the address of the bias or of the row sums, which have the type of the output.
    pub(super) fn set_vector(&self, vector: Address) -> Result<(), CublasError> {
        self.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector.0)
    }

    fn set<T>(&self, attribute: Attribute, value: &T) -> Result<(), CublasError> {
        // SAFETY: the descriptor is alive, and each attribute above is given a value of its own type.
        unsafe {
            result::set_matmul_desc_attribute(
                self.product,
                attribute,
                std::ptr::from_ref(value).cast(),
                size_of::<T>(),
            )
        }
    }
}

fn set_layout<T>(
    layout: sys::cublasLtMatrixLayout_t,
    attribute: LayoutOf,
    value: &T,
) -> Result<(), CublasError> {
    let value_at = std::ptr::from_ref(value).cast();
    // SAFETY: the layout is alive, and each attribute is given a value of its own type.
    unsafe { result::set_matrix_layout_attribute(layout, attribute, value_at, size_of::<T>()) }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: each is freed once; a failure cannot be reported from here.
        unsafe {
            for layout in self.layouts.iter().filter(|layout| !layout.is_null()) {
                let _ = result::destroy_matrix_layout(*layout);
            }
            let _ = result::destroy_matmul_desc(self.product);
        }
    }
}

/// Constraints of the heuristic's search: workspace size and alignments.
struct Preference(sys::cublasLtMatmulPreference_t);

impl Preference {
    fn set<T>(&self, attribute: PreferenceOf, value: &T) -> Result<(), CublasError> {
        // SAFETY: the preference is alive, and each attribute is given a value of its own type.
        unsafe {
            result::set_matmul_pref_attribute(
                self.0,
                attribute,
                std::ptr::from_ref(value).cast(),
                size_of::<T>(),
            )
        }
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: it is freed once.
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}

fn operation(transposed: bool) -> cublasOperation_t {
    if transposed { cublasOperation_t::CUBLAS_OP_T } else { cublasOperation_t::CUBLAS_OP_N }
}

fn data_type(dtype: DType) -> Result<sys::cudaDataType_t, CublasError> {
    match dtype {
        DType::F32 => Ok(sys::cudaDataType_t::CUDA_R_32F),
        DType::BF16 => Ok(sys::cudaDataType_t::CUDA_R_16BF),
        DType::F16 => Ok(sys::cudaDataType_t::CUDA_R_16F),
        _ => Err(CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED)),
    }
}

/// A result that the library fills in.
fn no_result() -> sys::cublasLtMatmulHeuristicResult_t {
    // SAFETY: the struct consists of plain numbers, for which zero is a valid value.
    unsafe { std::mem::zeroed() }
}

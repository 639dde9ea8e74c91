//! Products by cuBLASLt: for each description one plan, with the algorithm that the library's heuristic names
//! first. Its GELU epilogues are not used: they are the tanh form, the models' is erf.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use candle_core::DType;
use candle_core::bail;
use candle_core::cuda::cudarc::cublas::sys::cublasOperation_t;
use candle_core::cuda::cudarc::cublaslt::result;
use candle_core::cuda::cudarc::cublaslt::result::CublasError;
use candle_core::cuda::cudarc::cublaslt::sys;
use candle_core::cuda::cudarc::cublaslt::sys::cublasLtMatmulDescAttributes_t as Attribute;
use candle_core::cuda::cudarc::cublaslt::sys::cublasLtMatmulPreferenceAttributes_t as PreferenceOf;
use candle_core::cuda::cudarc::cublaslt::sys::cublasLtMatrixLayoutAttribute_t as LayoutOf;
use candle_core::cuda::cudarc::driver::CudaSlice;
use candle_core::cuda::cudarc::driver::CudaStream;
use candle_core::cuda::cudarc::driver::DevicePtr;

use super::super::Address;
use super::super::described::Description;
use super::super::described::Epilogue;
use super::super::described::Layout;
use super::super::described::WORKSPACE_BYTES;
use super::super::gemm::Gemm;

/// Whether products of f32 may round their operands to TF32.
static TF32: AtomicBool = AtomicBool::new(false);

/// Lets products of f32 round their operands to TF32 (10 bits of mantissa), on generations that have it.
/// Plans made before keep what they have.
pub(in super::super) fn set_tf32(on: bool) {
    TF32.store(on, Ordering::Relaxed);
}

/// Plans, and the memory that products may use meanwhile.
pub(super) struct Products {
    handle: sys::cublasLtHandle_t,
    stream: Arc<CudaStream>,
    workspace: CudaSlice<u8>,
    /// `None` where the library has no such product.
    plans: HashMap<Description, Option<Plan>>,
}

// SAFETY: handles of cuBLASLt and its descriptors belong to no thread; the lock around `Products` lets in one
// at a time.
unsafe impl Send for Products {}

impl Products {
    pub(super) fn new(stream: &Arc<CudaStream>) -> candle_core::Result<Self> {
        let handle = result::create_handle().map_err(candle_core::Error::wrap)?;
        // SAFETY: only the library writes to it, before it reads.
        let workspace = unsafe { stream.alloc::<u8>(WORKSPACE_BYTES) }.map_err(candle_core::Error::wrap)?;
        Ok(Self { handle, stream: stream.clone(), workspace, plans: HashMap::new() })
    }

    /// Runs a product, with a bias or the sums of the rows of `a` where they are asked for; false where the
    /// library cannot do both, and then nothing was done.
    ///
    /// # Safety
    /// The operands and the output are matrices of the sizes and types that it names, and there is a sum for
    /// each row.
    pub(super) unsafe fn run(&mut self, gemm: &Gemm, sums: Option<Address>) -> candle_core::Result<bool> {
        let key = Description::of(gemm, sums);
        if !self.plans.contains_key(&key) {
            self.plans.insert(key, Plan::new(self.handle, &key)?);
        }
        let Some(plan) = self.plans.get_mut(&key).expect("it was just put there") else { return Ok(false) };
        let (alpha, beta) = (1.0f32, if gemm.accumulate { 1.0f32 } else { 0.0 });
        let (workspace, _guard) = self.workspace.device_ptr(&self.stream);
        let pointer = |address: Address| address.0 as *mut c_void;
        if let Some(vector) = gemm.bias.map(|bias| bias.address).or(sums) {
            plan.set_vector(vector).map_err(candle_core::Error::wrap)?;
        }
        // SAFETY: the plan's descriptors live as long as it, and the caller promises the matrices.
        let done = unsafe {
            result::matmul(
                self.handle,
                plan.product,
                std::ptr::from_ref(&alpha).cast(),
                std::ptr::from_ref(&beta).cast(),
                pointer(gemm.b.address),
                plan.layouts[0],
                pointer(gemm.a.address),
                plan.layouts[1],
                pointer(gemm.out.address),
                plan.layouts[2],
                pointer(gemm.out.address),
                plan.layouts[2],
                &raw const plan.algorithm,
                pointer(Address(workspace)),
                WORKSPACE_BYTES,
                self.stream.cu_stream().cast(),
            )
        };
        match done {
            Ok(()) => Ok(true),
            Err(_) if key.may_be_refused() => {
                self.plans.insert(key, None);
                Ok(false)
            }
            Err(e) => Err(candle_core::Error::wrap(e)),
        }
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        self.plans.clear();
        // SAFETY: it is freed once, after the plans. A failure cannot be reported from here.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

/// Descriptors and algorithm of products of one kind.
struct Plan {
    product: sys::cublasLtMatmulDesc_t,
    /// Of b, a and out, as cuBLASLt wants them.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

impl Plan {
    /// `None` for a bias that the library cannot add, row sums that it cannot write beside this product, or a
    /// batch that it cannot do at once; a product that it cannot do at all is an error.
    fn new(handle: sys::cublasLtHandle_t, asked: &Description) -> candle_core::Result<Option<Self>> {
        match Self::described(asked).and_then(|plan| plan.with_algorithm(handle, asked)) {
            Ok(plan) => Ok(Some(plan)),
            Err(_) if asked.may_be_refused() => Ok(None),
            Err(e) => bail!("cuBLASLt has no algorithm: {e}"),
        }
    }

    fn described(asked: &Description) -> Result<Self, CublasError> {
        let compute = match asked.layouts[0].dtype {
            DType::F32 if TF32.load(Ordering::Relaxed) => {
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32
            }
            _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let product = result::create_matmul_desc(compute, sys::cudaDataType_t::CUDA_R_32F)?;
        // Dropped, with what it has by then, when one of the next steps fails.
        let mut plan = Self {
            product,
            layouts: [std::ptr::null_mut(); 3],
            algorithm: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
        };
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

    fn with_algorithm(
        mut self,
        handle: sys::cublasLtHandle_t,
        asked: &Description,
    ) -> Result<Self, CublasError> {
        let preference = Preference(result::create_matmul_pref()?);
        preference.set(PreferenceOf::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &asked.workspace_bytes)?;
        let [a, b, out, _] = asked.alignments;
        preference.set(PreferenceOf::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a)?;
        preference.set(PreferenceOf::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b)?;
        preference.set(PreferenceOf::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out)?;
        preference.set(PreferenceOf::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out)?;
        let [first, second, out] = self.layouts;
        // SAFETY: all descriptors were just made and live.
        let found = unsafe {
            result::get_matmul_algo_heuristic(handle, self.product, first, second, out, out, preference.0)?
        };
        self.algorithm = found.algo;
        Ok(self)
    }

    /// The bias, or where the row sums go; in the type of the output.
    fn set_vector(&mut self, vector: Address) -> Result<(), CublasError> {
        self.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector.0)
    }

    fn set<T>(&self, attribute: Attribute, value: &T) -> Result<(), CublasError> {
        // SAFETY: the descriptor lives, and each attribute above is given a value of its own type.
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
    // SAFETY: the layout lives, and each attribute is given a value of its own type.
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

/// What the heuristic is to heed.
struct Preference(sys::cublasLtMatmulPreference_t);

impl Preference {
    fn set<T>(&self, attribute: PreferenceOf, value: &T) -> Result<(), CublasError> {
        // SAFETY: the preference lives, and each attribute is given a value of its own type.
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

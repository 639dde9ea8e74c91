//! Products by cuBLASLt: one plan per description, with the algorithm that the library's heuristic proposes
//! first, or the fastest of several (`candidates.rs`). cuBLASLt's GELU epilogues are not used: they are the
//! tanh approximation, while the models use erf.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

use candle_core::cuda::cudarc::cublaslt::result::CublasError;
use candle_core::cuda::cudarc::cublaslt::{result, sys};
use candle_core::cuda::cudarc::driver::sys::CUevent_flags;
use candle_core::cuda::cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DriverError};

use super::super::Address;
use super::super::candidates::fastest;
use super::super::described::{Description, WORKSPACE_BYTES};
use super::super::gemm::Gemm;
use super::plan::Plan;

/// Plans of products and the workspace that all products share.
pub(super) struct Products {
    handle: sys::cublasLtHandle_t,
    stream: Arc<CudaStream>,
    workspace: CudaSlice<u8>,
    /// Plan of each kind of product; `None` if the library has no such product.
    plans: HashMap<Description, Option<Plan>>,
}

// SAFETY: handles of cuBLASLt and its descriptors are not bound to a thread; the lock around `Products`
// admits one thread at a time.
unsafe impl Send for Products {}

impl Products {
    pub(super) fn new(stream: &Arc<CudaStream>) -> candle_core::Result<Self> {
        let handle = result::create_handle().map_err(candle_core::Error::wrap)?;
        // SAFETY: only the library uses the workspace, and it writes before it reads.
        let workspace = unsafe { stream.alloc::<u8>(WORKSPACE_BYTES) }.map_err(candle_core::Error::wrap)?;
        Ok(Self { handle, stream: stream.clone(), workspace, plans: HashMap::new() })
    }

    /// Runs a product, with a bias or the sums of the rows of `a` if they are requested. Returns false, with
    /// nothing done, if the library cannot do them together with the product.
    ///
    /// # Safety
    /// The operands and the output are matrices of the sizes and types that `gemm` gives, and `sums` has room
    /// for one value per row.
    pub(super) unsafe fn run(&mut self, gemm: &Gemm, sums: Option<Address>) -> candle_core::Result<bool> {
        let key = Description::of(gemm, sums);
        let is_new = !self.plans.contains_key(&key);
        if is_new {
            self.plans.insert(key, Plan::new(self.handle, &key)?);
        }
        let Some(plan) = self.plans.get_mut(&key).expect("it was just put there") else { return Ok(false) };
        if let Some(vector) = gemm.bias.map(|bias| bias.address).or(sums) {
            plan.set_vector(vector).map_err(candle_core::Error::wrap)?;
        }
        let (workspace, _guard) = self.workspace.device_ptr(&self.stream);
        let at = Place { handle: self.handle, stream: &self.stream, workspace: Address(workspace) };
        if is_new {
            // SAFETY: the caller's promise.
            unsafe { at.choose(plan, &key, gemm) };
        }
        // SAFETY: the caller's promise.
        let done = unsafe { at.run(plan, plan.algorithms[0], gemm, gemm.out.address) };
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

/// Library handle, stream and workspace with which products run.
struct Place<'a> {
    handle: sys::cublasLtHandle_t,
    stream: &'a Arc<CudaStream>,
    workspace: Address,
}

impl Place<'_> {
    /// # Safety
    /// As [`Products::run`]; `out` is a matrix with the layout of the product's output.
    unsafe fn run(
        &self,
        plan: &Plan,
        algorithm: sys::cublasLtMatmulAlgo_t,
        gemm: &Gemm,
        out: Address,
    ) -> Result<(), CublasError> {
        let alpha = 1.0f32;
        let beta = if gemm.accumulate { 1.0f32 } else { 0.0 };
        let pointer = |address: Address| address.0 as *mut c_void;
        // SAFETY: the plan's descriptors live as long as the plan, and the caller promises the matrices.
        unsafe {
            result::matmul(
                self.handle,
                plan.product,
                std::ptr::from_ref(&alpha).cast(),
                std::ptr::from_ref(&beta).cast(),
                pointer(gemm.b.address),
                plan.layouts[0],
                pointer(gemm.a.address),
                plan.layouts[1],
                pointer(out),
                plan.layouts[2],
                pointer(out),
                plan.layouts[2],
                &raw const algorithm,
                pointer(self.workspace),
                WORKSPACE_BYTES,
                self.stream.cu_stream().cast(),
            )
        }
    }

    /// Reduces the plan's algorithms to the fastest one, or to the first if none could be timed. A product
    /// that is added to its output is timed with scratch memory as output; other products write the output
    /// that they will write anyway.
    ///
    /// # Safety
    /// As [`Products::run`].
    unsafe fn choose(&self, plan: &mut Plan, product: &Description, gemm: &Gemm) {
        if plan.algorithms.len() > 1 {
            // If memory or events cannot be had for the timing, the heuristic's first choice stays.
            // SAFETY: the caller's promise.
            let chosen = unsafe { self.timed(plan, product, gemm) }.ok().flatten().unwrap_or(0);
            plan.algorithms.swap(0, chosen);
        }
        plan.algorithms.truncate(1);
    }

    /// # Safety
    /// As [`Products::run`].
    unsafe fn timed(
        &self,
        plan: &Plan,
        product: &Description,
        gemm: &Gemm,
    ) -> Result<Option<usize>, DriverError> {
        let elsewhere = if gemm.accumulate {
            // SAFETY: its values are only added to and then discarded.
            Some(unsafe { self.stream.alloc::<u8>(product.out_bytes()) }?)
        } else {
            None
        };
        let (out, _guard) = elsewhere
            .as_ref()
            .map(|room| room.device_ptr(self.stream))
            .map_or((gemm.out.address, None), |(at, guard)| (Address(at), Some(guard)));
        let event = || self.stream.context().new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        let begin = event()?;
        let end = event()?;
        Ok(fastest(plan.algorithms.len(), |candidate| {
            begin.record(self.stream).ok()?;
            // SAFETY: the caller promises the operands; `out` is the product's own output or memory of the
            // same size.
            unsafe { self.run(plan, plan.algorithms[candidate], gemm, out) }.ok()?;
            end.record(self.stream).ok()?;
            begin.elapsed_ms(&end).ok().map(f64::from)
        }))
    }
}

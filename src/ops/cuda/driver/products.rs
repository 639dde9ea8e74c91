//! Products by cuBLASLt. cuBLASLt's GELU epilogues are not used: they are the tanh approximation, while the
//! models use erf.
//!
//! A product has a plan, its descriptors in exactly its sizes, and an algorithm. The algorithm is chosen once
//! for all numbers of rows of a bucket (`choices.rs`): the first one that the library's heuristic proposes
//! for the bucket's largest product, or the fastest of several (`candidates.rs`). If the library does not
//! accept it for the exact sizes, the heuristic's first proposal for these is used. So the algorithm of a
//! product depends on its sizes and on the choices, never on which products came before; and the choices can
//! be exported and imported, so that a resumed run computes the same bits.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

use candle_core::cuda::cudarc::cublaslt::result::CublasError;
use candle_core::cuda::cudarc::cublaslt::{result, sys};
use candle_core::cuda::cudarc::driver::sys::CUevent_flags;
use candle_core::cuda::cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DriverError};

use super::super::Address;
use super::super::algorithms::{Algorithm, Algorithms};
use super::super::candidates::{fastest, wanted};
use super::super::choices::{Choice, Choices};
use super::super::described::{Description, WORKSPACE_BYTES};
use super::super::gemm::Gemm;
use super::super::recent::Recent;
use super::gemm_plan::{Plan, rounds_to_tf32};

/// Number of the plans used last that are kept; there are never more than twice as many. An update with
/// several micro-batches, each with its own number of masked rows, uses a few hundred plans of some kilobytes,
/// and all of them should be there in the next update. A plan that is made again asks the library whether it
/// accepts the algorithm, and chooses none.
const KEPT_PLANS: usize = 1024;

/// Algorithms and plans of products, and the workspace that all products share.
pub(super) struct Products {
    handle: sys::cublasLtHandle_t,
    stream: Arc<CudaStream>,
    workspace: CudaSlice<u8>,
    choices: Choices,
    /// Plan and algorithm of each product; `None` if the library has no such product.
    plans: Recent<Description, Option<Planned>, KEPT_PLANS>,
}

/// A product that can be run.
struct Planned {
    plan: Plan,
    algorithm: Algorithm,
}

// SAFETY: handles of cuBLASLt and its descriptors are not bound to a thread; the lock around `Products`
// admits one thread at a time.
unsafe impl Send for Products {}

impl Products {
    pub(super) fn new(stream: &Arc<CudaStream>) -> candle_core::Result<Self> {
        let handle = result::create_handle().map_err(candle_core::Error::wrap)?;
        // SAFETY: only the library uses the workspace, and it writes before it reads.
        let workspace = unsafe { stream.alloc::<u8>(WORKSPACE_BYTES) }.map_err(candle_core::Error::wrap)?;
        let choices = Choices::default();
        Ok(Self { handle, stream: stream.clone(), workspace, choices, plans: Recent::new() })
    }

    /// Runs a product, with a bias or the sums of the rows of `a` if they are requested. Returns false, with
    /// nothing done, if the library cannot do them together with the product.
    ///
    /// # Safety
    /// The operands and the output are matrices of the sizes and types that `gemm` gives, and `sums` has room
    /// for one value per row.
    pub(super) unsafe fn run(&mut self, gemm: &Gemm, sums: Option<Address>) -> candle_core::Result<bool> {
        let exact = Description::of(gemm, sums);
        if self.plans.get_mut(&exact).is_none() {
            // SAFETY: the caller's promise.
            let planned = match unsafe { self.planned(&exact, gemm, sums) } {
                Ok(planned) => planned,
                Err(_) if exact.may_be_refused() => None,
                Err(e) => candle_core::bail!("cuBLASLt has no algorithm: {e}"),
            };
            self.plans.insert(exact, planned);
        }
        let Some(planned) = self.plans.get_mut(&exact).expect("it was just put there") else {
            return Ok(false);
        };
        let Planned { plan, algorithm } = planned;
        if let Some(vector) = vector_of(gemm, sums) {
            plan.set_vector(vector).map_err(candle_core::Error::wrap)?;
        }
        let (workspace, _guard) = self.workspace.device_ptr(&self.stream);
        let at = Place { handle: self.handle, stream: &self.stream, workspace: Address(workspace) };
        // SAFETY: the caller's promise.
        let mut done = unsafe { at.run(plan, *algorithm, gemm, gemm.out.address) };
        // The library's check of an algorithm does not see the addresses, so a product may still be refused.
        if done.is_err()
            && let Ok(own) = plan.proposals(self.handle, &exact, 1)
            && own[0] != *algorithm
        {
            *algorithm = own[0];
            // SAFETY: the caller's promise.
            done = unsafe { at.run(plan, *algorithm, gemm, gemm.out.address) };
        }
        match done {
            Ok(()) => Ok(true),
            Err(_) if exact.may_be_refused() => {
                self.plans.insert(exact, None);
                Ok(false)
            }
            Err(e) => Err(candle_core::Error::wrap(e)),
        }
    }

    /// Makes the plan of a product, with the algorithm of its bucket, which the first product chooses.
    /// Returns `None` if the library does not have the product and may refuse it.
    ///
    /// # Safety
    /// As [`Products::run`].
    unsafe fn planned(
        &mut self,
        exact: &Description,
        gemm: &Gemm,
        sums: Option<Address>,
    ) -> Result<Option<Planned>, CublasError> {
        let plan = Plan::new(exact)?;
        let bucket = Description::bucket_of(gemm, sums);
        let key = bucket.key(rounds_to_tf32(gemm.dtype));
        let choice = if let Some(choice) = self.choices.get(&key) {
            choice
        } else {
            if let Some(vector) = vector_of(gemm, sums) {
                plan.set_vector(vector)?;
            }
            // SAFETY: the caller's promise.
            let chosen = unsafe { self.choose(&plan, exact, &bucket, gemm) };
            self.choices.insert(key, chosen)
        };
        let algorithm = match choice {
            Choice::Refused if exact.may_be_refused() => return Ok(None),
            Choice::Algorithm(chosen) if plan.accepts(self.handle, exact, chosen) => chosen,
            _ => plan.proposals(self.handle, exact, 1)?[0],
        };
        Ok(Some(Planned { plan, algorithm }))
    }

    /// Chooses the algorithm of a bucket, for which the product with this plan is timed if the library
    /// proposes several. Returns `None` if it proposes none.
    ///
    /// # Safety
    /// As [`Products::run`]; the plan has the address of the vector.
    unsafe fn choose(
        &self,
        plan: &Plan,
        exact: &Description,
        bucket: &Description,
        gemm: &Gemm,
    ) -> Option<Algorithm> {
        let largest = Plan::new(bucket).ok()?;
        let proposals = largest.proposals(self.handle, bucket, wanted()).ok()?;
        let first = *proposals.first()?;
        if proposals.len() == 1 {
            return Some(first);
        }
        let mut fitting = proposals;
        fitting.retain(|algorithm| plan.accepts(self.handle, exact, *algorithm));
        let (workspace, _guard) = self.workspace.device_ptr(&self.stream);
        let at = Place { handle: self.handle, stream: &self.stream, workspace: Address(workspace) };
        // If memory or events cannot be had for the timing, or nothing runs, the heuristic's first proposal
        // is the choice.
        // SAFETY: the caller's promise.
        let fastest = unsafe { at.timed(plan, &fitting, exact, gemm) }.ok().flatten();
        Some(fastest.map_or(first, |index| fitting[index]))
    }

    /// Returns the algorithms chosen so far.
    pub(super) fn algorithms(&self) -> candle_core::Result<Algorithms> {
        let device = self.stream.context().name().map_err(candle_core::Error::wrap)?;
        // SAFETY: the function has no arguments and only returns a number.
        let version = unsafe { sys::cublasLtGetVersion() };
        let library = format!("cuBLASLt {version}");
        Ok(Algorithms { device, library, chosen: self.choices.exported() })
    }

    /// Uses these algorithms, also for products that have one already.
    pub(super) fn use_algorithms(&mut self, chosen: &BTreeMap<String, Algorithm>) {
        self.choices.import(chosen);
        self.plans.clear();
    }
}

/// The address of the bias or of the row sums of a product, if it has either.
fn vector_of(gemm: &Gemm, sums: Option<Address>) -> Option<Address> {
    gemm.bias.map(|bias| bias.address).or(sums)
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
        algorithm: Algorithm,
        gemm: &Gemm,
        out: Address,
    ) -> Result<(), CublasError> {
        let algorithm = sys::cublasLtMatmulAlgo_t { data: algorithm.0 };
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

    /// Returns the index of the fastest of these algorithms; `None` if none runs. A product that is added to
    /// its output is timed with scratch memory as output; other products write the output that they will
    /// write anyway.
    ///
    /// # Safety
    /// As [`Products::run`].
    unsafe fn timed(
        &self,
        plan: &Plan,
        algorithms: &[Algorithm],
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
        Ok(fastest(algorithms.len(), |candidate| {
            begin.record(self.stream).ok()?;
            // SAFETY: the caller promises the operands; `out` is the product's own output or memory of the
            // same size.
            unsafe { self.run(plan, algorithms[candidate], gemm, out) }.ok()?;
            end.record(self.stream).ok()?;
            begin.elapsed_ms(&end).ok().map(f64::from)
        }))
    }
}

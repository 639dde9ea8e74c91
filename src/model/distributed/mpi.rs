//! Transport by MPI. Uses the non-blocking calls and tests every 100 to 250 microseconds if they are done: a
//! blocking call would keep a core busy for as long as it waits.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;

use anyhow::Result;
use mpi::environment::Universe;
use mpi::raw::AsRaw;
use mpi::topology::{Communicator, SimpleCommunicator};
use mpi::{Threading, ffi};

use crate::distributed::transport::{Ended, Transport, Value, Wait, one_behind_the_other};
use base::error::Problem;

/// Open MPI's variable for the number of connections between two machines, and the value for it unless the
/// user has set one. With a single connection, small messages wait until the values being sent have passed: a
/// third of 250 Mb/s was left unused.
const CONNECTIONS: (&str, &str) = ("OMPI_MCA_btl_tcp_links", "2");

/// Sets the environment variables that MPI reads when it starts.
///
/// # Safety
/// No other thread reads or writes the environment during the call.
pub(super) unsafe fn set_preferences() {
    let (name, value) = CONNECTIONS;
    if std::env::var_os(name).is_none() {
        // SAFETY: the caller guarantees it.
        unsafe { std::env::set_var(name, value) };
    }
}

/// All processes that a launcher started together.
pub(super) struct Mpi {
    /// Never dropped implicitly: a drop waits for all other processes, forever if one has failed.
    universe: ManuallyDrop<Universe>,
    world: SimpleCommunicator,
}

impl Mpi {
    /// Joins the other processes. Only the thread that calls this may use the result.
    pub(super) fn join() -> Result<Self> {
        let (universe, _) = mpi::initialize_with_threading(Threading::Funneled)
            .ok_or_else(|| Problem::new("MPI was started before in this process"))?;
        let world = universe.world();
        Ok(Self { universe: ManuallyDrop::new(universe), world })
    }

    /// Waits for the request that `begin` starts. `buffers` is the memory that the call reads and writes; it
    /// is leaked if the call never ends.
    fn finish<B>(
        buffers: B,
        wait: &Wait<'_>,
        begin: impl FnOnce(&mut B, *mut ffi::MPI_Request) -> c_int,
    ) -> Result<B, Ended> {
        let mut buffers = ManuallyDrop::new(buffers);
        // SAFETY: a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        let begun = begin(&mut buffers, &raw mut request);
        if begun != 0 {
            return Err(failed(begun));
        }
        loop {
            let mut done: c_int = 0;
            // SAFETY: the request was just made, and its buffers live until it is done (or are leaked).
            let tested = unsafe { ffi::MPI_Test(&raw mut request, &raw mut done, ffi::RSMPI_STATUS_IGNORE) };
            if tested != 0 {
                return Err(failed(tested));
            }
            if done != 0 {
                return Ok(ManuallyDrop::into_inner(buffers));
            }
            wait.pause()?;
        }
    }

    /// Gathers the values of all processes into `all`: `counts[r]` values of MPI type `kind` from process r.
    fn gather_counted<T>(
        &self,
        own: Vec<T>,
        all: Vec<T>,
        counts: &[usize],
        kind: ffi::MPI_Datatype,
        wait: &Wait<'_>,
    ) -> Result<Vec<T>, Ended> {
        debug_assert_eq!(own.len(), counts[self.rank()]);
        let (counts, starts) = layout(counts);
        let buffers =
            Self::finish((own, all, counts, starts), wait, |(own, all, counts, starts), request| {
                // SAFETY: `own` has the number of values that `counts` has for this process, `all` has the
                // sum of `counts`, and both are of this type.
                unsafe {
                    ffi::MPI_Iallgatherv(
                        own.as_ptr().cast::<c_void>(),
                        own.len() as c_int,
                        kind,
                        all.as_mut_ptr().cast::<c_void>(),
                        counts.as_ptr(),
                        starts.as_ptr(),
                        kind,
                        self.world.as_raw(),
                        request,
                    )
                }
            })?;
        Ok(buffers.1)
    }
}

fn failed(code: c_int) -> Ended {
    Ended::Failed(format!("MPI says {code}"))
}

/// MPI's name of a type. Values of two bytes are only copied, never added up by MPI, so any type of two bytes
/// will do.
fn kind_of<V: Value>() -> ffi::MPI_Datatype {
    // SAFETY: constants of the library.
    unsafe { if size_of::<V>() == 2 { ffi::RSMPI_UINT16_T } else { ffi::RSMPI_FLOAT } }
}

/// The number of values of each process and their offsets, as MPI takes them.
fn layout(counts: &[usize]) -> (Vec<c_int>, Vec<c_int>) {
    one_behind_the_other(counts).map(|part| (part.len() as c_int, part.start as c_int)).unzip()
}

impl Transport for Mpi {
    fn rank(&self) -> usize {
        self.world.rank() as usize
    }

    fn size(&self) -> usize {
        self.world.size() as usize
    }

    fn all_to_all<V: Value>(
        &mut self,
        own: Vec<V>,
        counts: &[usize],
        wait: &Wait<'_>,
    ) -> Result<Vec<V>, Ended> {
        let given = vec![counts[self.rank()]; self.size()];
        let all = vec![V::narrow(0.0); given.iter().sum()];
        let kind = kind_of::<V>();
        let buffers = (own, all, layout(counts), layout(&given));
        let buffers = Self::finish(buffers, wait, |(own, all, sent, given), request| {
            // SAFETY: `own` has the sum of the counts that are sent, `all` the sum of the counts that are
            // received.
            unsafe {
                ffi::MPI_Ialltoallv(
                    own.as_ptr().cast::<c_void>(),
                    sent.0.as_ptr(),
                    sent.1.as_ptr(),
                    kind,
                    all.as_mut_ptr().cast::<c_void>(),
                    given.0.as_ptr(),
                    given.1.as_ptr(),
                    kind,
                    self.world.as_raw(),
                    request,
                )
            }
        })?;
        Ok(buffers.1)
    }

    fn all_gather<V: Value>(
        &mut self,
        own: Vec<V>,
        counts: &[usize],
        wait: &Wait<'_>,
    ) -> Result<Vec<V>, Ended> {
        self.gather_counted(own, vec![V::narrow(0.0); counts.iter().sum()], counts, kind_of::<V>(), wait)
    }

    fn all_reduce(&mut self, own: Vec<f32>, wait: &Wait<'_>) -> Result<Vec<f32>, Ended> {
        let sums = vec![0.0_f32; own.len()];
        let buffers = Self::finish((own, sums), wait, |(own, sums), request| {
            // SAFETY: both buffers have `own.len()` f32 values; the operation is a constant of the library.
            unsafe {
                ffi::MPI_Iallreduce(
                    own.as_ptr().cast::<c_void>(),
                    sums.as_mut_ptr().cast::<c_void>(),
                    own.len() as c_int,
                    ffi::RSMPI_FLOAT,
                    ffi::RSMPI_SUM,
                    self.world.as_raw(),
                    request,
                )
            }
        })?;
        Ok(buffers.1)
    }

    fn gather_bytes(
        &mut self,
        mut own: Vec<u8>,
        lengths: &[usize],
        wait: &Wait<'_>,
    ) -> Result<Vec<u8>, Ended> {
        // A vector of bytes without capacity has the address 1, which Open MPI takes for MPI_IN_PLACE.
        own.reserve(1);
        let bytes = lengths.iter().sum();
        let mut all = Vec::with_capacity(bytes + 1);
        all.resize(bytes, 0);
        // SAFETY: a constant of the library.
        let byte = unsafe { ffi::RSMPI_UINT8_T };
        self.gather_counted(own, all, lengths, byte, wait)
    }

    fn abort(&mut self, code: i32) {
        self.world.abort(code);
    }

    fn leave(self) {
        drop(ManuallyDrop::into_inner(self.universe));
    }
}

//! Values carried by MPI: the calls that return at once, and a look every 100 to 250 microseconds whether
//! they are done. A call that waits would take a core as long as it does.

use std::ffi::c_int;
use std::ffi::c_void;
use std::mem::ManuallyDrop;

use anyhow::Result;
use mpi::Threading;
use mpi::environment::Universe;
use mpi::ffi;
use mpi::raw::AsRaw;
use mpi::topology::Communicator;
use mpi::topology::SimpleCommunicator;

use crate::distributed::transport::Ended;
use crate::distributed::transport::Transport;
use crate::distributed::transport::Value;
use crate::distributed::transport::Wait;
use crate::distributed::transport::one_behind_the_other;
use crate::error::Problem;

/// Open MPI's variable for the connections between two machines, and what it is set to where nobody has. By a
/// single one, what processes ask of each other waits behind what is on its way: a third of 250 Mb/s was left unused.
const CONNECTIONS: (&str, &str) = ("OMPI_MCA_btl_tcp_links", "2");

/// Sets what MPI is to read when it starts.
///
/// # Safety
/// No other thread looks at the environment meanwhile.
pub(super) unsafe fn set_preferences() {
    let (name, value) = CONNECTIONS;
    if std::env::var_os(name).is_none() {
        // SAFETY: the caller's promise.
        unsafe { std::env::set_var(name, value) };
    }
}

/// All processes that a launcher started together.
pub(super) struct Mpi {
    /// Not dropped by accident: that waits for all other processes, for ever where one has failed.
    universe: ManuallyDrop<Universe>,
    world: SimpleCommunicator,
}

impl Mpi {
    /// Joins the others. The thread that calls this is the one that may use it.
    pub(super) fn join() -> Result<Self> {
        let (universe, _) = mpi::initialize_with_threading(Threading::Funneled)
            .ok_or_else(|| Problem::new("MPI was started before in this process"))?;
        let world = universe.world();
        Ok(Self { universe: ManuallyDrop::new(universe), world })
    }

    /// Waits for the request that `begin` makes. `buffers` is what the call reads and writes; it is not freed
    /// where the call never ends.
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
            // SAFETY: the request was just made, and its buffers are alive until it is done or for ever.
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

    /// The values of all, `counts[r]` of type `kind` from process r, into `all`.
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
                // SAFETY: `own` has as many values as the counts say of this process, `all` as many as they add
                // up to, and both are of this type.
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

/// MPI's name of a type: it only carries those of two bytes, whatever they mean.
fn kind_of<V: Value>() -> ffi::MPI_Datatype {
    // SAFETY: constants of the library.
    unsafe { if size_of::<V>() == 2 { ffi::RSMPI_UINT16_T } else { ffi::RSMPI_FLOAT } }
}

/// How many values, and behind how many others, as MPI takes it.
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
            // SAFETY: `own` has as many values as the counts of what is sent add up to, `all` as many as those of
            // what is given.
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
            // SAFETY: both have as many f32 as is said; the operation is a constant of the library.
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
        // Without room, a vector of bytes has the address 1, which Open MPI takes for MPI_IN_PLACE.
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

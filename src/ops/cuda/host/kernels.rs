//! Launches kernels that are compiled as C++ (`kernels/host.cpp`). A data race between their threads is an
//! error.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

use candle_core::bail;

use super::super::{Grid, Kernel};

unsafe extern "C" {
    fn mlmtrain_host_launch(
        name: *const c_char,
        args: *const c_void,
        args_bytes: usize,
        blocks: *const u32,
        threads: u32,
        shared_bytes: u32,
    ) -> c_int;
    fn mlmtrain_host_race() -> *const c_char;
    fn mlmtrain_host_order(order: u32, seed: u64, watched: bool);
}

/// Scheduling order of the threads of a block when several can run, and of the blocks of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turns {
    /// The lowest index runs first.
    Forwards,
    /// The highest index runs first.
    Backwards,
    /// Random order from this seed; successive launches continue the same random sequence.
    Drawn(u64),
}

thread_local! {
    static TURNS: Cell<Turns> = const { Cell::new(Turns::Forwards) };
}

/// Returns the order of this thread's launches.
pub(super) fn turns() -> Turns {
    TURNS.get()
}

/// Sets the order of this thread's launches from now on, and whether races are detected. Detection is slow
/// and finds a race in any order, so one watched run is enough; threads start with detection on.
pub fn take_turns(turns: Turns, watched: bool) {
    TURNS.set(turns);
    let (order, seed) = match turns {
        Turns::Forwards => (0, 0),
        Turns::Backwards => (1, 0),
        Turns::Drawn(seed) => (2, seed),
    };
    // SAFETY: the function only sets variables of this thread.
    unsafe { mlmtrain_host_order(order, seed, watched) };
}

/// # Safety
/// As [`super::super::Gpu::launch`].
pub(super) unsafe fn launch<A: Copy>(
    kernel: Kernel,
    suffix: &'static str,
    grid: Grid,
    args: &A,
) -> candle_core::Result<()> {
    let name = CString::new(format!("{}{suffix}", kernel.name)).expect("kernels have plain names");
    let args_at = std::ptr::from_ref(args).cast();
    // SAFETY: the caller's promise; the C++ side checks the size of the arguments.
    let outcome = unsafe {
        mlmtrain_host_launch(
            name.as_ptr(),
            args_at,
            size_of::<A>(),
            grid.blocks.as_ptr(),
            grid.threads,
            grid.shared_bytes,
        )
    };
    match outcome {
        0 => Ok(()),
        1 => bail!("{}: no kernel {name:?}", kernel.op),
        2 => bail!(
            "{}: the arguments of {name:?} are {} bytes here and another number there",
            kernel.op,
            size_of::<A>()
        ),
        _ => {
            // SAFETY: the string belongs to this thread and is not changed before its next launch.
            let race = unsafe { CStr::from_ptr(mlmtrain_host_race()) };
            bail!("{}: {}", kernel.op, race.to_string_lossy())
        }
    }
}

/// Tests of the race detector with the kernels of `kernels/planted.cuh`: some contain deliberate faults, the
/// others are the same without the fault.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::Address;

    /// Same layout as `PlantedArgs` in `kernels/planted.cuh`.
    #[derive(Debug, Clone, Copy)]
    #[repr(C)]
    struct Args {
        from: Address,
        to: Address,
    }

    const THREADS: usize = 256;

    /// Runs a planted kernel on the input 0, 1, 2, ...; returns its output and the result of the launch.
    fn planted(name: &'static str, blocks: usize) -> (Vec<u32>, candle_core::Result<()>) {
        let from: Vec<u32> = (0..(blocks * THREADS) as u32).collect();
        let mut to = vec![u32::MAX; from.len()];
        let args = Args { from: Address(from.as_ptr() as u64), to: Address(to.as_mut_ptr() as u64) };
        let grid = Grid::of(blocks, THREADS as u32).with_shared(2 * THREADS * size_of::<u32>());
        // SAFETY: both buffers have a value for each thread.
        let outcome = unsafe { launch(Kernel { op: "planted", name }, "", grid, &args) };
        (to, outcome)
    }

    fn each_order(f: impl Fn(Turns)) {
        for turns in [Turns::Forwards, Turns::Backwards].into_iter().chain((0..20).map(Turns::Drawn)) {
            take_turns(turns, true);
            f(turns);
        }
    }

    /// Asserts that in every order the launch fails with an error that names the kernel, the address, both
    /// threads and the missing barrier.
    fn assert_found(name: &'static str, blocks: usize, parts: &[&str]) {
        each_order(|turns| {
            let message = planted(name, blocks).1.expect_err("a race was planted").to_string();
            assert!(message.starts_with(&format!("planted: race in `{name}` on byte ")), "{message}");
            for part in parts {
                assert!(message.contains(part), "{turns:?}: `{part}` is not in: {message}");
            }
            assert_eq!(message.matches("thread ").count(), 2, "{message}");
        });
    }

    #[test]
    fn a_missing_barrier_of_the_block_is_found_in_every_order() {
        assert_found("planted_reverse_race", 1, &["of shared memory", "no __syncthreads() between"]);
    }

    #[test]
    fn a_missing_barrier_of_a_warp_is_found_and_told_as_one() {
        assert_found("planted_warp_race", 1, &["of shared memory", "two lanes of a warp, no __syncwarp()"]);
    }

    #[test]
    fn a_copy_that_is_started_too_early_is_found() {
        assert_found("planted_stages_race", 1, &["of shared memory", "no __syncthreads() between"]);
    }

    #[test]
    fn blocks_that_write_the_same_address_are_found() {
        let parts = ["behind the address in bytes 8 to 15", "no order between blocks of a launch"];
        assert_found("planted_blocks_race", 3, &parts);
    }

    #[test]
    fn an_access_that_a_gpu_would_trap_on_is_found() {
        each_order(|_| {
            let message = planted("planted_wide_misaligned", 1).1.expect_err("it is misaligned").to_string();
            assert!(message.starts_with("planted: `planted_wide_misaligned`, thread "), "{message}");
            assert!(message.contains("an access of 16 bytes on byte "), "{message}");
        });
    }

    #[test]
    fn their_twins_without_a_race_pass_in_every_order() {
        each_order(|_| {
            let (to, outcome) = planted("planted_wide", 1);
            outcome.unwrap();
            assert_eq!(to[..32], (0..32).collect::<Vec<u32>>());
            let reversed: Vec<u32> = (0..THREADS as u32).rev().collect();
            let (to, outcome) = planted("planted_reverse", 1);
            outcome.unwrap();
            assert_eq!(to, reversed);
            let (to, outcome) = planted("planted_warp", 1);
            outcome.unwrap();
            assert!((0..THREADS as u32).all(|i| to[i as usize] == i / 32 * 32 + 31 - i % 32), "{to:?}");
            let (to, outcome) = planted("planted_stages", 1);
            outcome.unwrap();
            assert!((0..THREADS as u32).all(|i| to[i as usize] == 4 * ((i + 32) % 256)), "{to:?}");
            let (to, outcome) = planted("planted_blocks", 3);
            outcome.unwrap();
            assert!((0..3 * THREADS as u32).all(|i| to[i as usize] == i), "{to:?}");
        });
    }

    /// Control of the random orders: forwards and backwards, the same one of three warps comes second.
    #[test]
    fn drawn_orders_show_what_forwards_and_backwards_do_not() {
        let second = |turns: Turns| {
            take_turns(turns, true);
            let mut to = [0u32; 2];
            let args = Args { from: Address::NULL, to: Address(to.as_mut_ptr() as u64) };
            // SAFETY: the kernel writes two values.
            unsafe { launch(Kernel { op: "planted", name: "planted_second" }, "", Grid::of(1, 96), &args) }
                .unwrap();
            to[1]
        };
        assert_eq!((second(Turns::Forwards), second(Turns::Backwards)), (1, 1));
        let mut drawn: Vec<u32> = (0..20).map(|seed| second(Turns::Drawn(seed))).collect();
        assert_eq!(drawn, (0..20).map(|seed| second(Turns::Drawn(seed))).collect::<Vec<_>>());
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn, [0, 1, 2]);
    }
}

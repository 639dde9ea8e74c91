//! A switch between the ways to compute on tensor cores, until a GPU has compared their times:
//! `MLMTRAIN_ATTENTION`. All give the same bits.

use std::sync::LazyLock;

#[cfg(test)]
use candle_core::DType;
#[cfg(test)]
use candle_core::Tensor;

#[cfg(test)]
use crate::testing::bits;
#[cfg(test)]
use crate::testing::on_host;

/// A way to compute on tensor cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// 128 queries a block where the GPU and the segments suit that, else 64.
    Now,
    /// `narrow`: 64 queries a block, always.
    Narrow,
    /// `earlier`: kernels from before dropout was drawn ahead of the scores and came to backward with the
    /// rows.
    Earlier,
}

#[cfg(test)]
thread_local! {
    static IN_THIS_TEST: std::cell::Cell<Way> = const { std::cell::Cell::new(Way::Now) };
}

/// Sizes of heads that have earlier kernels: on the host all, in a build for GPUs the one that most models
/// have.
#[cfg(all(feature = "cuda-on-host", not(feature = "cuda")))]
pub(crate) const HEAD_SIZES: &[usize] = &[32, 64, 80, 96, 128];
#[cfg(not(all(feature = "cuda-on-host", not(feature = "cuda"))))]
pub(crate) const HEAD_SIZES: &[usize] = &[64];

/// The way that is asked for, as far as heads of this size have it.
pub(super) fn way(head_size: usize) -> Way {
    static ASKED: LazyLock<Way> = LazyLock::new(|| match std::env::var("MLMTRAIN_ATTENTION").as_deref() {
        Ok("earlier") => Way::Earlier,
        Ok("narrow") => Way::Narrow,
        _ => Way::Now,
    });
    #[cfg(test)]
    let asked = if IN_THIS_TEST.get() == Way::Now { *ASKED } else { IN_THIS_TEST.get() };
    #[cfg(not(test))]
    let asked = *ASKED;
    if asked == Way::Earlier && !HEAD_SIZES.contains(&head_size) { Way::Now } else { asked }
}

/// Runs `f` in this way.
#[cfg(test)]
pub(crate) fn with<R>(way: Way, f: impl FnOnce() -> R) -> R {
    IN_THIS_TEST.set(way);
    let result = f();
    IN_THIS_TEST.set(Way::Now);
    result
}

/// Panics unless `run` gives tensors of the same bits in all ways.
#[cfg(test)]
pub(crate) fn assert_same_bits(name: &str, run: impl Fn() -> Vec<Tensor>) {
    let words = |t: &Tensor| match t.dtype() {
        DType::U32 => on_host(t).flatten_all().unwrap().to_vec1::<u32>().unwrap(),
        _ => bits(t),
    };
    let are = run();
    for way in [Way::Narrow, Way::Earlier] {
        let were = with(way, &run);
        assert_eq!(were.len(), are.len(), "{name}");
        for (index, (was, is)) in were.iter().zip(&are).enumerate() {
            let (was, is) = (words(was), words(is));
            assert!(is.iter().any(|&word| word != 0), "{name}: tensor {index} is 0");
            let differ = was.iter().zip(&is).filter(|(was, is)| was != is).count();
            assert_eq!((differ, was.len()), (0, is.len()), "{name}, {way:?}: tensor {index} of {}", is.len());
        }
    }
}

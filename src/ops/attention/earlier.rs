//! Switch between variants of the tensor-core kernels, `MLMTRAIN_ATTENTION`, until their times have been
//! compared on a GPU. All variants give the same bits.

use std::sync::LazyLock;

#[cfg(test)]
use candle_core::DType;
#[cfg(test)]
use candle_core::Tensor;

#[cfg(test)]
use crate::testing::bits;
#[cfg(test)]
use crate::testing::on_host;

/// Variant of the tensor-core kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// 128 queries per block if the GPU and the segments suit that, else 64.
    Now,
    /// `narrow`: always 64 queries per block.
    Narrow,
    /// `earlier`: kernels from before dropout was drawn ahead of the scores in forward and copied together
    /// with the rows in backward.
    Earlier,
}

#[cfg(test)]
thread_local! {
    static IN_THIS_TEST: std::cell::Cell<Way> = const { std::cell::Cell::new(Way::Now) };
}

/// Head sizes for which the earlier kernels exist: all sizes on the host, and in a build for GPUs the one
/// that most models use.
#[cfg(all(feature = "cuda-on-host", not(feature = "cuda")))]
pub(crate) const HEAD_SIZES: &[usize] = &[32, 64, 80, 96, 128];
#[cfg(not(all(feature = "cuda-on-host", not(feature = "cuda"))))]
pub(crate) const HEAD_SIZES: &[usize] = &[64];

/// Returns the requested variant, or the default one if heads of this size do not have it.
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

/// Runs `f` with this variant.
#[cfg(test)]
pub(crate) fn with<R>(way: Way, f: impl FnOnce() -> R) -> R {
    IN_THIS_TEST.set(way);
    let result = f();
    IN_THIS_TEST.set(Way::Now);
    result
}

/// Panics unless `run` returns tensors with the same bits for all variants.
#[cfg(test)]
pub(crate) fn assert_same_bits(name: &str, run: impl Fn() -> Vec<Tensor>) {
    let by_default = run();
    for way in [Way::Narrow, Way::Earlier] {
        let by_variant = with(way, &run);
        assert_eq!(by_variant.len(), by_default.len(), "{name}");
        for (index, (was, is)) in by_variant.iter().zip(&by_default).enumerate() {
            let was = words(was);
            let is = words(is);
            assert!(is.iter().any(|&word| word != 0), "{name}: tensor {index} is 0");
            let differ = was.iter().zip(&is).filter(|(was, is)| was != is).count();
            assert_eq!((differ, was.len()), (0, is.len()), "{name}, {way:?}: tensor {index} of {}", is.len());
        }
    }
}

/// Returns the bits of a tensor's values; of u32 values, the values themselves.
#[cfg(test)]
fn words(t: &Tensor) -> Vec<u32> {
    match t.dtype() {
        DType::U32 => on_host(t).flatten_all().unwrap().to_vec1::<u32>().unwrap(),
        _ => bits(t),
    }
}

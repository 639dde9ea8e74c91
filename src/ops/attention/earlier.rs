//! Switch between variants of the tensor-core kernels, `MLMTRAIN_ATTENTION`, until their times have been
//! compared on a GPU. All variants give the same bits.

#[cfg(test)]
use std::cell::{Cell, RefCell};
#[cfg(test)]
use std::collections::HashMap;
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
    static IN_THIS_TEST: Cell<Way> = const { Cell::new(Way::Now) };
    /// Results of the other variants in this test, by the name of what was computed.
    static BY_VARIANTS: RefCell<HashMap<String, [ByVariant; 2]>> = RefCell::default();
}

/// The bits of all tensors that a variant computed.
#[cfg(test)]
type ByVariant = (Way, Vec<Vec<u32>>);

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

/// Panics unless `run` returns tensors with the same bits for all variants. `name` says what it computes.
///
/// If a test calls this again for the same `name`, such as for another order of threads, only the default
/// variant runs again: the others are slow, and serve as what it is compared with.
#[cfg(test)]
pub(crate) fn assert_same_bits(name: &str, run: impl Fn() -> Vec<Tensor>) {
    let by_default: Vec<Vec<u32>> = run().iter().map(words).collect();
    for (index, values) in by_default.iter().enumerate() {
        assert!(values.iter().any(|&word| word != 0), "{name}: tensor {index} is 0");
    }
    BY_VARIANTS.with_borrow_mut(|known| {
        let by_variants = known.entry(name.to_string()).or_insert_with(|| {
            [Way::Narrow, Way::Earlier].map(|way| (way, with(way, &run).iter().map(words).collect()))
        });
        for (way, by_variant) in by_variants {
            assert_eq!(by_variant.len(), by_default.len(), "{name}");
            for (index, (was, is)) in by_variant.iter().zip(&by_default).enumerate() {
                let differ = was.iter().zip(is).filter(|(was, is)| was != is).count();
                let at = format!("{name}, {way:?}: tensor {index} of {}", is.len());
                assert_eq!((differ, was.len()), (0, is.len()), "{at}");
            }
        }
    });
}

/// Returns the bits of a tensor's values; of u32 values, the values themselves.
#[cfg(test)]
fn words(t: &Tensor) -> Vec<u32> {
    match t.dtype() {
        DType::U32 => on_host(t).flatten_all().unwrap().to_vec1::<u32>().unwrap(),
        _ => bits(t),
    }
}

//! A switch to the kernels on tensor cores as they were before dropout was drawn ahead of the scores and came
//! to backward with the rows: `MLMTRAIN_ATTENTION=earlier`. Both give the same bits; it goes when a GPU has
//! compared their times.

use std::sync::LazyLock;

#[cfg(test)]
use candle_core::DType;
#[cfg(test)]
use candle_core::Tensor;

#[cfg(test)]
use crate::testing::bits;
#[cfg(test)]
use crate::testing::on_host;

#[cfg(test)]
thread_local! {
    static IN_THIS_TEST: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Sizes of heads that have them: on the host all, in a build for GPUs the one that most models have.
#[cfg(all(feature = "cuda-on-host", not(feature = "cuda")))]
pub(crate) const HEAD_SIZES: &[usize] = &[32, 64, 80, 96, 128];
#[cfg(not(all(feature = "cuda-on-host", not(feature = "cuda"))))]
pub(crate) const HEAD_SIZES: &[usize] = &[64];

/// Returns true if launches for heads of this size take the earlier kernels.
pub(super) fn is_asked_for(head_size: usize) -> bool {
    static ASKED: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os("MLMTRAIN_ATTENTION").is_some_and(|value| value == "earlier"));
    #[cfg(test)]
    let is_asked = *ASKED || IN_THIS_TEST.get();
    #[cfg(not(test))]
    let is_asked = *ASKED;
    is_asked && HEAD_SIZES.contains(&head_size)
}

/// Runs `f` with the earlier kernels.
#[cfg(test)]
pub(crate) fn with_earlier<R>(f: impl FnOnce() -> R) -> R {
    IN_THIS_TEST.set(true);
    let result = f();
    IN_THIS_TEST.set(false);
    result
}

/// Panics unless `run` gives tensors of the same bits with the earlier kernels and with those of now.
#[cfg(test)]
pub(crate) fn assert_same_bits(name: &str, run: impl Fn() -> Vec<Tensor>) {
    let words = |t: &Tensor| match t.dtype() {
        DType::U32 => on_host(t).flatten_all().unwrap().to_vec1::<u32>().unwrap(),
        _ => bits(t),
    };
    let (were, are) = (with_earlier(&run), run());
    assert_eq!(were.len(), are.len(), "{name}");
    for (index, (was, is)) in were.iter().zip(&are).enumerate() {
        let (was, is) = (words(was), words(is));
        assert!(is.iter().any(|&word| word != 0), "{name}: tensor {index} is 0");
        let differ = was.iter().zip(&is).filter(|(was, is)| was != is).count();
        assert_eq!((differ, was.len()), (0, is.len()), "{name}: tensor {index} of {}", is.len());
    }
}

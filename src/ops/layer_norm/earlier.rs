//! The switch `MLMTRAIN_NORMS=earlier` to the earlier backward kernels of norms, in which one warp has a row
//! and dropout is computed again instead of being kept by forward. They exist for rows of at most 1,024
//! columns, and will be removed when the times of both have been compared on a GPU.

use std::sync::LazyLock;

#[cfg(test)]
thread_local! {
    static IN_THIS_TEST: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Returns true if launches take the earlier kernels.
pub(super) fn is_asked_for() -> bool {
    static ASKED: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os("MLMTRAIN_NORMS").is_some_and(|value| value == "earlier"));
    #[cfg(test)]
    let is_asked = *ASKED || IN_THIS_TEST.get();
    #[cfg(not(test))]
    let is_asked = *ASKED;
    is_asked
}

/// Runs `f` with the earlier kernels.
#[cfg(test)]
pub(crate) fn with_earlier<R>(f: impl FnOnce() -> R) -> R {
    IN_THIS_TEST.set(true);
    let result = f();
    IN_THIS_TEST.set(false);
    result
}

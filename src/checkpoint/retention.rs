//! Which checkpoints may go, as a pure function.

/// What to keep of older checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Checkpoints kept, newest first; 0 counts as 1.
    pub limit: usize,
    /// The step of the best one, which is kept besides.
    pub best_step: Option<u64>,
}

/// The steps to delete out of `steps`: all but the `limit` newest and `best`. Never all of them.
pub fn retention(steps: &[u64], limit: usize, best: Option<u64>) -> Vec<u64> {
    let mut newest_first = steps.to_vec();
    newest_first.sort_unstable_by(|a, b| b.cmp(a));
    newest_first.dedup();
    newest_first.into_iter().skip(limit.max(1)).filter(|step| Some(*step) != best).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_newest_and_the_best_stay() {
        assert_eq!(retention(&[100, 400, 200, 300], 2, None), [200, 100]);
        assert_eq!(retention(&[100, 400, 200, 300], 1, Some(200)), [300, 100]);
        assert_eq!(retention(&[100], 0, None), [0_u64; 0]);
    }

    proptest! {
        #[test]
        fn something_always_stays_and_it_is_the_right_thing(
            steps in proptest::collection::vec(0..50_u64, 1..20), limit in 0..8_usize, best in proptest::option::of(0..50_u64),
        ) {
            let gone = retention(&steps, limit, best);
            let mut kept: Vec<u64> = steps.iter().copied().filter(|step| !gone.contains(step)).collect();
            kept.sort_unstable();
            kept.dedup();
            prop_assert!(kept.contains(steps.iter().max().unwrap()), "the newest stays");
            prop_assert!(gone.iter().all(|step| steps.contains(step)), "only what is there goes");
            prop_assert!(best.is_none_or(|best| !gone.contains(&best)), "the best stays");
            prop_assert!(kept.len() <= limit.max(1) + 1, "no more than asked for stay");
        }
    }
}

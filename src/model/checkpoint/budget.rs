//! The choice of checkpoints to delete so that the others stay within a number of bytes, as a pure function.
//!
//! `retention.rs` limits the number of checkpoints.

use crate::checkpoint::retention::Retention;

/// The steps to delete out of `stored`, which has pairs of step and bytes. Never all of them.
///
/// The oldest are deleted first: of two that may be deleted, the newer one stays longer, even if it alone is
/// too large.
pub(super) fn over_budget(stored: &[(u64, u64)], total_bytes: u64, keep: &Retention) -> Vec<u64> {
    let mut newest_first = stored.to_vec();
    newest_first.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
    newest_first.dedup_by_key(|(step, _)| *step);
    let newest = newest_first.first().map(|(step, _)| *step);
    // A signal saves further checkpoints between those that are due. They must not push out the newest due
    // one, which every run of this configuration has.
    let newest_due = newest_first.iter().map(|(step, _)| *step).find(|&step| keep.is_due(step));
    let spared = [newest, newest_due, keep.best_step];
    let (stay, may_go) =
        newest_first.into_iter().partition::<Vec<_>, _>(|(step, _)| spared.contains(&Some(*step)));
    let mut taken_bytes = stay.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    let over = may_go.into_iter().skip_while(|(_, bytes)| {
        taken_bytes = taken_bytes.saturating_add(*bytes);
        taken_bytes <= total_bytes
    });
    over.map(|(step, _)| step).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::checkpoint::CheckpointStore;

    fn over(stored: &[(u64, u64)], total_bytes: u64, best_step: Option<u64>, save_steps: u64) -> Vec<u64> {
        over_budget(stored, total_bytes, &keep(None, best_step, save_steps))
    }

    fn keep(total_bytes: Option<u64>, best_step: Option<u64>, save_steps: u64) -> Retention {
        Retention { limit: 100, save_steps, total_bytes, in_trouble: Vec::new(), best_step }
    }

    #[test]
    fn the_oldest_go_until_the_rest_fits() {
        let stored = [(100, 10), (400, 10), (200, 10), (300, 10)];
        assert_eq!(over(&stored, 40, None, 0), [0_u64; 0]);
        assert_eq!(over(&stored, 39, None, 0), [100]);
        assert_eq!(over(&stored, 25, Some(100), 0), [300, 200]);
        assert_eq!(over(&stored, 0, None, 0), [300, 200, 100]);
        // A small checkpoint does not stay in place of a newer and larger one.
        assert_eq!(over(&[(1, 1), (2, 50), (3, 10)], 20, None, 0), [2, 1]);
        assert_eq!(over(&[], 0, Some(3), 5), [0_u64; 0]);
    }

    #[test]
    fn the_newest_that_was_due_stays_in_addition_to_those_of_a_signal() {
        let stored = [(100, 10), (200, 10), (240, 10), (260, 10)];
        assert_eq!(over(&stored, 0, None, 100), [240, 100]);
        assert_eq!(over(&stored, 0, Some(100), 100), [240]);
    }

    fn store_of(folder: &Path, sizes: &[(u64, usize)]) -> CheckpointStore {
        let store = CheckpointStore::new(folder);
        for &(step, bytes) in sizes {
            let path = store.path_of(step).join("trainer");
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("state"), vec![0; bytes / 2]).unwrap();
            std::fs::write(store.path_of(step).join("model"), vec![0; bytes - bytes / 2]).unwrap();
        }
        store
    }

    #[test]
    fn a_store_deletes_what_is_over_and_leaves_another_branch_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = store_of(folder.path(), &[(1, 1000), (2, 1000), (3, 1000), (4, 1000), (9, 1000)]);
        assert_eq!(kept(&store, 3000), [1, 3, 4, 9]);
        assert_eq!(kept(&store, 2999), [1, 4, 9]);
        assert_eq!(kept(&store, 1), [1, 4, 9]);
        assert_eq!(store.keep_within_budget(4, &keep(None, None, 0)), [""; 0]);
        assert_eq!(store.steps().unwrap(), [1, 4, 9], "without a budget nothing goes");
    }

    /// The steps that stay within a number of bytes, where step 1 is the best.
    fn kept(store: &CheckpointStore, total_bytes: u64) -> Vec<u64> {
        assert_eq!(store.keep_within_budget(4, &keep(Some(total_bytes), Some(1), 0)), [""; 0]);
        store.steps().unwrap()
    }

    proptest! {
        #[test]
        fn something_always_stays_and_it_is_the_right_thing(
            stored in proptest::collection::btree_map(0..50_u64, 0..20_u64, 1..20),
            total_bytes in 0..200_u64,
            best_step in proptest::option::of(0..50_u64),
            save_steps in 0..10_u64,
        ) {
            let pairs: Vec<(u64, u64)> = stored.iter().map(|(step, bytes)| (*step, *bytes)).collect();
            let gone = over(&pairs, total_bytes, best_step, save_steps);
            let kept: Vec<(u64, u64)> = pairs.iter().copied().filter(|(step, _)| !gone.contains(step)).collect();
            let newest = *stored.keys().max().unwrap();
            let due = stored.keys().copied().filter(|step| save_steps > 0 && step % save_steps == 0).max();
            let spared = [Some(newest), best_step, due];
            prop_assert!(gone.iter().all(|step| stored.contains_key(step)), "only what is there goes");
            prop_assert!(!gone.iter().any(|&step| spared.contains(&Some(step))), "newest, best and due stay");
            let kept_bytes: u64 = kept.iter().map(|(_, bytes)| bytes).sum();
            let others = kept.iter().any(|(step, _)| !spared.contains(&Some(*step)));
            prop_assert!(kept_bytes <= total_bytes || !others, "more than the budget only of what must stay");
            let kept_steps = kept.iter().map(|(step, _)| *step);
            let oldest_kept = kept_steps.filter(|&step| !spared.contains(&Some(step))).min();
            let newest_gone = gone.iter().max();
            prop_assert!(
                newest_gone.zip(oldest_kept).is_none_or(|(gone, kept)| *gone < kept),
                "the oldest go"
            );
            if let Some(newest_gone) = newest_gone {
                prop_assert!(kept_bytes + stored[newest_gone] > total_bytes, "none goes without need");
            }
        }
    }
}

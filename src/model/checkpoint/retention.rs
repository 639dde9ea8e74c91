//! The choice of checkpoints to delete, as a pure function.

/// Rules for keeping older checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Number of checkpoints to keep, from the newest on; 0 counts as 1.
    pub limit: usize,
    /// A checkpoint is due every `save_steps` steps. Only due checkpoints count towards `limit`, in addition
    /// to the newest one: a run that rolls back to a checkpoint must not depend on where it was interrupted.
    /// If it is 0, all checkpoints count.
    pub save_steps: u64,
    /// Limit of the total bytes of all checkpoints, if there is one. The newest one, the best one and the
    /// newest that was due stay even if they take more.
    pub total_bytes: Option<u64>,
    /// Steps of checkpoints that an interruption saved while steps were bad: they do not count as due.
    pub in_trouble: Vec<u64>,
    /// Step of the best checkpoint, which is kept in addition.
    pub best_step: Option<u64>,
}

impl Retention {
    /// Returns true if the checkpoint of `step` was due.
    pub(super) fn is_due(&self, step: u64) -> bool {
        self.save_steps > 0 && step.is_multiple_of(self.save_steps) && !self.in_trouble.contains(&step)
    }
}

/// The steps to delete out of `steps`. Never all of them.
pub fn retention(steps: &[u64], keep: &Retention) -> Vec<u64> {
    let mut newest_first = steps.to_vec();
    newest_first.sort_unstable_by(|a, b| b.cmp(a));
    newest_first.dedup();
    let kept: Vec<u64> = newest_first
        .iter()
        .copied()
        .filter(|step| keep.save_steps == 0 || keep.is_due(*step))
        .take(keep.limit.max(1))
        .collect();
    let older = newest_first.into_iter().skip(1);
    older.filter(|step| Some(*step) != keep.best_step && !kept.contains(step)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_newest_and_the_best_stay() {
        assert_eq!(retention(&[100, 400, 200, 300], &keep(2, 0, None)), [200, 100]);
        assert_eq!(retention(&[100, 400, 200, 300], &keep(1, 0, Some(200))), [300, 100]);
        assert_eq!(retention(&[100], &keep(0, 0, None)), [0_u64; 0]);
    }

    #[test]
    fn checkpoints_of_interruptions_push_out_no_due_one() {
        assert_eq!(retention(&[100, 200, 240, 260], &keep(2, 100, None)), [240]);
        assert_eq!(retention(&[100, 200, 260, 300], &keep(2, 100, None)), [260, 100]);
        assert_eq!(retention(&[100, 130], &keep(1, 100, None)), [0_u64; 0]);
        let in_trouble = Retention { in_trouble: vec![200], ..keep(1, 100, None) };
        assert_eq!(retention(&[100, 200], &in_trouble), [0_u64; 0]);
        assert_eq!(retention(&[100, 200, 210], &in_trouble), [200]);
    }

    fn keep(limit: usize, save_steps: u64, best_step: Option<u64>) -> Retention {
        Retention { limit, save_steps, total_bytes: None, in_trouble: Vec::new(), best_step }
    }

    proptest! {
        #[test]
        fn something_always_stays_and_it_is_the_right_thing(
            steps in proptest::collection::vec(0..50_u64, 1..20),
            limit in 0..8_usize,
            save_steps in 0..10_u64,
            best in proptest::option::of(0..50_u64),
        ) {
            let gone = retention(&steps, &keep(limit, save_steps, best));
            let mut kept: Vec<u64> = steps.iter().copied().filter(|step| !gone.contains(step)).collect();
            kept.sort_unstable();
            kept.dedup();
            prop_assert!(kept.contains(steps.iter().max().unwrap()), "the newest stays");
            prop_assert!(gone.iter().all(|step| steps.contains(step)), "only what is there goes");
            prop_assert!(best.is_none_or(|best| !gone.contains(&best)), "the best stays");
            prop_assert!(kept.len() <= limit.max(1) + 2, "no more than asked for stay, the newest and the best");
            prop_assert!(save_steps > 0 || kept.len() <= limit.max(1) + 1);
        }
    }
}

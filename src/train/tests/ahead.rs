//! Steps that are made ready while the one before is computed: the same run, and none too many.

use std::sync::Arc;
use std::sync::Mutex;

use super::divergence::STEPS;
use super::divergence::ended_with;
use super::divergence::training;
use super::records;
use super::whole::Toy;
use super::whole::whole_run;

/// What was done with which sample.
pub(super) type Log = Arc<Mutex<Vec<(&'static str, u64)>>>;

/// Through a rollback, in which what was made ready is dropped.
#[test]
fn the_next_step_is_made_ready_while_one_is_computed_and_the_run_is_the_same() {
    let (plain, ahead, log) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Log::default());
    for (folder, log) in [(&plain, None), (&ahead, Some(Arc::clone(&log)))] {
        let toy = Toy { planted: vec![(9..19, f64::NAN)], log, ..Toy::default() };
        whole_run(toy, folder.path(), &training(), 0).unwrap();
    }
    assert!(ended_with(plain.path(), STEPS) == ended_with(ahead.path(), STEPS));
    assert_eq!(records(plain.path()), records(ahead.path()));
    let log = log.lock().unwrap();
    assert_eq!(log[..4], [("trained", 0), ("sent", 1), ("trained", 1), ("sent", 2)]);
    for pair in log.windows(2).filter(|pair| pair[0].0 == "trained") {
        assert_eq!(pair[1], ("sent", pair[0].1 + 1));
    }
    assert_eq!(log.last().map(|(what, _)| *what), Some("trained"));
}

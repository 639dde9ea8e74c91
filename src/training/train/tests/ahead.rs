//! Prefetching of the next step during the present one: the run is unchanged, and no step too many is
//! prefetched.

use std::sync::{Arc, Mutex};

use super::divergence::{STEPS, ended_with, training};
use super::records;
use super::whole::{Toy, whole_run};

/// Operations on samples, in their order.
pub(super) type Log = Arc<Mutex<Vec<(&'static str, u64)>>>;

/// The run includes a rollback, at which the prefetched step is dropped.
#[test]
fn the_next_step_is_prefetched_and_the_run_is_the_same() {
    let plain = tempfile::tempdir().unwrap();
    let ahead = tempfile::tempdir().unwrap();
    let log = Log::default();
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

//! Choice among the algorithms that cuBLASLt's heuristic proposes for a product: its first proposal, or with
//! `MLMTRAIN_PRODUCTS=timed` the fastest one on this GPU. A resumed run uses the choices of the run so far
//! (`choices.rs`), whichever way they were made.
//!
//! Timing is off by default: algorithms sum in different orders, and which of two equally fast ones wins may
//! change from one new run to the next, so two runs of one configuration would not be equal bit for bit.

#[cfg(feature = "cuda")]
use std::sync::LazyLock;

/// Timed runs of each candidate, alternating with the other candidates.
const ROUNDS: usize = 3;

/// Number of candidates that the library is asked for.
#[cfg(feature = "cuda")]
pub(super) fn wanted() -> usize {
    const MOST: usize = 8;
    static TIMED: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os("MLMTRAIN_PRODUCTS").is_some_and(|value| value == "timed"));
    if *TIMED { MOST } else { 1 }
}

/// Returns the candidate whose fastest run is the shortest, and the first of equally fast ones.
/// `seconds(candidate)` runs a candidate once and returns its time, or `None` if it fails. The first run of
/// each is a warm-up and does not count. A candidate that fails is not run again; if all fail, the result is
/// `None`. If there is only one candidate, it is returned without a run.
pub(super) fn fastest(count: usize, mut seconds: impl FnMut(usize) -> Option<f64>) -> Option<usize> {
    if count == 1 {
        return Some(0);
    }
    let mut best: Vec<Option<f64>> =
        (0..count).map(|candidate| seconds(candidate).map(|_| f64::INFINITY)).collect();
    for _ in 0..ROUNDS {
        for (candidate, best) in best.iter_mut().enumerate() {
            *best = best.and_then(|best| Some(seconds(candidate)?.min(best)));
        }
    }
    let ran = best.into_iter().enumerate().filter_map(|(candidate, seconds)| Some((candidate, seconds?)));
    ran.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(candidate, _)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_run_decides_and_the_first_run_does_not_count() {
        let mut runs = Vec::new();
        // Candidate 1 is slow in its first run; candidate 2 fails, in its first run or later.
        for fails_in in [0, 2] {
            runs.clear();
            let chosen = fastest(4, |candidate| {
                let round = runs.iter().filter(|&&run| run == candidate).count();
                runs.push(candidate);
                match candidate {
                    1 => Some([9.0, 3.0, 1.0, 2.0][round]),
                    2 => (round < fails_in).then_some(0.1),
                    3 => Some([0.5, 1.5, 1.5, 1.5][round]),
                    _ => Some(2.0),
                }
            });
            assert_eq!(chosen, Some(1));
            assert_eq!(runs[..4], [0, 1, 2, 3], "in turn");
            assert_eq!(
                runs.iter().filter(|&&run| run == 2).count(),
                fails_in + 1,
                "what fails is not run again"
            );
        }
        assert_eq!(fastest(3, |_| Some(1.0)), Some(0));
        assert_eq!(fastest(3, |_| None), None);
        assert_eq!(fastest(1, |_| panic!("there is nothing to choose")), Some(0));
    }
}

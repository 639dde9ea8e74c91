//! Checks of the search for near-duplicates.

use crate::DeduplicationConfig;
use crate::validate::Findings;

pub(super) fn deduplication(config: &DeduplicationConfig, findings: &mut Findings) {
    if let Some(threshold) = config.near_threshold
        && !(0.5..=0.99).contains(&threshold)
    {
        let message =
            format!("`data.deduplication.near_threshold` is {threshold}, it must lie between 0.5 and 0.99");
        let hint = match threshold {
            50.0..=99.0 => format!("{threshold} percent is written `{}`", threshold / 100.0),
            1.0 => "`exact: true` finds equal texts".to_string(),
            _ => "`0.8` is usual".to_string(),
        };
        findings.add(&["data.deduplication.near_threshold"], message, hint);
    }
    findings.count("data.deduplication.shingle_words", config.shingle_words as u64, 1, 64);
    let permutations = config.num_permutations;
    findings.count("data.deduplication.num_permutations", permutations as u64, 16, 1024);
    if (16..=1024).contains(&permutations) && !permutations.is_multiple_of(16) {
        let message =
            format!("`data.deduplication.num_permutations` is {permutations}, it must be a multiple of 16");
        let hint = format!("`{}` is the next one", permutations.next_multiple_of(16));
        findings.add(&["data.deduplication.num_permutations"], message, hint);
    }
    // With less than a megabyte, sorting would spend more time on seeking than on reading.
    findings.count("data.deduplication.memory_bytes", config.memory_bytes, 1 << 20, 1 << 40);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the problems after one change of the defaults, a line each.
    fn found(change: impl FnOnce(&mut DeduplicationConfig)) -> String {
        let mut config = DeduplicationConfig::default();
        let mut findings = Findings::default();
        change(&mut config);
        deduplication(&config, &mut findings);
        findings
            .0
            .iter()
            .map(|f| format!("{} ({})", f.message, f.hint.as_deref().unwrap_or("none")))
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn each_wrong_value_is_named() {
        assert_eq!(found(|_| {}), "");
        for threshold in [0.5, 0.8, 0.99] {
            assert_eq!(found(|c| c.near_threshold = Some(threshold)), "");
        }
        insta::assert_snapshot!(found(|c| c.near_threshold = Some(0.4)), @"`data.deduplication.near_threshold` is 0.4, it must lie between 0.5 and 0.99 (`0.8` is usual)");
        insta::assert_snapshot!(found(|c| c.near_threshold = Some(80.0)), @"`data.deduplication.near_threshold` is 80, it must lie between 0.5 and 0.99 (80 percent is written `0.8`)");
        insta::assert_snapshot!(found(|c| c.near_threshold = Some(1.0)), @"`data.deduplication.near_threshold` is 1, it must lie between 0.5 and 0.99 (`exact: true` finds equal texts)");
        insta::assert_snapshot!(found(|c| c.near_threshold = Some(f64::NAN)), @"`data.deduplication.near_threshold` is NaN, it must lie between 0.5 and 0.99 (`0.8` is usual)");
        insta::assert_snapshot!(found(|c| c.shingle_words = 0), @"`data.deduplication.shingle_words` is 0, it must be at least 1 (give it a larger value)");
        insta::assert_snapshot!(found(|c| c.num_permutations = 100), @"`data.deduplication.num_permutations` is 100, it must be a multiple of 16 (`112` is the next one)");
        insta::assert_snapshot!(found(|c| c.num_permutations = 8), @"`data.deduplication.num_permutations` is 8, it must be at least 16 (give it a larger value)");
        insta::assert_snapshot!(found(|c| c.memory_bytes = 100), @"`data.deduplication.memory_bytes` is 100, it must be at least 1048576 (give it a larger value)");
    }
}

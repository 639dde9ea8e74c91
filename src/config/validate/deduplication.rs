//! Checks of the search for near-duplicates.

use crate::DeduplicationConfig;
use crate::validate::Findings;

pub(super) fn deduplication(config: &DeduplicationConfig, findings: &mut Findings) {
    let permutations = config.num_permutations;
    if !permutations.is_multiple_of(16) {
        let message =
            format!("`data.deduplication.num_permutations` is {permutations}, it must be a multiple of 16");
        let hint = format!("`{}` is the next one", permutations.next_multiple_of(16));
        findings.add(&["data.deduplication.num_permutations"], message, hint);
    }
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
        insta::assert_snapshot!(found(|c| c.num_permutations = 100), @"`data.deduplication.num_permutations` is 100, it must be a multiple of 16 (`112` is the next one)");
    }
}

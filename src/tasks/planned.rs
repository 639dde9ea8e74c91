//! What a fine-tuning run would read, told before it begins: lengths, what is cut, labels.

use crate::quantity::format_count;

/// Most labels that a plan lists.
const LISTED: usize = 12;

/// What is known of a run's examples without its model.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// Examples, or windows of sentences, of an epoch.
    pub rows: usize,
    /// What a user should know, each with its name.
    pub lines: Vec<(&'static str, String)>,
}

/// The lengths of examples in tokens, special tokens included, and how many are longer than what is read at
/// once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lengths {
    pub(super) examples: usize,
    pub(super) longest: u64,
    pub(super) too_long: u64,
}

/// "training 71, evaluation 33 tokens".
pub(super) fn longest([train, eval]: [Lengths; 2]) -> String {
    format!("training {}, evaluation {} tokens", format_count(train.longest), format_count(eval.longest))
}

/// "3 of 72 training and 0 of 24 evaluation `what`".
pub(super) fn too_long([train, eval]: [Lengths; 2], what: &str) -> String {
    let of = |lengths: Lengths| {
        format!("{} of {}", format_count(lengths.too_long), format_count(lengths.examples as u64))
    };
    format!("{} training and {} evaluation {what}", of(train), of(eval))
}

/// The training examples of each label, the first ones of many.
pub(super) fn labels(names: &[String], ids: impl Iterator<Item = u32>) -> String {
    let mut counts = vec![0u64; names.len()];
    ids.for_each(|id| counts[id as usize] += 1);
    let told = names.iter().zip(&counts).take(LISTED);
    let told: Vec<String> = told.map(|(name, count)| format!("`{name}` {}", format_count(*count))).collect();
    let rest = names.len().saturating_sub(LISTED);
    let rest = if rest == 0 { String::new() } else { format!(" and {rest} more") };
    format!("{}{rest}", told.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_counted_and_long_lists_cut() {
        let names = |count: usize| (0..count).map(|n| format!("l{n}")).collect::<Vec<String>>();
        assert_eq!(labels(&names(2), [1, 1, 0].into_iter()), "`l0` 1, `l1` 2");
        assert!(labels(&names(14), [].into_iter()).ends_with("`l11` 0 and 2 more"));
    }
}

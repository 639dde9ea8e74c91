//! Summary of the data of a fine-tuning run before it starts: lengths, truncation, labels.

use base::quantity::format_count;

/// Number of labels that a summary lists at most.
const LISTED: usize = 12;

/// Summary of a run's examples, made without the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// Number of examples (or windows of sentences) of an epoch.
    pub rows: usize,
    /// Number of tokens of an epoch, with special tokens and after truncation.
    pub tokens: u64,
    /// Named lines of text for the user.
    pub lines: Vec<(&'static str, String)>,
}

/// Lengths of examples in tokens, including special tokens, and the number of examples that are longer than
/// the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lengths {
    /// Number of examples.
    pub examples: usize,
    /// Length of the longest one.
    pub longest: u64,
    /// Number of examples that are longer than the limit.
    pub too_long: u64,
}

/// Text such as "training 71, evaluation 33 tokens": the longest example of each set.
pub(super) fn longest([train, eval]: [Lengths; 2]) -> String {
    format!("training {}, evaluation {} tokens", format_count(train.longest), format_count(eval.longest))
}

/// Text such as "3 of 72 training and 0 of 24 evaluation `what`": the examples that are too long.
pub(super) fn too_long([train, eval]: [Lengths; 2], what: &str) -> String {
    format!("{} training and {} evaluation {what}", share_too_long(train), share_too_long(eval))
}

/// Text such as "3 of 72".
fn share_too_long(lengths: Lengths) -> String {
    format!("{} of {}", format_count(lengths.too_long), format_count(lengths.examples as u64))
}

/// Text with the number of training examples of each label, cut after [`LISTED`] labels.
pub(super) fn labels(names: &[String], ids: impl Iterator<Item = u32>) -> String {
    let mut counts = vec![0u64; names.len()];
    ids.for_each(|id| counts[id as usize] += 1);
    let listed = names.iter().zip(&counts).take(LISTED);
    let listed: Vec<String> =
        listed.map(|(name, count)| format!("`{name}` {}", format_count(*count))).collect();
    let rest = names.len().saturating_sub(LISTED);
    let rest = if rest == 0 { String::new() } else { format!(" and {rest} more") };
    format!("{}{rest}", listed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_counted_and_long_lists_cut() {
        let names: Vec<String> = (0..14).map(|n| format!("l{n}")).collect();
        assert_eq!(labels(&names[..2], [1, 1, 0].into_iter()), "`l0` 1, `l1` 2");
        assert!(labels(&names, [].into_iter()).ends_with("`l11` 0 and 2 more"));
    }
}

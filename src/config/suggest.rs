//! Finds the known name closest to a mistyped one, for "did you mean".

/// Returns the name closest to `typed`, if it is close enough to be meant.
pub(super) fn closest<'a>(typed: &str, names: &[&'a str]) -> Option<&'a str> {
    let typed = typed.to_lowercase().replace('-', "_");
    // Comparing takes time proportional to the product of both lengths, and no key is this long.
    if typed.len() > 100 {
        return None;
    }
    let scored =
        names.iter().map(|name| (similarity(&typed, name), *name)).filter(|(score, _)| *score >= 0.6);
    scored
        .fold(
            None,
            |best: Option<(f64, &str)>, next| {
                if best.is_some_and(|b| b.0 >= next.0) { best } else { Some(next) }
            },
        )
        .map(|b| b.1)
}

/// Returns the similarity of a typed name and a known one, from 0 to 1.
fn similarity(typed: &str, name: &str) -> f64 {
    let typos = strsim::normalized_damerau_levenshtein(typed, name);
    // Parts count as similar, such as `batch_size` for `per_device_train_batch_size`. In the other
    // direction, the name must be more than half of the typed text: `bert` is not meant by
    // `deberta-v2`.
    let contains_name = typed.contains(name) && 2 * name.len() > typed.len();
    let is_part = typed.len() >= 5 && (name.contains(typed) || contains_name);
    if is_part { typos.max(0.7) } else { typos }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_find_their_name_and_nonsense_finds_none() {
        let names = ["warmup_steps", "max_steps", "per_device_train_batch_size", "learning_rate"];
        assert_eq!(closest("warmpu_steps", &names), Some("warmup_steps"));
        assert_eq!(closest("Learning-Rate", &names), Some("learning_rate"));
        assert_eq!(closest("batch_size", &names), Some("per_device_train_batch_size"));
        assert_eq!(closest("colour", &names), None);
        assert_eq!(closest("deberta-v2", &["roberta", "bert"]), None);
        assert_eq!(closest("robertaa", &["roberta", "bert"]), Some("roberta"));
        assert_eq!(closest(&"x".repeat(100_000), &names), None);
    }
}

//! "did you mean": the known name closest to a mistyped one.

/// The closest of `names` to `typed`, if one is close enough to be meant.
pub(super) fn closest<'a>(typed: &str, names: &[&'a str]) -> Option<&'a str> {
    let typed = typed.to_lowercase().replace('-', "_");
    // Comparing costs the product of both lengths, and no key is this long.
    if typed.len() > 100 {
        return None;
    }
    let likeness = |name: &str| {
        let typos = strsim::normalized_damerau_levenshtein(&typed, name);
        // `batch_size` for `per_device_train_batch_size`: far in letters, near in meaning.
        // But not `bert` for `deberta-v2`: what is typed must be the name for the most part.
        let holds = typed.contains(name) && 2 * name.len() > typed.len();
        let part = typed.len() >= 5 && (name.contains(&typed) || holds);
        if part { typos.max(0.7) } else { typos }
    };
    let scored = names.iter().map(|name| (likeness(name), *name)).filter(|(score, _)| *score >= 0.6);
    scored
        .fold(
            None,
            |best: Option<(f64, &str)>, next| {
                if best.is_some_and(|b| b.0 >= next.0) { best } else { Some(next) }
            },
        )
        .map(|b| b.1)
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

//! Checks of the tokenizer: room for the alphabet in the vocabulary, and ranges of its numbers.

use crate::validate::{Findings, SPECIAL_TOKENS};
use crate::{TokenizerAlgorithm, TokenizerConfig};

pub(super) fn tokenizer(tokenizer: &TokenizerConfig, findings: &mut Findings) {
    if let Some(path) = &tokenizer.compare_with {
        findings.text("tokenizer.compare_with", path.as_os_str().is_empty(), "tokenizers/english");
    }
    if let Some(path) = &tokenizer.path {
        findings.text("tokenizer.path", path.as_os_str().is_empty(), "tokenizers/english");
        return;
    }
    let (alphabet, what) = match tokenizer.algorithm {
        TokenizerAlgorithm::ByteLevelBpe => (256, "256 bytes"),
        TokenizerAlgorithm::WordPiece => {
            let letters_and_digits = if tokenizer.lowercase { 36 } else { 62 };
            (32 + 2 * letters_and_digits, "printable ASCII characters, at the start of a word and inside,")
        }
        TokenizerAlgorithm::Unigram => (256 + 95, "256 bytes, the printable ASCII characters"),
    };
    let least = alphabet + SPECIAL_TOKENS;
    if tokenizer.vocab_size < least {
        let message =
            format!("`tokenizer.vocab_size` is {}, smaller than the alphabet", tokenizer.vocab_size);
        let hint = format!(
            "{what} and {SPECIAL_TOKENS} special tokens make {least} at least; 4,096 to 50,000 are usual"
        );
        findings.add(&["tokenizer.vocab_size"], message, hint);
    }
    if tokenizer.add_prefix_space && tokenizer.algorithm != TokenizerAlgorithm::ByteLevelBpe {
        let message = "`tokenizer.add_prefix_space` is for `byte_level_bpe`".to_string();
        let hint = "remove it: `unigram` spells each word as behind a blank, `wordpiece` spells no blanks";
        findings.add(&["tokenizer.add_prefix_space", "tokenizer.algorithm"], message, hint);
    }
    findings.count("tokenizer.vocab_size", tokenizer.vocab_size as u64, 0, 1 << 24);
    findings.count(
        "tokenizer.pad_vocab_to_multiple_of",
        tokenizer.pad_vocab_to_multiple_of.unwrap_or(1) as u64,
        1,
        1 << 16,
    );
    findings.count("tokenizer.min_frequency", tokenizer.min_frequency, 1, u64::MAX);
    if tokenizer.limit_alphabet.is_some() && tokenizer.algorithm != TokenizerAlgorithm::WordPiece {
        let message =
            "`tokenizer.limit_alphabet` is for `wordpiece` alone: others spell every character".to_string();
        findings.add(&["tokenizer.limit_alphabet"], message, "remove it".to_string());
    }
    findings.count("tokenizer.limit_alphabet", tokenizer.limit_alphabet.unwrap_or(1) as u64, 1, 1 << 21);
    findings.count("tokenizer.train_bytes", tokenizer.train_bytes, 1, 1 << 40);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(change: impl FnOnce(&mut TokenizerConfig)) -> Vec<String> {
        let mut config = TokenizerConfig::default();
        change(&mut config);
        let mut findings = Findings::default();
        tokenizer(&config, &mut findings);
        findings.0.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn each_algorithm_has_its_smallest_vocabulary() {
        for (algorithm, least) in [
            (TokenizerAlgorithm::ByteLevelBpe, 261),
            (TokenizerAlgorithm::WordPiece, 161),
            (TokenizerAlgorithm::Unigram, 356),
        ] {
            assert_eq!(found(|c| (c.algorithm, c.vocab_size) = (algorithm, least)), [""; 0]);
            assert_eq!(
                found(|c| (c.algorithm, c.vocab_size) = (algorithm, least - 1)),
                [format!("`tokenizer.vocab_size` is {}, smaller than the alphabet", least - 1)]
            );
        }
    }

    #[test]
    fn a_blank_before_texts_is_for_byte_level_vocabularies() {
        let refused = ["`tokenizer.add_prefix_space` is for `byte_level_bpe`"];
        for (algorithm, messages) in [
            (TokenizerAlgorithm::ByteLevelBpe, &[][..]),
            (TokenizerAlgorithm::WordPiece, &refused),
            (TokenizerAlgorithm::Unigram, &refused),
        ] {
            assert_eq!(found(|c| (c.algorithm, c.add_prefix_space) = (algorithm, true)), messages);
        }
    }

    #[test]
    fn numbers_and_paths() {
        assert_eq!(
            found(|c| c.pad_vocab_to_multiple_of = Some(0)),
            ["`tokenizer.pad_vocab_to_multiple_of` is 0, it must be at least 1"]
        );
        assert_eq!(found(|c| c.limit_alphabet = Some(5)).len(), 1, "the default spells bytes");
        assert_eq!(found(|c| c.compare_with = Some("".into())), ["`tokenizer.compare_with` is empty"]);
        assert_eq!(found(|c| c.min_frequency = 0), ["`tokenizer.min_frequency` is 0, it must be at least 1"]);
        let padded = TokenizerConfig {
            vocab_size: 30_000,
            pad_vocab_to_multiple_of: Some(64),
            ..TokenizerConfig::default()
        };
        assert_eq!(padded.padded_vocab_size(), 30_016);
    }
}

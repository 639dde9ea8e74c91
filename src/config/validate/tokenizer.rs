//! Checks of the tokenizer: room for the alphabet in the vocabulary, and keys of one algorithm alone.

use crate::validate::{Findings, SPECIAL_TOKENS};
use crate::{TokenizerAlgorithm, TokenizerConfig};

pub(super) fn tokenizer(tokenizer: &TokenizerConfig, findings: &mut Findings) {
    if tokenizer.path.is_some() {
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
    if tokenizer.limit_alphabet.is_some() && tokenizer.algorithm != TokenizerAlgorithm::WordPiece {
        let message =
            "`tokenizer.limit_alphabet` is for `wordpiece` alone: others spell every character".to_string();
        findings.add(&["tokenizer.limit_alphabet"], message, "remove it".to_string());
    }
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
    fn the_alphabet_is_limited_for_wordpiece_alone() {
        assert_eq!(found(|c| c.limit_alphabet = Some(5)).len(), 1, "the default spells bytes");
        let padded = TokenizerConfig {
            vocab_size: 30_000,
            pad_vocab_to_multiple_of: Some(64),
            ..TokenizerConfig::default()
        };
        assert_eq!(padded.padded_vocab_size(), 30_016);
    }
}

//! Properties of each token of a vocabulary for masking: whether it may be masked, and where words begin and
//! end.

use anyhow::Result;

use crate::tokenizer::Tokenizer;
use config::MaskingUnit;

/// Longer words (addresses, tables, scripts without spaces) are divided into parts of this length, so that no
/// row is masked as a whole.
pub(super) const WORD_TOKENS_MAX: u32 = 16;

/// Bits of a token's class: the token may be masked; it begins a word; the token after it begins a word.
pub(super) const ORDINARY: u8 = 1;
pub(super) const STARTS: u8 = 2;
pub(super) const ENDS: u8 = 4;

/// Returns the class of each token.
pub(super) fn token_classes(unit: MaskingUnit, tokenizer: &Tokenizer) -> Result<Vec<u8>> {
    let mut classes = vec![ORDINARY | STARTS | ENDS; tokenizer.vocab_size()];
    if unit != MaskingUnit::Token {
        let words = tokenizer.word_boundaries()?;
        for (id, class) in (0..).zip(&mut classes) {
            let starts = u8::from(words.starts_word(id)) * STARTS;
            let ends = u8::from(words.ends_word(id)) * ENDS;
            *class = ORDINARY | starts | ends;
        }
    }
    for &id in tokenizer.special_ids() {
        classes[id as usize] = 0;
    }
    Ok(classes)
}

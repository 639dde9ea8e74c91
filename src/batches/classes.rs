//! What masking knows of each token of a vocabulary: whether it may be masked, and where words begin and end.

use anyhow::Result;

use crate::config::MaskingUnit;
use crate::tokenizer::Tokenizer;

/// Longer words (addresses, tables, scripts without spaces) are taken in parts, so that no row is masked as a
/// whole.
pub(super) const WORD_TOKENS_MAX: u32 = 16;

/// Bits of a token's class: it may be masked; it begins a word; what follows it begins a word.
pub(super) const ORDINARY: u8 = 1;
pub(super) const STARTS: u8 = 2;
pub(super) const ENDS: u8 = 4;

/// The class of each token.
pub(super) fn of(unit: MaskingUnit, tokenizer: &Tokenizer) -> Result<Vec<u8>> {
    let mut classes = vec![ORDINARY | STARTS | ENDS; tokenizer.vocab_size()];
    if unit != MaskingUnit::Token {
        let words = tokenizer.word_boundaries()?;
        for (id, class) in (0..).zip(&mut classes) {
            let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
            *class = ORDINARY | flag(words.starts_word(id), STARTS) | flag(words.ends_word(id), ENDS);
        }
    }
    for &id in tokenizer.special_ids() {
        classes[id as usize] = 0;
    }
    Ok(classes)
}

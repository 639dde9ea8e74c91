//! Chooses the tokens to predict and what stands in their place (Devlin et al., NAACL 2019, section 3.1).
//!
//! A token's fate depends on (seed, sample, place in the row) alone: drawn anew in each epoch, the same for any batching.

use anyhow::Result;

use crate::config::MlmConfig;
use crate::rng::Stream;
use crate::tokenizer::Tokenizer;

/// How to mask with a given tokenizer.
#[derive(Debug, Clone)]
pub struct Masking {
    /// Bounds on a 32-bit random word.
    chosen_below: u64,
    mask_below: u64,
    random_below: u64,
    mask: u32,
    /// What a random replacement is drawn from: all tokens that are not special, sorted.
    ordinary: Vec<u32>,
    is_special: Vec<bool>,
}

impl Masking {
    /// Masking as configured; a tokenizer without a mask token is an error.
    pub fn new(config: &MlmConfig, tokenizer: &Tokenizer) -> Result<Self> {
        let bound = |share: f64| (share.clamp(0.0, 1.0) * (1u64 << 32) as f64).round() as u64;
        let mut is_special = vec![false; tokenizer.vocab_size()];
        for &id in tokenizer.special_ids() {
            is_special[id as usize] = true;
        }
        Ok(Self {
            chosen_below: bound(config.mlm_probability),
            mask_below: bound(config.mask_replace_prob),
            random_below: bound(config.mask_replace_prob + config.random_replace_prob),
            mask: tokenizer.special().mask()?,
            ordinary: tokenizer.ordinary_ids(),
            is_special,
        })
    }

    /// The masking of every evaluation: 15 % of the tokens, 80/10/10, so that runs with other settings can be compared.
    pub fn for_evaluation(tokenizer: &Tokenizer) -> Result<Self> {
        Self::new(&MlmConfig { mlm_probability: 0.15, mask_replace_prob: 0.8, random_replace_prob: 0.1 }, tokenizer)
    }

    /// Masks one row in place and calls `label(place in the row, original id)` for each chosen token, in order.
    pub fn apply(&self, stream: Stream, ids: &mut [u32], mut label: impl FnMut(u32, u32)) {
        for (place, id) in ids.iter_mut().enumerate() {
            let [choice, fate, low, high] = stream.words(place as u64);
            if u64::from(choice) >= self.chosen_below || self.is_special.get(*id as usize) != Some(&false) {
                continue;
            }
            label(place as u32, *id);
            if u64::from(fate) < self.mask_below {
                *id = self.mask;
            } else if u64::from(fate) < self.random_below && !self.ordinary.is_empty() {
                let random = u64::from(low) | u64::from(high) << 32;
                *id = self.ordinary[((u128::from(random) * self.ordinary.len() as u128) >> 64) as usize];
            }
        }
    }
}

//! Chooses the tokens to predict and their replacements (Devlin et al., NAACL 2019, section 3.1).
//!
//! The choice and the replacement of a token depend only on (seed, sample, place in the row) and the share to
//! mask: they are drawn again in each epoch and are the same for any batching. The choice of spans is in
//! `spans.rs`.

use anyhow::Result;

use crate::batches::classes::{ENDS, ORDINARY, STARTS, WORD_TOKENS_MAX};
use crate::batches::{Batch, classes, spans};
use crate::tokenizer::Tokenizer;
use base::instructions;
use base::rng::Stream;
use config::{MaskingUnit, MlmConfig, PretrainTask};

/// Number of random words that are computed together.
const LANES: usize = 16;

/// Masking with a given tokenizer.
#[derive(Debug, Clone)]
pub struct Masking {
    unit: MaskingUnit,
    probability: f64,
    probability_end: f64,
    /// Bounds on a 32-bit random word.
    mask_below: u64,
    random_below: u64,
    mask: u32,
    /// The tokens from which a random replacement is drawn: all that are not special, sorted.
    ordinary: Vec<u32>,
    /// The class of each token.
    classes: Vec<u8>,
}

/// Buffers that masking reuses for the next row.
#[derive(Debug, Default)]
pub struct MaskBuffers {
    pub(super) spans: spans::Buffers,
    draws: Vec<Draws>,
}

/// Random numbers for [`LANES`] tokens that follow each other.
#[derive(Debug)]
struct Draws {
    /// Bit `i` is set if token `i` is chosen.
    chosen: u32,
    /// Random words of the tokens' replacements.
    fates: [u32; LANES],
    lows: [u32; LANES],
    highs: [u32; LANES],
}

/// Draws for all tokens of a row; compiled for each kind of vector unit, with the same results on all.
struct DrawRow<'a> {
    stream: Stream,
    tokens: usize,
    /// A token is chosen if its random word is below this bound.
    chosen_below: u64,
    draws: &'a mut Vec<Draws>,
}

impl pulp::WithSimd for DrawRow<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Self { stream, tokens, chosen_below, draws } = self;
        // The bound is at most 2^32. Without chosen tokens, no word is compared.
        let largest = chosen_below.saturating_sub(1) as u32;
        draws.clear();
        for first in (0..tokens).step_by(LANES) {
            let [choices, fates, lows, highs] = stream.words_lanes::<LANES>(first as u64);
            let mut chosen = 0;
            for (lane, choice) in choices.iter().enumerate() {
                chosen |= u32::from(*choice <= largest) << lane;
            }
            if chosen_below == 0 {
                chosen = 0;
            }
            draws.push(Draws { chosen, fates, lows, highs });
        }
    }
}

/// The replacement of a token to predict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Mask,
    Random,
    Keep,
}

impl Masking {
    /// Masking as configured; an error for a tokenizer without a mask token.
    pub fn new(config: &MlmConfig, tokenizer: &Tokenizer) -> Result<Self> {
        let (mask, random) = config.replaced_shares();
        Ok(Self {
            unit: config.masking,
            probability: config.mlm_probability,
            probability_end: config.mlm_probability_end.unwrap_or(config.mlm_probability),
            mask_below: bound(mask),
            random_below: bound(mask + random),
            mask: tokenizer.special().mask()?,
            ordinary: tokenizer.ordinary_ids(),
            classes: classes::token_classes(config.masking, tokenizer)?,
        })
    }

    /// The masking of every evaluation of a task: 15 % of the tokens, with the task's usual shares, so that
    /// runs with other settings can be compared.
    pub fn for_evaluation(task: PretrainTask, tokenizer: &Tokenizer) -> Result<Self> {
        Self::new(&MlmConfig::of(task), tokenizer)
    }

    /// The share to mask in the step after `steps_done` of `total_steps`: linear from the first to the last
    /// step.
    pub fn probability_at(&self, steps_done: u64, total_steps: u64) -> f64 {
        let progress = steps_done as f64 / total_steps.saturating_sub(1).max(1) as f64;
        self.probability + (self.probability_end - self.probability) * progress.min(1.0)
    }

    /// Labels each token of a batch with the next one of its segment, if that is not a special token, and
    /// makes the batch causal.
    pub(super) fn label_next_tokens(&self, batch: &mut Batch) {
        batch.is_causal = true;
        for bounds in batch.cu_seqlens.windows(2) {
            for next in bounds[0] + 1..bounds[1] {
                let id = batch.ids[next as usize];
                if self.class(id) & ORDINARY != 0 {
                    batch.label_positions.push(next - 1);
                    batch.labels.push(id);
                }
            }
        }
    }

    /// Masks one row in place and calls `label(place in the row, original id)` for each chosen token, in
    /// order.
    pub fn apply(&self, stream: Stream, ids: &mut [u32], label: impl FnMut(u32, u32)) {
        self.apply_at(self.probability, stream, ids, &mut MaskBuffers::default(), label);
    }

    /// As [`apply`](Self::apply), with another share to mask, and buffers that are reused.
    pub fn apply_at(
        &self,
        probability: f64,
        stream: Stream,
        ids: &mut [u32],
        buffers: &mut MaskBuffers,
        mut label: impl FnMut(u32, u32),
    ) {
        match self.unit {
            MaskingUnit::Token | MaskingUnit::WholeWord => {
                let draws = &mut buffers.draws;
                let chosen_below = bound(probability);
                instructions::arch().dispatch(DrawRow { stream, tokens: ids.len(), chosen_below, draws });
                if self.unit == MaskingUnit::Token {
                    self.tokens(draws, ids, label);
                } else {
                    self.words(draws, ids, label);
                }
            }
            // In SpanBERT the kind of replacement is drawn for the span, not for the token (section 3.1).
            MaskingUnit::Span => {
                spans::choose(probability, stream, ids, |id| self.class(id), &mut buffers.spans);
                for &(place, fate) in buffers.spans.chosen() {
                    let id = &mut ids[place as usize];
                    label(place, *id);
                    *id = self.replacement(*id, self.fate(fate), || {
                        let [_, _, low, high] = stream.words(u64::from(place));
                        [low, high]
                    });
                }
            }
        }
    }

    /// Replaces the chosen tokens. Every token is chosen with the same probability, so that the share is met
    /// without a budget.
    fn tokens(&self, draws: &[Draws], ids: &mut [u32], mut label: impl FnMut(u32, u32)) {
        for (block, (draws, ids)) in draws.iter().zip(ids.chunks_mut(LANES)).enumerate() {
            let mut left = draws.chosen;
            while let Some(id) = ids.get_mut(left.trailing_zeros() as usize) {
                let lane = left.trailing_zeros() as usize;
                left &= left - 1;
                if self.class(*id) & ORDINARY != 0 {
                    label((block * LANES + lane) as u32, *id);
                    *id = self.replacement(*id, self.fate(draws.fates[lane]), || {
                        [draws.lows[lane], draws.highs[lane]]
                    });
                }
            }
        }
    }

    /// Replaces the words whose first token is chosen. The replacement is drawn for each token, as in BERT's
    /// own whole-word masking (create_pretraining_data.py).
    #[expect(clippy::needless_bitwise_bool, reason = "branches here would be mispredicted")]
    fn words(&self, draws: &mut [Draws], ids: &mut [u32], label: impl FnMut(u32, u32)) {
        let mut is_chosen = false;
        let mut starts_next = true;
        let mut length = 0;
        for (draws, ids) in draws.iter_mut().zip(ids.chunks(LANES)) {
            let mut chosen = 0;
            for (lane, id) in ids.iter().enumerate() {
                let class = self.class(*id);
                let is_ordinary = class & ORDINARY != 0;
                let begins = starts_next | (class & STARTS != 0) | (length == WORD_TOKENS_MAX);
                let drawn = draws.chosen >> lane & 1 != 0;
                is_chosen = is_ordinary & ((begins & drawn) | (!begins & is_chosen));
                length = if begins { 1 } else { length + 1 };
                starts_next = !is_ordinary | (class & ENDS != 0);
                chosen |= u32::from(is_chosen) << lane;
            }
            draws.chosen = chosen;
        }
        self.tokens(draws, ids, label);
    }

    /// The class of a token; an id outside the vocabulary is never predicted.
    #[inline(always)]
    fn class(&self, id: u32) -> u8 {
        self.classes.get(id as usize).copied().unwrap_or(0)
    }

    fn fate(&self, word: u32) -> Fate {
        match u64::from(word) {
            word if word < self.mask_below => Fate::Mask,
            word if word < self.random_below => Fate::Random,
            _ => Fate::Keep,
        }
    }

    /// The replacement of `id`. `random` draws the two random words of another token, which few tokens need.
    fn replacement(&self, id: u32, fate: Fate, random: impl FnOnce() -> [u32; 2]) -> u32 {
        match fate {
            Fate::Mask => self.mask,
            Fate::Random if !self.ordinary.is_empty() => {
                let [low, high] = random();
                let random = u64::from(low) | u64::from(high) << 32;
                self.ordinary[((u128::from(random) * self.ordinary.len() as u128) >> 64) as usize]
            }
            Fate::Random | Fate::Keep => id,
        }
    }
}

/// Converts a share to a bound on a 32-bit random word.
fn bound(share: f64) -> u64 {
    (share.clamp(0.0, 1.0) * (1u64 << 32) as f64).round() as u64
}

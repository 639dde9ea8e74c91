//! Encoded examples -> batches: special tokens, truncation, one segment an example, no padding.
//!
//! Knows token ids only: the tokenizer that made them and the model that reads them are others' matters.

use anyhow::Result;

use crate::batches::Batch;
use crate::error::Problem;

/// How a family frames one text and a pair of texts.
///
/// RoBERTa: `<s> a </s>` and `<s> a </s></s> b </s>`; BERT: `[CLS] a [SEP]` and `[CLS] a [SEP] b [SEP]`, the
/// second text and its `[SEP]` of token type 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairTemplate {
    /// Id of `<s>` or `[CLS]`.
    pub cls: u32,
    /// Id of `</s>` or `[SEP]`.
    pub sep: u32,
    /// Whether two separators stand between the texts of a pair (RoBERTa).
    pub double_sep: bool,
    /// Token type of the second text: 1 in BERT, 0 in RoBERTa, which knows one type only.
    pub second_type: u32,
}

impl PairTemplate {
    fn special_tokens(&self, pair: bool) -> usize {
        match (pair, self.double_sep) {
            (false, _) => 2,
            (true, false) => 3,
            (true, true) => 4,
        }
    }

    /// The shortest sequence that has room for a token of each text.
    fn least_tokens(&self, pair: bool) -> usize {
        self.special_tokens(pair) + 1 + usize::from(pair)
    }
}

/// One example as token ids, without special tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Encoded {
    /// The (first) text.
    pub first: Vec<u32>,
    /// The second text of a pair.
    pub second: Option<Vec<u32>>,
    /// The class to predict.
    pub label: u32,
    /// Names the example where a loss is not finite: its place in its file, from 0.
    pub sample_id: u64,
}

/// What truncation took away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Truncation {
    /// Examples that lost tokens.
    pub examples: u64,
    /// Tokens lost.
    pub tokens: u64,
    /// Tokens of the longest example before it was cut, special tokens included.
    pub longest: u64,
}

/// Makes batches of one family and one longest length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collator {
    template: PairTemplate,
    max_seq_length: usize,
}

impl Collator {
    /// `max_seq_length` counts special tokens and must leave room for a token of each text.
    pub fn new(template: PairTemplate, max_seq_length: usize, pairs: bool) -> Result<Self> {
        let least = template.least_tokens(pairs);
        if max_seq_length < least {
            let message = format!(
                "is {max_seq_length}, at least {least} tokens are wanted for the special tokens and one of each text"
            );
            return Err(Problem::usage(message).at("data.max_seq_length").into());
        }
        Ok(Self { template, max_seq_length })
    }

    /// The same, with sequences of at most `length` tokens; a longer one than before, or one without room for
    /// text, changes nothing.
    #[must_use]
    pub fn cut_at(self, length: usize) -> Self {
        let possible = self.template.least_tokens(false)..=self.max_seq_length;
        if possible.contains(&length) { Self { max_seq_length: length, ..self } } else { self }
    }

    /// Longest sequence of an example: a pair has room for a token of each text, even where all that was
    /// known of were single texts.
    fn longest(&self, example: &Encoded) -> usize {
        self.max_seq_length.max(self.template.least_tokens(example.second.is_some()))
    }

    /// Longest sequence, special tokens included.
    pub fn max_seq_length(&self) -> usize {
        self.max_seq_length
    }

    /// Cuts texts at their end to fit, the longer one of a pair first, and says what was lost.
    ///
    /// As `truncation="longest_first"` of the tokenizers crate: where both texts of a pair are longer than
    /// half of the room each keeps half, and the longer one (the second of equals) the odd token.
    pub fn truncate(&self, examples: &mut [Encoded]) -> Truncation {
        let mut lost = Truncation::default();
        for example in examples {
            let second_tokens = example.second.as_ref().map_or(0, Vec::len);
            let before = example.first.len() + second_tokens;
            let special = self.template.special_tokens(example.second.is_some());
            lost.longest = lost.longest.max((before + special) as u64);
            let room = self.longest(example) - special;
            if before <= room {
                continue;
            }
            let (keep_first, keep_second) = match &example.second {
                None => (room, 0),
                Some(second) => longest_first(example.first.len(), second.len(), room),
            };
            example.first.truncate(keep_first);
            if let Some(second) = &mut example.second {
                second.truncate(keep_second);
            }
            lost.examples += 1;
            lost.tokens += (before - room) as u64;
        }
        lost
    }

    /// One batch of truncated examples, which are rows `first_row..` of their step's global batch.
    ///
    /// Each example is one segment and labelled at its first token.
    pub fn batch<'a>(&self, examples: impl IntoIterator<Item = &'a Encoded>, first_row: u64) -> Batch {
        let mut batch = Batch { cu_seqlens: vec![0], ..Batch::default() };
        for (row, example) in (first_row..).zip(examples) {
            let start = batch.ids.len();
            self.push_segment(&mut batch, example);
            let length = batch.ids.len() - start;
            debug_assert!(length <= self.longest(example), "truncate comes first");
            batch.position_ids.extend(0..length as u32);
            batch.token_keys.extend((0..length as u64).map(|place| row * self.max_seq_length as u64 + place));
            batch.label_positions.push(start as u32);
            batch.labels.push(example.label);
            batch.sample_ids.push(example.sample_id);
            batch.cu_seqlens.push(batch.ids.len() as u32);
        }
        batch
    }

    fn push_segment(&self, batch: &mut Batch, example: &Encoded) {
        let PairTemplate { cls, sep, double_sep, second_type } = self.template;
        batch.ids.push(cls);
        batch.ids.extend(&example.first);
        batch.ids.push(sep);
        if double_sep && example.second.is_some() {
            batch.ids.push(sep);
        }
        batch.token_type_ids.resize(batch.ids.len(), 0);
        if let Some(second) = &example.second {
            batch.ids.extend(second);
            batch.ids.push(sep);
            batch.token_type_ids.resize(batch.ids.len(), second_type);
        }
    }
}

fn longest_first(first: usize, second: usize, room: usize) -> (usize, usize) {
    let (short, long) = (first.min(second), first.max(second));
    let (short, long) =
        if short <= room / 2 { (short, long.min(room - short)) } else { (room / 2, room - room / 2) };
    if first > second { (long, short) } else { (short, long) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROBERTA: PairTemplate = PairTemplate { cls: 0, sep: 2, double_sep: true, second_type: 0 };
    const BERT: PairTemplate = PairTemplate { cls: 101, sep: 102, double_sep: false, second_type: 1 };

    fn encoded(first: &[u32], second: Option<&[u32]>, label: u32) -> Encoded {
        Encoded {
            first: first.to_vec(),
            second: second.map(<[u32]>::to_vec),
            label,
            sample_id: u64::from(label) + 40,
        }
    }

    #[test]
    fn single_texts_become_segments_labelled_at_their_first_token() {
        let examples = [encoded(&[10, 11], None, 3), encoded(&[12], None, 1)];
        let batch = Collator::new(ROBERTA, 8, false).expect("room").batch(&examples, 5);
        assert_eq!(batch.ids, [0, 10, 11, 2, 0, 12, 2]);
        assert_eq!(batch.cu_seqlens, [0, 4, 7]);
        assert_eq!(batch.position_ids, [0, 1, 2, 3, 0, 1, 2]);
        assert_eq!(batch.token_type_ids, [0; 7]);
        assert_eq!(batch.token_keys, [40, 41, 42, 43, 48, 49, 50]);
        assert_eq!(
            (batch.label_positions, batch.labels, batch.sample_ids),
            (vec![0, 4], vec![3, 1], vec![43, 41])
        );
    }

    #[test]
    fn pairs_are_framed_as_the_family_does_it() {
        let pair = [encoded(&[10, 11], Some(&[12]), 0)];
        let roberta = Collator::new(ROBERTA, 16, true).expect("room").batch(&pair, 0);
        assert_eq!(roberta.ids, [0, 10, 11, 2, 2, 12, 2]);
        assert_eq!(roberta.token_type_ids, [0; 7]);
        let bert = Collator::new(BERT, 16, true).expect("room").batch(&pair, 0);
        assert_eq!(bert.ids, [101, 10, 11, 102, 12, 102]);
        assert_eq!(bert.token_type_ids, [0, 0, 0, 0, 1, 1]);
    }

    #[test]
    fn the_longer_text_of_a_pair_is_cut_first() {
        assert_eq!(longest_first(10, 3, 8), (5, 3));
        assert_eq!(longest_first(3, 10, 8), (3, 5));
        assert_eq!(longest_first(10, 9, 7), (4, 3));
        assert_eq!(longest_first(9, 9, 7), (3, 4));
        assert_eq!(longest_first(0, 9, 7), (0, 7));
    }

    #[test]
    fn truncation_is_counted_and_keeps_the_beginning() {
        let collator = Collator::new(BERT, 5, false).expect("room");
        let mut examples =
            [encoded(&[1, 2, 3], None, 0), encoded(&[1, 2, 3, 4, 5], None, 0), encoded(&[], None, 0)];
        assert_eq!(collator.truncate(&mut examples), Truncation { examples: 1, tokens: 2, longest: 7 });
        assert_eq!(examples[1].first, [1, 2, 3]);
        assert_eq!(collator.batch(&examples, 0).max_seqlen(), 5);
    }

    #[test]
    fn a_shorter_length_that_a_model_was_trained_at_is_taken() {
        let collator = Collator::new(ROBERTA, 16, true).expect("room");
        for (length, taken) in [(0, 16), (2, 16), (3, 3), (8, 8), (16, 16), (512, 16)] {
            assert_eq!(collator.cut_at(length).max_seq_length(), taken, "{length}");
        }
        let mut pair = [encoded(&[10, 11], Some(&[12, 13]), 0)];
        assert_eq!(collator.cut_at(3).truncate(&mut pair).tokens, 2);
        assert_eq!(collator.cut_at(3).batch(&pair, 0).ids, [0, 10, 2, 2, 12, 2]);
    }

    #[test]
    fn a_length_without_room_for_text_is_refused() {
        assert!(Collator::new(ROBERTA, 5, true).is_err());
        assert!(Collator::new(ROBERTA, 6, true).is_ok());
        assert!(Collator::new(BERT, 2, false).is_err());
    }

    proptest! {
        #[test]
        fn any_pair_fits_after_truncation(first in 0usize..40, second in proptest::option::of(0usize..40), length in 6usize..30) {
            let collator = Collator::new(ROBERTA, length, true).expect("room");
            let mut examples = [Encoded { first: vec![7; first], second: second.map(|n| vec![8; n]), ..Encoded::default() }];
            let whole = first + second.unwrap_or(0);
            let lost = collator.truncate(&mut examples);
            let batch = collator.batch(&examples, 0);
            let words = batch.ids.iter().filter(|id| **id >= 7).count();
            prop_assert!(batch.num_tokens() <= length);
            prop_assert_eq!(words + lost.tokens as usize, whole);
            prop_assert!(lost.tokens == 0 || batch.num_tokens() == length);
            prop_assert_eq!(batch.token_type_ids.len(), batch.num_tokens());
        }
    }
}

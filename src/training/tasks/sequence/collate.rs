//! Turns tokenized examples into batches: special tokens, truncation, one segment per example, no padding.
//!
//! Needs from the tokenizer only the special tokens around texts, and does not know the model.

use anyhow::Result;

use base::error::Problem;
use data::batches::Batch;
use data::tokenizer::{Frame, Framing, Tokenizer};

/// One example as token ids, without special tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Encoded {
    /// The (first) text.
    pub first: Vec<u32>,
    /// The second text of a pair.
    pub second: Option<Vec<u32>>,
    /// Index of the example in its file, from 0; names the example if its loss is not finite.
    pub sample_id: u64,
}

/// Counts of what truncation removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Truncation {
    /// Number of examples that lost tokens.
    pub examples: u64,
    /// Number of tokens lost.
    pub tokens: u64,
    /// Length in tokens of the longest example before truncation, including special tokens.
    pub longest: u64,
}

/// Makes batches for one tokenizer and one maximum length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collator {
    framing: Framing,
    /// True if texts that are too long lose their beginning instead of their end.
    truncates_left: bool,
    max_seq_length: usize,
}

impl Collator {
    /// Uses the special tokens and the truncation side of `tokenizer`, for a model with `types` token types.
    /// `max_seq_length` includes special tokens and must leave room for a token of each text.
    pub fn new(tokenizer: &Tokenizer, types: usize, max_seq_length: usize, pairs: bool) -> Result<Self> {
        let types = if tokenizer.gives_token_types() { types as u32 } else { 0 };
        let framing = tokenizer.framing().with_types_below(types);
        Self::with_framing(framing, tokenizer.truncates_left(), max_seq_length, pairs)
    }

    fn with_framing(
        framing: Framing,
        truncates_left: bool,
        max_seq_length: usize,
        pairs: bool,
    ) -> Result<Self> {
        let least = least_tokens(&framing, pairs);
        if max_seq_length < least {
            let message = format!(
                "is {max_seq_length}, at least {least} tokens are wanted for the special tokens and one of each text"
            );
            return Err(Problem::usage(message).at("data.max_seq_length").into());
        }
        Ok(Self { framing, truncates_left, max_seq_length })
    }

    /// Limits sequences to `length` tokens. A length above the present one, or one without room for text,
    /// changes nothing.
    #[must_use]
    pub fn cut_at(self, length: usize) -> Self {
        let possible = least_tokens(&self.framing, false)..=self.max_seq_length;
        if possible.contains(&length) { Self { max_seq_length: length, ..self } } else { self }
    }

    /// Returns the longest sequence of an example. A pair always has room for a token of each text, even if
    /// the collator was made for single texts.
    fn longest(&self, example: &Encoded) -> usize {
        self.max_seq_length.max(least_tokens(&self.framing, example.second.is_some()))
    }

    /// The longest sequence, including special tokens.
    pub fn max_seq_length(&self) -> usize {
        self.max_seq_length
    }

    fn cut(&self, ids: &mut Vec<u32>, keep: usize) {
        if self.truncates_left {
            ids.drain(..ids.len() - keep);
        } else {
            ids.truncate(keep);
        }
    }

    /// Truncates texts to fit, the longer one of a pair first, and returns the number of tokens lost.
    ///
    /// Equivalent to `truncation="longest_first"` of the tokenizers crate: if both texts of a pair are longer
    /// than half of the available length, each keeps half, and the longer one (the second one of equals) gets
    /// the odd token.
    pub fn truncate(&self, examples: &mut [Encoded]) -> Truncation {
        let mut lost = Truncation::default();
        for example in examples {
            let second_tokens = example.second.as_ref().map_or(0, Vec::len);
            let before = example.first.len() + second_tokens;
            let special = frame(&self.framing, example.second.is_some()).special_tokens();
            lost.longest = lost.longest.max((before + special) as u64);
            let room = self.longest(example) - special;
            if before <= room {
                continue;
            }
            let (keep_first, keep_second) = match &example.second {
                None => (room, 0),
                Some(second) => longest_first(example.first.len(), second.len(), room),
            };
            self.cut(&mut example.first, keep_first);
            if let Some(second) = &mut example.second {
                self.cut(second, keep_second);
            }
            lost.examples += 1;
            lost.tokens += (before - room) as u64;
        }
        lost
    }

    /// Makes a batch of truncated examples, which are the rows from `first_row` on of their step's global
    /// batch.
    ///
    /// Each example is one segment, whose label position is its first token. The labels are left out.
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
            batch.sample_ids.push(example.sample_id);
            batch.cu_seqlens.push(batch.ids.len() as u32);
        }
        batch
    }

    fn push_segment(&self, batch: &mut Batch, example: &Encoded) {
        let Frame { before, between, after, text_types } = frame(&self.framing, example.second.is_some());
        let ids = &mut batch.ids;
        let types = &mut batch.token_type_ids;
        before.push(ids, types);
        ids.extend(&example.first);
        types.resize(ids.len(), text_types[0]);
        if let Some(second) = &example.second {
            between.push(ids, types);
            ids.extend(second);
            types.resize(ids.len(), text_types[1]);
        }
        after.push(ids, types);
    }
}

fn frame(framing: &Framing, pair: bool) -> &Frame {
    if pair { &framing.pair } else { &framing.single }
}

/// Length of the shortest sequence that has room for a token of each text.
fn least_tokens(framing: &Framing, pair: bool) -> usize {
    frame(framing, pair).special_tokens() + 1 + usize::from(pair)
}

/// The lengths to which the texts of a pair are truncated so that both fit into `room` tokens.
fn longest_first(first: usize, second: usize, room: usize) -> (usize, usize) {
    let short = first.min(second);
    let long = first.max(second);
    let (short, long) =
        if short <= room / 2 { (short, long.min(room - short)) } else { (room / 2, room - room / 2) };
    if first > second { (long, short) } else { (short, long) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Frames texts as `<s> a </s>` and `<s> a </s></s> b </s>`.
    fn roberta(length: usize, pairs: bool) -> Result<Collator> {
        let processor = json!({"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": true, "add_prefix_space": false});
        collator("RobertaTokenizer", &processor, length, pairs)
    }

    /// Frames texts as `[CLS] a [SEP]` and `[CLS] a [SEP] b [SEP]`; the second text and its `[SEP]` have
    /// token type 1.
    fn bert(length: usize, pairs: bool) -> Result<Collator> {
        collator("BertTokenizer", &json!(null), length, pairs)
    }

    fn collator(class: &str, processor: &Value, length: usize, pairs: bool) -> Result<Collator> {
        let vocab = if class == "BertTokenizer" {
            json!({"[CLS]": 101, "[SEP]": 102, "[PAD]": 0, "[UNK]": 1, "[MASK]": 2})
        } else {
            json!({"<s>": 0, "</s>": 2, "<pad>": 1, "<unk>": 3, "<mask>": 4})
        };
        let kind = if class == "BertTokenizer" { "WordPiece" } else { "BPE" };
        let json = json!({"version": "1.0", "added_tokens": [], "post_processor": processor,
            "model": {"type": kind, "vocab": vocab, "merges": [], "unk_token": "[UNK]"}});
        let config = json!({"tokenizer_class": class});
        let files = [("tokenizer.json", json), ("tokenizer_config.json", config)];
        let files = files.map(|(name, json)| (name.to_string(), json.to_string().into_bytes()));
        Collator::new(&Tokenizer::from_files(files.to_vec(), "test")?, 2, length, pairs)
    }

    fn encoded(first: &[u32], second: Option<&[u32]>, sample_id: u64) -> Encoded {
        Encoded { first: first.to_vec(), second: second.map(<[u32]>::to_vec), sample_id }
    }

    #[test]
    fn single_texts_become_segments_labelled_at_their_first_token() {
        let examples = [encoded(&[10, 11], None, 43), encoded(&[12], None, 41)];
        let batch = roberta(8, false).expect("room").batch(&examples, 5);
        assert_eq!(batch.ids, [0, 10, 11, 2, 0, 12, 2]);
        assert_eq!(batch.cu_seqlens, [0, 4, 7]);
        assert_eq!(batch.position_ids, [0, 1, 2, 3, 0, 1, 2]);
        assert_eq!(batch.token_type_ids, [0; 7]);
        assert_eq!(batch.token_keys, [40, 41, 42, 43, 48, 49, 50]);
        assert_eq!((batch.label_positions, batch.sample_ids), (vec![0, 4], vec![43, 41]));
    }

    #[test]
    fn pairs_are_framed_as_the_tokenizer_does_it() {
        let pair = [encoded(&[10, 11], Some(&[12]), 0)];
        let roberta = roberta(16, true).expect("room").batch(&pair, 0);
        assert_eq!(roberta.ids, [0, 10, 11, 2, 2, 12, 2]);
        assert_eq!(roberta.token_type_ids, [0; 7]);
        let bert = bert(16, true).expect("room").batch(&pair, 0);
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
        let collator = bert(5, false).expect("room");
        let mut examples =
            [encoded(&[1, 2, 3], None, 0), encoded(&[1, 2, 3, 4, 5], None, 0), encoded(&[], None, 0)];
        assert_eq!(collator.truncate(&mut examples), Truncation { examples: 1, tokens: 2, longest: 7 });
        assert_eq!(examples[1].first, [1, 2, 3]);
        assert_eq!(collator.batch(&examples, 0).max_seqlen(), 5);
    }

    #[test]
    fn a_tokenizer_that_truncates_left_keeps_the_end() {
        let collator = Collator { truncates_left: true, ..bert(7, true).expect("room") };
        let mut examples =
            [encoded(&[1, 2, 3, 4, 5, 6, 7], None, 0), encoded(&[1, 2, 3], Some(&[4, 5, 6]), 0)];
        assert_eq!(collator.truncate(&mut examples).tokens, 4);
        assert_eq!(examples[0].first, [3, 4, 5, 6, 7]);
        assert_eq!((&examples[1].first[..], examples[1].second.as_deref()), (&[2, 3][..], Some(&[5, 6][..])));
    }

    #[test]
    fn a_shorter_length_that_a_model_was_trained_at_is_taken() {
        let collator = roberta(16, true).expect("room");
        for (length, taken) in [(0, 16), (2, 16), (3, 3), (8, 8), (16, 16), (512, 16)] {
            assert_eq!(collator.cut_at(length).max_seq_length(), taken, "{length}");
        }
        let mut pair = [encoded(&[10, 11], Some(&[12, 13]), 0)];
        assert_eq!(collator.cut_at(3).truncate(&mut pair).tokens, 2);
        assert_eq!(collator.cut_at(3).batch(&pair, 0).ids, [0, 10, 2, 2, 12, 2]);
    }

    #[test]
    fn a_length_without_room_for_text_is_refused() {
        assert!(roberta(5, true).is_err());
        assert!(roberta(6, true).is_ok());
        assert!(bert(2, false).is_err());
    }

    proptest! {
        #[test]
        fn any_pair_fits_after_truncation(first in 0usize..40, second in proptest::option::of(0usize..40), length in 6usize..30) {
            let collator = roberta(length, true).expect("room");
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

//! One micro-batch: rows of tokens packed end to end without padding.
//!
//! It consists of plain host arrays and is independent of models: a task uploads what it needs.

use serde::{Deserialize, Serialize};

use crate::batches::Ahead;

/// `T` tokens of several rows; attention stays inside a segment (one document piece, one example).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// Token ids after masking, `[T]`.
    pub ids: Vec<u32>,
    /// Token type of each token (1 in the second text of a pair), `[T]`.
    pub token_type_ids: Vec<u32>,
    /// Position of each token inside its segment, from 0, `[T]`. A family adds its own offset.
    pub position_ids: Vec<u32>,
    /// Start of each segment, and `T` at the end: segment `i` is `cu_seqlens[i]..cu_seqlens[i + 1]`.
    pub cu_seqlens: Vec<u32>,
    /// Position of each token in the step's *global* batch: `global row x row capacity + place in the row`,
    /// `[T]`.
    ///
    /// Dropout is drawn by these keys, so that it does not depend on how a step is divided into micro-batches
    /// or ranks.
    pub token_keys: Vec<u64>,
    /// Indices into `ids` of the `M` positions that have a label (masked tokens; first token of an example).
    pub label_positions: Vec<u32>,
    /// Labels of these positions, `[M]`: a token id or a class; or `[M, O]` the bits of f32 numbers, or 0 and
    /// 1 for each of several labels.
    pub labels: Vec<u32>,
    /// Probabilities that a teacher gives the classes of these positions, `[M, C]`, as the bits of f32
    /// numbers; empty without a teacher.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub teacher: Vec<u32>,
    /// Indices into `ids` of the first tokens of the `P` segments that are a pair with its own label.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pair_positions: Vec<u32>,
    /// Classes of the pairs, `[P]`: 0 if the second text of the pair follows the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pair_labels: Vec<u32>,
    /// Ids of the samples in this batch, to report them when a loss is not finite.
    pub sample_ids: Vec<u64>,
    /// True if a token attends to itself and the tokens of its segment before it only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_causal: bool,
    /// Values computed in advance for the step.
    #[serde(skip)]
    pub ahead: Ahead,
}

impl Batch {
    /// A batch of one segment, with labels (of class 0) at these positions.
    pub fn of_segment(ids: Vec<u32>, label_positions: Vec<u32>) -> Self {
        let tokens = ids.len();
        Self {
            token_type_ids: vec![0; tokens],
            position_ids: (0..tokens as u32).collect(),
            cu_seqlens: vec![0, tokens as u32],
            token_keys: (0..tokens as u64).collect(),
            labels: vec![0; label_positions.len()],
            label_positions,
            teacher: Vec::new(),
            pair_positions: Vec::new(),
            pair_labels: Vec::new(),
            sample_ids: vec![0],
            is_causal: false,
            ids,
            ahead: Ahead::default(),
        }
    }

    /// Number of tokens in all rows (T).
    pub fn num_tokens(&self) -> usize {
        self.ids.len()
    }

    /// Number of labels of all positions: M, or M O.
    pub fn num_labels(&self) -> usize {
        self.labels.len()
    }

    /// Empties all arrays and keeps their memory.
    pub fn clear(&mut self) {
        for array in self.arrays() {
            array.clear();
        }
        self.token_keys.clear();
        self.sample_ids.clear();
        self.is_causal = false;
        self.ahead.clear();
    }

    /// Reserves memory for `tokens` tokens in the arrays that have one entry per token.
    pub fn reserve(&mut self, tokens: usize) {
        for array in [&mut self.ids, &mut self.token_type_ids, &mut self.position_ids] {
            array.reserve(tokens);
        }
        self.token_keys.reserve(tokens);
    }

    fn arrays(&mut self) -> [&mut Vec<u32>; 9] {
        let Self { ids, token_type_ids, position_ids, cu_seqlens, label_positions, labels, teacher, .. } =
            self;
        let pair_positions = &mut self.pair_positions;
        let pair_labels = &mut self.pair_labels;
        [
            ids,
            token_type_ids,
            position_ids,
            cu_seqlens,
            label_positions,
            labels,
            teacher,
            pair_positions,
            pair_labels,
        ]
    }

    /// Length of the longest segment in tokens.
    pub fn max_seqlen(&self) -> usize {
        self.cu_seqlens.windows(2).map(|w| (w[1] - w[0]) as usize).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_the_same_with_and_without() {
        let plain = Batch { ids: vec![1, 2], ..Batch::default() };
        let mut planned = plain.clone();
        planned.ahead.set(7u8);
        assert_eq!((planned.ahead.get::<u8>(), planned.ahead.get::<u16>()), (Some(&7), None));
        assert_eq!(planned, plain);
        assert!(planned.clone().ahead.get::<u8>().is_none());
        let text = serde_json::to_string(&planned).unwrap();
        assert_eq!(text, serde_json::to_string(&plain).unwrap());
        assert_eq!(serde_json::from_str::<Batch>(&text).unwrap(), plain);
        planned.clear();
        assert!(planned.ahead.get::<u8>().is_none());
    }
}

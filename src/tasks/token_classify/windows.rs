//! Sentences as windows of token ids: one for a sentence that fits the model, several that overlap for a
//! longer one. Each word has its label, and gets its prediction, in the window that shows most around it.

use crate::batches::Batch;
use crate::tokenizer::Frame;

/// Token ids of a part of a sentence, without special tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Window {
    /// The sentence, by its place in its file, from 0.
    pub sentence: usize,
    /// Ids of the pieces of its words.
    pub ids: Vec<u32>,
    /// Words of the sentence that are told here, ascending, each with the place of its first piece in `ids`.
    pub words: Vec<(usize, u32)>,
    /// Their labels, as many.
    pub labels: Vec<u32>,
}

/// The windows of a sentence whose words have these ids, at most `capacity` each; `labels` are those of the
/// words, or none where they are not known (0 is then taken). A word without ids is told nowhere, a sentence
/// of such words has no window.
pub fn windows(sentence: usize, words: &[Vec<u32>], labels: &[u32], capacity: usize) -> Vec<Window> {
    let lengths: Vec<usize> = words.iter().map(Vec::len).collect();
    if lengths.iter().all(|length| *length == 0) {
        return Vec::new();
    }
    let ranges = ranges(&lengths, capacity);
    let mut found: Vec<Window> = ranges
        .iter()
        .map(|&(first, end)| Window { sentence, ids: words[first..end].concat(), ..Window::default() })
        .collect();
    let starts: Vec<usize> = starts(&lengths);
    for word in (0..words.len()).filter(|word| lengths[*word] > 0) {
        let home = home(word, &ranges, &starts);
        let window = &mut found[home];
        window.words.push((word, (starts[word] - starts[ranges[home].0]) as u32));
        window.labels.push(labels.get(word).copied().unwrap_or(0));
    }
    found
}

/// Where each word begins in the pieces of the sentence, and where the last one ends.
fn starts(lengths: &[usize]) -> Vec<usize> {
    let mut sum = 0;
    let mut starts = vec![0];
    starts.extend(lengths.iter().map(|length| {
        sum += length;
        sum
    }));
    starts
}

/// First word of each window and the word behind its last: a neighbour begins in the middle of a window, and
/// the last window reaches back as far as it can.
fn ranges(lengths: &[usize], capacity: usize) -> Vec<(usize, usize)> {
    let mut ranges = Vec::new();
    let mut first = 0;
    while first < lengths.len() {
        // A word that is longer than a window cannot come here, so that each step takes one at least.
        let end = first + fitting(lengths[first..].iter(), capacity).max(1);
        if end < lengths.len() {
            ranges.push((first, end));
            let back = fitting(lengths[first + 1..end].iter().rev(), capacity / 2);
            first = end - back;
            continue;
        }
        let before = ranges.last().map_or(0, |&(first, _)| first + 1);
        let reach = fitting(lengths[before..].iter().rev(), capacity);
        ranges.push((first.min(lengths.len() - reach), end));
        break;
    }
    ranges
}

/// How many words have at most `most` pieces together.
fn fitting<'a>(lengths: impl Iterator<Item = &'a usize>, most: usize) -> usize {
    let mut sum = 0;
    let is_within = |length: &&usize| {
        sum += **length;
        sum <= most
    };
    lengths.take_while(is_within).count()
}

/// The window in which the fewer of the pieces before and behind a word are most, the first of equals. The
/// ends of the sentence hide nothing.
fn home(word: usize, ranges: &[(usize, usize)], starts: &[usize]) -> usize {
    let words = starts.len() - 1;
    let context = |&(first, end): &(usize, usize)| {
        let before = if first == 0 { usize::MAX } else { starts[word] - starts[first] };
        let behind = if end == words { usize::MAX } else { starts[end] - starts[word + 1] };
        before.min(behind)
    };
    let candidates =
        ranges.partition_point(|&(_, end)| end <= word)..ranges.partition_point(|&(first, _)| first <= word);
    candidates.rev().max_by_key(|&index| context(&ranges[index])).unwrap_or(0)
}

/// Puts windows between special tokens, end to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowCollator {
    /// The special tokens around a text.
    pub frame: Frame,
    /// Longest sequence, special tokens included.
    pub max_seq_length: usize,
}

impl WindowCollator {
    /// The most ids of a window.
    pub fn capacity(&self) -> usize {
        self.max_seq_length.saturating_sub(self.frame.special_tokens())
    }

    /// One batch of windows, which are rows `first_row..` of their step's global batch: each is one segment,
    /// labelled at the first piece of the words that are told in it.
    pub fn batch<'a>(&self, windows: impl IntoIterator<Item = &'a Window>, first_row: u64) -> Batch {
        let mut batch = Batch { cu_seqlens: vec![0], ..Batch::default() };
        for (row, window) in (first_row..).zip(windows) {
            let start = batch.ids.len() as u32;
            self.frame.before.push(&mut batch.ids, &mut batch.token_type_ids);
            batch.ids.extend(&window.ids);
            batch.token_type_ids.resize(batch.ids.len(), self.frame.text_types[0]);
            self.frame.after.push(&mut batch.ids, &mut batch.token_type_ids);
            let length = (window.ids.len() + self.frame.special_tokens()) as u64;
            let first = start + self.frame.before.len() as u32;
            batch.position_ids.extend(0..length as u32);
            batch.token_keys.extend((0..length).map(|place| row * self.max_seq_length as u64 + place));
            batch.label_positions.extend(window.words.iter().map(|(_, place)| first + place));
            batch.labels.extend(&window.labels);
            batch.sample_ids.push(window.sentence as u64);
            batch.cu_seqlens.push(batch.ids.len() as u32);
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces(lengths: &[usize]) -> Vec<Vec<u32>> {
        lengths
            .iter()
            .zip(0..)
            .map(|(&length, word)| (0..length as u32).map(|piece| 100 * word + piece).collect())
            .collect()
    }

    #[test]
    fn a_sentence_that_fits_is_one_window_labelled_at_first_pieces() {
        let found = windows(4, &pieces(&[1, 3, 1]), &[0, 2, 1], 5);
        let want = Window {
            sentence: 4,
            ids: vec![0, 100, 101, 102, 200],
            words: vec![(0, 0), (1, 1), (2, 4)],
            labels: vec![0, 2, 1],
        };
        assert_eq!(found, [want]);
        let collator = WindowCollator { frame: Frame::of_tokens(7, 8), max_seq_length: 7 };
        assert_eq!(collator.capacity(), 5);
        let other = Window { sentence: 9, ids: vec![300], words: vec![(0, 0)], labels: vec![1] };
        let batch = collator.batch([&found[0], &other], 2);
        assert_eq!(batch.ids, [7, 0, 100, 101, 102, 200, 8, 7, 300, 8]);
        assert_eq!((batch.label_positions, batch.labels), (vec![1, 2, 5, 8], vec![0, 2, 1, 1]));
        assert_eq!((batch.cu_seqlens, batch.sample_ids), (vec![0, 7, 10], vec![4, 9]));
        assert_eq!(batch.token_keys[..2], [14, 15]);
        assert_eq!(batch.token_keys[7..], [21, 22, 23]);
        assert_eq!(batch.token_type_ids, [0; 10]);
    }

    #[test]
    fn words_of_a_long_sentence_are_told_where_most_is_around_them() {
        let told: Vec<Vec<usize>> = windows(0, &pieces(&[1; 10]), &[], 6)
            .iter()
            .map(|window| window.words.iter().map(|(word, _)| *word).collect())
            .collect();
        // Windows 0..6, 3..9, 4..10: word 4 has one behind it in the first and one before it in the second.
        assert_eq!(told, [vec![0, 1, 2, 3, 4], vec![5, 6], vec![7, 8, 9]]);
    }

    proptest! {
        #[test]
        fn every_word_is_told_once_whole_and_with_context(
            lengths in prop::collection::vec(1usize..5, 1..80),
            capacity in 4usize..64,
        ) {
            let words = pieces(&lengths);
            let labels: Vec<u32> = (0..lengths.len() as u32).collect();
            let found = windows(0, &words, &labels, capacity);
            let mut told: Vec<u32> = Vec::new();
            let starts = starts(&lengths);
            for window in &found {
                prop_assert!(window.ids.len() <= capacity);
                for (&(word, place), &label) in window.words.iter().zip(&window.labels) {
                    prop_assert_eq!(label as usize, word);
                    let place = place as usize;
                    prop_assert_eq!(&window.ids[place..place + lengths[word]], &words[word][..]);
                    told.push(label);
                    // A quarter of a window, less the word itself and what would not fit as a whole.
                    let behind = window.ids.len() - place - lengths[word];
                    let wanted = (capacity / 4).saturating_sub(7);
                    prop_assert!(place >= wanted.min(starts[word]));
                    prop_assert!(behind >= wanted.min(starts[lengths.len()] - starts[word + 1]));
                }
            }
            told.sort_unstable();
            prop_assert_eq!(told, labels);
        }
    }
}

//! Sentences as windows of token ids: one for a sentence that fits the model, several overlapping ones for a
//! longer one. Each word is predicted in the window with the most context around it.

use data::batches::Batch;
use data::tokenizer::Frame;

/// Token ids of a part of a sentence, without special tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Window {
    /// Index of the sentence in its file, from 0.
    pub sentence: usize,
    /// Ids of the tokens of its words.
    pub ids: Vec<u32>,
    /// Words of the sentence that are predicted in this window, ascending, each with the index of its first
    /// token in `ids`.
    pub words: Vec<(usize, u32)>,
}

/// Splits a sentence whose words have these token ids into windows of at most `capacity` tokens. A word
/// without tokens is predicted in no window; a sentence of such words has no window.
pub fn windows(sentence: usize, words: &[Vec<u32>], capacity: usize) -> Vec<Window> {
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
    }
    found
}

/// Index of the first token of each word in the sentence, then the number of all tokens.
fn starts(lengths: &[usize]) -> Vec<usize> {
    let mut sum = 0;
    let mut starts = vec![0];
    starts.extend(lengths.iter().map(|length| {
        sum += length;
        sum
    }));
    starts
}

/// The first word of each window and the word after its last one. The next window starts in the middle of a
/// window; the last window starts as early as it can.
fn ranges(lengths: &[usize], capacity: usize) -> Vec<(usize, usize)> {
    let mut ranges = Vec::new();
    let mut first = 0;
    while first < lengths.len() {
        // `words` has no word longer than a window, so each step takes at least one word.
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

/// Returns the number of words at the start of `lengths` that have at most `most` tokens together.
fn fitting<'a>(lengths: impl Iterator<Item = &'a usize>, most: usize) -> usize {
    let mut sum = 0;
    let fits = lengths.take_while(|length| {
        sum += **length;
        sum <= most
    });
    fits.count()
}

/// Returns the window with the most context around a word, which is the smaller of the numbers of tokens
/// before and after it; of equals, the first. Context is not limited at the ends of the sentence.
fn home(word: usize, ranges: &[(usize, usize)], starts: &[usize]) -> usize {
    let candidates =
        ranges.partition_point(|&(_, end)| end <= word)..ranges.partition_point(|&(first, _)| first <= word);
    candidates.rev().max_by_key(|&index| context(word, ranges[index], starts)).unwrap_or(0)
}

/// The smaller of the numbers of tokens before and after a word in a window of the words `first..end`.
fn context(word: usize, window: (usize, usize), starts: &[usize]) -> usize {
    let (first, end) = window;
    let words = starts.len() - 1;
    let before = if first == 0 { usize::MAX } else { starts[word] - starts[first] };
    let after = if end == words { usize::MAX } else { starts[end] - starts[word + 1] };
    before.min(after)
}

/// Makes batches of windows, each between special tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowCollator {
    /// The special tokens around a text.
    pub frame: Frame,
    /// Longest sequence, including special tokens.
    pub max_seq_length: usize,
}

impl WindowCollator {
    /// Most token ids of a window.
    pub fn capacity(&self) -> usize {
        self.max_seq_length.saturating_sub(self.frame.special_tokens())
    }

    /// Makes a batch of windows, which are the rows from `first_row` on of their step's global batch. Each
    /// window is one segment, whose label positions are the first tokens of the words that are predicted in
    /// it. The labels are left out.
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
        let found = windows(4, &pieces(&[1, 3, 1]), 5);
        let want =
            Window { sentence: 4, ids: vec![0, 100, 101, 102, 200], words: vec![(0, 0), (1, 1), (2, 4)] };
        assert_eq!(found, [want]);
        let collator = WindowCollator { frame: Frame::from_tokens(7, 8), max_seq_length: 7 };
        assert_eq!(collator.capacity(), 5);
        let other = Window { sentence: 9, ids: vec![300], words: vec![(0, 0)] };
        let batch = collator.batch([&found[0], &other], 2);
        assert_eq!(batch.ids, [7, 0, 100, 101, 102, 200, 8, 7, 300, 8]);
        assert_eq!(batch.label_positions, [1, 2, 5, 8]);
        assert_eq!((batch.cu_seqlens, batch.sample_ids), (vec![0, 7, 10], vec![4, 9]));
        assert_eq!(batch.token_keys[..2], [14, 15]);
        assert_eq!(batch.token_keys[7..], [21, 22, 23]);
        assert_eq!(batch.token_type_ids, [0; 10]);
    }

    #[test]
    fn words_of_a_long_sentence_are_predicted_where_they_have_most_context() {
        let predicted: Vec<Vec<usize>> = windows(0, &pieces(&[1; 10]), 6)
            .iter()
            .map(|window| window.words.iter().map(|(word, _)| *word).collect())
            .collect();
        // Windows 0..6, 3..9, 4..10: word 4 has one word after it in the first and one before it in the
        // second.
        assert_eq!(predicted, [vec![0, 1, 2, 3, 4], vec![5, 6], vec![7, 8, 9]]);
    }

    proptest! {
        #[test]
        fn every_word_is_predicted_once_whole_and_with_context(
            lengths in prop::collection::vec(1usize..5, 1..80),
            capacity in 4usize..64,
        ) {
            let words = pieces(&lengths);
            let found = windows(0, &words, capacity);
            let mut predicted: Vec<usize> = Vec::new();
            let starts = starts(&lengths);
            for window in &found {
                prop_assert!(window.ids.len() <= capacity);
                for &(word, place) in &window.words {
                    let place = place as usize;
                    prop_assert_eq!(&window.ids[place..place + lengths[word]], &words[word][..]);
                    predicted.push(word);
                    // A quarter of a window, minus the word itself and what does not fit as a whole word.
                    let after = window.ids.len() - place - lengths[word];
                    let wanted = (capacity / 4).saturating_sub(7);
                    prop_assert!(place >= wanted.min(starts[word]));
                    prop_assert!(after >= wanted.min(starts[lengths.len()] - starts[word + 1]));
                }
            }
            predicted.sort_unstable();
            prop_assert_eq!(predicted, (0..lengths.len()).collect::<Vec<_>>());
        }
    }
}

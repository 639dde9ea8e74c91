//! A tree of pieces, and all ways to spell a word with them: the sum of their probabilities (forward-backward)
//! and the most probable one (Viterbi).

/// A piece and the logarithm of its probability.
pub(super) type Piece = (String, f64);

/// Longest piece of a tokenizer.json in bytes of which a tree is built: that is recursive, a call for each byte.
const PIECE_BYTES_MAX: usize = 512;

/// Placeholder for a character that no piece spells.
pub(super) const NO_PIECE: u32 = u32::MAX;

/// Difference in score between the worst piece and a character that no piece spells (SentencePiece's
/// `kUnkPenalty`).
const UNKNOWN_PENALTY: f64 = 10.0;

/// The pieces as a tree of bytes.
pub(super) struct Trie {
    nodes: Vec<Node>,
    /// Byte and child node, sorted by byte for each node.
    edges: Vec<(u8, u32)>,
    scores: Vec<f64>,
    unknown: f64,
}

#[derive(Clone, Copy)]
struct Node {
    first_edge: u32,
    edges: u32,
    piece: u32,
}

/// A piece within a word: its bytes from `start` to `end`.
#[derive(Clone, Copy)]
struct Arc {
    start: u32,
    end: u32,
    piece: u32,
    score: f64,
}

/// Buffers that are reused for each word.
#[derive(Default)]
pub(super) struct Lattice {
    arcs: Vec<Arc>,
    forward: Vec<f64>,
    backward: Vec<f64>,
    /// The last arc of the best spelling up to each position.
    best: Vec<Option<Arc>>,
}

impl Trie {
    /// The tree of the pieces of a tokenizer.json; `None` if a piece is empty, very long, or there twice.
    pub(super) fn from_vocabulary(pieces: &[Piece]) -> Option<Self> {
        let mut texts: Vec<&str> = pieces.iter().map(|(text, _)| text.as_str()).collect();
        texts.sort_unstable();
        let has_usual_lengths = texts.iter().all(|text| (1..=PIECE_BYTES_MAX).contains(&text.len()));
        let are_different = texts.windows(2).all(|two| two[0] != two[1]);
        (has_usual_lengths && are_different).then(|| Self::new(pieces))
    }

    /// The tree of `pieces`, which must all be different; a piece's number is its index in the list.
    pub(super) fn new(pieces: &[Piece]) -> Self {
        let mut sorted: Vec<(&[u8], u32)> =
            pieces.iter().zip(0..).map(|((text, _), number)| (text.as_bytes(), number)).collect();
        sorted.sort_unstable();
        let scores: Vec<f64> = pieces.iter().map(|(_, score)| *score).collect();
        let unknown = scores.iter().copied().reduce(f64::min).unwrap_or_default() - UNKNOWN_PENALTY;
        let mut trie = Self { nodes: Vec::new(), edges: Vec::new(), scores, unknown };
        trie.insert(&sorted, 0);
        trie
    }

    /// Number of pieces.
    pub(super) fn len(&self) -> usize {
        self.scores.len()
    }

    /// The longest piece with which `text` begins: its length in bytes and its number.
    pub(super) fn longest(&self, text: &str) -> Option<(usize, u32)> {
        let mut node = self.nodes[0];
        let mut longest = None;
        for (end, byte) in (1..).zip(text.bytes()) {
            let Some(next) = self.child(node, byte) else { break };
            node = next;
            if node.piece != NO_PIECE {
                longest = Some((end, node.piece));
            }
        }
        longest
    }

    /// Inserts the node of all pieces in `sorted`, which have their first `depth` bytes in common.
    fn insert(&mut self, sorted: &[(&[u8], u32)], depth: usize) -> u32 {
        let node = self.nodes.len();
        let ends_here = sorted.first().filter(|(text, _)| text.len() == depth);
        let piece = ends_here.map_or(NO_PIECE, |(_, number)| *number);
        let groups: Vec<&[(&[u8], u32)]> = sorted[usize::from(ends_here.is_some())..]
            .chunk_by(|(a, _), (b, _)| a[depth] == b[depth])
            .collect();
        let first_edge = self.edges.len();
        self.nodes.push(Node { first_edge: first_edge as u32, edges: groups.len() as u32, piece });
        self.edges.extend(groups.iter().map(|group| (group[0].0[depth], 0)));
        for (number, group) in groups.into_iter().enumerate() {
            self.edges[first_edge + number].1 = self.insert(group, depth + 1);
        }
        node as u32
    }

    fn child(&self, node: Node, byte: u8) -> Option<Node> {
        let edges = &self.edges[node.first_edge as usize..][..node.edges as usize];
        let place = edges.binary_search_by_key(&byte, |(b, _)| *b).ok()?;
        Some(self.nodes[edges[place].1 as usize])
    }
}

impl Lattice {
    /// Collects all arcs of `word`, ordered by start, without the piece `without`.
    fn fill(&mut self, word: &str, trie: &Trie, without: u32) {
        self.arcs.clear();
        for (start, character) in word.char_indices() {
            let single = start + character.len_utf8();
            let mut node = trie.nodes[0];
            let mut has_single = false;
            for (end, byte) in (start + 1..).zip(word[start..].bytes()) {
                let Some(next) = trie.child(node, byte) else { break };
                node = next;
                if node.piece != NO_PIECE && node.piece != without {
                    has_single |= end == single;
                    let score = trie.scores[node.piece as usize];
                    self.arcs.push(Arc { start: start as u32, end: end as u32, piece: node.piece, score });
                }
            }
            if !has_single {
                self.arcs.push(Arc {
                    start: start as u32,
                    end: single as u32,
                    piece: NO_PIECE,
                    score: trie.unknown,
                });
            }
        }
    }

    /// Adds to `expected` the expected number of each piece in `count` times `word`; returns the word's log
    /// probability.
    pub(super) fn expect(&mut self, word: &str, count: f64, trie: &Trie, expected: &mut [f64]) -> f64 {
        self.fill(word, trie, NO_PIECE);
        let Self { arcs, forward, backward, .. } = self;
        for (sums, first) in [(&mut *forward, 0), (&mut *backward, word.len())] {
            sums.clear();
            sums.resize(word.len() + 1, f64::NEG_INFINITY);
            sums[first] = 0.0;
        }
        for arc in arcs.iter() {
            let start = arc.start as usize;
            let end = arc.end as usize;
            forward[end] = log_sum(forward[end], forward[start] + arc.score);
        }
        for arc in arcs.iter().rev() {
            let start = arc.start as usize;
            let end = arc.end as usize;
            backward[start] = log_sum(backward[start], backward[end] + arc.score);
        }
        let all = forward[word.len()];
        for arc in arcs.iter().filter(|arc| arc.piece != NO_PIECE) {
            let share = forward[arc.start as usize] + arc.score + backward[arc.end as usize] - all;
            expected[arc.piece as usize] += count * share.exp();
        }
        all
    }

    /// The pieces of the best spelling of `word` without the piece `without`, last piece first.
    pub(super) fn best<'a>(
        &'a mut self,
        word: &str,
        trie: &Trie,
        without: u32,
    ) -> impl Iterator<Item = u32> + use<'a> {
        self.fill(word, trie, without);
        let Self { arcs, forward, best, .. } = self;
        forward.clear();
        forward.resize(word.len() + 1, f64::NEG_INFINITY);
        forward[0] = 0.0;
        best.clear();
        best.resize(word.len() + 1, None);
        for arc in arcs.iter() {
            let score = forward[arc.start as usize] + arc.score;
            if score > forward[arc.end as usize] {
                forward[arc.end as usize] = score;
                best[arc.end as usize] = Some(*arc);
            }
        }
        let mut end = word.len();
        std::iter::from_fn(move || {
            let arc = best[end]?;
            end = arc.start as usize;
            Some(arc.piece)
        })
    }
}

/// `ln(e^a + e^b)`.
fn log_sum(a: f64, b: f64) -> f64 {
    let (less, more) = if a < b { (a, b) } else { (b, a) };
    if less == f64::NEG_INFINITY { more } else { more + (less - more).exp().ln_1p() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(list: &[(&str, f64)]) -> Vec<Piece> {
        list.iter().map(|(text, p)| ((*text).to_string(), f64::ln(*p))).collect()
    }

    #[test]
    fn expectations_are_those_of_all_spellings() {
        // `ab` is spelled a b (0.3 x 0.2) or ab (0.1): the latter has 0.1 of 0.16.
        let trie = Trie::new(&pieces(&[("a", 0.3), ("b", 0.2), ("ab", 0.1)]));
        let mut expected = [0.0; 3];
        let all = Lattice::default().expect("ab", 8.0, &trie, &mut expected);
        assert!((all.exp() - 0.16).abs() < 1e-12);
        for (is, should) in expected.iter().zip([3.0, 3.0, 5.0]) {
            assert!((is - should).abs() < 1e-9, "{expected:?}");
        }
    }

    #[test]
    fn the_best_spelling_may_exclude_a_piece_and_contain_unknown_characters() {
        let trie = Trie::new(&pieces(&[("a", 0.1), ("b", 0.1), ("ab", 0.1), ("ä", 0.1), ("abä", 0.001)]));
        let mut lattice = Lattice::default();
        assert_eq!(lattice.best("abä", &trie, NO_PIECE).collect::<Vec<_>>(), [3, 2]);
        assert_eq!(lattice.best("abä", &trie, 2).collect::<Vec<_>>(), [4]);
        assert_eq!(lattice.best("ab漢a", &trie, NO_PIECE).collect::<Vec<_>>(), [0, NO_PIECE, 2]);
        assert_eq!(lattice.best("", &trie, NO_PIECE).count(), 0);
        assert_eq!(["aba", "abäb", "漢"].map(|text| trie.longest(text)), [Some((2, 2)), Some((4, 4)), None]);
    }
}

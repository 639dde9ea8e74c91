//! Baseline for entities: each word gets its most frequent tag in the training sentences.

use std::collections::BTreeMap;

use crate::tasks::labelled::Sentence;
use crate::tasks::labelled::tags::OUTSIDE;

/// Name in reports of this baseline.
pub const NAME: &str = "dictionary";

/// Returns the tags of each sentence of `eval`. A word that is not in `train` gets the tag `O`; of equally
/// frequent tags, the first by code point is taken.
pub fn tags<'a>(train: &'a [Sentence], eval: &[Sentence]) -> Vec<Vec<&'a str>> {
    let mut seen: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    for (word, tag) in train.iter().flat_map(|sentence| sentence.words.iter().zip(&sentence.tags)) {
        *seen.entry(word).or_default().entry(tag).or_default() += 1;
    }
    let dictionary: BTreeMap<&str, &str> =
        seen.iter().map(|(word, tags)| (*word, most_frequent(tags))).collect();
    let mut predicted = Vec::with_capacity(eval.len());
    for sentence in eval {
        let tags = sentence.words.iter().map(|word| dictionary.get(word.as_str()).copied());
        predicted.push(tags.map(|tag| tag.unwrap_or(OUTSIDE)).collect());
    }
    predicted
}

fn most_frequent<'a>(tags: &BTreeMap<&'a str, u64>) -> &'a str {
    let most_frequent = tags.iter().max_by(|a, b| a.1.cmp(b.1).then_with(|| b.0.cmp(a.0)));
    most_frequent.map_or(OUTSIDE, |(tag, _)| *tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(words: &str, tags: &str) -> Sentence {
        let words = words.split(' ').map(str::to_string).collect();
        let tags = tags.split(' ').map(str::to_string).collect();
        Sentence { words, tags, ..Sentence::default() }
    }

    #[test]
    fn each_word_gets_its_most_frequent_tag() {
        let train = [
            sentence("in Turku today", "O B-LOC O"),
            sentence("Turku University won", "B-ORG I-ORG O"),
            sentence("from Turku", "O B-LOC"),
        ];
        let eval = [sentence("Turku University", "B-ORG I-ORG"), sentence("to Turku", "O B-LOC")];
        assert_eq!(tags(&train, &eval), [["B-LOC", "I-ORG"], ["O", "B-LOC"]]);
    }
}

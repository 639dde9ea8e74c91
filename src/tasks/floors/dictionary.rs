//! Entities by look-up: each word gets the tag that it has most often in the training sentences.

use std::collections::BTreeMap;

use crate::scores::EntityCounts;
use crate::scores::EntityTally;
use crate::tasks::labelled::Sentence;
use crate::tasks::labelled::tags::OUTSIDE;

/// What reports call it.
pub const NAME: &str = "dictionary";

/// Counts of entities, sentence by sentence. A word that was not seen is outside of all entities; of tags as
/// frequent as each other the first by code point is taken.
pub fn counts(train: &[Sentence], eval: &[Sentence]) -> Vec<EntityCounts> {
    let mut seen: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    for (word, tag) in train.iter().flat_map(|sentence| sentence.words.iter().zip(&sentence.tags)) {
        *seen.entry(word).or_default().entry(tag).or_default() += 1;
    }
    let commonest = |tags: &BTreeMap<&'_ str, u64>| {
        let larger = tags.iter().max_by(|a, b| a.1.cmp(b.1).then_with(|| b.0.cmp(a.0)));
        larger.map_or(OUTSIDE, |(tag, _)| *tag).to_string()
    };
    let dictionary: BTreeMap<&str, String> =
        seen.iter().map(|(word, tags)| (*word, commonest(tags))).collect();
    let of_sentence = |sentence: &Sentence| {
        let gold: Vec<&str> = sentence.tags.iter().map(String::as_str).collect();
        let tag = |word: &String| dictionary.get(word.as_str()).map_or(OUTSIDE, String::as_str);
        let mut tally = EntityTally::default();
        tally.add(&gold, &sentence.words.iter().map(tag).collect::<Vec<&str>>());
        tally.overall()
    };
    eval.iter().map(of_sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(words: &str, tags: &str) -> Sentence {
        let list = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<String>>();
        Sentence { words: list(words), tags: list(tags), ..Sentence::default() }
    }

    #[test]
    fn each_word_gets_its_commonest_tag() {
        let train = [
            sentence("in Turku today", "O B-LOC O"),
            sentence("Turku University won", "B-ORG I-ORG O"),
            sentence("from Turku", "O B-LOC"),
        ];
        let eval = [sentence("Turku University", "B-ORG I-ORG"), sentence("to Turku", "O B-LOC")];
        // `B-LOC I-ORG` is two entities, neither of them right.
        assert_eq!(counts(&train, &eval), [[1, 2, 0], [1, 1, 1]].map(EntityCounts::from));
    }
}

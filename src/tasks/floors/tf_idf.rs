//! Words and pairs of words, weighted by TF-IDF, with logistic regression: what counting words is worth.
//!
//! As scikit-learn's `TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)` with
//! `LogisticRegression()`, which a test holds it against.

use std::collections::BTreeSet;
use std::collections::HashMap;

use crate::tasks::floors::logistic::Logistic;
use crate::tasks::floors::logistic::Row;

/// What reports call it.
pub const NAME: &str = "TF-IDF + logistic regression";

/// Texts that a word or pair must occur in: one that occurs in one text tells its label and nothing else, and
/// most do.
const LEAST_TEXTS: usize = 2;

/// The class of each of `eval`, learnt from the classes `ids`, below `classes`, of `train`.
pub fn classify(train: &[String], ids: &[u32], classes: usize, eval: &[String]) -> Vec<u32> {
    let best = |row: Vec<f64>| {
        let larger = |best: usize, at: usize| if row[at] > row[best] { at } else { best };
        (0..row.len()).fold(0, larger) as u32
    };
    probabilities(train, ids, classes, eval).into_iter().map(best).collect()
}

fn probabilities(train: &[String], ids: &[u32], classes: usize, eval: &[String]) -> Vec<Vec<f64>> {
    let features = Features::of(train);
    let rows: Vec<Row> = train.iter().map(|text| features.row(text)).collect();
    let model = Logistic::fit(&rows, ids, features.idf.len(), classes);
    eval.iter().map(|text| model.probabilities(&features.row(text))).collect()
}

/// The words and pairs that count, and how rare each is.
struct Features {
    places: HashMap<String, u32>,
    /// `ln((1 + texts) / (1 + texts with it)) + 1`.
    idf: Vec<f64>,
}

impl Features {
    fn of(texts: &[String]) -> Self {
        let (mut places, mut counts): (HashMap<String, u32>, Vec<usize>) = Default::default();
        for text in texts {
            for term in terms(text).into_iter().collect::<BTreeSet<String>>() {
                let next = places.len() as u32;
                let place = *places.entry(term).or_insert(next) as usize;
                counts.resize(counts.len().max(place + 1), 0);
                counts[place] += 1;
            }
        }
        let mut kept = vec![None; counts.len()];
        let mut idf = Vec::new();
        for (place, &count) in counts.iter().enumerate().filter(|(_, count)| **count >= LEAST_TEXTS) {
            kept[place] = Some(idf.len() as u32);
            idf.push(((1 + texts.len()) as f64 / (1 + count) as f64).ln() + 1.0);
        }
        let places =
            places.into_iter().filter_map(|(term, place)| Some((term, kept[place as usize]?))).collect();
        Self { places, idf }
    }

    /// `(1 + ln count) * idf` of each feature, scaled to length 1.
    fn row(&self, text: &str) -> Row {
        let mut places: Vec<u32> =
            terms(text).iter().filter_map(|term| self.places.get(term).copied()).collect();
        places.sort_unstable();
        let weight = |same: &[u32]| (same[0], (1.0 + (same.len() as f64).ln()) * self.idf[same[0] as usize]);
        let mut row: Row = places.chunk_by(|a, b| a == b).map(weight).collect();
        let length = row.iter().map(|(_, value)| value * value).sum::<f64>().sqrt();
        for (_, value) in &mut row {
            *value /= length;
        }
        row
    }
}

/// The words of a text in lower case, two or more letters, digits or `_` each, and its pairs of neighbours.
fn terms(text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let words: Vec<&str> = text
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| word.chars().nth(1).is_some())
        .collect();
    let pairs = words.windows(2).map(|pair| pair.join(" "));
    words.iter().map(ToString::to_string).chain(pairs).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// `scripts/make_floor_golden.py` wrote what scikit-learn says of the sample topics.
    #[test]
    fn probabilities_are_those_of_scikit_learn() {
        let golden: Value = serde_json::from_str(include_str!("../../../tests/golden/tf_idf.json")).unwrap();
        for case in golden["cases"].as_array().unwrap() {
            let texts = |key: &str| -> Vec<String> {
                case[key].as_array().unwrap().iter().map(|t| t.as_str().unwrap().to_string()).collect()
            };
            let ids: Vec<u32> =
                case["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
            let classes = case["classes"].as_u64().unwrap() as usize;
            let found = probabilities(&texts("train"), &ids, classes, &texts("eval"));
            let wanted = case["probabilities"].as_array().unwrap();
            assert_eq!(found.len(), wanted.len());
            for (found, wanted) in found.iter().zip(wanted) {
                for (found, wanted) in found.iter().zip(wanted.as_array().unwrap()) {
                    let wanted = wanted.as_f64().unwrap();
                    assert!((found - wanted).abs() < 1e-4, "{found}, not {wanted}");
                }
            }
        }
        assert!(golden["cases"].as_array().unwrap().len() >= 2, "two classes and more are different paths");
    }

    #[test]
    fn words_have_two_letters_and_stand_in_pairs() {
        assert_eq!(
            terms("A Red-fox's den, 7_1!"),
            ["red", "fox", "den", "7_1", "red fox", "fox den", "den 7_1"]
        );
    }

    #[test]
    fn without_a_word_in_common_the_commonest_class_is_said() {
        let texts = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let train = texts(&["one apple", "two pears", "three plums"]);
        assert_eq!(classify(&train, &[1, 1, 0], 2, &texts(&["no fruit", ""])), [1, 1]);
    }
}

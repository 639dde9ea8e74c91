//! Baseline that only counts words: words and pairs of words, weighted by TF-IDF, with logistic or linear
//! regression.
//!
//! Equivalent to scikit-learn's `TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)` with
//! `LogisticRegression()` or `Ridge()`, which the tests compare it with.

use std::collections::{BTreeSet, HashMap};

use crate::tasks::floors::logistic::{Logistic, Row};
use crate::tasks::floors::ridge::Ridge;

/// Name in reports of the baseline for classes.
pub const NAME: &str = "TF-IDF + logistic regression";

/// Name in reports of the baseline for numbers.
pub const OF_NUMBERS: &str = "TF-IDF + ridge regression";

/// Number of texts that a word or pair must occur in. Most occur in one text only; such a word is no evidence
/// for the label of another text.
const LEAST_TEXTS: usize = 2;

/// Predictions for texts.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictions<T> {
    /// The class or labels of each text.
    pub labels: Vec<T>,
    /// The probability of each class or label, for each text.
    pub probabilities: Vec<Vec<f32>>,
}

/// Returns the class of each text of `eval`, after training on `train` with the classes `ids`, which are
/// below `classes`.
pub fn classify(train: &[String], ids: &[u32], classes: usize, eval: &[String]) -> Predictions<u32> {
    let rows = probabilities(train, ids, classes, eval);
    let labels = rows.iter().map(|row| argmax(row) as u32).collect();
    let probabilities = rows.iter().map(|row| row.iter().map(|value| *value as f32).collect()).collect();
    Predictions { labels, probabilities }
}

/// The index of the largest value, the first one of equal values.
fn argmax(row: &[f64]) -> usize {
    (0..row.len()).fold(0, |best, index| if row[index] > row[best] { index } else { best })
}

/// Returns the ascending ids of the labels of each text of `eval`, after training on `train` with the label
/// sets `ids`: one logistic regression for each of the `labels` labels, as in scikit-learn's
/// `OneVsRestClassifier`. A text gets a label if its probability is above 0.5.
pub fn label_sets(
    train: &[String],
    ids: &[Vec<u32>],
    labels: usize,
    eval: &[String],
) -> Predictions<Vec<u32>> {
    let features = Features::new(train);
    let rows: Vec<Row> = train.iter().map(|text| features.row(text)).collect();
    let eval: Vec<Row> = eval.iter().map(|text| features.row(text)).collect();
    let mut found =
        Predictions { labels: vec![Vec::new(); eval.len()], probabilities: vec![Vec::new(); eval.len()] };
    for label in 0..labels as u32 {
        let is_there: Vec<u32> = ids.iter().map(|ids| u32::from(ids.binary_search(&label).is_ok())).collect();
        let is_constant = is_there.iter().all(|is| *is == is_there[0]);
        // A label of all examples or of none has no finite bias.
        let model = (!is_constant).then(|| Logistic::fit(&rows, &is_there, features.idf.len(), 2));
        for (at, row) in eval.iter().enumerate() {
            let probability = match &model {
                Some(model) => model.probabilities(row)[1],
                None => f64::from(is_there.first().copied().unwrap_or(0)),
            };
            found.labels[at].extend((probability > 0.5).then_some(label));
            found.probabilities[at].push(probability as f32);
        }
    }
    found
}

/// Returns the numbers of each text of `eval`, after training on `train`, whose texts have one or several
/// `numbers` each.
pub fn numbers(train: &[String], numbers: &[Vec<f32>], eval: &[String]) -> Vec<Vec<f32>> {
    let features = Features::new(train);
    let rows: Vec<Row> = train.iter().map(|text| features.row(text)).collect();
    let eval: Vec<Row> = eval.iter().map(|text| features.row(text)).collect();
    let mut predicted = vec![Vec::new(); eval.len()];
    for number in 0..numbers.first().map_or(0, Vec::len) {
        let targets: Vec<f64> = numbers.iter().map(|row| f64::from(row[number])).collect();
        let model = Ridge::fit(&rows, &targets, features.idf.len());
        predicted.iter_mut().zip(&eval).for_each(|(numbers, row)| numbers.push(model.number(row) as f32));
    }
    predicted
}

fn probabilities(train: &[String], ids: &[u32], classes: usize, eval: &[String]) -> Vec<Vec<f64>> {
    let features = Features::new(train);
    let rows: Vec<Row> = train.iter().map(|text| features.row(text)).collect();
    let model = Logistic::fit(&rows, ids, features.idf.len(), classes);
    eval.iter().map(|text| model.probabilities(&features.row(text))).collect()
}

/// The words and pairs that are used as features, with their inverse document frequencies.
struct Features {
    places: HashMap<String, u32>,
    /// `ln((1 + texts) / (1 + texts with the word or pair)) + 1`.
    idf: Vec<f64>,
}

impl Features {
    fn new(texts: &[String]) -> Self {
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

    /// Returns `(1 + ln count) * idf` of each feature, scaled to length 1.
    fn row(&self, text: &str) -> Row {
        let mut places: Vec<u32> =
            terms(text).iter().filter_map(|term| self.places.get(term).copied()).collect();
        places.sort_unstable();
        let mut row: Row = Vec::new();
        for same in places.chunk_by(|a, b| a == b) {
            row.push((same[0], (1.0 + (same.len() as f64).ln()) * self.idf[same[0] as usize]));
        }
        let length = row.iter().map(|(_, value)| value * value).sum::<f64>().sqrt();
        for (_, value) in &mut row {
            *value /= length;
        }
        row
    }
}

/// Returns the words of a text in lower case, of two or more letters, digits or `_` each, and its pairs of
/// neighbouring words.
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

    /// The golden file was written by `scripts/make_floor_golden.py`: probabilities of scikit-learn for the
    /// sample topics.
    #[test]
    fn probabilities_are_those_of_scikit_learn() {
        let golden: Value =
            serde_json::from_str(include_str!("../../../../tests/golden/tf_idf.json")).unwrap();
        for case in golden["cases"].as_array().unwrap() {
            let ids: Vec<u32> =
                case["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
            let classes = case["classes"].as_u64().unwrap() as usize;
            let found = probabilities(&texts(&case["train"]), &ids, classes, &texts(&case["eval"]));
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

    /// With two classes, the second class corresponds to a label that a text has or does not have.
    #[test]
    fn a_label_is_given_where_a_classifier_of_two_classes_gives_it() {
        let golden: Value =
            serde_json::from_str(include_str!("../../../../tests/golden/tf_idf.json")).unwrap();
        let case = golden["cases"].as_array().unwrap().iter().find(|case| case["classes"] == 2).unwrap();
        // The first label is the second class; all texts have the second label, and no text has the third.
        let sets: Vec<Vec<u32>> = case["ids"]
            .as_array()
            .unwrap()
            .iter()
            .map(|id| if id.as_u64() == Some(1) { vec![0, 1] } else { vec![1] })
            .collect();
        let found = label_sets(&texts(&case["train"]), &sets, 3, &texts(&case["eval"]));
        let probabilities = found.probabilities;
        assert!(probabilities.iter().all(|row| row[1..] == [1.0, 0.0]), "{probabilities:?}");
        let found = found.labels;
        let wanted = case["probabilities"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| if row[1].as_f64().unwrap() > 0.5 { vec![0, 1] } else { vec![1] });
        assert_eq!(found, wanted.collect::<Vec<_>>());
        assert!(found.iter().any(|set| set.len() == 1) && found.iter().any(|set| set.len() == 2));
    }

    /// The golden file was written by `scripts/make_floor_golden.py`: numbers that scikit-learn predicts for
    /// the sample topics.
    #[test]
    fn numbers_are_those_of_scikit_learn() {
        let golden: Value =
            serde_json::from_str(include_str!("../../../../tests/golden/ridge.json")).unwrap();
        let train_numbers: Vec<Vec<f32>> = serde_json::from_value(golden["numbers"].clone()).unwrap();
        let wanted: Vec<Vec<f32>> = serde_json::from_value(golden["said"].clone()).unwrap();
        let found = numbers(&texts(&golden["train"]), &train_numbers, &texts(&golden["eval"]));
        assert_eq!((found.len(), found[0].len()), (wanted.len(), 2));
        for (found, wanted) in found.iter().flatten().zip(wanted.iter().flatten()) {
            assert!((found - wanted).abs() < 1e-4, "{found}, not {wanted}");
        }
    }

    #[test]
    fn words_have_two_letters_and_are_paired() {
        assert_eq!(
            terms("A Red-fox's den, 7_1!"),
            ["red", "fox", "den", "7_1", "red fox", "fox den", "den 7_1"]
        );
    }

    #[test]
    fn without_a_word_in_common_the_most_frequent_class_is_predicted() {
        let train = ["one apple", "two pears", "three plums"].map(str::to_string);
        let eval = ["no fruit", ""].map(str::to_string);
        assert_eq!(classify(&train, &[1, 1, 0], 2, &eval).labels, [1, 1]);
    }

    /// The texts of a JSON array.
    fn texts(array: &Value) -> Vec<String> {
        serde_json::from_value(array.clone()).unwrap()
    }
}

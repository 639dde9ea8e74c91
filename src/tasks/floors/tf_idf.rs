//! Words and pairs of words, weighted by TF-IDF, with logistic or linear regression: what counting words is
//! worth.
//!
//! As scikit-learn's `TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)` with
//! `LogisticRegression()` or `Ridge()`, which tests hold it against.

use std::collections::BTreeSet;
use std::collections::HashMap;

use crate::tasks::floors::logistic::Logistic;
use crate::tasks::floors::logistic::Row;
use crate::tasks::floors::ridge::Ridge;

/// What reports call it.
pub const NAME: &str = "TF-IDF + logistic regression";

/// What reports call it where numbers are learnt.
pub const OF_NUMBERS: &str = "TF-IDF + ridge regression";

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

/// The ids of the labels of each of `eval`, ascending, learnt from the sets `ids` of `train`: a regression
/// for each of so many labels, as scikit-learn's `OneVsRestClassifier`, which says it where it is likelier
/// than not.
pub fn label_sets(train: &[String], ids: &[Vec<u32>], labels: usize, eval: &[String]) -> Vec<Vec<u32>> {
    let features = Features::of(train);
    let rows: Vec<Row> = train.iter().map(|text| features.row(text)).collect();
    let eval: Vec<Row> = eval.iter().map(|text| features.row(text)).collect();
    let mut sets = vec![Vec::new(); eval.len()];
    for label in 0..labels as u32 {
        let is_there: Vec<u32> = ids.iter().map(|ids| u32::from(ids.binary_search(&label).is_ok())).collect();
        let is_constant = is_there.iter().all(|is| *is == is_there[0]);
        // What all examples or none of them have has no finite bias.
        let model = (!is_constant).then(|| Logistic::fit(&rows, &is_there, features.idf.len(), 2));
        for (set, row) in sets.iter_mut().zip(&eval) {
            let said = match &model {
                Some(model) => model.probabilities(row)[1] > 0.5,
                None => is_there.first() == Some(&1),
            };
            set.extend(said.then_some(label));
        }
    }
    sets
}

/// The numbers of each of `eval`, learnt from `numbers`, one or several for each of `train`.
pub fn numbers(train: &[String], numbers: &[Vec<f32>], eval: &[String]) -> Vec<Vec<f32>> {
    let features = Features::of(train);
    let rows: Vec<Row> = train.iter().map(|text| features.row(text)).collect();
    let eval: Vec<Row> = eval.iter().map(|text| features.row(text)).collect();
    let mut said = vec![Vec::new(); eval.len()];
    for number in 0..numbers.first().map_or(0, Vec::len) {
        let of: Vec<f64> = numbers.iter().map(|row| f64::from(row[number])).collect();
        let model = Ridge::fit(&rows, &of, features.idf.len());
        said.iter_mut().zip(&eval).for_each(|(said, row)| said.push(model.number(row) as f32));
    }
    said
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

    /// With two classes, one of them is the label that is there or not.
    #[test]
    fn a_label_is_said_where_a_classifier_of_two_says_it() {
        let golden: Value = serde_json::from_str(include_str!("../../../tests/golden/tf_idf.json")).unwrap();
        let case = golden["cases"].as_array().unwrap().iter().find(|case| case["classes"] == 2).unwrap();
        let texts = |key: &str| -> Vec<String> {
            case[key].as_array().unwrap().iter().map(|t| t.as_str().unwrap().to_string()).collect()
        };
        let id = |value: &Value| value.as_u64().unwrap() as u32;
        // The first label is the second class, all have the second and none the third.
        let sets: Vec<Vec<u32>> = case["ids"]
            .as_array()
            .unwrap()
            .iter()
            .map(|value| if id(value) == 1 { vec![0, 1] } else { vec![1] })
            .collect();
        let found = label_sets(&texts("train"), &sets, 3, &texts("eval"));
        let wanted = case["probabilities"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| if row[1].as_f64().unwrap() > 0.5 { vec![0, 1] } else { vec![1] });
        assert_eq!(found, wanted.collect::<Vec<_>>());
        assert!(found.iter().any(|set| set.len() == 1) && found.iter().any(|set| set.len() == 2));
    }

    /// `scripts/make_floor_golden.py` wrote what scikit-learn says of numbers of the sample topics.
    #[test]
    fn numbers_are_those_of_scikit_learn() {
        let golden: Value = serde_json::from_str(include_str!("../../../tests/golden/ridge.json")).unwrap();
        let texts = |key: &str| -> Vec<String> { serde_json::from_value(golden[key].clone()).unwrap() };
        let rows = |key: &str| -> Vec<Vec<f32>> { serde_json::from_value(golden[key].clone()).unwrap() };
        let (found, wanted) = (numbers(&texts("train"), &rows("numbers"), &texts("eval")), rows("said"));
        assert_eq!((found.len(), found[0].len()), (wanted.len(), 2));
        for (found, wanted) in found.iter().flatten().zip(wanted.iter().flatten()) {
            assert!((found - wanted).abs() < 1e-4, "{found}, not {wanted}");
        }
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

//! The labels of texts and their ids.
//!
//! An id is an index into the list of labels, which the model folder stores as `id2label`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value};

use crate::tasks::labelled::read::Example;
use crate::tasks::labelled::twins;
use crate::tasks::labelled::twins::are_twins;
use base::error::Problem;
use base::pages::columns::shortened;

/// Number of labels that an error lists at most.
const LISTED: usize = 12;

/// Most characters of a label in an error. Longer ones are more likely texts.
const LABEL_CHARS: usize = 60;

/// Labels in the order of their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelSet {
    names: Vec<String>,
    /// Label names that a model's folder gives to more than one class.
    shared: BTreeSet<String>,
    /// True for the labels of a trained model, to which no label can be added.
    is_fixed: bool,
}

impl LabelSet {
    /// Labels in a given order, from a configuration or a trained model. At least two are needed.
    pub fn given(names: &[String]) -> Result<Self> {
        Self::at_least_two(Self::given_some(names)?.names).map_err(|problem| problem.at("data.labels").into())
    }

    /// As [`Self::given`], but one label is enough.
    pub fn given_some(names: &[String]) -> Result<Self> {
        let mut seen = BTreeSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(name.as_str())) {
            return Err(Problem::usage(format!("label `{twice}` is given twice")).at("data.labels").into());
        }
        Ok(Self::new(names.to_vec()))
    }

    fn new(names: Vec<String>) -> Self {
        Self { names, shared: BTreeSet::new(), is_fixed: false }
    }

    /// The labels of a trained model. A name that several classes have is followed by the id of the class, so
    /// that every class has its own key in the output.
    pub fn of_model(names: &[String]) -> Self {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for name in names {
            *counts.entry(name).or_default() += 1;
        }
        let mut distinct = Vec::with_capacity(names.len());
        for (id, name) in names.iter().enumerate() {
            let is_shared = counts[name.as_str()] > 1;
            distinct.push(if is_shared { format!("{name} ({id})") } else { name.clone() });
        }
        let shared = names.iter().filter(|name| counts[name.as_str()] > 1).cloned().collect();
        Self { names: distinct, shared, is_fixed: true }
    }

    /// The labels that occur in `examples`, in numeric order if all of them are integers, otherwise by code
    /// point.
    pub fn discover(source: &Path, examples: &[Example]) -> Result<Self> {
        let names = sorted(examples.iter().filter_map(|example| example.label.as_deref()));
        Self::at_least_two(names).map_err(|problem| problem.at(source.display()).into())
    }

    /// As [`Self::discover`] for examples with any number of labels each. One label is enough.
    pub fn discover_some(source: &Path, examples: &[Example]) -> Result<Self> {
        let names = sorted(examples.iter().flat_map(|example| &example.labels).map(String::as_str));
        if names.is_empty() {
            return Err(Problem::new("no example has a label, there is nothing to learn")
                .at(source.display())
                .into());
        }
        Ok(Self::new(names))
    }

    fn at_least_two(names: Vec<String>) -> Result<Self, Problem> {
        match names.as_slice() {
            [] => Err(Problem::new("there is no label, a classifier needs two")),
            [one] => {
                let one = shortened(one, LABEL_CHARS);
                Err(Problem::new(format!("there is only the label `{one}`, a classifier needs two")))
            }
            _ => Ok(Self::new(names)),
        }
    }

    /// The labels in the order of their ids.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Number of labels.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// True if there are no labels.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the id of the label of each example of `source`. A label outside the set is an error that
    /// names the line and lists the known labels.
    pub fn ids(&self, source: &Path, examples: &[Example]) -> Result<Vec<u32>> {
        let ids = self.by_name();
        let mut found = Vec::with_capacity(examples.len());
        for example in examples {
            let Some(label) = &example.label else {
                let place = format!("{}:{}", source.display(), example.line);
                return Err(Problem::new("the row has no label").at(place).into());
            };
            found.push(self.id_of(&ids, source, example, label)?);
        }
        Ok(found)
    }

    /// Returns the ascending ids of the labels of each example of `source`, for examples with any number of
    /// labels.
    pub fn sets(&self, source: &Path, examples: &[Example]) -> Result<Vec<Vec<u32>>> {
        let ids = self.by_name();
        let mut sets = Vec::with_capacity(examples.len());
        for example in examples {
            let labels = example.labels.iter();
            let set = labels.map(|label| self.id_of(&ids, source, example, label));
            let mut set = set.collect::<Result<Vec<u32>>>()?;
            set.sort_unstable();
            sets.push(set);
        }
        Ok(sets)
    }

    /// Returns a note on the labels that are not among the ids `gold`; `None` if all are.
    pub fn unseen_note<'a>(&self, gold: impl IntoIterator<Item = &'a u32>) -> Option<String> {
        let seen: BTreeSet<&u32> = gold.into_iter().collect();
        let unseen = (0..).zip(&self.names).filter(|(id, _)| !seen.contains(id));
        let unseen: Vec<String> = unseen.map(|(_, name)| name.clone()).collect();
        (!unseen.is_empty()).then(|| {
            let listed = listed(&unseen);
            format!("no training example has the label {listed}: the model cannot learn to give it")
        })
    }

    /// Returns the weight of each label, in the order of ids. A name that is not a label and a label without
    /// a weight are errors that list the labels.
    pub fn weights(&self, by_label: &BTreeMap<String, f64>) -> Result<Vec<f32>> {
        if let Some(other) = by_label.keys().find(|name| !self.names.contains(name)) {
            return Err(self.wrong_weights(format!("`{other}` is no label of the examples")).into());
        }
        let mut weights = Vec::with_capacity(self.names.len());
        for label in &self.names {
            let Some(weight) = by_label.get(label) else {
                return Err(self.wrong_weights(format!("the label `{label}` has no weight")).into());
            };
            weights.push(*weight as f32);
        }
        Ok(weights)
    }

    fn wrong_weights(&self, message: String) -> Problem {
        let hint = format!("the labels are {}", listed(&self.names));
        Problem::usage(message).at("training.class_weights").hint(hint)
    }

    fn by_name(&self) -> BTreeMap<&str, u32> {
        self.names.iter().enumerate().map(|(id, name)| (name.as_str(), id as u32)).collect()
    }

    fn id_of(&self, ids: &BTreeMap<&str, u32>, source: &Path, example: &Example, label: &str) -> Result<u32> {
        if let Some(&id) = ids.get(label) {
            return Ok(id);
        }
        let unknown = shortened(label, LABEL_CHARS);
        Err(Problem::new(format!("unknown label `{unknown}`; known are {}", listed(&self.names)))
            .at(format!("{}:{}", source.display(), example.line))
            .hint(self.hint(label))
            .into())
    }

    /// The hint for a label that the model does not have.
    fn hint(&self, label: &str) -> String {
        if self.names.iter().any(|name| are_twins(name, label)) {
            return "one of them looks the same, in another Unicode form (NFC, NFD): write both in one"
                .to_string();
        }
        if is_number(label) && !self.names.iter().any(|name| is_number(name)) {
            let whose = if self.is_fixed { "model's labels" } else { "labels of the training file" };
            return format!(
                "numbers are not read in the order of the {whose}: write their names, or name the labels in \
                 the order of the numbers: `data.labels`"
            );
        }
        let lower = label.to_lowercase();
        if let Some(name) = self.names.iter().find(|name| name.to_lowercase() == lower) {
            return format!("`{name}` differs in upper and lower case alone: write both in the same way");
        }
        if self.are_texts() {
            return "the labels are long, as texts are: are the columns swapped? (`data.text_column`, \
                    `data.label_column`)"
                .to_string();
        }
        if !self.is_fixed {
            return "name all labels under `data.labels`, or correct the row".to_string();
        }
        let trained = "the model was not trained on it: correct the row, or take such rows out";
        // Only a text that may be several labels has something between them.
        if label.contains(|character: char| character.is_ascii_punctuation()) {
            return format!("{trained}; `--label-separator` says what is between several labels");
        }
        trained.to_string()
    }

    /// Returns true if most of the labels are as long as texts.
    fn are_texts(&self) -> bool {
        let long = self.names.iter().filter(|name| name.chars().count() > LABEL_CHARS).count();
        2 * long > self.names.len()
    }

    /// Note about two labels that differ only in their Unicode form, if there are any.
    pub fn twin_note(&self) -> Option<String> {
        twins::twin_note("labels", self.names.iter().map(String::as_str))
    }

    /// A JSON object with the value of each label, in the order of their ids.
    pub fn by_label(&self, values: &[impl Copy + Into<Value>]) -> Map<String, Value> {
        self.names.iter().cloned().zip(values.iter().map(|value| (*value).into())).collect()
    }

    /// Returns notes for the user about the names of a trained model, one per line.
    pub fn notes(&self) -> Vec<String> {
        let shared = (!self.shared.is_empty()).then(|| {
            let names: Vec<String> = self.shared.iter().map(|name| format!("`{name}`")).collect();
            format!(
                "note: several classes are called {}: each is told with its id behind it",
                names.join(", ")
            )
        });
        let twins = self.twin_note().map(|twins| format!("note: {twins}"));
        shared.into_iter().chain(twins).collect()
    }
}

/// Lists labels for a message: at most `LISTED` of them, each with at most `LABEL_CHARS` characters.
pub fn listed(names: &[String]) -> String {
    let first = names.iter().take(LISTED).map(|name| format!("`{}`", shortened(name, LABEL_CHARS)));
    let first = first.collect::<Vec<String>>().join(", ");
    let rest = names.len().saturating_sub(LISTED);
    if rest == 0 { first } else { format!("{first} and {rest} more") }
}

fn is_number(text: &str) -> bool {
    text.parse::<u64>().is_ok()
}

/// Distinct labels, in numeric order if all of them are integers, otherwise by code point.
fn sorted<'a>(labels: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<String> = labels.collect::<BTreeSet<&str>>().into_iter().map(str::to_string).collect();
    let numbers: Option<Vec<i64>> = names.iter().map(|name| name.parse().ok()).collect();
    if numbers.is_some() {
        names.sort_by_key(|name| name.parse::<i64>().unwrap_or(i64::MAX));
    }
    names
}

/// Returns the weight of each of `classes`, as scikit-learn's `compute_class_weight("balanced")`: examples /
/// (classes x examples of the class). The error is the id of a class without examples.
pub fn balanced_weights(classes: usize, ids: &[u32]) -> Result<Vec<f32>, usize> {
    let mut counts = vec![0usize; classes];
    for id in ids {
        counts[*id as usize] += 1;
    }
    let mut weights = Vec::with_capacity(classes);
    for (class, &count) in counts.iter().enumerate() {
        if count == 0 {
            return Err(class);
        }
        weights.push((ids.len() as f64 / (classes * count) as f64) as f32);
    }
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Golden values of scikit-learn 1.9: `compute_class_weight("balanced", classes=[0, 1, 2], y=[0, 0, 0, 0,
    // 1, 2, 2, 0])`.
    #[test]
    fn balanced_weights_are_those_of_scikit_learn() {
        let ids = [0, 0, 0, 0, 1, 2, 2, 0];
        assert_eq!(balanced_weights(3, &ids), Ok(vec![8.0 / 15.0, 8.0 / 3.0, 4.0 / 3.0]));
        assert_eq!(balanced_weights(4, &ids), Err(3));
    }

    #[test]
    fn weights_follow_the_order_of_the_labels_and_errors_list_the_labels() {
        let set = LabelSet::given(&["pos".to_string(), "neg".to_string()]).expect("two labels");
        let weights = set.weights(&by_label(&[("neg", 0.5), ("pos", 2.0)])).expect("all labels");
        assert_eq!(weights, [2.0, 0.5]);
        let three = by_label(&[("neg", 0.5), ("pos", 2.0), ("neutral", 1.0)]);
        let error = set.weights(&three).expect_err("another").to_string();
        insta::assert_snapshot!(error, @r"
        training.class_weights: `neutral` is no label of the examples
          hint: the labels are `pos`, `neg`
        ");
        let error = set.weights(&by_label(&[("neg", 0.5)])).expect_err("one is missing").to_string();
        assert!(error.starts_with("training.class_weights: the label `pos` has no weight"), "{error}");
    }

    fn by_label(pairs: &[(&str, f64)]) -> BTreeMap<String, f64> {
        pairs.iter().map(|(name, weight)| ((*name).to_string(), *weight)).collect()
    }

    fn examples(labels: &[&str]) -> Vec<Example> {
        let mut examples = Vec::new();
        for (label, line) in labels.iter().zip(2..) {
            let label = Some((*label).to_string());
            examples.push(Example { text: "some text".to_string(), label, line, ..Example::default() });
        }
        examples
    }

    fn discovered(labels: &[&str]) -> Vec<String> {
        LabelSet::discover(Path::new("train.csv"), &examples(labels)).expect("two labels").names().to_vec()
    }

    #[test]
    fn labels_are_sorted_by_number_only_where_all_are_numbers() {
        assert_eq!(discovered(&["10", "9", "-1", "9"]), ["-1", "9", "10"]);
        assert_eq!(discovered(&["10", "9", "x"]), ["10", "9", "x"]);
        assert_eq!(
            discovered(&["World", "Business", "Sci/Tech", "Business"]),
            ["Business", "Sci/Tech", "World"]
        );
    }

    #[test]
    fn an_unknown_label_names_its_line_and_the_known_ones() {
        let set = LabelSet::given(&["neg".to_string(), "pos".to_string()]).expect("two labels");
        let source = Path::new("dev.tsv");
        assert_eq!(set.ids(source, &examples(&["pos", "neg", "pos"])).expect("known labels"), [1, 0, 1]);
        let error = set.ids(source, &examples(&["pos", "neutral"])).expect_err("not in the set").to_string();
        assert!(error.starts_with("dev.tsv:3: unknown label `neutral`; known are `neg`, `pos`"), "{error}");
    }

    #[test]
    fn hints_name_numbers_and_other_unicode_forms() {
        let set = LabelSet::given(&["neg".to_string(), "pos".to_string()]).expect("two labels");
        let source = Path::new("dev.csv");
        let error = set.ids(source, &examples(&["1"])).expect_err("a number").to_string();
        assert!(error.contains("in the order of the labels of the training file: write"), "{error}");
        let trained = LabelSet::of_model(set.names());
        let error = trained.ids(source, &examples(&["1"])).expect_err("a number").to_string();
        assert!(error.contains("numbers are not read in the order of the model's labels"), "{error}");
        let error = trained.ids(source, &examples(&["Pos"])).expect_err("upper case").to_string();
        assert!(error.contains("`pos` differs in upper and lower case alone"), "{error}");
        for (label, names_separator) in [("neutral", false), ("neg|pos", true)] {
            let error = trained.ids(source, &examples(&[label])).expect_err("not in the set").to_string();
            assert!(error.contains("the model was not trained on it"), "{error}");
            assert_eq!(error.contains("`--label-separator`"), names_separator, "{error}");
        }
        let twin = LabelSet::given(&["caf\u{e9}".to_string(), "b".to_string()]).expect("two labels");
        let error = twin.ids(source, &examples(&["cafe\u{301}"])).expect_err("another form").to_string();
        assert!(error.contains("in another Unicode form"), "{error}");
        assert_eq!(twin.twin_note(), None);
        let twins = ["caf\u{e9}".to_string(), "cafe\u{301}".to_string()];
        assert!(LabelSet::given(&twins).expect("two labels").twin_note().is_some());
    }

    #[test]
    fn many_known_labels_are_cut_in_the_message() {
        let names: Vec<String> = (0..77).map(|id| format!("intent_{id}")).collect();
        let set = LabelSet::given(&names).expect("77 labels");
        let error =
            set.ids(Path::new("x.csv"), &examples(&["other"])).expect_err("not in the set").to_string();
        assert!(error.contains("`intent_11` and 65 more"), "{error}");
    }

    #[test]
    fn texts_in_the_place_of_labels_are_cut_and_asked_about() {
        let names: Vec<String> =
            (0..77).map(|id| format!("the text {id} {}", "goes on ".repeat(99))).collect();
        let set = LabelSet::given(&names).expect("77 labels");
        let other = "other ".repeat(99);
        let found = set.ids(Path::new("x.csv"), &examples(&[other.as_str()]));
        let error = found.expect_err("not in the set").to_string();
        assert!(error.contains("are the columns swapped?") && error.len() < 1200, "{error}");
    }

    #[test]
    fn fewer_than_two_labels_or_one_twice_is_an_error() {
        let error = LabelSet::discover(Path::new("train.csv"), &examples(&["a", "a"]))
            .expect_err("one label")
            .to_string();
        assert_eq!(error, "train.csv: there is only the label `a`, a classifier needs two");
        let twice = ["a".to_string(), "b".to_string(), "a".to_string()];
        assert_eq!(
            LabelSet::given(&twice).expect_err("twice").to_string(),
            "data.labels: label `a` is given twice"
        );
    }
}

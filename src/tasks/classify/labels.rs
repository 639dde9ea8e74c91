//! The labels of a classifier and their ids.
//!
//! An id is a place in the list of labels, which the model folder keeps as `id2label`.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use crate::error::Problem;
use crate::tasks::labelled::read::Example;
use crate::tasks::labelled::twins;
use crate::tasks::labelled::twins::are_twins;

/// Most labels that an error lists.
const LISTED: usize = 12;

/// Labels in the order of their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelSet {
    names: Vec<String>,
}

impl LabelSet {
    /// Labels in a given order: a configuration's, or those of a trained model.
    pub fn given(names: &[String]) -> Result<Self> {
        Self::at_least_two(Self::given_some(names)?.names).map_err(|problem| problem.at("data.labels").into())
    }

    /// One label or more in a given order.
    pub fn given_some(names: &[String]) -> Result<Self> {
        let mut seen = BTreeSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(name.as_str())) {
            return Err(Problem::usage(format!("label `{twice}` is given twice")).at("data.labels").into());
        }
        Ok(Self { names: names.to_vec() })
    }

    /// The labels that occur in `examples`: by number where all are whole numbers, else by code point.
    pub fn discover(source: &Path, examples: &[Example]) -> Result<Self> {
        let names = sorted(examples.iter().filter_map(|example| example.label.as_deref()));
        Self::at_least_two(names).map_err(|problem| problem.at(source.display()).into())
    }

    /// The labels that occur in examples that each have any number of them, in the same order.
    pub fn discover_some(source: &Path, examples: &[Example]) -> Result<Self> {
        let names = sorted(examples.iter().flat_map(|example| &example.labels).map(String::as_str));
        if names.is_empty() {
            return Err(Problem::new("no example has a label, there is nothing to learn")
                .at(source.display())
                .into());
        }
        Ok(Self { names })
    }

    fn at_least_two(names: Vec<String>) -> Result<Self, Problem> {
        match names.as_slice() {
            [] => Err(Problem::new("there is no label, a classifier needs two")),
            [one] => Err(Problem::new(format!("there is only the label `{one}`, a classifier needs two"))),
            _ => Ok(Self { names }),
        }
    }

    /// The labels in the order of their ids.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The id of each example of `source`; a label outside the set is an error that names the line and the
    /// known labels.
    pub fn ids(&self, source: &Path, examples: &[Example]) -> Result<Vec<u32>> {
        let ids = self.by_name();
        let id = |example: &Example| {
            let Some(label) = &example.label else {
                let place = format!("{}:{}", source.display(), example.line);
                return Err(Problem::new("the row has no label").at(place).into());
            };
            self.id_of(&ids, source, example, label)
        };
        examples.iter().map(id).collect()
    }

    /// The ids of the labels of each example of `source` that has any number of them, ascending.
    pub fn sets(&self, source: &Path, examples: &[Example]) -> Result<Vec<Vec<u32>>> {
        let ids = self.by_name();
        let set = |example: &Example| -> Result<Vec<u32>> {
            let of = example.labels.iter().map(|label| self.id_of(&ids, source, example, label));
            let mut set = of.collect::<Result<Vec<u32>>>()?;
            set.sort_unstable();
            Ok(set)
        };
        examples.iter().map(set).collect()
    }

    /// The weight of each label, in the order of their ids; a name that is no label and a label without a
    /// weight are errors that list the labels.
    pub fn weights(&self, by_label: &BTreeMap<String, f64>) -> Result<Vec<f32>> {
        let refuse = |message: String| {
            let hint = format!("the labels are {}", self.listed());
            Problem::usage(message).at("training.class_weights").hint(hint)
        };
        if let Some(other) = by_label.keys().find(|name| !self.names.contains(name)) {
            return Err(refuse(format!("`{other}` is no label of the examples")).into());
        }
        let weight = |label: &String| match by_label.get(label) {
            Some(weight) => Ok(*weight as f32),
            None => Err(refuse(format!("the label `{label}` has no weight")).into()),
        };
        self.names.iter().map(weight).collect()
    }

    fn by_name(&self) -> BTreeMap<&str, u32> {
        self.names.iter().enumerate().map(|(id, name)| (name.as_str(), id as u32)).collect()
    }

    fn id_of(&self, ids: &BTreeMap<&str, u32>, source: &Path, of: &Example, label: &str) -> Result<u32> {
        match ids.get(label) {
            Some(&id) => Ok(id),
            None => Err(Problem::new(format!("unknown label `{label}`; known are {}", self.listed()))
                .at(format!("{}:{}", source.display(), of.line))
                .hint(self.hint(label))
                .into()),
        }
    }

    /// The hint about a label that the model does not have.
    fn hint(&self, label: &str) -> String {
        if self.names.iter().any(|name| are_twins(name, label)) {
            return "one of them looks the same, in another Unicode form (NFC, NFD): write both in one"
                .to_string();
        }
        let is_number = |text: &str| text.parse::<u64>().is_ok();
        if is_number(label) && !self.names.iter().any(|name| is_number(name)) {
            return "numbers are not read in the order of the model's labels: write their names, or give `evaluate` \
                    `--labels` with the names in the order of this file"
                .to_string();
        }
        "name all labels under `data.labels`, or correct the row".to_string()
    }

    /// A line about two labels that differ in their Unicode form alone, if there are some.
    pub fn told_twins(&self) -> Option<String> {
        twins::told("labels", self.names.iter().map(String::as_str))
    }

    /// Examples whose numbers are the names that they stand for, in the order of `names`; a number that is itself a
    /// label stays one.
    pub fn named(&self, mut examples: Vec<Example>, names: &[String]) -> Vec<Example> {
        let name = |label: &str| {
            let place =
                label.parse::<usize>().ok().filter(|_| !self.names.iter().any(|name| name == label))?;
            names.get(place).cloned()
        };
        for example in &mut examples {
            let labels = example.label.iter_mut().chain(&mut example.labels);
            labels.for_each(|label| *label = name(label).unwrap_or_else(|| std::mem::take(label)));
        }
        examples
    }

    /// The labels for a message, the first ones of many.
    pub fn listed(&self) -> String {
        let first: Vec<String> = self.names.iter().take(LISTED).map(|name| format!("`{name}`")).collect();
        let rest = self.names.len().saturating_sub(LISTED);
        if rest == 0 { first.join(", ") } else { format!("{} and {rest} more", first.join(", ")) }
    }
}

/// Labels, each once: by number where all are whole numbers, else by code point.
fn sorted<'a>(labels: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<String> = labels.collect::<BTreeSet<&str>>().into_iter().map(str::to_string).collect();
    let numbers: Option<Vec<i64>> = names.iter().map(|name| name.parse().ok()).collect();
    if numbers.is_some() {
        names.sort_by_key(|name| name.parse::<i64>().unwrap_or(i64::MAX));
    }
    names
}

/// The weight of each of `classes`, as scikit-learn's `compute_class_weight("balanced")`: examples / (classes x
/// examples of the class). The error is a class without examples.
pub fn balanced_weights(classes: usize, ids: &[u32]) -> Result<Vec<f32>, usize> {
    let mut counts = vec![0usize; classes];
    for id in ids {
        counts[*id as usize] += 1;
    }
    let weight = |(class, &count): (usize, &usize)| {
        if count == 0 { Err(class) } else { Ok((ids.len() as f64 / (classes * count) as f64) as f32) }
    };
    counts.iter().enumerate().map(weight).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // scikit-learn 1.9: `compute_class_weight("balanced", classes=[0, 1, 2], y=[0, 0, 0, 0, 1, 2, 2, 0])`.
    #[test]
    fn balanced_weights_are_those_of_scikit_learn() {
        let ids = [0, 0, 0, 0, 1, 2, 2, 0];
        assert_eq!(balanced_weights(3, &ids), Ok(vec![8.0 / 15.0, 8.0 / 3.0, 4.0 / 3.0]));
        assert_eq!(balanced_weights(4, &ids), Err(3));
    }

    #[test]
    fn weights_are_put_in_the_order_of_the_labels_and_what_does_not_fit_lists_them() {
        let set = LabelSet::given(&["pos".to_string(), "neg".to_string()]).expect("two labels");
        let weights = |pairs: &[(&str, f64)]| {
            set.weights(&pairs.iter().map(|(name, weight)| ((*name).to_string(), *weight)).collect())
        };
        assert_eq!(weights(&[("neg", 0.5), ("pos", 2.0)]).expect("all labels"), [2.0, 0.5]);
        let error =
            weights(&[("neg", 0.5), ("pos", 2.0), ("neutral", 1.0)]).expect_err("another").to_string();
        insta::assert_snapshot!(error, @r"
        training.class_weights: `neutral` is no label of the examples
          hint: the labels are `pos`, `neg`
        ");
        let error = weights(&[("neg", 0.5)]).expect_err("one is missing").to_string();
        assert!(error.starts_with("training.class_weights: the label `pos` has no weight"), "{error}");
    }

    fn examples(labels: &[&str]) -> Vec<Example> {
        let example = |(index, label): (usize, &&str)| Example {
            text: "some text".to_string(),
            text_pair: None,
            label: Some((*label).to_string()),
            labels: Vec::new(),
            numbers: Vec::new(),
            line: index as u64 + 2,
        };
        labels.iter().enumerate().map(example).collect()
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
    fn numbers_are_names_only_where_they_are_given() {
        let set = LabelSet::given(&["neg".to_string(), "pos".to_string()]).expect("two labels");
        let source = Path::new("dev.csv");
        let error = set.ids(source, &examples(&["1"])).expect_err("a number").to_string();
        assert!(error.contains("numbers are not read in the order of the model's labels"), "{error}");
        let names = ["pos".to_string(), "neg".to_string()];
        let named = set.named(examples(&["1", "0", "pos"]), &names);
        assert_eq!(set.ids(source, &named).expect("all named"), [0, 1, 1]);
        let beyond = set.named(examples(&["2"]), &names);
        assert!(set.ids(source, &beyond).is_err());
        let twin = LabelSet::given(&["caf\u{e9}".to_string(), "b".to_string()]).expect("two labels");
        let error = twin.ids(source, &examples(&["cafe\u{301}"])).expect_err("another form").to_string();
        assert!(error.contains("in another Unicode form"), "{error}");
        assert_eq!(twin.told_twins(), None);
        let twins = ["caf\u{e9}".to_string(), "cafe\u{301}".to_string()];
        assert!(LabelSet::given(&twins).expect("two labels").told_twins().is_some());
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

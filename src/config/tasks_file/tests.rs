//! Tests of right and wrong files of tasks as users write them.

use super::*;

const TWO: &str = "\
training: {learning_rate: 3e-5, num_train_epochs: 2}
data: {max_seq_length: 64}
tasks:
  - name: topics
    metric: f1
    data: {train_file: a.csv, eval_file: b.csv}
    seeds: [4, 5]
  - name: names
    task: token-classify
    data: {train_file: a.conll, eval_file: b.conll}
    training: {learning_rate: 5e-5}
";

fn tasks(text: &str) -> Result<Vec<NamedTask>, String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a.yaml");
    std::fs::write(&path, text).expect("writes");
    let place = format!("{}/", folder.path().display());
    load_tasks(&path, &[]).map_err(|e| e.to_string().replace(&place, ""))
}

#[test]
fn tasks_take_the_shared_keys_unless_they_have_their_own() {
    let tasks = tasks(TWO).expect("is right");
    let [topics, names] = tasks.as_slice() else { panic!("{tasks:?}") };
    assert_eq!((topics.metric, topics.seeds.as_slice()), (Metric::F1, &[4, 5][..]));
    assert_eq!((names.metric, names.seeds.as_slice()), (Metric::OverallF1, &DEFAULT_SEEDS[..]));
    let rates = [topics, names].map(|task| task.config.training.learning_rate.to_bits());
    assert_eq!(rates, [3e-5_f64, 5e-5].map(f64::to_bits));
    assert!([topics, names].into_iter().all(|task| {
        task.config.data.max_seq_length == Some(64)
            && task.config.training.num_train_epochs.to_bits() == 2.0_f64.to_bits()
    }));
}

fn wrong(text: &str) -> String {
    tasks(text).expect_err("is wrong")
}

#[test]
fn wrong_files_are_named_with_their_place() {
    insta::assert_snapshot!(wrong("training: {learning_rate: 1}\n"), @r#"
    a.yaml:1:1: there is no list `tasks`
      hint: write `tasks:`, and below it a `- name: ...` with its keys for each task
    "#);
    insta::assert_snapshot!(wrong("tasks: {name: a}\n"), @r#"
    a.yaml:1:1: `tasks` wants a list, not a table
      hint: write `tasks:`, and below it a `- name: ...` with its keys for each task
    "#);
    insta::assert_snapshot!(wrong("tasks: []\n"), @r#"
    a.yaml:1:1: `tasks` is empty
      hint: write `tasks:`, and below it a `- name: ...` with its keys for each task
    "#);
    insta::assert_snapshot!(wrong("tasks:\n  - task: classify\n"), @r#"
    a.yaml:2:5: a task has no `name`
      hint: add `name: sst2`, or what it is
    "#);
    insta::assert_snapshot!(wrong("tasks:\n  - name: 7\n"), @r#"
    a.yaml:2:5: `name` wants a text, not `7`
      hint: put it in quotes
    "#);
    insta::assert_snapshot!(wrong("tasks:\n  - name: a\n    task: tagging\n    data: {train_file: a, eval_file: b}\n"), @r#"
    a.yaml:3:11: `task` cannot be `tagging`
      hint: choose one of `classify`, `regression`, `token-classify`
    "#);
    insta::assert_snapshot!(wrong("tasks:\n  - name: a\n    data: {train_file: a.csv}\n"), @"
    a.yaml:3:5: `data.eval_file` is missing
      hint: name a .csv, .tsv, .jsonl or .parquet file, or split the training file with `data.eval_fraction: 0.1`
    ");
    insta::assert_snapshot!(wrong("tasks:\n  - name: a\n    data: {train: a.csv, eval_file: b}\n"), @r#"
    a.yaml:3:12: unknown key `train` in `data`
      hint: did you mean `train_file`?
    "#);
    insta::assert_snapshot!(wrong(&TWO.replace("name: names", "name: topics")), @r#"
    a.yaml:8:5: two tasks are called `topics`
      hint: give each a name of its own
    "#);
    insta::assert_snapshot!(wrong(&TWO.replace("metric: f1", "metric: overall_f1")), @r#"
    a.yaml:5:5: `metric` is the text `overall_f1`, which this task does not have
      hint: this task has `accuracy`, `f1`, `matthews_correlation`, `auroc`
    "#);
    insta::assert_snapshot!(wrong(&TWO.replace("metric: f1", "metric: matthews")), @r#"
    a.yaml:5:5: `metric` is the text `matthews`, which this task does not have
      hint: did you mean `matthews_correlation`?
    "#);
    insta::assert_snapshot!(wrong(&TWO.replace("seeds: [4, 5]", "model: a")), @r#"
    a.yaml:7:5: `model` is named by `--models`, for all tasks
      hint: remove it
    "#);
}

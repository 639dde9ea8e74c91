//! Tests of the candidates of a tuning, from the texts that users write.

use std::collections::BTreeSet;

use super::*;

const LABELLED: &str = "\
model: models/mini
data: {train_file: a.csv, eval_file: b.csv}
training: {learning_rate: 2.0e-4}
";

const TEXT: &str = "\
run: {seed: 7}
data: {sources: [{files: [a.txt]}]}
model: {roberta: {hidden_size: 128, num_attention_heads: 2}}
";

fn plan(text: &str, keys: &[&str], candidates: Option<usize>) -> Result<TuningPlan, String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a.yaml");
    std::fs::write(&path, text).expect("writes");
    let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
    let found = load_tuning(&path, &[], Vary { keys: &keys, candidates });
    found.map_err(|e| e.to_string().replace(&format!("{}/", folder.path().display()), ""))
}

fn labelled(keys: &[&str], candidates: Option<usize>) -> Tuning<FinetuneConfig> {
    match plan(LABELLED, keys, candidates) {
        Ok(TuningPlan::Finetune(tuning)) => *tuning,
        other => panic!("{other:?}"),
    }
}

fn pretraining(text: &str, keys: &[&str]) -> Tuning<PretrainConfig> {
    match plan(text, keys, None) {
        Ok(TuningPlan::Pretrain(tuning)) => *tuning,
        other => panic!("{other:?}"),
    }
}

fn with_seed(seed: u64) -> String {
    TEXT.replace("seed: 7", &format!("seed: {seed}"))
}

/// The values of each candidate, in one text.
fn values<C>(tuning: &Tuning<C>) -> Vec<String> {
    tuning.candidates.iter().map(|candidate| candidate.values.join(" ")).collect()
}

#[test]
fn without_keys_the_learning_rate_is_varied_by_ratios() {
    let tuning = labelled(&[], None);
    assert_eq!(tuning.keys, ["training.learning_rate"]);
    let expected =
        ["2e-5", "3.56e-5", "6.32e-5", "1.12e-4", "2e-4", "3.56e-4", "6.32e-4", "0.00112", "0.002"];
    assert_eq!(values(&tuning), expected);
    let rates = tuning.candidates.iter().map(|one| one.loaded.config.training.learning_rate);
    assert!(rates.is_sorted(), "each value is in its configuration");
    assert_eq!(tuning.base.training.learning_rate.to_bits(), 2e-4_f64.to_bits());
    // The range is around the rate that pretraining chooses for the width.
    let tuning = pretraining(TEXT, &[]);
    let rate = tuning.base.training.learning_rate;
    let [first, last] = [0, 8].map(|at| tuning.candidates[at].loaded.config.training.learning_rate);
    assert!((last / rate - 10.0).abs() < 0.1 && (rate / first - 10.0).abs() < 0.1, "{first} {rate} {last}");
}

#[test]
fn lists_are_taken_as_they_are_and_short_ranges_by_differences() {
    let tuning = labelled(&["learning_rate=1e-4,3e-4", "lr_scheduler_type=linear,cosine"], None);
    assert_eq!(values(&tuning), ["1e-4 linear", "1e-4 cosine", "3e-4 linear", "3e-4 cosine"]);
    assert_eq!(values(&labelled(&["weight_decay=0..0.1"], Some(3))), ["0", "0.05", "0.1"]);
    assert_eq!(values(&labelled(&["num_train_epochs=1..3"], Some(3))), ["1", "2", "3"]);
    let rates = ["learning_rate=1e-4,2e-4,3e-4,4e-4"];
    assert_eq!(values(&labelled(&rates, Some(9))), ["1e-4", "2e-4", "3e-4", "4e-4"]);
    let two: BTreeSet<String> = values(&labelled(&rates, Some(2))).into_iter().collect();
    assert_eq!(two.len(), 2, "{two:?}");
    let rows = labelled(&["per_device_train_batch_size=8..64"], Some(4));
    assert_eq!(values(&rows), ["8", "16", "32", "64"]);
    let few = labelled(&["per_device_train_batch_size=1..3"], Some(9));
    assert_eq!(values(&few), ["1", "2", "3"], "no whole number twice");
    let file = format!("{LABELLED}sweep: {{weight_decay: [0.0, 0.1]}}\n");
    let Ok(TuningPlan::Finetune(of_file)) = plan(&file, &[], None) else { panic!("is right") };
    assert_eq!(
        (of_file.keys.as_slice(), of_file.candidates.len()),
        (&["training.weight_decay".into()][..], 2)
    );
}

#[test]
fn several_ranges_are_filled_evenly_by_the_seed_of_the_configuration() {
    let keys = ["learning_rate=1e-4..1e-2", "weight_decay=0,0.01,0.1"];
    let first = values(&pretraining(&with_seed(7), &keys));
    assert_eq!(first, values(&pretraining(&with_seed(7), &keys)));
    assert_ne!(first, values(&pretraining(&with_seed(8), &keys)));
    let distinct: BTreeSet<&String> = first.iter().collect();
    assert_eq!((first.len(), distinct.len()), (18, 18));
    for seed in 0..50 {
        let tuning = pretraining(&with_seed(seed), &keys);
        let configs = tuning.candidates.iter().map(|one| &one.loaded.config.training);
        let mut thirds = [0; 3];
        let mut decays = [0; 3];
        for training in configs {
            let place = (training.learning_rate / 1e-4).log10() / 2.0;
            assert!((0.0..=1.0).contains(&place), "{}", training.learning_rate);
            thirds[((place * 3.0) as usize).min(2)] += 1;
            decays[[0.0, 0.05, 1.0].partition_point(|end| *end < training.weight_decay)] += 1;
        }
        assert!(thirds.iter().chain(&decays).all(|count| (3..=10).contains(count)), "{thirds:?} {decays:?}");
    }
    let few = labelled(&["optim=adamw,lion", "lr_scheduler_type=linear,cosine"], Some(3));
    assert_eq!(few.candidates.len(), 3, "of the four combinations");
}

#[test]
fn the_given_keys_with_those_of_a_candidate_load_as_its_configuration() {
    let tuning = pretraining(TEXT, &["learning_rate=1e-4..1e-2", "model.roberta.hidden_dropout_prob=0,0.1"]);
    for candidate in &tuning.candidates {
        let given = candidate.loaded.given();
        assert!(given.contains("# a.yaml") || given.contains("a.yaml:"), "{given}");
        assert!(given.contains("# --vary") && !given.contains("# default"), "{given}");
        let config = &candidate.loaded.config;
        assert_eq!(config.run.output_dir, tuning.base.run.output_dir.join("best"));
        assert_eq!(config.prepared_dir(), tuning.base.prepared_dir(), "the data of the tuning");
        let again = pretraining(&given, &[]);
        assert_eq!(again.base, candidate.loaded.config, "{given}");
    }
}

fn wrong(keys: &[&str]) -> String {
    plan(LABELLED, keys, None).expect_err("is wrong")
}

#[test]
fn what_cannot_be_varied_is_refused_with_its_place() {
    insta::assert_snapshot!(wrong(&["learning_rate=1e-2..1e-4"]), @"
    --vary learning_rate: `1e-2..1e-4` is not a range from a number to a larger one
      hint: write it like `1e-4..1e-2`
    ");
    insta::assert_snapshot!(wrong(&["per_device_train_batch_size=8..x"]), @"
    --vary per_device_train_batch_size: `8..x` is not a range from a whole number to a larger one
      hint: write it like `8..64`
    ");
    insta::assert_snapshot!(wrong(&["optim=adamw..lion"]), @"
    --vary optim: `training.optim` wants one of `adamw`, `lamb`, `lion`, `stable_adamw`, `muon`, which has no range
      hint: list its values: `key=value,value`
    ");
    insta::assert_snapshot!(wrong(&["learning_rat=1,2"]), @"
    --vary learning_rat: unknown key `learning_rat`
      hint: did you mean `learning_rate`?
    ");
    insta::assert_snapshot!(wrong(&["seed=1,2"]), @"
    --vary seed: a seed is no setting that could be better than another
      hint: `finetune --seeds 1,2,3` shows how scores vary
    ");
    insta::assert_snapshot!(wrong(&["learning_rate=1e-4"]), @"
    --vary learning_rate: gives one candidate, and at least two are compared
      hint: name several values, or a range: `--vary learning_rate=1e-4..1e-2`
    ");
    insta::assert_snapshot!(wrong(&["learning_rate=1e-4,0.0001"]), @"
    --vary learning_rate: `1e-4` and `0.0001` are the same candidate
      hint: keep one of the two
    ");
    insta::assert_snapshot!(wrong(&["data.eval_file=a.csv,b.csv"]), @"
    --vary data.eval_file: `data.eval_file` holds for a whole tuning
      hint: give it with `--set`, and start a tuning of its own for each value
    ");
    let of_text = plan(TEXT, &["tokenizer.vocab_size=1000,2000"], None).expect_err("is wrong");
    assert!(of_text.contains("`tokenizer.vocab_size` holds for a whole tuning"), "{of_text}");
    let unknown = plan(TEXT, &["mlm.mlm_prob=0.1,0.2"], None).expect_err("is wrong");
    insta::assert_snapshot!(unknown, @"
    --vary mlm.mlm_prob: unknown key `mlm_prob` in `mlm`
      hint: did you mean `mlm_probability`?
    ");
    let examples = wrong(&["max_train_samples=10,20"]);
    assert!(examples.contains("`data.max_train_samples` holds for a whole tuning"), "{examples}");
    let of_file = format!("{LABELLED}sweep: {{data.train_file: [a.csv, c.csv]}}\n");
    let of_file = plan(&of_file, &[], None).expect_err("is wrong");
    assert!(of_file.contains("`data.train_file` holds for a whole tuning"), "{of_file}");
    let value = plan(TEXT, &["learning_rate=0.1,-1"], None).expect_err("is wrong");
    assert!(value.starts_with("--vary learning_rate: `training.learning_rate` is -1"), "{value}");
    let tasks = plan("tasks: []\n", &[], None).expect_err("is wrong");
    assert!(tasks.contains("a.yaml: holds the tasks of a comparison"), "{tasks}");
}

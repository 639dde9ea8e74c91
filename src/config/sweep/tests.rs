//! Tests of right and wrong sweeps as users write them.

use super::*;
use crate::overrides;

const FILE: &str = "\
model: models/mini
data: {train_file: a.csv, eval_file: b.csv}
";

fn plan(text: &str, sweeps: &[&str], fractions: &[f64]) -> Result<FinetunePlan, Problems> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a.yaml");
    std::fs::write(&path, text).expect("writes");
    let axes: Vec<String> = sweeps.iter().map(ToString::to_string).collect();
    let loaded = load_plan(Some(&path), &[], Swept { axes: &axes, fractions });
    // Messages must not contain the name of the temporary folder, which differs each time.
    let place = format!("{}/", folder.path().display());
    loaded.map_err(|Problems(problems)| {
        let problems = problems.into_iter().map(|problem| Problem {
            place: problem.place.as_ref().map(|at| at.replace(&place, "")),
            ..problem
        });
        Problems(problems.collect())
    })
}

fn sweep(text: &str, sweeps: &[&str], fractions: &[f64]) -> Sweep {
    match plan(text, sweeps, fractions) {
        Ok(FinetunePlan::Sweep(sweep)) => sweep,
        other => panic!("{other:?}"),
    }
}

fn wrong(text: &str, sweeps: &[&str]) -> String {
    plan(text, sweeps, &[]).expect_err("is wrong").to_string()
}

#[test]
fn the_last_key_changes_fastest_and_each_setting_has_all_seeds() {
    let grid = sweep(FILE, &["learning_rate=1e-5,3e-5", "seed=1,2", "data.max_seq_length=32,64"], &[]);
    assert_eq!(grid.keys, ["training.learning_rate", "data.max_seq_length"]);
    let values: Vec<String> = grid.settings.iter().map(|setting| setting.values.join(" ")).collect();
    assert_eq!(values, ["1e-5 32", "1e-5 64", "3e-5 32", "3e-5 64"]);
    let config = &grid.settings[2].config;
    assert_eq!(
        (config.training.learning_rate.to_bits(), config.data.max_seq_length),
        (3e-5_f64.to_bits(), Some(32))
    );
    assert_eq!((grid.seeds.as_slice(), config.seeds.len(), config.run.seed), (&[1, 2][..], 0, 42));
}

#[test]
fn a_file_may_contain_the_sweep_and_the_command_line_wins() {
    let file = format!(
        "{FILE}seeds: [5, 6]\nsweep: {{learning_rate: [1.0e-5, 3e-5], lr_scheduler_type: [linear, cosine]}}\n"
    );
    let grid = sweep(&file, &[], &[]);
    let values: Vec<String> = grid.settings.iter().map(|setting| setting.values.join(" ")).collect();
    assert_eq!(values, ["0.00001 linear", "0.00001 cosine", "0.00003 linear", "0.00003 cosine"]);
    assert_eq!(grid.seeds, [5, 6]);
    let grid = sweep(&file, &["lr_scheduler_type=linear"], &[]);
    assert_eq!(grid.keys, ["training.lr_scheduler_type", "training.learning_rate"]);
    assert_eq!(grid.settings.len(), 2);
    // Other commands read the file as the configuration of a single run.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("a.yaml");
    std::fs::write(&path, file).expect("writes");
    assert_eq!(load::load_finetune(&path, &[]).expect("is right").config.seeds, [5, 6]);
    assert!(matches!(plan(FILE, &[], &[]), Ok(FinetunePlan::Single(_))));
}

#[test]
fn a_learning_curve_is_a_sweep_of_nested_shares() {
    let curve = sweep(FILE, &["seed=1,2,3"], &[1.0, 0.1, 0.5]);
    let shares: Vec<(Option<f64>, &[f64])> = curve
        .settings
        .iter()
        .map(|setting| {
            let data = &setting.config.data;
            (data.max_train_fraction, data.nested_train_fractions.as_slice())
        })
        .collect();
    assert_eq!(shares, [(Some(0.1), &[][..]), (Some(0.5), &[0.1]), (Some(1.0), &[0.1, 0.5])]);
    assert_eq!(curve.seeds, [1, 2, 3]);
    let both = plan(FILE, &["learning_rate=1,2"], &[0.5]).expect_err("both").to_string();
    assert!(both.contains("do not go together"), "{both}");
    let limited = FILE.replace("b.csv}", "b.csv, max_train_samples: 100}");
    let limited = plan(&limited, &[], &[0.5]).expect_err("limited").to_string();
    assert!(
        limited.starts_with("--fractions: shares are of all examples: `data.max_train_samples`"),
        "{limited}"
    );
    let wrong = plan(FILE, &[], &[0.5, 10.0]).expect_err("10").to_string();
    assert!(wrong.starts_with("--fractions: `10` is no share"), "{wrong}");
}

#[test]
fn wrong_sweeps_are_named_with_their_place() {
    insta::assert_snapshot!(wrong(FILE, &["learning_rte=1,2"]), @r#"
    --sweep learning_rte: unknown key `learning_rte`
      hint: did you mean `learning_rate`?
    "#);
    insta::assert_snapshot!(wrong(FILE, &["training.learning_rte=1,2"]), @r#"
    --sweep training.learning_rte: unknown key `learning_rte` in `training`
      hint: did you mean `learning_rate`?
    "#);
    insta::assert_snapshot!(wrong(FILE, &["learning_rate"]), @r#"
    --sweep: `learning_rate` is not of the form `key=value,value`
      hint: write it like `--sweep learning_rate=1e-5,3e-5`
    "#);
    insta::assert_snapshot!(wrong(FILE, &["learning_rate="]), @r#"
    --sweep learning_rate: has no values
      hint: write it like `--sweep learning_rate=1e-5,3e-5`
    "#);
    insta::assert_snapshot!(wrong(FILE, &["learning_rate=1e-5,,3e-5"]), @r#"
    --sweep learning_rate: has an empty value
      hint: write it like `--sweep learning_rate=1e-5,3e-5`
    "#);
    insta::assert_snapshot!(wrong(FILE, &["learning_rate=1e-5,fast"]), @r#"
    --sweep learning_rate: `training.learning_rate` wants a number, not the text `fast`
      hint: write it like `0.1` or `5.0e-5`
    "#);
    insta::assert_snapshot!(wrong(FILE, &["learning_rate=1e-5,0.00001"]), @r#"
    --sweep learning_rate: `1e-5` and `0.00001` are the same setting
      hint: keep one of the two
    "#);
    insta::assert_snapshot!(wrong(FILE, &["learning_rate=1e-5", "training.learning_rate=3e-5"]), @r#"
    --sweep training.learning_rate: `training.learning_rate` is swept twice
      hint: write all of its values behind one key
    "#);
    insta::assert_snapshot!(wrong(FILE, &["seed=1,2,1"]), @r#"
    --sweep seed: `seeds` names `1` twice
      hint: keep one of the two
    "#);
    insta::assert_snapshot!(wrong(FILE, &["seed=one"]), @r#"
    --sweep seed: `seeds.0` wants a whole number, not the text `one`
      hint: write digits, or a unit such as `5k`, `2.5M` or `10B` (10^9)
    "#);
    insta::assert_snapshot!(wrong(&format!("{FILE}seeds: [1, 2]\n"), &["seed=3,4"]), @r#"
    --sweep seed: the seed is swept, and `seeds` names seeds as well
      hint: keep one of the two; `--set seeds=[]` drops those of the file
    "#);
    insta::assert_snapshot!(wrong(FILE, &["run.threads=1,2"]), @r#"
    --sweep run.threads: `run.threads` holds for a whole sweep
      hint: give it with `--set`, and start a sweep of its own for each value
    "#);
    insta::assert_snapshot!(wrong(FILE, &["task=classify,regression"]), @r#"
    --sweep task: `task` holds for a whole sweep
      hint: give it with `--set`, and start a sweep of its own for each value
    "#);
    insta::assert_snapshot!(wrong(FILE, &["max_train_fraction=0.1,1"]), @r#"
    --sweep max_train_fraction: `data.max_train_fraction` is the axis of a learning curve, not of a sweep
      hint: write `--fractions 0.1,1`: the smaller shares lie in the larger
    "#);
    insta::assert_snapshot!(wrong(&format!("{FILE}sweep: [1]\n"), &[]), @r#"
    a.yaml:3:1: `sweep` wants a table of keys, not a list
      hint: write `sweep:`, and below it `learning_rate: [1e-5, 3e-5]`
    "#);
    insta::assert_snapshot!(wrong(&format!("{FILE}sweep:\n  learning_rate: 1e-5\n"), &[]), @r#"
    a.yaml:4:3: `sweep.learning_rate` wants a list of values, not `0.00001`
      hint: write it as `[a, b]`
    "#);
    insta::assert_snapshot!(wrong(&format!("{FILE}sweep:\n  learning_rate: []\n"), &[]), @r#"
    a.yaml:4:3: `sweep.learning_rate` has no values
      hint: name one, or remove the key
    "#);
    insta::assert_snapshot!(wrong(&format!("{FILE}sweep:\n  learning_rate: [1e-5, fast]\n"), &[]), @r#"
    a.yaml:4:3: `training.learning_rate` wants a number, not the text `fast`
      hint: write it like `0.1` or `5.0e-5`
    "#);
    insta::assert_snapshot!(wrong(&format!("{FILE}sweep:\n  epochs: [1]\n"), &[]), @r#"
    a.yaml:4:3: unknown key `epochs`
      hint: did you mean `num_train_epochs`?
    "#);
}

#[test]
fn settings_of_the_command_line_hold_for_all_runs() {
    let sets =
        overrides(&[], &["model=b".to_string(), "training.max_steps=3".to_string()]).expect("is right");
    let flags = [
        Override::flag("--train", "data.train_file", "a.csv"),
        Override::flag("--eval", "data.eval_file", "b.csv"),
    ];
    let axes = ["text_column=\"a,b\",c".to_string()];
    let plan = load_plan(None, &[&flags[..], &sets].concat(), Swept { axes: &axes, fractions: &[] });
    let Ok(FinetunePlan::Sweep(sweep)) = plan else { panic!("{plan:?}") };
    assert!(sweep.settings.iter().all(|setting| setting.config.training.max_steps == 3));
    let columns: Vec<_> = sweep.settings.iter().map(|s| s.config.data.text_column.as_deref()).collect();
    assert_eq!(columns, [Some("a,b"), Some("c")]);
    assert_eq!(sweep.settings[0].values, ["a,b"]);
}

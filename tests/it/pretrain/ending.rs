//! How runs end before their last step, what they keep, and that the cut into micro-batches is no matter.

use crate::workplace::Workplace;

#[test]
fn only_the_newest_checkpoints_stay_and_the_best_one() {
    let place = Workplace::new();
    place.run(&["training.save_total_limit=2"], &[]).ok();
    let steps = place.checkpoints();
    let best = place.json("checkpoint-40/trainer_state.json")["best_global_step"]
        .as_u64()
        .expect("there was an evaluation");
    let expected: Vec<u64> =
        [8, 16, 24, 32, 40].into_iter().filter(|&step| step >= 32 || step == best).collect();
    assert_eq!(steps, expected);
}

/// A rate of zero learns nothing, so that no evaluation is better than the first.
const STANDSTILL: [&str; 3] =
    ["training.learning_rate=1e-30", "training.eval_steps=2", "training.weight_decay=0"];

#[test]
fn training_stops_when_evaluation_no_longer_improves() {
    let place = Workplace::new();
    let sets = [&STANDSTILL[..], &["training.early_stopping_patience=3"]].concat();
    let run = place.run(&sets, &[]).ok();
    assert!(run.stdout.contains("stopped after 8 steps: evaluation no longer improves"), "{}", run.stdout);
    assert_eq!(
        place.series("eval/loss").iter().map(|(step, _)| *step).collect::<Vec<_>>(),
        [2, 4, 6, 8],
        "each evaluation stands there once"
    );
    assert!(place.run(&sets, &[]).ok().stdout.contains("this run is complete (8 steps)"));
    let patient = [&STANDSTILL[..], &["training.early_stopping_patience=4"]].concat();
    assert!(place.run(&patient, &[]).ok().stdout.contains("stopped after 10 steps"));
}

#[test]
fn a_time_budget_ends_with_a_checkpoint_and_a_larger_one_goes_on() {
    let place = Workplace::new();
    let sets = |time: &'static str| {
        ["training.max_steps=1000000", "training.logging_steps=1000", "training.eval_steps=0", time]
    };
    let run = place.run(&sets("training.max_train_time=500ms"), &[]);
    let run =
        if run.code == Some(2) { place.run(&sets("training.max_train_time=1s"), &[]) } else { run }.ok();
    assert!(run.stdout.contains("`training.max_train_time` ended the run after"), "{}", run.stdout);
    let step = *place.checkpoints().last().expect("was saved");
    assert!(step < 1_000_000 && place.run_path("final/model.safetensors").is_file());
    assert_eq!(place.logged_steps().last(), Some(&step), "the last step is logged, due or not");
    let more = place.run(&sets("training.max_train_time=2s"), &[]).ok();
    assert!(more.stderr.contains(&format!("resuming after step {step}")), "{}", more.stderr);
    assert!(*place.checkpoints().last().expect("was saved") > step);
}

#[test]
fn the_best_model_is_the_final_one_where_that_is_wanted() {
    let place = Workplace::new();
    // So high a rate spoils the model in the end.
    let sets = [
        "training.load_best_model_at_end=true",
        "training.eval_steps=4",
        "training.save_steps=0",
        "training.learning_rate=0.3",
    ];
    place.run(&sets, &[]).ok();
    let (best, loss) = place
        .series("eval/loss")
        .into_iter()
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .expect("there are evaluations");
    let results = place.json("eval_results.json");
    assert!(
        (results["eval_loss"].as_f64().expect("is a number") - loss).abs() < 1e-12,
        "the best loss {loss} is reported: {results}"
    );
    let model =
        |folder: &str| std::fs::read(place.run_path(folder).join("model.safetensors")).expect("reads");
    assert!(
        model("final") == model(&format!("checkpoint-{best}")),
        "the model of step {best} is the final one"
    );
}

#[test]
fn the_cut_into_micro_batches_changes_no_loss() {
    let losses = |rows: &str, steps: &str| {
        let place = Workplace::new();
        let rows = format!("training.per_device_train_batch_size={rows}");
        let steps = format!("training.gradient_accumulation_steps={steps}");
        place.run(&[&rows, &steps, "training.max_steps=12"], &[]).ok();
        place.series("train/loss")
    };
    let (whole, cut) = (losses("16", "1"), losses("4", "4"));
    assert_eq!(whole.len(), 12);
    for ((step, a), (_, b)) in whole.iter().zip(&cut) {
        assert!((a - b).abs() < 1e-5, "step {step}: {a} in one piece, {b} in four");
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let model = |threads: &str| {
        let place = Workplace::new();
        place.run(&[&format!("run.threads={threads}"), "training.max_steps=8"], &[]).ok();
        std::fs::read(place.run_path("final/model.safetensors")).expect("reads")
    };
    assert!(model("1") == model("3"));
}

#[test]
fn more_steps_change_no_value_that_was_not_given() {
    let place = Workplace::new();
    let text = crate::workplace::CONFIG;
    let given = ["per_device_train_batch_size", "learning_rate", "weight_decay", "warmup_steps"];
    let kept = text.lines().filter(|line| given.iter().all(|key| !line.trim().starts_with(key)));
    let text = kept.collect::<Vec<_>>().join("\n");
    std::fs::write(place.path("bare.yaml"), text.replace("max_steps: 40", "max_steps: 4")).unwrap();
    let pretrain = |more: &[&str]| {
        place.program(&[&["pretrain", "--config", "bare.yaml"], more].concat(), "").ok().stderr
    };
    let begun = pretrain(&["--set", "training.learning_rate=1e-4"]);
    let expected = "defaults for this model: warmup_steps 0.05, weight_decay 0.01, adam_beta2 0.98, \
                    per_device_train_batch_size 128 (4 steps), gradient_accumulation_steps 1 (4 steps)\n";
    assert!(begun.contains(expected), "{begun}");
    let more = pretrain(&["--set", "training.learning_rate=1e-4", "--max-steps", "6"]);
    assert!(more.contains("resuming after step 4") && !more.contains("defaults for this model"), "{more}");
    let shown = std::fs::read_to_string(place.path("run/config.yaml")).unwrap();
    assert!(shown.contains("  gradient_accumulation_steps: 1\n"), "{shown}");
    let other = [
        "pretrain",
        "--config",
        "bare.yaml",
        "--max-steps",
        "100000",
        "--set",
        "run.output_dir=other",
        "--dry-run",
    ];
    let planned = place.program(&other, "").ok().stdout;
    assert!(planned.contains("4096 rows"), "{planned}");
    let resumed = [&other[..5], &["--set", "training.learning_rate=1e-4", "--dry-run"]].concat();
    assert!(place.program(&resumed, "").ok().stdout.contains("128 rows"), "the rows that it began with");
}

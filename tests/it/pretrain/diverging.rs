//! Runs that learn nothing any more: how they end, and what `mlmtrain replay` says of them.

use crate::workplace::Workplace;

#[test]
fn a_rate_that_is_far_too_high_ends_with_76_and_a_step_to_replay() {
    let place = Workplace::new();
    let sets = [
        "training.learning_rate=1000",
        "training.lr_scheduler_type=constant",
        "training.warmup_steps=0",
        "training.save_steps=0",
        "training.eval_steps=0",
    ];
    let words = [
        "training diverges: ",
        "there is no checkpoint from before them",
        "samples ",
        "hint: lower `training.learning_rate`",
        "`mlmtrain replay run/diverged-",
    ];
    place.run(&sets, &[]).refused(76, &words);
    let folder = std::fs::read_dir(place.path("run")).unwrap().flatten();
    let mut names = folder.filter_map(|entry| entry.file_name().into_string().ok());
    let name = names.find(|name| name.starts_with("diverged-")).expect("is left");
    let step = name.strip_prefix("diverged-").unwrap();

    let replayed = place.program(&["replay", &format!("run/{name}")], "").ok().stdout;
    let of_step = format!("step {step}, ");
    for words in [of_step.as_str(), "1: embeddings", "1: encoder.layer.1", "gradients"] {
        assert!(replayed.contains(words), "`{words}` is not in:\n{replayed}");
    }
    let json =
        place.program(&["replay", &format!("run/{name}/trainer/batch.json"), "--json"], "").ok().stdout;
    let seen: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let loss = seen.iter().find(|seen| seen["stage"] == "loss").expect("there is a loss");
    assert!(loss["not_finite"] == 1 || loss["largest"].as_f64().unwrap() > 1e4, "{loss}");
    assert!(seen.iter().any(|seen| seen["name"] == "roberta.encoder.layer.1.output.dense.weight"));
}

#[test]
fn a_folder_without_a_failed_step_is_told() {
    let place = Workplace::new();
    place
        .program(&["replay", "."], "")
        .refused(2, &["is no folder of a step that failed", "hint: a run that diverges leaves one"]);
}

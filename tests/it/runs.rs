//! `mlmtrain runs` on a run that the test makes.

use std::fs;

use serde_json::Value;

use crate::workplace::Workplace;

#[test]
fn runs_are_listed_with_their_state_and_what_is_no_run_is_passed_over() {
    let place = Workplace::new();
    let list = |more: &[&str]| place.program(&[&["runs", "."], more].concat(), "").ok().stdout;
    assert_eq!(list(&[]), "no run is below `.`\n");
    place.run(&["training.max_steps=4", "run.sample_text=null"], &[]).ok();
    let complete = list(&[]);
    let line = complete.lines().nth(1).expect("a run").to_string();
    assert!(!complete.contains("resumes after"), "{complete}");
    assert!(
        complete.lines().count() == 2 && line.starts_with("run  masked_lm  complete     4  "),
        "{complete}"
    );
    // Without its results it has not ended; a damaged configuration hides nothing but the task.
    fs::remove_file(place.run_path("all_results.json")).unwrap();
    fs::write(place.run_path("config.yaml"), "run: [").unwrap();
    let object: Value = serde_json::from_str(&list(&["--json"])).unwrap();
    assert_eq!(
        (&object["state"], &object["task"], &object["step"]),
        (&"stopped".into(), &"unknown".into(), &4.into())
    );
    // It would go on from its newest whole checkpoint, wherever its records end.
    assert_eq!(object["resumes_after"], 4);
    assert!(list(&[]).contains("  step  resumes after  "), "{}", list(&[]));
    fs::remove_file(place.run_path("checkpoint-4/model.safetensors")).unwrap();
    let object: Value = serde_json::from_str(&list(&["--json"])).unwrap();
    assert_eq!((&object["step"], &object["resumes_after"]), (&4.into(), &Value::Null));
    fs::create_dir(place.run_path("diverged-3")).unwrap();
    assert!(list(&[]).contains("  diverged  "));
    place.program(&["runs", "none"], "").refused(2, &["none: is no folder"]);
}

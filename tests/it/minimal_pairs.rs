//! Minimal pairs as users meet them: the table, the scores of each pair, and what is refused.

use std::fs;

use serde_json::Value;

use crate::workplace::Workplace;

const PAIRS: &str = "{\"good\": \"one fish\", \"bad\": \"fish one\", \"paradigm\": \"order\", \"field\": \"syntax\", \"n\": 1}\n\
                     {\"good\": \"a bird\", \"bad\": \"a a bird\", \"paradigm\": \"twice\", \"field\": \"syntax\", \"n\": 2}\n";

#[test]
fn each_pair_is_scored_and_the_share_of_right_ones_is_told() {
    let place = Workplace::new();
    place.run(&["training.max_steps=20", "run.sample_text=null"], &[]).ok();
    fs::write(place.path("pairs.jsonl"), PAIRS).unwrap();
    let flags = ["evaluate", "--model", "run/final", "--task", "minimal-pairs", "--data", "pairs.jsonl"];
    let run = |more: &[&str]| place.program(&[&flags[..], more].concat(), "");

    let scores: Value =
        serde_json::from_str(&run(&["--json", "--scores", "scores.jsonl"]).ok().stdout).unwrap();
    let lines = fs::read_to_string(place.path("scores.jsonl")).unwrap();
    let pairs: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let right = pairs.iter().filter(|pair| pair["good_score"].as_f64() > pair["bad_score"].as_f64()).count();
    assert_eq!((pairs.len(), &pairs[1]["n"]), (2, &2.into()));
    assert!(pairs.iter().all(|pair| pair["good_score"].as_f64().unwrap() < 0.0), "{pairs:?}");
    assert_eq!(scores["eval_accuracy"], right as f64 / 2.0);
    assert_eq!(scores["eval_by_field"]["syntax"]["pairs"], 2);

    // The table goes beside the scores, and says the same.
    let both = run(&["--scores", "-"]).ok();
    assert_eq!(both.stdout, lines);
    assert!(both.stderr.contains("overall"), "{}", both.stderr);
    let other = run(&["--mask-rest-of-word", "--scores", "-"]).ok();
    assert_ne!(other.stdout, lines, "words have several tokens");

    let refused = run(&["--scores", "-", "--json"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    fs::write(place.path("pairs.jsonl"), format!("{PAIRS}{{\"good\": \"a\"}}\n")).unwrap();
    let refused = run(&["--scores", "scores.jsonl", "--overwrite"]);
    assert!(refused.stderr.contains("pairs.jsonl:3: has no text `bad`"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(place.path("scores.jsonl")).unwrap(), lines, "nothing is lost");
}

//! Token classification as its users meet it: entities are learnt, scored and told the same by all commands.

use std::fs;

use serde_json::Value;

use crate::finetune::rows;
use crate::material::tagged;
use crate::workplace::{Finished, Workplace, assert_same_tree};

/// A workplace with a pretrained model in `run/final`, `train.conll` and `dev.conll`.
fn workplace() -> Workplace {
    let place = Workplace::new();
    place.run(&["training.max_steps=20", "run.sample_text=null"], &[]).ok();
    fs::write(place.path("train.conll"), tagged(120)).unwrap();
    fs::write(place.path("dev.conll"), tagged(30)).unwrap();
    place
}

fn finetune(place: &Workplace, more: &[&str]) -> Finished {
    let flags = ["finetune", "--task", "token-classify", "--model", "run/final", "--output-dir", "ner"];
    let files = ["--train", "train.conll", "--eval", "dev.conll"];
    let sets = [
        "training.learning_rate=0.005",
        "training.num_train_epochs=20",
        "data.max_seq_length=32",
        "precision.compute=f32",
    ];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    place.program(&[&flags[..], &files, &sets, more].concat(), "")
}

fn json(place: &Workplace, name: &str) -> Value {
    serde_json::from_slice(&fs::read(place.path(name)).unwrap()).unwrap()
}

#[test]
fn entities_are_learnt_and_all_commands_say_the_same() {
    let place = workplace();
    let report = finetune(&place, &[]).ok();
    assert!(report.stderr.contains("tags read as IOB2 (guessed"), "{}", report.stderr);
    assert!(report.stderr.contains("2 types of entities"), "{}", report.stderr);
    assert!(report.stdout.contains("entities:") && report.stdout.contains("fish"), "{}", report.stdout);
    let results = json(&place, "ner/all_results.json");
    let f1 = results["eval_overall_f1"].as_f64().unwrap();
    assert!(f1 > 0.9 && results["eval_bird_f1"].as_f64().unwrap() > 0.9, "{results}");
    assert_eq!((&results["eval_fish_number"], &results["eval_bird_number"]), (&15.0.into(), &15.0.into()));
    assert!(results["eval_overall_accuracy"].is_number() && results["eval_loss"].is_number(), "{results}");

    // So that transformers cuts words as they were cut here.
    assert_eq!(json(&place, "ner/final/tokenizer_config.json")["add_prefix_space"], true);
    assert_ne!(json(&place, "run/final/tokenizer_config.json")["add_prefix_space"], true);
    let config = json(&place, "ner/final/config.json");
    assert_eq!(config["architectures"][0], "RobertaForTokenClassification");
    assert_eq!((&config["id2label"]["0"], &config["label2id"]["I-fish"]), (&"O".into(), &4.into()));
    assert!(config["problem_type"].is_null(), "{config}");

    let evaluate = ["evaluate", "--model", "ner/final", "--data", "dev.conll"];
    let more = ["--json", "--predictions", "said.jsonl", "--batch-size", "7", "--dump-logits", "l.st"];
    let scores = rows(&place.program(&[&evaluate[..], &more].concat(), "").ok().stdout).remove(0);
    for key in ["eval_overall_f1", "eval_bird_precision", "eval_fish_recall", "eval_overall_accuracy"] {
        assert_eq!(scores[key], results[key], "{key}");
    }
    assert_eq!((&scores["eval_examples"], &scores["eval_bird_number"]), (&30.into(), &15.into()));
    let logits = candle_core::safetensors::load(place.path("l.st"), &candle_core::Device::Cpu).unwrap();
    assert_eq!(logits["logits"].dims()[1], 5);

    let read = |name: &str| rows(&fs::read_to_string(place.path(name)).unwrap());
    let (said, written) = (read("said.jsonl"), read("ner/predictions.jsonl"));
    let predicted =
        rows(&place.program(&["predict", "--model", "ner/final", "--input", "dev.conll"], "").ok().stdout);
    assert_eq!((said.len(), written.len(), predicted.len()), (30, 30, 30));
    for ((row, again), third) in written.iter().zip(&said).zip(&predicted) {
        assert_eq!(
            (&row["tokens"], &row["tags"], &row["gold"]),
            (&again["tokens"], &again["tags"], &again["gold"])
        );
        assert_eq!((&row["tokens"], &row["tags"]), (&third["tokens"], &third["tags"]));
        assert_eq!(third.as_object().unwrap().keys().collect::<Vec<_>>(), ["tokens", "tags", "scores"]);
    }
    let columns = fs::read_to_string(place.path("ner/predictions.conll")).unwrap();
    assert!(columns.starts_with("the\tO\tO\nking\tB-bird\t"), "{columns}");

    let before = place.tree();
    assert!(finetune(&place, &[]).ok().stdout.contains("complete already"));
    assert_same_tree(&before, &place.tree());
}

#[test]
fn texts_and_words_are_answered_with_their_other_fields() {
    let place = workplace();
    finetune(&place, &[]).ok();
    let predict = |more: &[&str], input: &str| {
        rows(
            &place
                .program(&[&["predict", "--model", "ner/final", "--input", "-"], more].concat(), input)
                .ok()
                .stdout,
        )
    };
    let text = "the king eagle sees the horse, and the wolf";
    let found = &predict(&[], &format!("{text}\n\n"))[0];
    assert_eq!(found["text"], text);
    let [entity] = &found["entities"].as_array().unwrap()[..] else { panic!("{found}") };
    assert_eq!((&entity["text"], &entity["type"]), (&"king eagle".into(), &"bird".into()));
    assert_eq!((&entity["start"], &entity["end"]), (&4.into(), &14.into()));
    assert!((0.0..=1.0).contains(&entity["score"].as_f64().unwrap()), "{found}");

    let objects = format!(
        "{}\n{}\n",
        r#"{"id": 7, "tokens": ["the", "king", "eagle", "sees"], "tags": ["O", "O", "O", "O"]}"#,
        r#"{"id": 8, "text": "the king eagle sees the horse"}"#
    );
    let found = predict(&["--format", "jsonl"], &objects);
    assert_eq!(found[0]["tags"], serde_json::json!(["O", "B-bird", "I-bird", "O"]));
    assert_eq!(
        (&found[0]["id"], &found[0]["input_tags"][1], &found[1]["id"]),
        (&7.into(), &"O".into(), &8.into())
    );
    assert_eq!(found[1]["entities"][0]["type"], "bird");
    let words = predict(&["--format", "conll"], "the\nking\neagle\n\nthe\nsalmon\n");
    assert_eq!((words.len(), &words[1]["tokens"][1]), (2, &"salmon".into()));
}

/// Sentences of a thousand and of 300 words through windows of 16 tokens: every word has its prediction.
#[test]
fn a_long_sentence_is_read_in_windows() {
    let place = workplace();
    let joined = |count: usize| tagged(count).replace("\n\n", "\n");
    fs::write(place.path("train.conll"), joined(120)).unwrap();
    fs::write(place.path("dev.conll"), joined(30)).unwrap();
    let report = finetune(&place, &["--set", "data.max_seq_length=16"]).ok();
    assert!(report.stderr.contains("1 of 1 evaluation sentences are longer than 16"), "{}", report.stderr);
    let evaluate = ["evaluate", "--model", "ner/final", "--data", "dev.conll", "--json"];
    let scores =
        rows(&place.program(&[&evaluate[..], &["--predictions", "p.conll"]].concat(), "").ok().stdout);
    let scores = &scores[0];
    assert_eq!((&scores["eval_examples"], &scores["eval_long_examples"]), (&1.into(), &1.into()));
    assert!(scores["eval_overall_f1"].as_f64().unwrap() > 0.9, "{scores}");
    let words = joined(30).lines().filter(|line| line.contains('\t')).count();
    assert_eq!(scores["eval_words"], words);
    let predicted = fs::read_to_string(place.path("p.conll")).unwrap();
    assert_eq!(predicted.lines().filter(|line| line.split('\t').count() == 3).count(), words);
}

#[test]
fn half_types_checkpoints_seeds_a_part_of_the_data_and_patience_go_together() {
    let place = workplace();
    let more = [
        "--seeds",
        "1,2",
        "--max-train-fraction",
        "0.5",
        "--set",
        "precision.compute=bf16",
        "--set",
        "training.gradient_checkpointing=true",
        "--set",
        "training.eval_steps=4",
        "--set",
        "training.save_steps=4",
        "--set",
        "training.early_stopping_patience=2",
        "--set",
        "training.load_best_model_at_end=true",
    ];
    let report = finetune(&place, &more).ok();
    assert!(report.stderr.contains("60 sentences (") && report.stdout.contains("mean"), "{}", report.stdout);
    let results = json(&place, "ner/all_results.json");
    assert!(
        results["eval_overall_f1_mean"].is_number() && results["eval_bird_f1_std"].is_number(),
        "{results}"
    );
    let last = fs::read_dir(place.path("ner/seed-1")).unwrap().map(|entry| entry.unwrap().path());
    let last = last.filter(|path| path.join("trainer_state.json").exists()).max().unwrap();
    let state: Value = serde_json::from_slice(&fs::read(last.join("trainer_state.json")).unwrap()).unwrap();
    let best = state["best_metric"].as_f64().unwrap();
    let f1 = json(&place, "ner/seed-1/all_results.json")["eval_overall_f1"].as_f64().unwrap();
    assert!((best - f1).abs() < 1e-9, "{best} {f1}");
}

/// Stopped after some steps and continued, a run ends in the bytes of one that was not.
#[test]
fn a_resumed_run_ends_in_the_same_bytes() {
    let place = workplace();
    let flags = ["--set", "training.lr_scheduler_type=constant", "--set", "training.save_steps=5"];
    let run = |count: &str| {
        let set = format!("training.max_steps={count}");
        finetune(&place, &[&flags[..], &["--set", &set]].concat()).ok()
    };
    run("10");
    run("20");
    let resumed = fs::read(place.path("ner/final/model.safetensors")).unwrap();
    fs::remove_dir_all(place.path("ner")).unwrap();
    run("20");
    assert!(fs::read(place.path("ner/final/model.safetensors")).unwrap() == resumed);
}

#[test]
fn bad_sentences_are_named_and_leave_nothing_behind() {
    let place = workplace();
    let refuse = |name: &str, content: &[u8], more: &[&str], code: i32, words: &[&str]| {
        let original = fs::read(place.path(name)).unwrap();
        fs::write(place.path(name), content).unwrap();
        finetune(&place, more).refused(code, words);
        assert!(!place.path("ner/final").exists());
        fs::write(place.path(name), original).unwrap();
    };
    refuse(
        "dev.conll",
        b"a O\n\nowl B-frog\n",
        &[],
        1,
        &["dev.conll:3: unknown type `frog`; known are `bird`, `fish`"],
    );
    refuse("dev.conll", b"a O\nb\xe4 O\n", &[], 1, &["dev.conll:2: is not UTF-8"]);
    refuse("train.conll", b"a O\n", &[], 1, &["train.conll: there is no entity to learn from"]);
    refuse(
        "train.conll",
        b"a I-bird\nb B-fish\n",
        &["--set", "data.strict=true"],
        1,
        &["train.conll:1: `I-bird`"],
    );
    refuse(
        "dev.conll",
        b"a O\n",
        &["--tag-column", "3"],
        1,
        &["train.conll:2: has 2 columns, and column 3 is wanted"],
    );
    refuse("dev.conll", b"a O\n", &["--set", "data.tag_column=0"], 2, &["`--tag-column` is 0"]);
    refuse("dev.conll", b"a O\n", &["--text-pair-column", "b"], 2, &["`--text-pair-column` is for pairs"]);
    place
        .program(
            &["evaluate", "--model", "run/final", "--data", "corpus.txt", "--predictions", "p.jsonl"],
            "",
        )
        .refused(2, &["p.jsonl", "no predictions to write"]);
}

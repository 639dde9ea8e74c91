//! Not measured is not zero: scores that nothing tells are null and said in words, and decide nothing. And folders
//! that cannot be used, which are said to be that, and not damaged.

use std::fmt::Write as _;
use std::fs;

use candle_core::Tensor;
use mlmtrain::checkpoint::{TensorFile, write_tensors};
use serde_json::Value;

use crate::material::examples;
use crate::workplace::Workplace;

fn pretrained() -> Workplace {
    let place = Workplace::new();
    place.run(&["training.max_steps=4", "run.sample_text=null"], &[]).ok();
    place
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Frequent words, each beside its neighbour.
const COMMON: &str = "the of and to in was for on with as by at from is were his an be that it which had are not or \
    also after first one but two new their have its he this who been they all";

/// Rewrites the tensors of a copy of `from` without its manifest.
fn copied(place: &Workplace, from: &str, to: &str, change: impl FnOnce(&mut Vec<(String, Tensor)>)) {
    fs::create_dir(place.path(to)).unwrap();
    for file in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        fs::copy(place.path(from).join(file), place.path(to).join(file)).unwrap();
    }
    let file = TensorFile::open(&place.path(from).join("model.safetensors")).unwrap();
    let mut tensors: Vec<(String, Tensor)> = file.tensors().unwrap().into_iter().collect();
    change(&mut tensors);
    let mut bytes = Vec::new();
    write_tensors(&mut bytes, &tensors).unwrap();
    fs::write(place.path(to).join("model.safetensors"), bytes).unwrap();
}

#[test]
fn a_text_of_which_no_token_is_predicted_has_no_loss() {
    let place = pretrained();
    let mut unmeasured = 0;
    for text in ["cat", "dog", "the cat", "the dog", "a fox", "bear", "wolf", "fish", "horse", "bird"] {
        fs::write(place.path("short.txt"), format!("{text}\n")).unwrap();
        let evaluate = ["evaluate", "--model", "run/final", "--data", "short.txt"];
        let scores = json(&place.program(&[&evaluate[..], &["--json"]].concat(), "").ok().stdout);
        let predicted = scores["eval_predicted_tokens"].as_u64().unwrap();
        for name in ["eval_loss", "eval_perplexity", "eval_accuracy"] {
            assert_eq!(scores[name].is_null(), predicted == 0, "{text}: {scores}");
        }
        if predicted == 0 {
            unmeasured += 1;
            let told = place.program(&evaluate, "").ok().stdout;
            assert!(told.contains("tokens predicted     0\nloss                 not measured\n"), "{told}");
        }
    }
    assert!(unmeasured > 0, "of ten short texts none was left without masks");
}

#[test]
fn an_evaluation_without_a_token_ends_no_run_and_makes_no_checkpoint_the_best() {
    let place = Workplace::new();
    // Documents of two words, of which two are for validation: none of their tokens is masked.
    let words: Vec<&str> = COMMON.split_whitespace().collect();
    let lines: String = words.windows(2).fold(String::new(), |mut lines, pair| {
        writeln!(lines, "{} {}", pair[0], pair[1]).unwrap();
        lines
    });
    fs::write(place.path("corpus.txt"), lines).unwrap();
    let sets = [
        "data.sources=[{files: [corpus.txt], document: line}]",
        "data.validation_fraction=0.06",
        "tokenizer.vocab_size=300",
        "run.sample_text=null",
        "training.max_steps=6",
        "training.eval_steps=1",
        "training.save_steps=2",
        "training.early_stopping_patience=2",
        "training.load_best_model_at_end=true",
    ];
    let told = place.run(&sets, &[]).ok();
    assert!(told.stdout.contains("validation loss      not measured"), "{}", told.stdout);
    assert!(told.stdout.contains("trained 6 steps"), "{}", told.stdout);
    assert_eq!(told.stderr.matches("is not measured: the evaluation has no example or token").count(), 1);
    let results = place.json("all_results.json");
    for name in ["eval_loss", "eval_perplexity", "eval_accuracy"] {
        assert_eq!(results.get(name), Some(&Value::Null), "{results}");
    }
    assert_eq!(results["eval_predicted_tokens"], 0.0);
    let state = place.json("checkpoint-6/trainer_state.json");
    assert_eq!((&state["best_metric"], &state["best_global_step"]), (&Value::Null, &Value::Null), "{state}");
    // What is not measured is complete all the same.
    let again = place.run(&sets, &[]).ok().stdout;
    assert!(again.contains("this run is complete (6 steps)") && again.contains("not measured"), "{again}");
}

#[test]
fn a_correlation_that_is_not_defined_is_null_and_never_the_best() {
    let place = pretrained();
    let mut csv = String::from("text,label\n");
    for number in 0..20 {
        writeln!(csv, "the wolf {number} sees the horse,{}", number % 5).unwrap();
    }
    fs::write(place.path("train.csv"), &csv).unwrap();
    let constant: String =
        csv.lines().map(|line| line.rsplit_once(',').unwrap().0.to_string() + ",1\n").collect();
    fs::write(place.path("same.csv"), constant.replacen("text,1", "text,label", 1)).unwrap();
    let flags = ["finetune", "--task", "regression", "--model", "run/final", "--train", "train.csv"];
    let more = ["--eval", "same.csv", "--output-dir", "reg", "--set", "training.max_steps=2"];
    let length = ["--set", "data.max_seq_length=32"];
    let told = place.program(&[&flags[..], &more[..], &length[..]].concat(), "").ok().stdout;
    assert!(told.contains("not measured"), "{told}");
    let results = json(&fs::read_to_string(place.path("reg/all_results.json")).unwrap());
    assert_eq!((results.get("eval_pearson"), results["eval_mse"].is_number()), (Some(&Value::Null), true));
    let evaluate = ["evaluate", "--model", "reg/final", "--data", "same.csv"];
    let told = place.program(&evaluate, "").ok().stdout;
    assert!(told.contains("pearson              not measured") && !told.contains("NaN"), "{told}");

    let tasks = "seeds: [1]\ndata: {max_seq_length: 32}\ntraining: {max_steps: 2}\ntasks:\n\
        - {name: numbers, task: regression, metric: pearson, data: {train_file: train.csv, eval_file: train.csv}}\n";
    fs::write(place.path("tasks.yaml"), tasks).unwrap();
    let compare = ["compare", "--models", "run/final", "--tasks", "tasks.yaml", "--output-dir", "cmp"];
    let compared = place.program(&compare, "").ok().stdout;
    let row = compared.lines().find(|line| line.contains("mean of the training numbers")).unwrap();
    assert!(row.contains("not measured") && !row.trim_start().starts_with('*'), "{compared}");
    let written = json(&fs::read_to_string(place.path("cmp/compare.json")).unwrap());
    let rows = written["tasks"][0]["rows"].as_array().unwrap();
    let mean = rows.iter().find(|row| row["name"] == "mean of the training numbers").unwrap();
    assert_eq!(mean["mean"], Value::Null, "{written}");
}

#[test]
fn a_probability_of_nothing_has_a_loss_that_is_finite() {
    let place = pretrained();
    fs::write(place.path("train.csv"), examples(40)).unwrap();
    let flags = ["finetune", "--task", "classify", "--model", "run/final", "--train", "train.csv"];
    let more = ["--eval", "train.csv", "--output-dir", "cls", "--set", "training.max_steps=3"];
    let length = ["--set", "data.max_seq_length=32"];
    place.program(&[&flags[..], &more[..], &length[..]].concat(), "").ok();
    copied(&place, "cls/final", "loud", |tensors| {
        for (name, tensor) in tensors.iter_mut().filter(|(name, _)| name.starts_with("classifier.out_proj")) {
            *tensor = tensor.affine(100_000.0, 0.0).unwrap();
            assert!(name.ends_with("weight") || name.ends_with("bias"));
        }
    });
    // All examples of one label: whatever the model says, some of them are surely wrong.
    let turned = examples(40).replace("bird,", "x,").replace("fish,", "bird,").replace("x,", "fish,");
    for (name, text) in [("as_it_is.csv", examples(40)), ("turned.csv", turned)] {
        fs::write(place.path(name), text).unwrap();
        let evaluate = ["evaluate", "--model", "loud", "--data", name, "--json"];
        let scores = json(&place.program(&evaluate, "").ok().stdout);
        assert!(scores["eval_loss"].is_number(), "{scores}");
    }
}

#[test]
fn one_class_alone_has_no_correlation() {
    let place = pretrained();
    fs::write(place.path("train.csv"), examples(40)).unwrap();
    let birds: String = examples(40).lines().filter(|line| !line.starts_with("fish")).fold(
        String::new(),
        |mut text, line| {
            writeln!(text, "{line}").unwrap();
            text
        },
    );
    fs::write(place.path("birds.csv"), birds).unwrap();
    let flags = ["finetune", "--task", "classify", "--model", "run/final", "--train", "train.csv"];
    let more = ["--eval", "birds.csv", "--output-dir", "cls", "--set", "training.max_steps=3"];
    let best = ["--set", "training.metric_for_best_model=matthews_correlation"];
    let length = ["--set", "data.max_seq_length=32"];
    place.program(&[&flags[..], &more[..], &best[..], &length[..]].concat(), "").ok();
    let results = json(&fs::read_to_string(place.path("cls/all_results.json")).unwrap());
    assert_eq!(results.get("eval_matthews_correlation"), Some(&Value::Null), "{results}");
    assert!(results["eval_accuracy"].is_number(), "{results}");
}

#[test]
fn a_decoder_of_its_own_is_not_supported_and_not_damaged_whoever_asks() {
    let place = pretrained();
    copied(&place, "run/final", "untied", |tensors| {
        let (_, table) = tensors.iter().find(|(name, _)| name.ends_with("word_embeddings.weight")).unwrap();
        let decoder = table.affine(1.0, 0.5).unwrap();
        tensors.push(("lm_head.decoder.weight".to_string(), decoder));
    });
    let verified = place.program(&["checkpoint", "verify", "untied"], "");
    assert_eq!(verified.code, Some(2), "{verified:#?}");
    assert!(verified.stdout.starts_with("NOT SUPPORTED untied/model.safetensors: "), "{verified:#?}");
    assert!(verified.stderr.contains("1 of 1 folders are not supported; none is damaged"), "{verified:#?}");
    let told = json(&place.program(&["checkpoint", "verify", "untied", "--json"], "").stdout);
    assert_eq!((&told["damaged"], &told["folders"][0]["damaged"]), (&0.into(), &false.into()), "{told}");
    let run = |more: &[&str]| {
        let sets = ["run.output_dir=other", "training.max_steps=1", "run.sample_text=null"];
        place.run(&sets, &[&["--model", "untied"], more].concat())
    };
    for more in [&["--dry-run"][..], &[]] {
        let refused = run(more);
        assert_eq!(refused.code, Some(2), "{refused:#?}");
        assert!(refused.stderr.contains("with a decoder of its own"), "{refused:#?}");
    }
    // Its encoder is as good as any.
    fs::write(place.path("train.csv"), examples(20)).unwrap();
    let flags = ["finetune", "--task", "classify", "--model", "untied", "--train", "train.csv"];
    let more = ["--eval", "train.csv", "--output-dir", "cls", "--set", "training.max_steps=1"];
    let length = ["--set", "data.max_seq_length=32"];
    for last in [&["--dry-run"][..], &[]] {
        place.program(&[&flags[..], &more[..], &length[..], last].concat(), "").ok();
    }
}

#[test]
fn a_dry_run_refuses_weights_that_the_run_refuses() {
    let place = pretrained();
    copied(&place, "run/final", "torn", |tensors| {
        tensors.retain(|(name, _)| !name.ends_with("layer.0.attention.self.query.weight"));
    });
    fs::write(place.path("train.csv"), examples(20)).unwrap();
    let flags = ["finetune", "--task", "classify", "--model", "torn", "--train", "train.csv"];
    let more = ["--eval", "train.csv", "--output-dir", "cls", "--set", "data.max_seq_length=32"];
    for last in [&["--dry-run"][..], &[]] {
        place
            .program(&[&flags[..], &more[..], last].concat(), "")
            .refused(1, &["layer.0.attention.self.query.weight` is missing"]);
        let sets = ["run.output_dir=other", "run.sample_text=null"];
        let refused = place.run(&sets, &[&["--model", "torn"], last].concat());
        assert!(
            refused.code == Some(1) && refused.stderr.contains("query.weight` is missing"),
            "{refused:#?}"
        );
    }
}

#[test]
fn text_that_the_tokenizer_does_not_know_is_warned_of_before_training() {
    let place = Workplace::new();
    let words = ["tokenizer.algorithm=wordpiece", "run.sample_text=null", "training.max_steps=2"];
    // The vocabulary knows English, and the run is to read Greek.
    place.run(&words, &[]).ok();
    let greek = "\u{3b1}\u{3b2}\u{3b3} \u{3b4}\u{3b5} \u{3b6}\u{3b7}\u{3b8}, the cat";
    let texts: String = (100..200).fold(String::new(), |mut texts, number| {
        write!(texts, "{greek} {number}\n\n").unwrap();
        texts
    });
    fs::write(place.path("corpus.txt"), texts).unwrap();
    let config = crate::material::CONFIG.replace("{vocab_size: 400}", "{path: run/data/tokenizer}");
    fs::write(place.path("config.yaml"), config).unwrap();
    let sets = [&words[1..], &["run.output_dir=other"]].concat();
    let told = place.run(&sets, &[]).ok().stderr;
    let warning = "% of its text, by bytes, is unknown to the tokenizer";
    assert!(told.contains(": 62 ") && told.contains(warning), "{told}");
    // Also where the shards were made before.
    fs::remove_dir_all(place.path("other/final")).unwrap();
    assert!(place.run(&sets, &[]).ok().stderr.contains(warning));
    let evaluate = ["evaluate", "--model", "run/final", "--data", "corpus.txt", "--json"];
    let scores = json(&place.program(&evaluate, "").ok().stdout);
    assert!((scores["eval_unknown_text"].as_f64().unwrap() - 16.0 / 26.0).abs() < 0.02, "{scores}");
}

#[test]
fn text_is_cleaned_in_evaluation_as_it_was_in_training() {
    let place = pretrained();
    let clean = "the cat sees the dog and the fox sleeps by the river\n".repeat(8);
    let messy = clean.replace("cat", "c\u{ad}at").replace(" and ", " &amp;\u{a0}\u{a0}and  ");
    fs::write(place.path("messy.txt"), &messy).unwrap();
    fs::write(place.path("clean.txt"), clean.replace(" and ", " & and ")).unwrap();
    let evaluate = |file: &str| {
        json(&place.program(&["evaluate", "--model", "run/final", "--data", file, "--json"], "").ok().stdout)
    };
    assert_eq!(evaluate("messy.txt"), evaluate("clean.txt"));
    // The configuration of the run says how.
    let config = fs::read_to_string(place.path("run/config.yaml")).unwrap();
    assert!(config.contains("html_entities: true"), "{config}");
    fs::write(place.path("run/config.yaml"), config.replace("html_entities: true", "html_entities: false"))
        .unwrap();
    assert_ne!(evaluate("messy.txt")["eval_tokens"], evaluate("clean.txt")["eval_tokens"]);
}

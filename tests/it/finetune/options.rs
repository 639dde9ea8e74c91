//! What may be set of a fine-tuning besides its sizes: which score is best, the head's own rate, layers that
//! keep their values, weights of classes and smoothed labels; and pairs of texts.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use candle_core::{Device, Tensor};
use serde_json::Value;

use crate::finetune::{finetune, rows, workplace};
use crate::workplace::Workplace;

fn tensors(place: &Workplace, folder: &str) -> BTreeMap<String, Vec<u32>> {
    let path = place.path(folder).join("model.safetensors");
    let bits = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let bits = |t: &Tensor| bits(t).into_iter().map(f32::to_bits).collect();
    let tensors = candle_core::safetensors::load(path, &Device::Cpu).unwrap();
    tensors.iter().map(|(name, tensor)| (name.clone(), bits(tensor))).collect()
}

/// A short run into `cls`, with constant rates, so that it may be made longer.
fn run(place: &Workplace, steps: u32, sets: &[&str]) {
    let steps = format!("training.max_steps={steps}");
    let constant = "training.lr_scheduler_type=constant";
    let sets = [&[&steps, constant, "training.warmup_steps=0", "training.weight_decay=0.1"], sets].concat();
    let sets: Vec<&str> = sets.into_iter().flat_map(|set| ["--set", set]).collect();
    finetune(place, &[&["--output-dir", "cls"], &sets[..]].concat()).ok();
}

#[test]
fn frozen_layers_keep_their_bytes_and_a_resumed_run_ends_in_the_same() {
    let place = workplace();
    let before = tensors(&place, "run/final");
    for (frozen, layers) in [("embeddings", 0), ("1", 1), ("2", 2)] {
        let sets = [format!("training.frozen_layers={frozen}"), "training.layerwise_lr_decay=0.8".into()];
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        run(&place, 5, &sets);
        run(&place, 8, &sets);
        let after = tensors(&place, "cls/final");
        let mut kept = 0;
        for (name, values) in &after {
            let of_layer = (0..layers).any(|layer| name.contains(&format!("encoder.layer.{layer}.")));
            if name.contains(".embeddings.") || of_layer {
                assert!(before[name] == *values, "{frozen}: `{name}` moved");
                kept += 1;
            } else if let Some(before) = before.get(name) {
                assert!(before != values, "{frozen}: `{name}` did not move");
            }
        }
        // Two tables, a third of one row, and a norm; a layer has 16 tensors.
        assert_eq!(kept, 5 + 16 * layers, "{frozen}");
        let moments = place.path("cls/checkpoint-8/trainer/optimizer.safetensors");
        let moments = candle_core::safetensors::load(moments, &Device::Cpu).unwrap();
        let moved = moments["exp_avg"].to_vec1::<f32>().unwrap().iter().filter(|m| **m != 0.0).count();
        let trained: usize =
            after.iter().filter(|(n, v)| before.get(*n) != Some(*v)).map(|(_, v)| v.len()).sum();
        assert!((trained * 9 / 10..=trained).contains(&moved), "{frozen}: {moved} moments of {trained}");
        fs::remove_dir_all(place.path("cls")).unwrap();
        run(&place, 8, &sets);
        assert!(tensors(&place, "cls/final") == after, "{frozen}: another run ends elsewhere");
        fs::remove_dir_all(place.path("cls")).unwrap();
    }
    finetune(&place, &["--output-dir", "cls", "--set", "training.frozen_layers=3"]).refused(
        2,
        &["training.frozen_layers: freezes more than the 2 layers", "hint: `2` trains the head alone"],
    );
    finetune(&place, &["--output-dir", "cls", "--set", "training.frozen_layers=all"])
        .refused(2, &["training.frozen_layers", "a whole number or `embeddings`"]);
    place
        .run(&["training.frozen_layers=1", "training.head_learning_rate=1"], &[])
        .refused(2, &["training.frozen_layers", "training.head_learning_rate", "it is for fine-tuning"]);
}

#[test]
fn a_head_of_its_own_rate_moves_by_it() {
    let place = workplace();
    let moved_by = |rate: &str| {
        run(&place, 1, &["training.learning_rate=1e-5", "training.weight_decay=0", rate]);
        let after = tensors(&place, "cls/final");
        fs::remove_dir_all(place.path("cls")).unwrap();
        f32::from_bits(
            *after["classifier.out_proj.bias"].iter().max_by_key(|bits| **bits & 0x7fff_ffff).unwrap(),
        )
        .abs()
    };
    // The first step of AdamW is as long as the rate, and this bias begins at 0.
    assert!((moved_by("training.head_learning_rate=null") / 1e-5 - 1.0).abs() < 1e-2);
    assert!((moved_by("training.head_learning_rate=0.002") / 2e-3 - 1.0).abs() < 1e-2);
}

#[test]
fn dropout_may_be_another_than_the_models() {
    let place = workplace();
    let read =
        |path: &str| -> Value { serde_json::from_slice(&fs::read(place.path(path)).unwrap()).unwrap() };
    let own = read("run/final/config.json");
    let mut seen = Vec::new();
    for (hidden, attention) in [(None, None), (Some(0.4), None), (None, Some(0.4))] {
        let written = |value: Option<f64>| value.map_or("null".to_string(), |value| value.to_string());
        let sets = [
            format!("hidden_dropout_prob={}", written(hidden)),
            format!("attention_probs_dropout_prob={}", written(attention)),
        ];
        run(&place, 3, &[&sets[0], &sets[1]]);
        let config = read("cls/final/config.json");
        for (key, given) in [("hidden_dropout_prob", hidden), ("attention_probs_dropout_prob", attention)] {
            assert_eq!(config[key], given.map_or(own[key].clone(), Value::from), "{key}");
        }
        finetune(&place, &["--output-dir", "cls", "--set", "hidden_dropout_prob=0.3"])
            .refused(2, &["hidden_dropout_prob: was"]);
        seen.push(tensors(&place, "cls/final"));
        fs::remove_dir_all(place.path("cls")).unwrap();
    }
    assert!(seen[0] != seen[1] && seen[0] != seen[2] && seen[1] != seen[2]);
    finetune(&place, &["--output-dir", "cls", "--set", "hidden_dropout_prob=10"])
        .refused(2, &["`hidden_dropout_prob` is 10"]);
}

#[test]
fn any_score_may_say_which_checkpoint_is_best() {
    let place = workplace();
    let state = |metric: &str| -> Value {
        let metric = format!("training.metric_for_best_model={metric}");
        run(&place, 6, &["training.eval_steps=2", "training.save_steps=2", &metric]);
        let state = fs::read(place.path("cls/checkpoint-6/trainer_state.json")).unwrap();
        fs::remove_dir_all(place.path("cls")).unwrap();
        serde_json::from_slice(&state).unwrap()
    };
    for (metric, name, is_lower) in
        [("eval_loss", "eval_loss", true), ("f1", "eval_f1", false), ("null", "eval_accuracy", false)]
    {
        let state = state(metric);
        let scores = state["log_history"].as_array().unwrap().iter().filter_map(|row| row[name].as_f64());
        let best = scores.reduce(if is_lower { f64::min } else { f64::max }).unwrap();
        assert_eq!(state["best_metric"].as_f64(), Some(best), "{metric}");
    }
    finetune(&place, &["--output-dir", "cls", "--set", "training.metric_for_best_model=eval_bleu"]).refused(
        2,
        &[
            "training.metric_for_best_model: is `eval_bleu`",
            "hint: there are `loss`, `accuracy`, `f1`, `matthews_correlation`",
        ],
    );
}

/// The probability of `a` of a text that is `a` in three examples of four, and `b` in the fourth.
fn probability_of_a(place: &Workplace, set: &str) -> f64 {
    run(place, 60, &["training.learning_rate=0.002", "training.weight_decay=0", set]);
    let predicted =
        place.program(&["predict", "--model", "cls/final", "--input", "-"], "the owl runs\n").ok();
    fs::remove_dir_all(place.path("cls")).unwrap();
    rows(&predicted.stdout)[0]["probabilities"]["a"].as_f64().unwrap()
}

#[test]
fn weights_of_classes_and_smoothed_labels_do_what_their_formulas_say() {
    let place = workplace();
    let text = "b,the owl runs\na,the owl runs\na,the owl runs\na,the owl runs\n".repeat(16);
    for file in ["train.csv", "dev.csv"] {
        fs::write(place.path(file), format!("label,text\n{text}")).unwrap();
    }
    for (set, want) in [
        ("training.class_weights=null", 0.75),
        ("training.class_weights=balanced", 0.5),
        // 3 x 0.5 to 1 x 4.5.
        ("training.class_weights={a: 0.5, b: 4.5}", 0.25),
        ("training.label_smoothing_factor=0.4", 0.75 * 0.6 + 0.2),
    ] {
        let found = probability_of_a(&place, set);
        assert!((found - want).abs() < 0.06, "{set}: {found} is not {want}");
    }
    finetune(&place, &["--output-dir", "cls", "--set", "training.class_weights=even"])
        .refused(2, &["training.class_weights", "`balanced` or a number for each name"]);
    for (weights, words) in [
        ("{a: 1, b: 1, c: 1}", "`c` is no label of the examples"),
        ("{a: 1}", "the label `b` has no weight"),
        ("{a: 1, b: 0}", "`training.class_weights.b` is 0, a weight is above 0"),
        ("{a: 1, b: much}", "`training.class_weights.b` wants a number"),
        ("{}", "`training.class_weights` is empty"),
    ] {
        finetune(&place, &["--output-dir", "cls", "--set", &format!("training.class_weights={weights}")])
            .refused(2, &[words]);
    }
    let all = ["--set", "data.labels=[a, b, c]", "--set", "training.class_weights=balanced"];
    finetune(&place, &[&["--output-dir", "cls"], &all[..]].concat())
        .refused(2, &["training.class_weights: no training example has the label `c`"]);
    fs::write(
        place.path("regression.yaml"),
        "task: regression\nmodel: run/final\nrun: {output_dir: cls}\ntraining: {label_smoothing_factor: 0.1}\n\
         data: {train_file: train.csv, eval_file: dev.csv}\n",
    )
    .unwrap();
    place
        .program(&["finetune", "--config", "regression.yaml"], "")
        .refused(2, &["training.label_smoothing_factor", "`task: classify` only"]);
}

/// Whether both texts name an animal of one kind: neither text tells it by itself.
#[test]
fn a_label_that_depends_on_both_texts_of_a_pair_is_learnt() {
    let place = workplace();
    let mut csv = "first,second,label\n".to_string();
    for round in 0..4 {
        for (first, second) in (0..4).flat_map(|first| (0..4).map(move |second| (first, second))) {
            let name = |animal: usize| ["owl", "eagle", "pike", "trout"][animal];
            let label = if first / 2 == second / 2 { "same" } else { "other" };
            writeln!(csv, "the {} runs {round},the {} sees,{label}", name(first), name(second)).unwrap();
        }
    }
    for file in ["train.csv", "dev.csv"] {
        fs::write(place.path(file), &csv).unwrap();
    }
    let accuracy = |columns: &[&str]| {
        let sets = ["training.num_train_epochs=90", "training.learning_rate=0.003"].map(|set| ["--set", set]);
        finetune(&place, &[&["--output-dir", "cls"], columns, sets.as_flattened()].concat()).ok();
        let results: Value =
            serde_json::from_slice(&fs::read(place.path("cls/all_results.json")).unwrap()).unwrap();
        fs::remove_dir_all(place.path("cls")).unwrap();
        results["eval_accuracy"].as_f64().unwrap()
    };
    let pair = accuracy(&["--text-column", "first", "--text-pair-column", "second"]);
    assert!(pair > 0.95, "{pair}");
    for column in ["first", "second"] {
        let alone = accuracy(&["--text-column", column]);
        assert!(alone < 0.6, "{column} alone: {alone}");
    }
}

//! Training on from a model folder: with its tokenizer and with another one, for either task, and stopped in
//! between.

use std::collections::BTreeMap;
use std::fs;

use candle_core::Device;
use serde_json::Value;

use crate::pretrain::electra::MODEL;
use crate::workplace::{Finished, Workplace, send};

const SIGTERM: i32 = 15;

/// A workplace whose `first/final` is a trained model.
fn with_model(sets: &[&str]) -> Workplace {
    let place = Workplace::new();
    place.run(&[&["run.output_dir=first"], sets].concat(), &[]).ok();
    place
}

fn weights(place: &Workplace, path: &str) -> Vec<u8> {
    fs::read(place.path(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn losses(place: &Workplace) -> Vec<f64> {
    place.series("train/loss").into_iter().map(|(_, loss)| loss).collect()
}

/// What a run on from `first/final` is started with.
fn on(place: &Workplace, sets: &[&str]) -> Vec<String> {
    let config = fs::read_to_string(place.path("config.yaml")).unwrap();
    // The folder's tokenizer is taken where the configuration has none.
    fs::write(place.path("config.yaml"), config.replace("tokenizer: {vocab_size: 400}\n", "")).unwrap();
    sets.iter().map(ToString::to_string).collect()
}

fn run_on(place: &Workplace, sets: &[&str]) -> Finished {
    let sets = on(place, sets);
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    place.run(&sets, &["--model", "first/final"])
}

#[test]
fn a_run_goes_on_from_the_weights_and_the_tokenizer_of_a_folder() {
    let place = with_model(&[]);
    let done = run_on(&place, &[]).ok();
    assert!(done.stderr.contains("the run begins with these weights"), "{}", done.stderr);
    assert!(!done.stderr.contains("begin fresh"), "{}", done.stderr);
    assert_eq!(weights(&place, "first/final/tokenizer.json"), weights(&place, "run/final/tokenizer.json"));
    let first = fs::read_to_string(place.path("first/metrics.jsonl")).unwrap();
    let first: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    let first = first["train/loss"].as_f64().unwrap();
    assert!(losses(&place)[0] < first - 1.0, "{} after {first}", losses(&place)[0]);
}

/// The tokenizer of the folder is the one that was trained for these shards.
#[test]
fn the_shards_of_the_first_training_serve_the_second_one() {
    let place = with_model(&[]);
    let done = run_on(&place, &["data.prepared_dir=first/data", "training.max_steps=2"]).ok();
    assert!(done.stderr.contains("found `first/data`"), "{}", done.stderr);
    let other = ["data.prepared_dir=first/data", "data.validation_fraction=0.3", "run.output_dir=other"];
    run_on(&place, &other)
        .refused(2, &["first/data: was prepared with other settings", "validation_fraction"]);
}

#[test]
fn prepare_and_a_dry_run_know_the_folder_as_well() {
    let place = with_model(&[]);
    let config = fs::read_to_string(place.path("config.yaml")).unwrap();
    let (before, after) = config.split_once("model:\n").unwrap();
    let after = after.split_once("training:").unwrap().1;
    let text = format!("{before}model: {{path: first/final}}\ntraining:{after}");
    fs::write(place.path("config.yaml"), text.replace("tokenizer: {vocab_size: 400}\n", "")).unwrap();
    let dry: Finished = place.subcommand("pretrain", &[], &["--dry-run"]).output().expect("starts").into();
    let dry = dry.ok();
    assert!(dry.stdout.contains("roberta 2 x 32"), "{}", dry.stdout);
    let prepared: Finished = place.subcommand("prepare", &[], &[]).output().expect("starts").into();
    prepared.ok();
    assert_eq!(
        weights(&place, "first/final/tokenizer.json"),
        weights(&place, "run/data/tokenizer/tokenizer.json")
    );
}

#[test]
fn no_steps_write_the_folder_again_or_its_untrained_twin() {
    let place = with_model(&[]);
    run_on(&place, &["training.max_steps=0"]).ok();
    assert!(
        weights(&place, "first/final/model.safetensors") == weights(&place, "run/final/model.safetensors")
    );
    let twin = Workplace::new();
    twin.run(&["training.max_steps=0"], &[]).ok();
    assert!(
        weights(&place, "first/final/model.safetensors") != weights(&twin, "run/final/model.safetensors")
    );
    assert!(twin.json("all_results.json")["eval_loss"].as_f64().unwrap() > 5.0);
    assert_eq!(twin.run(&["training.max_steps=0"], &[]).ok().stdout.matches("nothing was done").count(), 1);
}

#[test]
fn a_table_of_another_family_that_the_folder_replaces_is_named() {
    let place = with_model(&[]);
    let config = fs::read_to_string(place.path("config.yaml")).unwrap().replace("  roberta: {", "  bert: {");
    fs::write(place.path("config.yaml"), config).unwrap();
    let unused =
        "note: the table `model.bert` of the configuration is not used: `first/final` is a model of RoBERTa";
    let done = run_on(&place, &["training.max_steps=2"]).ok();
    assert_eq!(done.stderr.matches(unused).count(), 1, "{}", done.stderr);
    let same = with_model(&[]);
    let done = run_on(&same, &["training.max_steps=2", "tokenizer.path=first/final"]).ok();
    assert!(!done.stderr.contains("is not used"), "{}", done.stderr);
    assert!(!done.stderr.contains("another tokenizer"), "it is the folder's own: {}", done.stderr);
    assert!(
        done.stderr.contains("worse than guessing by frequency alone") == is_worse(&same),
        "{}",
        done.stderr
    );
}

/// True if the loss of the run is above that of guessing each word by its frequency.
fn is_worse(place: &Workplace) -> bool {
    let results = place.json("all_results.json");
    results["eval_loss"].as_f64() > results["eval_unigram_loss"].as_f64()
}

#[test]
fn another_tokenizer_keeps_the_rows_of_shared_tokens() {
    let place = with_model(&[]);
    let sets = ["tokenizer.vocab_size=500", "training.max_steps=3", "tokenizer.min_frequency=1"];
    let done = place.run(&sets, &["--model", "first/final"]).ok();
    assert!(done.stderr.contains("another tokenizer: "), "{}", done.stderr);
    assert!(done.stderr.contains("begin at the mean"), "{}", done.stderr);
    let rows = place.json("final/config.json")["vocab_size"].as_u64().unwrap();
    assert!(rows > 400, "{rows}");
}

#[test]
fn more_positions_repeat_the_rows_and_fewer_are_refused() {
    let place = with_model(&[]);
    let on = ["data.max_seq_length=60", "training.max_steps=2", "data.prepared_dir=longer"];
    run_on(&place, &on).refused(2, &["data.max_seq_length", "32 tokens"]);
    let more = [&on[..], &["model.max_position_embeddings=70"]].concat();
    let done = run_on(&place, &more).ok();
    assert!(done.stderr.contains("34 positions become 70"), "{}", done.stderr);
    run_on(&place, &["model.max_position_embeddings=20"])
        .refused(2, &["model.max_position_embeddings", "34"]);
}

#[test]
fn more_layers_repeat_those_that_are_there_in_their_order_and_fewer_are_refused() {
    let place = with_model(&[]);
    let deeper = ["model.num_hidden_layers=5", "training.max_steps=0"];
    let done = run_on(&place, &deeper).ok();
    assert!(done.stderr.contains("2 layers become 5: they are repeated in their order"), "{}", done.stderr);
    assert_eq!(place.json("final/config.json")["num_hidden_layers"], 5);
    let tensors = |run: &str| {
        let path = place.path(run).join("final/model.safetensors");
        candle_core::safetensors::load(path, &Device::Cpu).unwrap().into_iter().collect::<BTreeMap<_, _>>()
    };
    let (before, after) = (tensors("first"), tensors("run"));
    for (name, tensor) in &after {
        let layer = |number: usize| format!(".layer.{number}.");
        let number = (0..5).find(|&number| name.contains(&layer(number))).unwrap_or(0);
        let repeated = &before[&name.replace(&layer(number), &layer(number % 2))];
        let [values, wanted] =
            [tensor, repeated].map(|tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap());
        assert!(values == wanted, "{name}");
    }
    assert_eq!(after.keys().filter(|name| name.contains(".layer.4.")).count(), 16);

    fs::remove_dir_all(place.path("run")).unwrap();
    run_on(&place, &["model.num_hidden_layers=1"]).refused(2, &["model.num_hidden_layers", "has 2"]);
    let from_nothing = place.run(&["model.num_hidden_layers=4"], &[]);
    from_nothing.refused(2, &["`model.num_hidden_layers` is given, but `model.path` is not"]);
}

#[test]
fn a_stopped_run_that_began_with_weights_goes_on_with_the_same_bytes() {
    let (place, undisturbed) = (with_model(&[]), with_model(&[]));
    run_on(&undisturbed, &["precision.compute=bf16"]).ok();
    on(&place, &[]);
    let mut child =
        place.command(&["precision.compute=bf16"], &["--model", "first/final"]).spawn().expect("starts");
    while child.try_wait().expect("can be asked").is_none() && place.logged_steps().last() < Some(&9) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    send(&child, SIGTERM);
    child.wait_with_output().expect("ends");
    run_on(&place, &["precision.compute=bf16"]).ok();
    assert_eq!(place.metrics(), undisturbed.metrics());
    assert!(
        weights(&place, "run/final/model.safetensors")
            == weights(&undisturbed, "run/final/model.safetensors")
    );
}

#[test]
fn an_electra_goes_on_with_its_generator_or_a_fresh_one() {
    let electra = [MODEL, "tokenizer.algorithm=wordpiece", "run.sample_text=null"];
    let place = with_model(&electra);
    let no_steps = ["training.max_steps=0", "run.sample_text=null"];
    run_on(&place, &no_steps).ok();
    for folder in ["generator", "discriminator"] {
        let path = |run: &str| format!("{run}/final/{folder}/model.safetensors");
        assert!(weights(&place, &path("first")) == weights(&place, &path("run")), "{folder}");
    }
    let sets = [&no_steps[..], &["run.output_dir=fresh"]].concat();
    let fresh = place.run(&sets, &["--model", "first/final/discriminator"]).ok();
    assert!(fresh.stderr.contains("begin fresh: `generator."), "{}", fresh.stderr);
    let discriminator = |run: &str| weights(&place, &format!("{run}/final/discriminator/model.safetensors"));
    assert!(discriminator("first") == discriminator("fresh"));
}

#[test]
fn what_cannot_be_begun_with_is_named() {
    let place = Workplace::new();
    place
        .run(&[], &["--model", "nowhere"])
        .refused(1, &["there is no folder `nowhere`", "hf download nowhere"]);
    place.run(&["model.path=first/final"], &[]).refused(2, &["model.path", "model.roberta"]);
    place.run(&["model.generator_path=g"], &[]).refused(2, &["model.generator_path"]);
}

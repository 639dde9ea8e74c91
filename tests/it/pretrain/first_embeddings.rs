//! Embeddings that begin with what the text says of neighbours: which tensors they change, and that a run
//! which was stopped does not make them again.

use std::collections::BTreeMap;

use candle_core::Device;

use crate::pretrain::electra;
use crate::workplace::{Workplace, send};

const SIGTERM: i32 = 15;
const COUNTED: &str = "model.initial_embeddings=cooccurrence";

/// Width of the workplace's model.
const WIDTH: usize = 32;

type Tensors = BTreeMap<String, Vec<f32>>;

fn tensors(place: &Workplace, folder: &str) -> Tensors {
    let read = candle_core::safetensors::load(place.path(folder).join("model.safetensors"), &Device::Cpu);
    let values = |tensor: candle_core::Tensor| tensor.flatten_all().unwrap().to_vec1().unwrap();
    read.unwrap().into_iter().map(|(name, tensor)| (name, values(tensor))).collect()
}

/// The names of the tensors that differ.
fn changed(before: &Tensors, after: &Tensors) -> Vec<String> {
    assert_eq!(before.len(), after.len());
    before.iter().filter(|(name, values)| after[*name] != **values).map(|(name, _)| name.clone()).collect()
}

#[test]
fn only_the_embeddings_begin_otherwise() {
    let place = Workplace::new();
    let untrained = |output: &str, more: &[&str]| {
        let output = format!("run.output_dir={output}");
        place.run(&[&["training.max_steps=0", output.as_str()], more].concat(), &[]).ok()
    };
    untrained("random", &[]);
    let said = untrained("counted", &[COUNTED]).stderr;
    assert!(said.contains("word embeddings: "), "{said}");
    let (random, counted) = (tensors(&place, "random/final"), tensors(&place, "counted/final"));
    let name = "roberta.embeddings.word_embeddings.weight";
    assert_eq!(changed(&random, &counted), [name]);
    let squares = |table: &Tensors| -> Vec<f32> {
        table[name].chunks_exact(WIDTH).map(|row| row.iter().map(|value| value * value).sum()).collect()
    };
    // As long as random rows are in the mean, and so is no random one exactly.
    let wanted = WIDTH as f32 * 0.02 * 0.02;
    let exact = |table: &Tensors| squares(table).iter().filter(|s| (*s / wanted - 1.0).abs() < 1e-5).count();
    let found = said.split("word embeddings: ").nth(1).and_then(|rest| rest.split(' ').next());
    let found: usize = found.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{said}"));
    assert!(found > WIDTH, "{said}");
    assert_eq!((exact(&counted), exact(&random)), (found, 0));
}

#[test]
fn a_stopped_run_does_not_count_again_and_ends_in_the_same_bytes() {
    let (place, undisturbed) = (Workplace::new(), Workplace::new());
    undisturbed.run(&[COUNTED], &[]).ok();
    if let Some(child) = place.start_and_reach(9, &[COUNTED]) {
        send(&child, SIGTERM);
        child.wait_with_output().expect("ends");
    }
    let said = place.run(&[COUNTED], &[]).ok().stderr;
    assert!(!said.contains("word embeddings: "), "{said}");
    let [stopped, whole] = [&place, &undisturbed].map(|place| tensors(place, "run/final"));
    assert!(changed(&stopped, &whole).is_empty());
    assert_eq!(place.metrics(), undisturbed.metrics());
}

#[test]
fn both_models_of_an_electra_have_the_table() {
    let place = Workplace::new();
    let sets = electra::sets(&[COUNTED, "training.max_steps=0"]);
    let said = place.run(&sets, &[]).ok().stderr;
    assert!(said.contains("word embeddings: "), "{said}");
    let [generator, discriminator] =
        ["generator", "discriminator"].map(|half| tensors(&place, &format!("run/final/{half}")));
    let name = "electra.embeddings.word_embeddings.weight";
    assert!(generator[name] == discriminator[name]);
}

#[test]
fn what_it_does_not_fit_is_refused() {
    let place = Workplace::new();
    let with_folder = [COUNTED, "model.roberta=null"];
    place
        .run(&with_folder, &["--model", "first/final"])
        .refused(2, &["`model.path` and `model.initial_embeddings`"]);
    place.run(&["model.initial_embeddings=counted"], &[]).refused(2, &["model.initial_embeddings"]);
    place.run(&[COUNTED, "model.roberta.hidden_size=1024"], &[]).refused(
        2,
        &["model.initial_embeddings", "too few different tokens for vectors of 1024 numbers", "leave it out"],
    );
}

//! `mlmtrain embed` as its users meet it, on a small model that the test pretrains.

use std::fs;

use crate::workplace::Workplace;

/// The rows of an .npy file of f32 numbers.
fn vectors(place: &Workplace, name: &str) -> Vec<Vec<f32>> {
    let bytes = fs::read(place.path(name)).unwrap();
    let header = std::str::from_utf8(&bytes[10..128]).unwrap();
    let shape = header.split_once("'shape': (").unwrap().1.split_once(')').unwrap().0;
    let [rows, width] = shape.split(", ").map(|n| n.parse().unwrap()).collect::<Vec<usize>>()[..] else {
        panic!("{header}")
    };
    let numbers = bytes[128..].chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap()));
    let numbers: Vec<f32> = numbers.collect();
    assert_eq!(numbers.len(), rows * width);
    numbers.chunks(width).map(<[f32]>::to_vec).collect()
}

fn embed(place: &Workplace, more: &[&str], input: &str) -> crate::workplace::Finished {
    place.program(
        &[&["embed", "--model", "run/final", "--overwrite", "--output", "v.npy"], more].concat(),
        input,
    )
}

fn largest_difference(left: &[Vec<f32>], right: &[Vec<f32>]) -> f32 {
    assert_eq!(left.len(), right.len());
    left.iter().flatten().zip(right.iter().flatten()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn each_text_has_a_vector_in_its_place_whatever_is_computed_beside_it() {
    let place = Workplace::new();
    place.run(&["training.max_steps=2", "run.sample_text=null"], &[]).ok();
    // Short and long ones in turn, and more than are read at once.
    let texts: Vec<String> = (0..70).map(|i| format!("the owl{} runs", " sees".repeat(i * 5 % 13))).collect();
    let all = texts.join("\n");
    let stdout = embed(&place, &["--file", "-", "--batch-size", "1"], &all).ok().stdout;
    assert!(stdout.starts_with("70 vectors of ") && stdout.ends_with(" numbers: v.npy\n"), "{stdout}");
    let alone = vectors(&place, "v.npy");
    embed(&place, &["--file", "-", "--batch-size", "8"], &all).ok();
    assert!(largest_difference(&vectors(&place, "v.npy"), &alone) < 1e-5);
    assert!(largest_difference(&alone[..1], &alone[1..2]) > 1e-2, "texts have vectors of their own");

    fs::write(place.path("texts.jsonl"), format!("{{\"id\": 1, \"text\": \"{}\"}}\n", texts[3])).unwrap();
    embed(&place, &["--file", "texts.jsonl"], "").ok();
    assert!(largest_difference(&vectors(&place, "v.npy"), &alone[3..4]) < 1e-5);
    embed(&place, &["--file", "texts.jsonl", "--normalize"], "").ok();
    let length = alone[3].iter().map(|value| value * value).sum::<f32>().sqrt();
    let unit: Vec<f32> = alone[3].iter().map(|value| value / length).collect();
    assert!(largest_difference(&vectors(&place, "v.npy"), &[unit]) < 1e-5);
    embed(&place, &["--file", "texts.jsonl", "--pooling", "cls"], "").ok();
    assert!(largest_difference(&vectors(&place, "v.npy"), &alone[3..4]) > 1e-3, "the first token is no mean");
}

#[test]
fn the_columns_that_a_model_was_trained_on_are_read() {
    let place = Workplace::new();
    place.run(&["training.max_steps=2", "run.sample_text=null"], &[]).ok();
    embed(&place, &["--file", "-"], "the owl runs\n").ok();
    let plain = vectors(&place, "v.npy");
    fs::write(place.path("nested.jsonl"), "{\"review\": {\"text\": \"the owl runs\"}}\n").unwrap();
    embed(&place, &["--file", "nested.jsonl"], "").refused(1, &["has no column `text`, `sentence`"]);
    fs::write(place.path("run/final/mlmtrain.json"), r#"{"text_column": "review.text"}"#).unwrap();
    embed(&place, &["--file", "nested.jsonl"], "").ok();
    assert!(largest_difference(&vectors(&place, "v.npy"), &plain) < 1e-6);
}

#[test]
fn long_texts_are_counted_and_bad_input_leaves_no_file() {
    let place = Workplace::new();
    place.run(&["training.max_steps=2", "run.sample_text=null"], &[]).ok();
    let long = format!("the owl runs\n{}", "the eagle sees ".repeat(2000));
    let finished = embed(&place, &["--file", "-"], &long).ok();
    assert!(finished.stderr.contains("note: 1 of 2 texts were cut at "), "{}", finished.stderr);
    fs::remove_file(place.path("v.npy")).unwrap();
    embed(&place, &["--file", "-"], "").refused(1, &["holds no text"]);
    embed(&place, &["--file", "none.txt"], "").refused(2, &["none.txt: there is no such file"]);
    embed(&place, &["--file", "-", "--text-column", "a"], "x\n").refused(2, &["plain text has none"]);
    let other = ["embed", "--model", "run/final", "--file", "-", "--output", "v.csv"];
    place
        .program(&other, "a\n")
        .refused(2, &["v.csv: has a name that ends neither in `.npy` nor in `.parquet`"]);
    assert!(!place.path("v.npy").exists() && !place.path("v.csv").exists());
}

/// Writes the files of sentence-transformers into `run/final`.
fn write_modules(place: &Workplace, kinds: &[&str], pooling: &str) {
    let list: Vec<serde_json::Value> = kinds
        .iter()
        .enumerate()
        .map(|(idx, kind)| {
            let path = if idx == 0 { String::new() } else { format!("{idx}_{kind}") };
            let kind = format!("sentence_transformers.models.{kind}");
            serde_json::json!({"idx": idx, "name": idx.to_string(), "path": path, "type": kind})
        })
        .collect();
    fs::write(place.path("run/final/modules.json"), serde_json::to_string(&list).unwrap()).unwrap();
    fs::create_dir_all(place.path("run/final/1_Pooling")).unwrap();
    fs::write(place.path("run/final/1_Pooling/config.json"), pooling).unwrap();
}

#[test]
fn the_files_of_sentence_transformers_are_followed_or_refused() {
    let place = Workplace::new();
    place.run(&["training.max_steps=2", "run.sample_text=null"], &[]).ok();
    let text = "the owl runs\nthe eagle sees the owl and the fox\n";
    let of = |more: &[&str]| {
        let finished = embed(&place, &[&["--file", "-"], more].concat(), text).ok();
        (vectors(&place, "v.npy"), finished.stderr)
    };
    let [plain, cls] =
        [&["--pooling", "mean"][..], &["--pooling", "cls", "--normalize"]].map(|more| of(more).0);
    assert_eq!(of(&[]).0, plain, "no such file: the mean");
    write_modules(&place, &["Transformer", "Pooling", "Normalize"], r#"{"pooling_mode_cls_token": true}"#);
    let (found, told) = of(&[]);
    assert!(largest_difference(&found, &cls) < 1e-6);
    assert!(told.contains("vectors as modules.json says: cls, normalized"), "{told}");
    assert_eq!(of(&["--pooling", "mean"]).0, plain, "who asks for the mean gets it");

    // Both, one after the other, through a map that doubles the first two columns.
    write_modules(&place, &["Transformer", "Pooling", "Dense"], r#"{"pooling_mode": ["max", "mean"]}"#);
    let (width, dense) = (plain[0].len(), place.path("run/final/2_Dense"));
    let mut weight = vec![0f32; 2 * 2 * width];
    (weight[width], weight[2 * width + width + 1]) = (2.0, 2.0);
    let weight = candle_core::Tensor::from_vec(weight, (2, 2 * width), &candle_core::Device::Cpu).unwrap();
    fs::create_dir(&dense).unwrap();
    let mut file = fs::File::create(dense.join("model.safetensors")).unwrap();
    mlmtrain::checkpoint::write_tensors(&mut file, &[("linear.weight".to_string(), weight)]).unwrap();
    fs::write(dense.join("config.json"), r#"{"activation_function": "torch.nn.modules.linear.Identity"}"#)
        .unwrap();
    let doubled: Vec<Vec<f32>> = plain.iter().map(|row| vec![2.0 * row[0], 2.0 * row[1]]).collect();
    assert!(largest_difference(&of(&[]).0, &doubled) < 1e-5);

    let config = r#"{"max_seq_length": 4, "do_lower_case": false}"#;
    fs::write(place.path("run/final/sentence_bert_config.json"), config).unwrap();
    let told = of(&[]).1;
    assert!(told.contains("2 of 2 texts were cut at 4 tokens"), "{told}");
    fs::remove_file(place.path("v.npy")).unwrap();
    let refused = |words: &[&str]| embed(&place, &["--file", "-"], text).refused(1, words);
    fs::write(dense.join("config.json"), r#"{"activation_function": "torch.nn.modules.activation.ELU"}"#)
        .unwrap();
    refused(&["2_Dense", "`activation_function`", "ELU"]);
    write_modules(&place, &["Transformer", "Pooling", "LSTM"], "{}");
    refused(&["modules.json", "models.LSTM"]);
    write_modules(&place, &["Transformer", "Pooling"], r#"{"pooling_mode": "median"}"#);
    refused(&["1_Pooling", "`median`"]);
}

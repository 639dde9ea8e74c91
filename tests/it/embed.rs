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
    place.program(&[&["embed", "--model", "run/final", "--output", "v.npy"], more].concat(), input)
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
fn long_texts_are_counted_and_bad_input_leaves_no_file() {
    let place = Workplace::new();
    place.run(&["training.max_steps=2", "run.sample_text=null"], &[]).ok();
    let long = format!("the owl runs\n{}", "the eagle sees ".repeat(2000));
    let finished = embed(&place, &["--file", "-"], &long).ok();
    assert!(finished.stderr.contains("note: 1 of 2 texts were cut at "), "{}", finished.stderr);
    fs::remove_file(place.path("v.npy")).unwrap();
    embed(&place, &["--file", "-"], "").refused(1, &["holds no text"]);
    embed(&place, &["--file", "none.txt"], "").refused(1, &["none.txt"]);
    embed(&place, &["--file", "-", "--text-column", "a"], "x\n").refused(2, &["plain text has none"]);
    let other = ["embed", "--model", "run/final", "--file", "-", "--output", "v.csv"];
    place
        .program(&other, "a\n")
        .refused(2, &["v.csv: has a name that ends neither in `.npy` nor in `.parquet`"]);
    assert!(!place.path("v.npy").exists() && !place.path("v.csv").exists());
}

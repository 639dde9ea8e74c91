//! `mlmtrain init` as a new user meets it: from a text to a configuration that trains.

use std::fs;

use crate::workplace::Workplace;

/// Some paragraphs in a file with blank lines between them.
fn text(place: &Workplace) {
    let animals = ["owl", "eagle", "fox", "bear", "otter"];
    let paragraph = |n: usize| {
        let sentence =
            |i: usize| format!("The {} number {n} sees the {}.", animals[(n + i) % 5], animals[n * i % 5]);
        (0..40).map(sentence).collect::<Vec<_>>().join(" ")
    };
    let paragraphs: Vec<String> = (0..60).map(paragraph).collect();
    fs::write(place.path("animals.txt"), paragraphs.join("\n\n")).unwrap();
}

#[test]
fn the_configuration_trains_and_says_why() {
    let place = Workplace::new();
    text(&place);
    // However slow this machine is now, there is time for more than the text gives.
    let arguments =
        ["init", "--text", "animals.txt", "--language", "en", "--budget", "100h", "--device", "cpu"];
    let finished = place.program(&arguments, "").ok();
    let stdout = &finished.stdout;
    assert!(
        stdout.contains("wrote `pretrain.yaml`: a model of 2 layers, 128 wide, vocabulary 4096"),
        "{stdout}"
    );
    assert!(stdout.contains("predicted: ") && stdout.contains("39.9 epochs"), "{stdout}");
    assert!(stdout.ends_with("next: mlmtrain pretrain --config pretrain.yaml\n"), "{stdout}");
    let yaml = fs::read_to_string(place.path("pretrain.yaml")).unwrap();
    assert!(
        yaml.contains("document: paragraph\n") && yaml.contains("language: {expected: [en]}\n"),
        "{yaml}"
    );
    assert!(yaml.contains("more text would help"), "{yaml}");

    // A few of its steps.
    let short =
        ["training.max_steps=2", "run.threads=1", "precision.compute=f32", "data.deduplication.exact=false"];
    let mut arguments = vec!["pretrain", "--config", "pretrain.yaml"];
    arguments.extend(short.iter().flat_map(|setting| ["--set", setting]));
    let stdout = place.program(&arguments, "").ok().stdout;
    assert!(stdout.contains("trained 2 steps"), "{stdout}");
    assert!(place.path("runs/pretrain/final/model.safetensors").exists());

    // What is there is not written over; standard output is always free.
    place
        .program(&["init", "--text", "animals.txt", "--budget", "1m"], "")
        .refused(2, &["pretrain.yaml: exists already", "--output"]);
    assert_eq!(fs::read_to_string(place.path("pretrain.yaml")).unwrap(), yaml);
    let elsewhere = ["init", "--text", "animals.txt", "--budget", "3d", "--device", "H100", "--output", "-"];
    let printed = place.program(&elsewhere, "").ok().stdout;
    assert!(printed.contains("device: cuda\n") && printed.contains("not measured: 35 %"), "{printed}");
}

#[test]
fn what_cannot_be_meant_is_refused_and_leaves_no_file() {
    let place = Workplace::new();
    text(&place);
    let init = |more: &[&str]| place.program(&[&["init", "--output", "a.yaml"], more].concat(), "");
    init(&["--text", "none.txt", "--budget", "1m"]).refused(2, &["none.txt"]);
    init(&["--text", "-", "--budget", "1m"]).refused(2, &["standard input", "write it to a file"]);
    init(&["--text", "animals.txt", "--budget", "soon"]).refused(2, &["--budget", "soon"]);
    init(&["--text", "animals.txt", "--budget", "1m", "--language", "xx"])
        .refused(2, &["--language", "ISO 639"]);
    init(&["--text", "animals.txt", "--budget", "1m", "--device", "X9"])
        .refused(2, &["--device", "`X9`", "H100"]);
    fs::write(place.path("empty.jsonl"), "{\"text\": \"\"}\n").unwrap();
    init(&["--text", "empty.jsonl", "--budget", "1m"]).refused(2, &["hold no text"]);
    init(&["--text", "empty.jsonl", "--budget", "1m", "--field", "body"])
        .refused(1, &["empty.jsonl", "body"]);
    assert!(!place.path("a.yaml").exists());
}

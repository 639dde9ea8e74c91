//! Configurations of several files, with variables and profiles, as the program meets them: what is saved,
//! what is told, and whether a run goes on. Arguments of other programs. The log file.

use std::fs;
use std::process::Command;

use crate::workplace::{Finished, Workplace};

/// The program with these arguments, in the workplace, with these variables.
fn program(place: &Workplace, arguments: &[&str], variables: &[(&str, &str)]) -> Finished {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlmtrain"));
    command.args(arguments).current_dir(place.path(""));
    command.envs(variables.iter().copied()).output().expect("starts").into()
}

/// The configuration of the workplace with its corpus in the folder that a variable names.
fn with_variable(place: &Workplace, name: &str) {
    let config = fs::read_to_string(place.path("config.yaml")).unwrap();
    let moved = config.replace("[corpus.txt]", &format!("[\"${{{name}}}/corpus.txt\"]"));
    assert_ne!(moved, config);
    fs::write(place.path("config.yaml"), moved).unwrap();
}

#[test]
fn a_run_goes_on_where_a_variable_stands_for_another_folder() {
    let place = Workplace::new();
    with_variable(&place, "CORPUS_HOME");
    for folder in ["here", "there"] {
        fs::create_dir(place.path(folder)).unwrap();
        fs::copy(place.path("corpus.txt"), place.path(folder).join("corpus.txt")).unwrap();
    }
    fs::remove_file(place.path("corpus.txt")).unwrap();
    let run = |folder: &str, set: &str| {
        let home = place.path(folder).display().to_string();
        let arguments =
            ["pretrain", "--config", "config.yaml", "--set", "training.save_steps=2", "--set", set];
        program(&place, &arguments, &[("CORPUS_HOME", &home)])
    };
    run("here", "training.max_steps=4").ok();
    let saved = fs::read_to_string(place.run_path("config.yaml")).unwrap();
    assert!(saved.contains("\"${CORPUS_HOME}/corpus.txt\""), "{saved}");
    let resumed = run("there", "training.max_steps=6").ok();
    assert!(resumed.stderr.contains("resuming after step 4"), "{}", resumed.stderr);
    assert!(resumed.stderr.contains("found `run/data`"), "its shards stay in use: {}", resumed.stderr);
    fs::write(place.path("there").join("corpus.txt"), "Another corpus altogether.\n\nOf two documents.\n")
        .unwrap();
    assert_eq!(run("there", "training.max_steps=8").code, Some(2), "another corpus is not the same");
    let unset = program(&place, &["pretrain", "--config", "config.yaml"], &[]);
    unset.refused(2, &["config.yaml:", "the variable `CORPUS_HOME` is not set", "hint: set it"]);
    let listed = program(&place, &["runs", "."], &[]).ok().stdout;
    assert!(listed.contains("masked_lm"), "a run is listed wherever its files lie: {listed}");
}

/// Files below the workplace, and what the program said, in which a text stands.
fn holding(place: &Workplace, said: &Finished, text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    found.extend(said.stdout.contains(text).then(|| "standard output".to_string()));
    found.extend(said.stderr.contains(text).then(|| "standard error".to_string()));
    let mut folders = vec![place.path("")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if fs::read(&path).unwrap().windows(text.len()).any(|window| window == text.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[test]
fn a_secret_from_a_variable_is_told_by_its_name_alone() {
    const VALUE: &str = "hunter2-planted-9b3c";
    let place = Workplace::new();
    let run = |name: &str, more: &[&str]| {
        let set = format!("include: config.yaml\nrun: {{sample_text: 'the ${{{name}}} <mask>'}}\n");
        fs::write(place.path("secret.yaml"), set).unwrap();
        let arguments = ["pretrain", "--config", "secret.yaml", "-v", "--log-file", "log.txt", "--set"];
        let arguments = [&arguments[..], &["training.max_steps=2"], more].concat();
        program(&place, &arguments, &[(name, VALUE)])
    };
    let said = run("SITE_TOKEN", &[]).ok();
    assert_eq!(holding(&place, &said, VALUE), [] as [String; 0]);
    assert!(said.stdout.contains("the ${SITE_TOKEN} <mask>"), "{}", said.stdout);
    assert!(
        fs::read_to_string(place.run_path("config.yaml")).unwrap().contains("\"the ${SITE_TOKEN} <mask>\"")
    );
    for (line, told) in [
        (
            "training: {learning_rate: '${SITE_TOKEN}'}",
            "wants a number, which `${SITE_TOKEN}` does not stand for",
        ),
        ("data: {sources: [{files: ['${SITE_TOKEN}/*.txt']}]}", "no file matches `${SITE_TOKEN}/*.txt`"),
        ("run: {device: '${SITE_TOKEN}'}", "`run.device` wants one of"),
    ] {
        fs::write(place.path("wrong.yaml"), format!("include: config.yaml\n{line}\n")).unwrap();
        let arguments = ["pretrain", "--config", "wrong.yaml", "--log-file", "log.txt"];
        let refused = program(
            &place,
            &[&arguments[..], &["--set", "run.output_dir=other"]].concat(),
            &[("SITE_TOKEN", VALUE)],
        );
        refused.refused(2, &[told]);
        assert_eq!(holding(&place, &refused, VALUE), [] as [String; 0], "{line}");
    }
    // What is no secret by its name is saved by its value: this test would find one.
    fs::remove_dir_all(place.path("run")).unwrap();
    let said = run("SITE_NAME", &[]).ok();
    assert!(holding(&place, &said, VALUE).len() > 2);
}

#[test]
fn show_names_the_file_of_each_value_and_profiles_lie_over_it() {
    let place = Workplace::new();
    fs::write(
        place.path("mine.yaml"),
        "include: config.yaml\nrun:\n  seed: ${SEED:-11}\nprofiles:\n  long:\n    training: {max_steps: 77}\n",
    )
    .unwrap();
    let show =
        |more: &[&str]| program(&place, &[&["config", "show", "mine.yaml"], more].concat(), &[]).ok().stdout;
    let shown = show(&["--profile", "long"]);
    let line =
        |key: &str| shown.lines().find(|line| line.trim().starts_with(key)).unwrap_or_default().to_string();
    assert!(line("seed:").contains("11") && line("seed:").ends_with("# mine.yaml:3"), "{shown}");
    assert!(line("max_steps:").contains("77") && line("max_steps:").ends_with("# mine.yaml:6"), "{shown}");
    assert!(
        line("vocab_size:").contains("# ./config.yaml:") || line("vocab_size:").contains("# config.yaml:"),
        "{shown}"
    );
    let without = show(&[]);
    let steps = without.lines().find(|line| line.trim().starts_with("max_steps:"));
    assert!(steps.is_some_and(|line| !line.contains("77")), "{without}");
    program(&place, &["config", "check", "mine.yaml", "--profile", "lon"], &[])
        .refused(2, &["--profile: there is no profile `lon`", "did you mean `long`?"]);
}

#[test]
fn arguments_of_run_mlm_become_a_configuration_that_trains() {
    let place = Workplace::new();
    fs::write(
        place.path("args.json"),
        r#"{"model_type": "roberta", "config_overrides": "hidden_size=32,num_hidden_layers=1,num_attention_heads=2,intermediate_size=64,vocab_size=400",
            "train_file": "corpus.txt", "validation_split_percentage": 5, "max_seq_length": 64, "output_dir": "run",
            "do_train": true, "max_steps": 3, "per_device_train_batch_size": 4, "fp16_backend": "auto"}"#,
    )
    .unwrap();
    let made = program(&place, &["config", "convert", "args.json", "-o", "made.yaml"], &[]).ok();
    assert_eq!(made.stdout, "");
    assert!(made.stderr.contains("not known here, left out: `fp16_backend`"), "{}", made.stderr);
    let checked = program(&place, &["config", "check", "made.yaml"], &[]).ok();
    assert_eq!(checked.stdout, "made.yaml: OK (configuration of `pretrain`)\n");
    program(&place, &["config", "convert", "args.json", "-o", "made.yaml"], &[])
        .refused(2, &["exists already"]);
    let sets = ["--set", "tokenizer.vocab_size=400", "--set", "training.warmup_steps=0"];
    let trained = program(&place, &[&["pretrain", "--config", "made.yaml"], &sets[..]].concat(), &[]);
    assert!(trained.ok().stdout.contains("trained 3 steps"));
}

#[test]
fn the_log_file_has_what_the_terminal_says_with_times() {
    let place = Workplace::new();
    let run = |more: &[&str]| {
        place.run(&["training.max_steps=3"], &[&["--log-file", "logs/run.txt"], more].concat())
    };
    let said = run(&[]).ok();
    let log = fs::read_to_string(place.path("logs/run.txt")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    for line in &lines {
        let time = line.get(..21).unwrap_or_default();
        assert!(time.starts_with("20") && time.ends_with("Z "), "{line}");
    }
    let texts: Vec<&str> = lines.iter().map(|line| &line[21..]).collect();
    assert_eq!(texts, said.stderr.lines().collect::<Vec<_>>(), "the same lines");
    assert!(!log.contains("hash"));
    // Silence on the terminal is none in the file, which grows.
    fs::remove_dir_all(place.path("run")).unwrap();
    let quiet = run(&["-q"]).ok();
    let longer = fs::read_to_string(place.path("logs/run.txt")).unwrap();
    assert!(
        quiet.stderr.lines().all(|line| line.starts_with("warning: the model is worse"))
            && longer.starts_with(&log)
            && longer.len() > log.len() * 3 / 2,
        "{longer}"
    );
    fs::remove_dir_all(place.path("run")).unwrap();
    let verbose = run(&["-v"]).ok().stderr;
    for word in ["mlmtrain 0", "configuration `config.yaml`", "hash ", "the checkpoint of step 3 is written"]
    {
        assert!(verbose.contains(word), "`{word}` is not in:\n{verbose}");
    }
    // Errors are in it, too.
    let refused = place.run(&["training.max_steps=3", "run.sed=1"], &["--log-file", "logs/wrong.txt"]);
    refused.refused(2, &["unknown key `sed`"]);
    assert!(
        fs::read_to_string(place.path("logs/wrong.txt")).unwrap().contains("Z error: --set run.sed: unknown")
    );
    place.run(&[], &["--log-file", "logs"]).refused(2, &["--log-file: cannot open `logs`"]);
    place.run(&[], &["-v", "-q"]).refused(2, &["cannot be used with"]);
}

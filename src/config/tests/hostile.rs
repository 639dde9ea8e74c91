//! Tests of files that are not configurations at all: each gives an error, never a panic.

use proptest::prelude::*;

use super::*;

#[test]
fn hostile_files_get_a_clear_error() {
    insta::assert_snapshot!(problems([0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x00], &[]), @r#"
    error: a.yaml: is not UTF-8 text (byte 1)
      hint: is it a binary or a compressed file?
    "#);
    insta::assert_snapshot!(problems(format!("a: {}", "x".repeat(1 << 20)), &[]), @r#"
    error: a.yaml: is larger than 1048576 bytes, the most that is read of such a file
      hint: a configuration is a small YAML or JSON file
    "#);
    insta::assert_snapshot!(problems("run: ".repeat(3), &[]), @r#"
    error: a.yaml:1:9: not valid YAML or JSON: mapping values are not allowed in this context
      hint: look at the indentation, the colons and the quotes here and in the line above
    "#);
    let missing = load_pretrain(Path::new("no/such/file.yaml"), &[]).expect_err("is wrong");
    insta::assert_snapshot!(missing, @r#"
    cannot open `no/such/file.yaml`: No such file or directory (os error 2)
      hint: check the path; it is relative to the current folder
    "#);
    let folder = load_pretrain(Path::new("tests"), &[]).expect_err("is wrong");
    insta::assert_snapshot!(folder, @r#"
    tests: is a folder, a file is wanted
      hint: a configuration is a small YAML or JSON file
    "#);
    for problem in missing.0.iter().chain(&folder.0) {
        assert_eq!(problem.class, base::error::Class::Usage);
    }
}

#[test]
fn errors_never_quote_an_included_file_that_is_no_configuration() {
    for text in [
        "-----BEGIN PRIVATE KEY-----\nplanted\n",
        "planted_key = planted\n",
        "root:planted:0:0:/root\n",
        "PLANTED: planted\n",
        "{\"planted\": {\"auth\": \"planted\"}}",
        "planted: [planted\n",
        "- planted\n",
        "\"planted\"",
        "planted: 1\nplanted: 2\n",
    ] {
        let message = refused_include(text);
        let refusals = ["other` is no configuration", "not valid YAML or JSON\n"];
        assert!(refusals.iter().any(|refusal| message.contains(refusal)), "{message}");
        assert!(!message.to_lowercase().contains("planted"), "{message}");
    }
    // The error for a misspelt key of a configuration names it.
    let message = refused_include("run: {seed: 1}\ntraning: {max_steps: 1}\n");
    assert!(message.contains("`traning`"), "{message}");
}

/// Returns the error for a configuration that includes a file with this text.
fn refused_include(text: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let main = folder.path().join("main.yaml");
    std::fs::write(folder.path().join("other"), text).expect("is writable");
    std::fs::write(&main, "include: other\n").expect("is writable");
    load_pretrain(&main, &[]).expect_err("is wrong").to_string()
}

#[test]
fn a_named_pipe_in_place_of_a_configuration_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config.yaml");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("starts").success());
    let message = load_pretrain(&path, &[]).expect_err("is wrong").to_string();
    assert!(message.contains("is a pipe in the place of a file"), "{message}");
    std::fs::write(folder.path().join("main.yaml"), "include: config.yaml\n").expect("is writable");
    let message = load_pretrain(&folder.path().join("main.yaml"), &[]).expect_err("is wrong").to_string();
    assert!(message.contains("is a pipe in the place of a file"), "{message}");
}

#[test]
fn the_list_of_problems_is_limited() {
    let flood: Vec<String> = (0..5_000).map(|n| format!("key_{n}: 1")).collect();
    let text = problems(flood.join("\n"), &[]);
    assert_eq!(text.matches("error: ").count(), 51);
    assert!(text.contains("and 4952 more problems"), "{text}");
}

#[test]
fn a_hundred_megabytes_are_refused_without_being_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("large.yaml");
    std::fs::File::create(&path).and_then(|f| f.set_len(100 << 20)).expect("is writable");
    let error = load_pretrain(&path, &[]).expect_err("is wrong").to_string();
    assert!(error.contains("is larger than 1048576 bytes"), "{error}");
}

/// A case that a property test once failed with.
#[test]
fn a_warm_up_of_zero_is_taken() {
    require_taken_or_refused("training.warmup_steps", "0");
}

proptest! {
    #[test]
    fn any_bytes_are_a_configuration_or_problems(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(load(bytes, &[]).is_err());
    }

    #[test]
    fn any_value_of_any_key_is_taken_or_refused(
        key in "(run|data|tokenizer|model|mlm|training)\\.(seed|threads|sources|vocab_size|roberta|bert|max_steps|warmup_steps|learning_rate|sample_text)",
        value in "(?s)(.{0,30}|-?[0-9]{1,30}|[0-9]e[0-9]{1,4}|\\{\\}|\\[\\]|null)",
    ) {
        require_taken_or_refused(&key, &value);
    }
}

/// A configuration with this value is refused, or written and read again as it is.
#[track_caller]
fn require_taken_or_refused(key: &str, value: &str) {
    if let Ok(loaded) = load(SMALL, &[&format!("{key}={value}")]) {
        assert_eq!(
            load(to_yaml(&loaded.config), &[]).expect("was right").config,
            loaded.config,
            "{key}={value}"
        );
    }
}

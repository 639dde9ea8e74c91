//! `mlmtrain shards`: what it prints of whole and of damaged folders.

use std::fs;

use crate::workplace::Workplace;

/// A prepared folder with several shards.
fn prepared() -> Workplace {
    let workplace = Workplace::new();
    workplace.program(&["prepare", "--config", "config.yaml", "--set", "data.shard_tokens=5000"], "").ok();
    workplace
}

#[test]
fn rows_are_shown_with_their_masks() {
    let workplace = prepared();
    let inspect = ["shards", "inspect", "run/data", "--rows", "2", "--config", "config.yaml"];
    let shown = workplace.program(&inspect, "").ok().stdout;
    for words in [
        "documents    400 (",
        "vocabulary   392",
        "the one beside the shards",
        "100.0 %",
        "rows of at most 32 tokens",
        "row 1: ",
        "→<mask>]",
    ] {
        assert!(shown.contains(words), "`{words}` is not in:\n{shown}");
    }
    assert!(!shown.contains('\x1b') && !shown.contains("row 2"), "{shown}");
    assert_eq!(workplace.program(&inspect, "").ok().stdout, shown, "the same rows each time");
    let without_masks: Vec<String> =
        shown.lines().skip_while(|line| !line.starts_with("row 0")).map(unmasked).collect();
    assert!(without_masks.iter().any(|line| line.contains(" and the ")), "{without_masks:?}");
    let other = workplace.program(&[&inspect[..], &["--seed", "8"]].concat(), "").ok().stdout;
    assert_ne!(other, shown);
    let evaluated = workplace
        .program(&[&inspect[..], &["--split", "validation", "--seed", "8"]].concat(), "")
        .ok()
        .stdout;
    assert!(evaluated.contains("sources of the validation documents"), "{evaluated}");
}

#[test]
fn rows_are_packed_as_training_packs_them() {
    let workplace = prepared();
    let shown = |packing: &str, more: &[&str]| {
        let config = crate::material::CONFIG
            .replace("  max_seq_length: 32\n", &format!("  max_seq_length: 32\n  packing: {{{packing}}}\n"));
        fs::write(workplace.path("other.yaml"), config).unwrap();
        let inspect = ["shards", "inspect", "run/data", "--rows", "40", "--config", "other.yaml"];
        workplace.program(&[&inspect[..], more].concat(), "").ok().stdout
    };
    let segments = |text: &str| {
        text.lines().filter(|line| line.starts_with("row ") && line.contains("segments")).count()
    };
    assert!(segments(&shown("mode: segments", &[])) > 5, "rows are filled with pieces of several documents");
    for packing in ["mode: full_sentences", "mode: documents"] {
        let text = shown(packing, &[]);
        assert!(text.contains("row 39: ") && segments(&text) == 0, "{packing}: {text}");
    }
    // Evaluation is packed in one way, so that runs compare.
    let evaluation = ["--split", "validation"];
    assert_eq!(shown("mode: full_sentences", &evaluation), shown("mode: segments", &evaluation));
}

/// A line with each `[original→seen]` taken back.
fn unmasked(line: &str) -> String {
    let mut parts = line.split('[');
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |text, part| match (part.split_once('→'), part.split_once(']')) {
        (Some((original, _)), Some((_, rest))) => text + original + rest,
        _ => text + part,
    })
}

#[test]
fn a_document_is_shown_whole() {
    let workplace = prepared();
    let shown =
        workplace.program(&["shards", "inspect", "run/data/shards", "--document", "3"], "").ok().stdout;
    assert!(shown.starts_with("document 3 of source `corpus`: ") && shown.contains("\nstory "), "{shown}");
    workplace
        .program(&["shards", "inspect", "run/data", "--document", "400"], "")
        .refused(1, &["there is no document 400"]);
    workplace.program(&["shards", "inspect", "run"], "").refused(2, &["run: holds no shards", "hint: "]);
}

#[test]
fn verify_names_every_bad_file_and_goes_on() {
    let workplace = prepared();
    let verify = ["shards", "verify", "run/data"];
    let right = workplace.program(&verify, "").ok().stdout;
    let files = right.lines().filter(|line| line.starts_with("ok    ")).count();
    assert!(files >= 5 && !right.contains("BAD") && right.contains("ok    tokenizer"), "{right}");
    let folder = workplace.path("run/data/shards");
    let mut bytes = fs::read(folder.join("train-00000.safetensors")).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(folder.join("train-00000.safetensors"), &bytes).unwrap();
    fs::write(folder.join("train-00002.safetensors"), &bytes[..100]).unwrap();
    fs::remove_file(folder.join("validation-00000.safetensors")).unwrap();
    fs::write(folder.join("notes.txt"), "x").unwrap();
    let found = workplace.program(&verify, "");
    assert_eq!(found.code, Some(1), "{found:#?}");
    let bad: Vec<&str> = found.stdout.lines().filter(|line| line.starts_with("BAD   ")).collect();
    assert_eq!(bad.len(), 3, "{found:#?}");
    for (line, words) in bad.iter().zip([
        "train-00000.safetensors: does not match its hash",
        "train-00002.safetensors: has 100 bytes",
        "validation-00000",
    ]) {
        assert!(line.contains(words), "{line}");
    }
    assert_eq!(found.stdout.matches("ok    ").count(), files - 3);
    assert!(
        found.stdout.contains("extra notes.txt")
            && found.stderr.contains(&format!("3 of {files} files are bad")),
        "{found:#?}"
    );
}

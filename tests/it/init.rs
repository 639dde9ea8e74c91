//! `mlmtrain init` as a new user meets it: from a text to a configuration that trains.

use std::fs;

use mlmtrain::quantity::format_count;

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
        stdout.contains("wrote `pretrain.yaml`: RoBERTa of 2 layers, 128 wide, vocabulary 4096"),
        "{stdout}"
    );
    assert!(stdout.contains("predicted: ") && stdout.contains("39.9 epochs"), "{stdout}");
    assert!(stdout.ends_with("next: mlmtrain pretrain --config pretrain.yaml\n"), "{stdout}");
    let yaml = fs::read_to_string(place.path("pretrain.yaml")).unwrap();
    assert!(yaml.contains("document: paragraph\n") && yaml.contains("language: {expected: [en]} "), "{yaml}");
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
    // `plan` predicts the same speed, also where batches are small.
    let written = [&elsewhere[..8], &["elsewhere.yaml"]].concat();
    let predicted = place.program(&written, "").ok().stdout;
    let planned = ["plan", "--config", "elsewhere.yaml", "--device", "h100", "--json"];
    let planned: serde_json::Value = serde_json::from_str(&place.program(&planned, "").ok().stdout).unwrap();
    let speed = planned["devices"][0]["tokens_per_second"].as_f64().unwrap();
    let words = format!("at {} tokens/s;", format_count(speed as u64));
    assert!(predicted.contains(&words), "{predicted}{planned}");
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

#[test]
fn labelled_files_get_a_configuration_that_trains() {
    let place = Workplace::new();
    place.run(&["training.max_steps=2", "run.sample_text=null"], &[]).ok();
    let rows = |count: usize| -> String {
        let row = |n: usize| {
            format!("{n};the {} sees number {n};{}\n", ["owl", "pike"][n % 2], ["bird", "fish"][n % 2])
        };
        std::iter::once("Nr;Satz;Tier\n".to_string()).chain((0..count).map(row)).collect()
    };
    fs::write(place.path("own.csv"), rows(60)).unwrap();
    fs::write(place.path("dev.csv"), rows(20)).unwrap();
    fs::write(place.path("train.conll"), crate::material::tagged(30)).unwrap();
    let init = |more: &[&str]| place.program(&[&["init", "--model", "run/final"], more].concat(), "");
    let told = init(&["--train", "own.csv", "--eval", "dev.csv"]).ok().stdout;
    assert!(told.contains("wrote `finetune.yaml`: 60 examples, 2 labels\n"), "{told}");
    assert!(told.contains("columns: text `Satz`, label `Tier`\n"), "{told}");
    assert!(told.ends_with("next: mlmtrain finetune --config finetune.yaml\n"), "{told}");
    let yaml = fs::read_to_string(place.path("finetune.yaml")).unwrap();
    for words in ["\"bird\" 30, \"fish\" 30", "text_column: \"Satz\"", "seeds: [1, 2, 3]", "max_seq_length: "]
    {
        assert!(yaml.contains(words), "`{words}` is not in\n{yaml}");
    }
    let tuned = ["finetune", "--config", "finetune.yaml", "--max-steps", "2", "--threads", "2"];
    assert!(place.program(&tuned, "").ok().stdout.contains("accuracy"));
    assert!(place.path("runs/finetune/seed-1/final/model.safetensors").exists());

    let tagged = init(&["--train", "train.conll", "--task", "token-classify", "--output", "-"]).ok().stdout;
    assert_eq!(init(&["--train", "train.conll", "--output", "-"]).ok().stdout, tagged, "the task is found");
    fs::copy(place.path("train.conll"), place.path("train.tsv")).unwrap();
    let table = init(&["--train", "train.tsv", "--output", "-"]).ok().stdout;
    assert_eq!(table.replace("train.tsv", "train.conll"), tagged);
    for words in ["task: token-classify", "tag_scheme: iob2", "eval_fraction: 0.1", "\"bird\" "] {
        assert!(tagged.contains(words), "`{words}` is not in\n{tagged}");
    }
    let rows = (0..30).map(|n| format!("the \u{f6}wl sees number {n},{}\n", ["a", "b"][n % 2]));
    let text = "text,label\n".to_string() + &rows.collect::<String>();
    let latin: Vec<u8> = text.chars().map(|character| character as u8).collect();
    fs::write(place.path("latin.csv"), latin).unwrap();
    let yaml = init(&["--train", "latin.csv", "--encoding", "latin1", "--output", "-"]).ok().stdout;
    assert!(yaml.contains("\n  encoding: windows-1252\n"), "{yaml}");
    init(&["--train", "latin.csv", "-o", "b.yaml"])
        .refused(1, &["latin.csv:2: column `text` is not UTF-8", "such as `--encoding windows-1252`"]);
    init(&["--train", "own.csv"]).refused(2, &["finetune.yaml: exists already"]);
    init(&["--train", "own.csv", "--label-column", "Art", "-o", "b.yaml"])
        .refused(2, &["`Satz` (60 values", "--label-column"]);
    init(&["--train", "none.csv", "-o", "b.yaml"]).refused(1, &["none.csv"]);
    place.program(&["init", "--train", "own.csv"], "").refused(2, &["--model"]);
    place.program(&["init", "--text", "corpus.txt"], "").refused(2, &["--budget"]);
}

#[test]
fn labelled_files_that_differ_or_hold_lists_are_noticed() {
    let place = Workplace::new();
    place.run(&["training.max_steps=2", "run.sample_text=null"], &[]).ok();
    let write = |name: &str, header: &str, labels: [&str; 3]| {
        let rows = (0..30).map(|n| format!("{}\tthe owl sees number {n}\n", labels[n % 3]));
        fs::write(place.path(name), header.to_string() + "\n" + &rows.collect::<String>()).unwrap();
    };
    let init = |more: &[&str]| {
        place.program(&[&["init", "--model", "run/final", "--output", "-"], more].concat(), "")
    };
    write("train.tsv", "label\tsentence", ["0", "1", "1"]);
    write("dev.tsv", "label\tcontent", ["0", "1", "1"]);
    write("own.tsv", "label\tSatz", ["0", "1", "1"]);
    let yaml = init(&["--train", "train.tsv", "--eval", "dev.tsv"]).ok().stdout;
    assert!(yaml.contains("both have usual names") && !yaml.contains("text_column"), "{yaml}");
    fs::write(place.path("finetune.yaml"), yaml).unwrap();
    let checked = ["finetune", "--config", "finetune.yaml", "--max-steps", "2", "--threads", "1"];
    assert!(place.program(&checked, "").ok().stdout.contains("accuracy"));
    init(&["--train", "train.tsv", "--eval", "own.tsv"])
        .refused(1, &["own.tsv: has no column `sentence`", "rename its column `Satz`"]);
    write("one.tsv", "label\ttext", ["1", "1", "1"]);
    init(&["--train", "one.tsv"]).refused(1, &["all labels in `label` are equal"]);
    write("headless.tsv", "1\ta text of some length and without names", ["0", "1", "1"]);
    init(&["--train", "headless.tsv"]).refused(1, &["headless.tsv:1: the first line looks like an example"]);
    write("lists.tsv", "label\ttext", ["a", "b", "a, b"]);
    let told = place
        .program(&["init", "--model", "run/final", "-o", "lists.yaml", "--train", "lists.tsv"], "")
        .ok()
        .stdout;
    assert!(told.contains("note: `a, b` seems to be several labels"), "{told}");
    let rows: Vec<String> = (0..40).map(|n| format!("a text of some words {n},{}", n % 2)).collect();
    fs::write(place.path("numbers.csv"), format!("text,label\n{}\n", rows.join("\n"))).unwrap();
    let arguments = ["init", "--model", "run/final", "-o", "numbers.yaml", "--train", "numbers.csv"];
    let told = place.program(&arguments, "").ok().stdout;
    assert!(
        told.contains("note: the labels are the numbers 0 to 1; `data.labels: [NAME OF 0, ...]`"),
        "{told}"
    );
    let rows: Vec<String> = (0..66)
        .map(|n| format!("a text of some words {n},{}", ["ham", "spam"][usize::from(n % 11 == 0)]))
        .collect();
    fs::write(place.path("rare.csv"), format!("text,label\n{}\n", rows.join("\n"))).unwrap();
    let rare = ["init", "--model", "run/final", "-o", "rare.yaml", "--train", "rare.csv"];
    let told = place.program(&rare, "").ok().stdout;
    assert!(told.contains("note: `spam` is the label of 6 of 66 examples (9.1 %)"), "{told}");
    let yaml = fs::read_to_string(place.path("rare.yaml")).unwrap();
    assert!(yaml.contains("`training.class_weights:"), "{yaml}");
}

#[test]
fn columns_of_0_and_1_get_a_configuration_with_any_number_of_labels() {
    let place = Workplace::new();
    place.run(&["training.max_steps=2", "run.sample_text=null"], &[]).ok();
    let rows = (0..40)
        .map(|n| format!("{n},the owl sees the comment number {n},{},0,{}\n", n % 2, u8::from(n % 4 == 0)));
    let table = "id,comment_text,toxic,threat,insult\n".to_string() + &rows.collect::<String>();
    fs::write(place.path("train.csv"), table).unwrap();
    fs::write(place.path("dev.csv"), "comment_text,toxic,threat,insult\nthe owl,1,0,1\n").unwrap();
    fs::write(place.path("other.csv"), "comment_text,toxic,insult\nthe owl,1,1\n").unwrap();
    let init = |more: &[&str]| {
        place.program(&[&["init", "--model", "run/final", "--train", "train.csv"], more].concat(), "")
    };
    let told = init(&[]).ok().stdout;
    for words in [
        "wrote `finetune.yaml`: 40 examples, 3 labels\n",
        "columns: text `comment_text`, labels `toxic`, `threat`, `insult`\n",
        "note: 3 columns hold only 0 and 1: each is taken for a label",
        "note: no text has the label `threat`",
    ] {
        assert!(told.contains(words), "`{words}` is not in\n{told}");
    }
    let yaml = fs::read_to_string(place.path("finetune.yaml")).unwrap();
    for words in [
        "problem_type: multi_label_classification\n",
        "labels: [\"toxic\", \"threat\", \"insult\"]\n",
        "\"toxic\" 20, \"insult\" 10, \"threat\" 0",
    ] {
        assert!(yaml.contains(words), "`{words}` is not in\n{yaml}");
    }
    assert!(!yaml.contains("label_column"), "{yaml}");
    let tuned = ["finetune", "--config", "finetune.yaml", "--max-steps", "2", "--threads", "2"];
    assert!(place.program(&tuned, "").ok().stdout.contains("micro F1 %"));

    init(&["--eval", "dev.csv", "-o", "both.yaml"]).ok();
    init(&["--eval", "other.csv", "-o", "b.yaml"])
        .refused(2, &["other.csv: has no column `threat`, which is a label of the training file"]);
    let yaml = init(&["--label-column", "toxic", "-o", "-"]).ok().stdout;
    assert!(yaml.contains("label_column: \"toxic\"") && !yaml.contains("problem_type"), "{yaml}");
}

#[test]
fn a_crawl_gets_filters_and_sees_what_each_leaves_out() {
    let place = Workplace::new();
    text(&place);
    let paragraphs = fs::read_to_string(place.path("animals.txt")).unwrap();
    let good = paragraphs.split("\n\n").map(str::to_string);
    let page = "<html><body><script>var a = 1;</script><a href=\"b\">c</a></body></html>".to_string();
    let junk = [vec![page; 6], vec!["Too short.".to_string(); 4], vec!["again and again ".repeat(30); 10]];
    let records: Vec<String> = good
        .chain(junk.concat())
        .enumerate()
        .map(|(n, text)| {
            let url = format!("https://host/{n}");
            serde_json::json!({"url": url, "title": "Some words first", "text": text}).to_string()
        })
        .collect();
    fs::write(place.path("pages.jsonl"), records.join("\n") + "\n{\"text\": \"cut o").unwrap();
    // A device that need not be measured.
    let arguments = ["init", "--text", "pages.jsonl", "animals.txt", "--budget", "1h", "--device", "H100"];
    let printed = place.program(&arguments, "").ok().stderr;
    assert!(printed.contains("a crawl: records of `pages.jsonl` have a field `url`"), "{printed}");
    assert!(printed.contains("`pages.jsonl` holds text in other fields, too: `title` ("), "{printed}");
    assert!(printed.contains("records of the sample that cannot be read: 1 in `pages.jsonl`;"), "{printed}");
    let yaml = fs::read_to_string(place.path("pretrain.yaml")).unwrap();
    assert!(yaml.contains("\n      on_bad_record: skip\n"), "{yaml}");
    // Of 140 documents, those of the file without pages included.
    for (entry, documents) in [
        ("markup: {enabled: true} ", "4.3"),
        ("length: {min_words: 5} ", "2.9"),
        ("# repetition: {enabled: true} ", "92.9"),
        ("# gopher: {enabled: true} ", ""),
    ] {
        let line = yaml.lines().find(|line| line.trim_start().starts_with(entry));
        let line = line.unwrap_or_else(|| panic!("{entry}: {yaml}"));
        assert!(line.contains(&format!("# {documents}")), "{line}");
    }
    assert!(yaml.contains("deduplication: {exact: true, near_threshold: 0.8}"), "{yaml}");
    place.program(&["config", "check", "pretrain.yaml"], "").ok();
}

/// A file whose records are all unreadable is an error, and a source alone leaves out what cannot be read.
#[test]
fn files_that_cannot_be_read_and_other_languages_are_said() {
    let place = Workplace::new();
    text(&place);
    let record = "{\"doc\": {\"body\": \"the eagle sees the horse\"}}\n";
    fs::write(place.path("nested.jsonl"), record.repeat(20)).unwrap();
    let init = ["init", "--budget", "1h", "--device", "H100", "--output", "-", "--text", "animals.txt"];
    let refused = place.program(&[&init[..], &["nested.jsonl"]].concat(), "");
    refused.refused(
        1,
        &["no record of this file can be read", "nested.jsonl:1:1: field `text` is missing", "`doc.body`"],
    );
    let nested = ["init", "--budget", "1h", "--device", "H100", "--output", "-", "--field", "doc.body"];
    let written = place.program(&[&nested[..], &["--text", "nested.jsonl"]].concat(), "").ok();
    assert!(written.stdout.contains("field: \"doc.body\"\n"), "{}", written.stdout);
    fs::write(place.path("some.jsonl"), "{\"text\": \"the owl sees the trout\"}\n{\"text\": 1}\n".repeat(9))
        .unwrap();
    let some = place.program(&[&init[..], &["some.jsonl"]].concat(), "").ok();
    assert!(some.stderr.contains("cannot be read: 9 in `some.jsonl`"), "{}", some.stderr);
    let swedish = place.program(&[&init[..], &["--language", "sv"]].concat(), "").ok();
    assert!(swedish.stderr.contains("warning: not in `sv`: "), "{}", swedish.stderr);
    assert!(swedish.stdout.contains("language: {expected: [sv]} "), "{}", swedish.stdout);
}

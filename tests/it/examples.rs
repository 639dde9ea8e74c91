//! The examples of `--help` and of the pages, run by a shell in a folder that has what they name.
//!
//! Models and texts are small ones of the same names; numbers of steps that only a long run has are replaced.
//! What measures a machine for long, or needs other machines, is not run here (`LEFT_OUT`).

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::CommandFactory;
use flate2::Compression;
use flate2::write::GzEncoder;
use mlmtrain::commands::cli::Cli;

use crate::material::{CONFIG, corpus, examples, tagged};
use crate::workplace::{Finished, Workplace};

/// Beginnings of examples that are not run here, and why.
const LEFT_OUT: [(&str, &str); 6] = [
    ("mpirun", "needs an MPI"),
    ("mlmtrain init --text", "measures models of all sizes: `init.rs`"),
    ("mlmtrain bench", "measures large models: `bench.rs`"),
    ("mlmtrain replay", "needs a run that diverged: `pretrain/diverging.rs`"),
    ("mlmtrain example", "writes files with the names of those here: `example.rs`"),
    ("mlmtrain verify-resume", "trains in many sittings: `verify_resume.rs`"),
];

/// What a short run has in the place of what a long one has.
const SHORT: [(&str, &str); 7] = [
    (
        "my.yaml --model runs/quickstart/final",
        "my.yaml --model runs/quickstart/final --set run.output_dir=runs/on",
    ),
    ("prepare --config my.yaml", "prepare --config my.yaml --set run.output_dir=runs/piped"),
    ("checkpoint-500", "checkpoint-2"),
    ("checkpoint-3000", "checkpoint-2"),
    ("checkpoint-9000", "checkpoint-2"),
    ("lr_decay_steps=1000", "lr_decay_steps=2"),
    ("/data/experiments", "runs"),
];

/// Beginnings of examples of pages that are not run either, and why.
const LEFT_OUT_OF_PAGES: [(&str, &str); 4] = [
    ("target/release/mlmtrain", "needs a GPU"),
    ("torchrun", "needs PyTorch"),
    ("mlmtrain config check wrong.yaml", "shows an error"),
    ("mlmtrain pretrain --config configs/quickstart.yaml --max-steps 40", "needs a bucket: `stores.rs`"),
];

/// What examples of pages have besides in the place of what a long run has, or of a name that readers choose.
const SHORT_ON_PAGES: [(&str, &str); 5] = [
    ("runs/large/final", "runs/topics/seed-1/final"),
    ("max_steps=1200", "max_steps=2"),
    ("1e-5,3e-5,5e-5 --sweep num_train_epochs=2,4", "1e-5,3e-5 --sweep num_train_epochs=1"),
    ("config convert FILE", "config convert run_mlm.json"),
    ("FILE", "my.yaml"),
];

/// Arguments of transformers' run_mlm.py.
const RUN_MLM: &str = "{\"train_file\": \"corpus.txt\", \"max_steps\": 4, \"model_type\": \"roberta\"}";

/// Pages by what their examples are about.
const FIRST_PAGES: [&str; 6] = [
    "README.md",
    "configs/README.md",
    "configs/tasks/README.md",
    "scripts/vm/README.md",
    "configs/guides/runs.md",
    "configs/guides/tune.md",
];
const PAGES_ON_TASKS: [&str; 2] = ["configs/guides/evaluate.md", "configs/guides/finetune.md"];
const PAGES_ON_PRETRAINING: [&str; 6] = [
    "configs/guides/buckets.md",
    "configs/guides/cluster.md",
    "configs/guides/corpus.md",
    "configs/guides/gpu.md",
    "configs/guides/install.md",
    "configs/guides/pretrain.md",
];

/// The examples of a command and of those below it, as a shell takes them.
fn examples_of(names: &[&str]) -> Vec<String> {
    let all = Cli::command();
    let of_all = names.is_empty().then_some(&all);
    let named = names.iter().map(|name| all.find_subcommand(name).expect("is a command"));
    let mut commands: Vec<&clap::Command> = of_all.into_iter().chain(named).collect();
    if !names.is_empty() {
        let below: Vec<&clap::Command> =
            commands.iter().flat_map(|command| command.get_subcommands()).collect();
        commands.extend(below);
    }
    let help =
        |command: &&clap::Command| command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let text = commands.iter().map(help).collect::<Vec<String>>().join("\n").replace("\\\n", " ");
    let lines = text.lines().filter(|line| line.starts_with("  ") && line.contains("mlmtrain "));
    lines.map(|line| line.trim().to_string()).filter(|line| !line.starts_with('#')).collect()
}

/// Runs one line by a shell; it must end well.
fn run_line(place: &Workplace, line: &str) {
    let program = Path::new(env!("CARGO_BIN_EXE_mlmtrain")).parent().expect("has a folder");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-ec", line]).current_dir(place.path("")).env("PATH", path).env("HOME", place.path("home"));
    let ended = Finished::from(shell.output().expect("starts"));
    assert_eq!(ended.code, Some(0), "{line}\n{}{}", ended.stdout, ended.stderr);
}

/// Runs the examples of these commands, each of which must end well; gives how many there were.
fn run(place: &Workplace, names: &[&str]) -> usize {
    let mut examples = examples_of(names);
    examples.retain(|line| LEFT_OUT.iter().all(|(start, _)| !line.starts_with(start)));
    let runs = || -> BTreeSet<PathBuf> {
        fs::read_dir(place.path("runs")).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let before = runs();
    for example in &examples {
        run_line(place, &SHORT.iter().fold(example.clone(), |line, (long, short)| line.replace(long, short)));
        // The next one may be of the same folder.
        runs().difference(&before).for_each(|folder| fs::remove_dir_all(folder).unwrap());
    }
    examples.len()
}

/// The examples of a page, as a shell takes them.
fn examples_on(page: &str) -> Vec<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    let text = text.replace("\\\n", " ");
    let code = text.lines().filter_map(|line| line.strip_prefix("    "));
    let lines = code.map(|line| line.trim().trim_start_matches("$ "));
    let programs = ["mlmtrain ", "echo ", "mpirun ", "torchrun ", "target/release/mlmtrain "];
    lines
        .filter(|line| line.contains("mlmtrain ") && programs.iter().any(|program| line.starts_with(program)))
        .map(str::to_string)
        .collect()
}

/// Runs the examples of each page one after the other, as a reader does, in a folder of its own; gives how
/// many there were.
fn run_pages(pages: &[&str]) -> usize {
    let furnished = furnished_for_pages();
    let mut count = 0;
    for page in pages {
        let place = Workplace::new();
        let copied = Command::new("cp").arg("-a").args([furnished.path("."), place.path("")]).status();
        assert!(copied.expect("starts").success());
        for example in examples_on(page) {
            let left_out = LEFT_OUT.iter().chain(&LEFT_OUT_OF_PAGES);
            if left_out.map(|(start, _)| start).any(|start| example.starts_with(start)) {
                continue;
            }
            let replaced = SHORT.iter().chain(&SHORT_ON_PAGES);
            run_line(&place, &replaced.fold(example, |line, (long, short)| line.replace(long, short)));
            count += 1;
        }
    }
    count
}

fn write(place: &Workplace, name: &str, text: &str) {
    let path = place.path(name);
    fs::create_dir_all(path.parent().expect("has a folder")).unwrap();
    fs::write(path, text).unwrap();
}

/// A workplace with the configurations, texts and models that examples name.
fn furnished() -> Workplace {
    let place = Workplace::new();
    let short = CONFIG.replace("max_steps: 40", "max_steps: 4").replace("save_steps: 8", "save_steps: 2");
    let of = |folder: &str| short.replace("output_dir: run,", &format!("output_dir: {folder},"));
    for name in ["configs/quickstart.yaml", "quickstart.yaml"] {
        write(&place, name, &of("runs/quickstart"));
    }
    write(&place, "configs/roberta-base.yaml", &of("runs/roberta-base").replace("  max_steps: 4\n", ""));
    let stable = "  lr_scheduler_type: warmup_stable_decay\n  lr_decay_steps: 1\n";
    write(&place, "my.yaml", &(of("runs/mine").replace("tokenizer: {vocab_size: 400}\n", "") + stable));
    write(&place, "configs/corpus/sample.yaml", &of("runs/sample"));
    write(&place, "seller.yaml", "l4: 0.5\n");
    write(&place, "novels.txt", &corpus(20));
    write(&place, "texts.txt", "the cat sleeps\nthe dog runs home\n");
    write(&place, "headlines.txt", "the owl sees the horse\nthe pike runs home\n");
    write(&place, "pairs.jsonl", "{\"text\": \"a cat\"}\n{\"text\": \"a dog\"}\n");
    for (name, count) in [("train", 32), ("dev", 16), ("test", 16)] {
        write(&place, &format!("{name}.csv"), &examples(count));
        write(&place, &format!("{name}.conll"), &tagged(count));
        let rows =
            (0..count).map(|row| format!("the owl {row}\tthe cat {row}\t{0}\tthe owl\t{0}\n", row % 2));
        let header = "sentence1\tsentence2\tentailment\ttext\tlabel\n";
        write(&place, &format!("{name}.tsv"), &rows.fold(header.to_string(), |all, row| all + &row));
    }
    let tagged_words = tagged(4);
    let words: Vec<&str> = tagged_words.lines().skip(1).filter_map(|line| line.split('\t').next()).collect();
    write(&place, "words.conll", &(words.join("\n") + "\n"));
    let packed = |name: &str, text: &str| {
        let mut file = GzEncoder::new(fs::File::create(place.path(name)).unwrap(), Compression::fast());
        file.write_all(text.as_bytes()).unwrap();
        file.finish().unwrap();
    };
    packed("news.csv.gz", "title,text\nthe owl,the owl sees\nthe pike,the pike sees\n");
    packed("crawl.gz", &corpus(100));
    let zst =
        |name: &str, text: &str| fs::write(place.path(name), zstd::encode_all(text.as_bytes(), 1).unwrap());
    zst("novels.txt.zst", &corpus(20)).unwrap();
    zst("blimp.jsonl.zst", "{\"good\": \"the cat sleeps\", \"bad\": \"the cat sleep\"}\n").unwrap();
    let tuning = "model: runs/quickstart/final\ndata: {train_file: train.csv, eval_file: dev.csv}\n\
                  training: {num_train_epochs: 1, per_device_train_batch_size: 8}\n";
    write(
        &place,
        "configs/finetune-sample.yaml",
        &format!("run: {{output_dir: runs/sample-tuned}}\n{tuning}"),
    );
    write(&place, "a.yaml", &format!("run: {{output_dir: runs/a-tuned}}\n{tuning}"));
    let tasks = "training: {max_steps: 2}\nseeds: [1]\ntasks:\n  - name: animals\n    \
                 data: {train_file: train.csv, eval_file: dev.csv}\n";
    for name in ["configs/tasks/compare-sample.yaml", "configs/tasks/compare-finnish.yaml", "tasks.yaml"] {
        write(&place, name, tasks);
    }
    let tasks = "protocol: euroeval\niterations: 1\n\
                 training: {max_steps: 2, warmup_steps: 1, eval_steps: 1, save_steps: 1}\n\
                 tasks:\n  - name: animals\n    \
                 data: {train_file: train.csv, eval_file: dev.csv, test_file: test.csv}\n";
    write(&place, "configs/tasks/euroeval-finnish.yaml", tasks);
    for folder in [".local/share/bash-completion/completions", ".config/fish/completions"] {
        fs::create_dir_all(place.path("home").join(folder)).unwrap();
    }
    let mlmtrain = |line: &str| place.program(&line.split_whitespace().collect::<Vec<_>>(), "").ok();
    mlmtrain("pretrain --config configs/quickstart.yaml");
    mlmtrain("pretrain --config my.yaml");
    fs::create_dir_all(place.path("models")).unwrap();
    let model = place.path("runs/quickstart/final");
    for name in ["minilm", "ours", "theirs", "roberta-base"] {
        symlink(&model, place.path("models").join(name)).unwrap();
    }
    place
}

/// A furnished workplace with what pages name besides.
fn furnished_for_pages() -> Workplace {
    let place = furnished();
    let short = fs::read_to_string(place.path("quickstart.yaml")).unwrap();
    let electra = short.replace("roberta: {", "electra: {embedding_size: 32, ").replace("<mask>", "[MASK]");
    write(
        &place,
        "shallow.yaml",
        &(electra.replace("runs/quickstart", "runs/shallow") + "task: masked_lm\n"),
    );
    for (name, folder) in [("mine", "pretrain"), ("novels", "novels"), ("roberta", "roberta")] {
        write(&place, &format!("{name}.yaml"), &short.replace("runs/quickstart", &format!("runs/{folder}")));
    }
    write(&place, "run_mlm.json", RUN_MLM);
    write(&place, "new.csv", &examples(8));
    write(&place, "rows.csv", &examples(32));
    for (name, count) in [("reviews", 32), ("dev", 16)] {
        let rows = examples(count).replace("label,text", "stars,review");
        let rows = rows.lines().zip(examples(count).lines().map(str::to_string).collect::<Vec<_>>());
        let rows = rows.map(|(review, example)| format!("{review},{example}\n"));
        write(&place, &format!("{name}.csv"), &rows.collect::<String>());
    }
    for (name, count) in [("train", 32), ("dev", 16)] {
        write(&place, &format!("configs/samples/topics-{name}.csv"), &examples(count));
        let row = |number: usize| {
            let labels = ["[\"sea\", \"crime\"]", "[\"sea\"]", "[]"][number % 3];
            format!("{{\"text\": \"the pike runs {number}\", \"labels\": {labels}}}\n")
        };
        write(&place, &format!("{name}.jsonl"), &(0..count).map(row).collect::<String>());
    }
    for name in ["stsb", "dev"] {
        let rows = (0..16).map(|row| format!("the owl {row}\tthe cat {row}\t{}.5\n", row % 5));
        let header = "sentence1\tsentence2\tscore\n";
        write(&place, &format!("{name}.tsv"), &rows.fold(header.to_string(), |all, row| all + &row));
    }
    let lamb = "configs/bert-large-lamb.yaml";
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join(lamb), place.path(lamb)).unwrap();
    let tuning = fs::read_to_string(place.path("configs/finetune-sample.yaml")).unwrap();
    let tuning = tuning
        .replace("runs/sample-tuned", "runs/topics")
        .replace("dev.csv", "configs/samples/topics-dev.csv");
    write(&place, "configs/finetune-sample.yaml", &(tuning + "seeds: [1, 2]\n"));
    run_line(&place, "mlmtrain finetune --config configs/finetune-sample.yaml");
    for (name, folder) in [("a", "quickstart"), ("b", "mine"), ("x", "quickstart")] {
        symlink(place.path("runs").join(folder), place.path("runs").join(name)).unwrap();
    }
    place
}

#[test]
fn examples_of_first_pages_run() {
    assert!(run_pages(&FIRST_PAGES) >= 20);
}

#[test]
fn examples_of_pages_on_tasks_run() {
    assert!(run_pages(&PAGES_ON_TASKS) >= 18);
}

#[test]
fn examples_of_pages_on_pretraining_run() {
    assert!(run_pages(&PAGES_ON_PRETRAINING) >= 10);
    let guides = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/guides")).unwrap();
    let mut guides: Vec<String> = guides
        .map(|guide| format!("configs/guides/{}", guide.unwrap().file_name().to_string_lossy()))
        .collect();
    guides.sort();
    let mut run: Vec<&str> = [&FIRST_PAGES[4..], &PAGES_ON_TASKS, &PAGES_ON_PRETRAINING].concat();
    run.sort_unstable();
    assert_eq!(guides, run, "each guide is among the pages whose examples are run");
}

#[test]
fn examples_of_pretraining_run() {
    let place = furnished();
    let names = [
        "plan",
        "pretrain",
        "prepare",
        "shards",
        "checkpoint",
        "tokenizer",
        "config",
        "completions",
        "manual",
        "doctor",
    ];
    write(&place, "run_mlm.json", RUN_MLM);
    let arguments = "{\"train_file\": \"train.conll\", \"validation_file\": \"dev.conll\", \"model_name_or_path\": \"m\"}";
    write(&place, "training_args.json", arguments);
    assert!(run(&place, &names) >= 30);
}

#[test]
fn examples_of_using_a_model_run() {
    let place = furnished();
    let tuned = |task: &str, ending: &str, folder: &str| {
        let files = format!("--train train.{ending} --eval dev.{ending} --output-dir {folder} --max-steps 2");
        let line = format!("finetune --task {task} --model runs/quickstart/final {files}");
        place.program(&line.split_whitespace().collect::<Vec<_>>(), "").ok();
    };
    tuned("classify", "csv", "runs/agnews");
    tuned("token-classify", "conll", "runs/wnut17");
    for name in ["a", "b", "topics"] {
        symlink(place.path("runs/agnews"), place.path("runs").join(name)).unwrap();
    }
    assert!(run(&place, &["evaluate", "predict", "embed", "runs", "report"]) >= 15);
    // Those of the program as a whole are some of these again.
    assert!(run(&place, &[]) >= 3);
}

#[test]
fn examples_of_fine_tuning_run() {
    let place = furnished();
    fs::create_dir_all(place.path("runs/quickstart-electra")).unwrap();
    symlink(place.path("runs/quickstart/final"), place.path("runs/quickstart-electra/final")).unwrap();
    assert!(run(&place, &["finetune", "compare", "tune"]) >= 17);
}

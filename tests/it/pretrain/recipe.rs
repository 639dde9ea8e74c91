//! `configs/finnish-modernbert-tiny.yaml`, shortened, on the first documents of the real corpora.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Command;

use flate2::read::MultiGzDecoder;
use serde_json::Value;
use tempfile::TempDir;

use crate::notes;
use crate::workplace::Finished;

const SOURCES: [&str; 5] = ["news", "web", "court", "kalevala", "treebank"];

/// A folder with the beginning of each source; `None`, and a line that says so, without the data.
fn beginnings() -> Option<TempDir> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/text_fi");
    if !data.is_dir() {
        notes::skipped("there is no real data in `../shared/data`");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| fs::File::open(data.join(name)).unwrap();
    let court = MultiGzDecoder::new(open("court_kko_1980-1994.jsonl.gz"));
    let readers: [(&str, Box<dyn Read>, usize); 5] = [
        ("news.jsonl", Box::new(open("news_headlines_2018.jsonl")), 800),
        ("web.jsonl", Box::new(open("web_c4_fi.jsonl")), 60),
        ("court.jsonl", Box::new(court), 40),
        ("kalevala.txt", Box::new(open("kalevala.txt")), 1500),
        ("treebank.txt", Box::new(open("tdt_train_sentences.txt")), 500),
    ];
    for (name, reader, lines) in readers {
        let lines: Vec<String> = BufReader::new(reader).lines().take(lines).map(Result::unwrap).collect();
        fs::write(folder.path().join(name), lines.join("\n") + "\n").unwrap();
    }
    Some(folder)
}

/// The lengths of the phases, an eighth of those of the recipe.
const LENGTHS: [u64; 7] = [16, 56, 96, 136, 176, 216, 256];

/// The recipe with a smaller model, fewer and shorter rows and twenty steps, of which the last four decay.
fn shortened(folder: &Path, command: &str, more: &[&str]) -> Finished {
    let mut sets = vec![
        format!("run.output_dir={}", folder.join("run").display()),
        "run.threads=2".to_string(),
        "tokenizer.vocab_size=1000".to_string(),
        "data.max_document_bytes=1024".to_string(),
        "data.max_seq_length=256".to_string(),
        "model.modernbert.hidden_size=48".to_string(),
        "model.modernbert.intermediate_size=64".to_string(),
        "training.per_device_train_batch_size=4".to_string(),
        "training.gradient_accumulation_steps=1".to_string(),
        "training.batch_size_ramp.steps=2".to_string(),
        "training.max_steps=20".to_string(),
        "training.warmup_steps=1".to_string(),
        "training.lr_decay_steps=4".to_string(),
        "training.logging_steps=1".to_string(),
        "training.eval_steps=0".to_string(),
        "training.save_steps=2".to_string(),
        "training.save_total_limit=100".to_string(),
    ];
    for (number, source) in SOURCES.iter().enumerate() {
        let end = if number < 3 { "jsonl" } else { "txt" };
        let file = folder.join(format!("{source}.{end}"));
        sets.push(format!("data.sources.{number}.files=[{}]", file.display()));
    }
    for (phase, length) in LENGTHS.iter().enumerate() {
        let micro = if phase == 0 { 2 } else { 1 };
        sets.push(format!("training.phases.{phase}.until_step={}", 4 + 2 * phase));
        sets.push(format!("training.phases.{phase}.max_seq_length={length}"));
        sets.push(format!("training.phases.{phase}.per_device_train_batch_size=4"));
        sets.push(format!("training.phases.{phase}.gradient_accumulation_steps={micro}"));
    }
    let output = Command::new(env!("CARGO_BIN_EXE_mlmtrain"))
        .args([command, "--config", "configs/finnish-modernbert-tiny.yaml"])
        .args(sets.iter().flat_map(|set| ["--set", set]))
        .args(more)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    output.into()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
}

#[test]
fn the_finnish_recipe_goes_through_its_phases_and_its_decay_can_be_done_apart() {
    let Some(folder) = beginnings() else { return };
    let (folder, run) = (folder.path(), folder.path().join("run"));
    let done = shortened(folder, "pretrain", &[]).ok();
    assert!(done.stdout.contains("trained 20 steps") && done.stdout.contains("mask 1:"), "{}", done.stdout);
    for words in [
        "from step 1: rows of 16 tokens, global_rope_theta 10000, tokens of news ",
        "from step 5: rows of 56 tokens, global_rope_theta 1000000, tokens of news ",
        "from step 15: rows of 256 tokens, global_rope_theta 1000000, tokens of news ",
        "from step 17: rows of 256 tokens, global_rope_theta 1000000, tokens of news 0 %, web 0 %, court ",
    ] {
        assert!(done.stderr.contains(words), "`{words}` is not in:\n{}", done.stderr);
    }
    let theta = |name: &str| json(&run.join(name).join("config.json"))["global_rope_theta"].as_f64();
    assert_eq!(
        [theta("checkpoint-4"), theta("checkpoint-6"), theta("final")],
        [Some(1e4), Some(1e6), Some(1e6)]
    );
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let records = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let rates: Vec<f64> = records.filter_map(|record| record["train/learning_rate"].as_f64()).collect();
    let some = [0, 1, 3, 4, 16].map(|step| rates.get(step).copied());
    assert_eq!(some, [0.0, 1e-3, 1e-3, 1.7e-4, 1.7e-4].map(Some));
    assert!(rates[16..].is_sorted_by(|a, b| a > b), "{rates:?}");

    let (whole, apart) = (run.join("checkpoint-20"), folder.join("apart"));
    let apart_set = format!("run.output_dir={}", apart.display());
    let parent = run.join("checkpoint-16").display().to_string();
    shortened(folder, "pretrain", &["--set", &apart_set, "--decay-from", &parent]).ok();
    for name in ["model.safetensors", "trainer/optimizer.safetensors"] {
        let of = |folder: &Path| fs::read(folder.join(name)).unwrap();
        assert!(of(&whole) == of(&apart.join("checkpoint-20")), "`{name}` differs");
    }
    let decayed = run.join("checkpoint-18").display().to_string();
    let again =
        shortened(folder, "pretrain", &["--set", &format!("{apart_set}-2"), "--decay-from", &decayed]);
    again.refused(2, &["its learning rate has fallen already after step 18"]);
}

#[test]
fn the_finnish_recipe_goes_on_to_the_same_bytes_where_it_is_stopped() {
    let Some(folder) = beginnings() else { return };
    let proof = shortened(folder.path(), "verify-resume", &["--steps", "20"]).ok();
    assert!(proof.stdout.starts_with("the same bytes after 20 steps: "), "{proof:#?}");
}

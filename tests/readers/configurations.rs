//! Configurations in YAML and JSON, and what is set on the command line.

use std::fs;
use std::path::Path;

use anyhow::Result;
use mlmtrain::config::{load_finetune, load_pretrain};

use super::{Input, Outcome, Runs};
use crate::material;

const TARGET: &str = "config";

const FINETUNE: &str = "model: base\ndata: {train_file: a.csv, eval_file: b.csv, max_seq_length: 32}\n\
                        training:\n  max_steps: 50\n  learning_rate: 5.0e-3\n";

/// One `--set` a line.
const SETS: &str = "training.max_steps=100\ndata.sources=[{files: [a.txt, 'b c.jsonl'], field: text}]\n\
                    data.sources.0.weight=2.5\ntraining.max_train_time=24h\nrun.output_dir=\"runs/a\"\n\
                    model={electra: {num_hidden_layers: 2}}\ntokenizer.algorithm=wordpiece\n\
                    data.filters.c4.enabled=true\nrun.sample_text=null\n";

pub(super) fn all(folder: &Path, runs: &Runs) -> Result<Vec<Input>> {
    let resolved = fs::read(runs.pretrained("config.yaml"))?;
    let json = fs::read(runs.pretrained(&format!("{}/trainer/config.json", super::runs::CHECKPOINT)))?;
    let input = |name: &str, content: &[u8], read: fn(&Path) -> Outcome| {
        Input::new(TARGET, name, folder.join(name).join(name), content.to_vec(), read)
    };
    let base = folder.join("sets").join("base.yaml");
    fs::create_dir_all(folder.join("sets"))?;
    fs::write(&base, material::CONFIG)?;
    let sets = move |path: &Path| -> Outcome {
        let text = String::from_utf8_lossy(&fs::read(path)?).into_owned();
        load_pretrain(&base, &text.lines().map(str::to_string).collect::<Vec<_>>())?;
        Ok(1)
    };
    Ok(vec![
        input("config.yaml", material::CONFIG.as_bytes(), pretrain),
        input("resolved.yaml", &resolved, pretrain),
        input("config.json", &json, pretrain),
        input("finetune.yaml", FINETUNE.as_bytes(), finetune),
        Input::new(TARGET, "sets", folder.join("sets").join("sets"), SETS.into(), sets).named("--set"),
    ])
}

fn pretrain(path: &Path) -> Outcome {
    load_pretrain(path, &[])?;
    Ok(1)
}

fn finetune(path: &Path) -> Outcome {
    load_finetune(path, &[])?;
    Ok(1)
}

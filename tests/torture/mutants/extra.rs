//! Inputs beside those of the tests: checkpoints, model folders, labelled files, a fine-tuning configuration.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;
use candle_core::Device;
use mlmtrain::checkpoint::Checkpoint;
use mlmtrain::config::load_finetune;
use mlmtrain::tasks::classify::Classifier;
use mlmtrain::tasks::labelled::Columns;
use mlmtrain::tasks::labelled::read_examples;
use mlmtrain::train::saved::Resumed;

use super::inputs::Input;
use super::inputs::gzip;
use super::worker::Read;
use crate::compare;
use crate::job::STEPS;
use crate::job::examples;
use crate::place::copy_tree;

/// Rows of the labelled files.
const ROWS: usize = 24;

/// Files of a checkpoint that are damaged.
const CHECKPOINT: [&str; 6] = [
    "model.safetensors",
    "trainer/optimizer.safetensors",
    "trainer/state.json",
    "trainer/inputs.json",
    "trainer/config.json",
    "trainer_state.json",
];

/// Files of a model folder that are damaged.
const MODEL: [&str; 4] = ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"];

/// All of them, each in a folder of its own below `folder`; `tuned` is the run folder of a classifier.
pub(super) fn all(folder: &Path, tuned: &Path) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    let checkpoint = tuned.join(format!("checkpoint-{STEPS}"));
    for (index, name) in CHECKPOINT.into_iter().enumerate() {
        for is_signed in [false, true] {
            let own = folder.join(format!("checkpoint-{index}-{is_signed}"));
            copy_tree(&checkpoint, &own)?;
            inputs.push(part_of_checkpoint(&own, name, is_signed)?);
        }
    }
    let own = folder.join("checkpoint-manifest");
    copy_tree(&checkpoint, &own)?;
    inputs.push(part_of_checkpoint(&own, "manifest.json", false)?);
    for name in MODEL {
        let own = folder.join(format!("model-{name}"));
        copy_tree(&tuned.join("final"), &own)?;
        // A folder that another program wrote has none.
        fs::remove_file(own.join("manifest.json"))?;
        let read = |path: &Path| {
            Classifier::load(path.parent().context("it lies in a folder")?, &Device::Cpu)?;
            Ok(1)
        };
        inputs.push(input(&format!("model {name}"), own.join(name), None, 1, Arc::new(read))?);
    }
    inputs.extend(labelled(folder)?);
    Ok(inputs)
}

fn part_of_checkpoint(folder: &Path, name: &str, is_signed: bool) -> Result<Input> {
    let root = folder.to_path_buf();
    let part = name.to_string();
    let read = move |_: &Path| {
        if is_signed {
            compare::reseal(&root, &part)?;
        }
        let resumed = Resumed::read(Checkpoint::open(&root)?)?;
        resumed.checkpoint.tensors("model.safetensors")?;
        resumed.checkpoint.tensors("trainer/optimizer.safetensors")?;
        Ok(1)
    };
    let title = format!("{}checkpoint {name}", if is_signed { "signed " } else { "" });
    input(&title, folder.join(name), None, 1, Arc::new(read))
}

fn labelled(folder: &Path) -> Result<Vec<Input>> {
    let csv = examples(ROWS);
    let tsv =
        csv.replace('"', "").replacen(',', "\t", 1).replace("bird,", "bird\t").replace("fish,", "fish\t");
    let rows = csv.lines().skip(1).filter_map(|line| line.split_once(','));
    let line = |(label, text): (&str, &str)| format!("{{\"label\": \"{label}\", \"text\": {text}}}\n");
    let jsonl: String = rows.map(line).collect();
    let mut inputs = Vec::new();
    for (name, content) in [("rows.csv", csv), ("rows.tsv", tsv), ("rows.jsonl", jsonl)] {
        let content = content.into_bytes();
        let archive = format!("{name}.gz");
        let read = |path: &Path| {
            let columns = Columns { labelled: true, ..Columns::default() };
            Ok(read_examples(path, &columns)?.len() as u64)
        };
        let (plain, packed) = (folder.join(name).join(name), folder.join(&archive).join(&archive));
        inputs.push(input(name, plain, Some(content.clone()), ROWS as u64, Arc::new(read))?);
        let packed = input(&archive, packed, Some(gzip(&content)), ROWS as u64, Arc::new(read))?;
        inputs.push(Input { inside: Some((content, gzip)), ..packed });
    }
    let read = |path: &Path| {
        load_finetune(path, &[])?;
        Ok(1)
    };
    let path = folder.join("finetune").join("finetune.yaml");
    let content = "model: base\ndata: {train_file: a.csv, eval_file: b.csv, max_seq_length: 32}\n\
                   training:\n  max_steps: 50\n  learning_rate: 5.0e-3\n";
    inputs.push(input("finetune.yaml", path, Some(content.into()), 1, Arc::new(read))?);
    Ok(inputs)
}

fn input(name: &str, path: PathBuf, content: Option<Vec<u8>>, documents: u64, read: Read) -> Result<Input> {
    let bytes = content.map_or_else(|| fs::read(&path), Ok)?;
    Ok(Input { name: name.to_string(), path, bytes, inside: None, documents, read })
}

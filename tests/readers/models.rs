//! Model folders, as other programs write them, and checkpoints, damaged with and without a manifest that
//! vouches for the damage.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use candle_core::Device;
use mlmtrain::checkpoint::{Checkpoint, Unverified};
use mlmtrain::config::PrecisionConfig;
use mlmtrain::interop::{HubConfig, read_folder};
use mlmtrain::tasks::classify::Classes;
use mlmtrain::tasks::finetuning::Opened;
use mlmtrain::train::checkpoint_files::Resumed;
use mlmtrain::train::inspect;
use mlmtrain::train::replay::Replay;
use mlmtrain::train::resume::{Start, keep_compute};
use serde_json::{Value, json};

use super::folders::seal;
use super::{Input, Outcome, Runs, copy_tree, reseal};

/// Files of a model folder that are damaged.
const MODEL: [&str; 4] = ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"];

/// Files of a checkpoint that are damaged.
const CHECKPOINT: [&str; 6] = [
    "model.safetensors",
    "trainer/optimizer.safetensors",
    "trainer/state.json",
    "trainer/inputs.json",
    "trainer/config.json",
    "trainer_state.json",
];

pub(super) fn all(folder: &Path, runs: &Runs) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    let copied = |name: &str| {
        let own = folder.join(format!("model-{name}"));
        copy_tree(&runs.tuned("final"), &own)?;
        // A folder that another program wrote has none.
        fs::remove_file(own.join("manifest.json"))?;
        anyhow::Ok(own)
    };
    for name in MODEL {
        let own = copied(name)?;
        inputs.push(Input::of_file("model", &format!("model {name}"), own.join(name), classifier)?);
    }
    for (name, read) in [("header", faults as fn(&Path) -> Outcome), ("index", faults)] {
        let own = copied(name)?;
        let weights = own.join("model.safetensors");
        let mut file = weights.clone();
        if name == "index" {
            fs::rename(&weights, own.join("weights.safetensors"))?;
            file = own.join("model.safetensors.index.json");
            fs::write(&file, index_of(&own.join("weights.safetensors"))?)?;
        }
        inputs.push(Input::of_file("model", &format!("model {name}"), file, read)?);
    }
    let tuned = fs::read(runs.tuned("final/config.json"))?;
    let configs = [
        ("tuned", tuned),
        ("bert", hub("bert_cls")?),
        ("roberta", hub("roberta")?),
        ("electra", hub("electra_cls")?),
    ];
    for (name, bytes) in configs {
        let name = format!("config of {name}");
        let path = folder.join(name.replace(' ', "-")).join("config.json");
        inputs.push(Input::new("model", &name, path, bytes, |path| HubConfig::read(path).map(|_| 1)));
    }
    Ok(inputs)
}

fn classifier(path: &Path) -> Outcome {
    Opened::<Classes>::load(path.parent().context("it lies in a folder")?, &Device::Cpu)?;
    Ok(1)
}

/// As `mlmtrain checkpoint verify` reads a model folder.
fn faults(path: &Path) -> Outcome {
    let faults = read_folder(path.parent().context("it lies in a folder")?)?.faults(&|_| {});
    faults.into_iter().next().map_or(Ok(1), Err)
}

/// `model.safetensors.index.json` for a model in one file.
fn index_of(weights: &Path) -> Result<Vec<u8>> {
    let file = mlmtrain::checkpoint::TensorFile::open(weights)?;
    let map: serde_json::Map<String, Value> =
        file.names().into_iter().map(|name| (name, "weights.safetensors".into())).collect();
    Ok(serde_json::to_vec_pretty(&json!({"metadata": {"total_size": 1000}, "weight_map": map}))?)
}

/// `config.json` as transformers writes it.
fn hub(family: &str) -> Result<Vec<u8>> {
    let path = super::tests_folder()?.join("golden").join(family).join("config.json");
    fs::read(&path).with_context(|| path.display().to_string())
}

pub(super) fn checkpoints(folder: &Path, runs: &Runs) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    let checkpoint = runs.tuned(super::runs::CHECKPOINT);
    for (index, name) in CHECKPOINT.into_iter().enumerate() {
        for is_signed in [false, true] {
            let own = folder.join(format!("checkpoint-{index}-{is_signed}"));
            copy_tree(&checkpoint, &own)?;
            inputs.push(part(&own, name, is_signed)?);
        }
    }
    let own = folder.join("checkpoint-manifest");
    copy_tree(&checkpoint, &own)?;
    inputs.push(part(&own, "manifest.json", false)?);
    let own = folder.join("sealed-manifest");
    copy_tree(&checkpoint, &own)?;
    let sealed = |path: &Path| {
        // Where it is JSON at all, it vouches for itself.
        if let Ok(mut manifest @ Value::Object(_)) = serde_json::from_slice(&fs::read(path)?) {
            seal(&mut manifest)?;
            fs::write(path, serde_json::to_vec_pretty(&manifest)?)?;
        }
        verified(path.parent().context("it lies in a folder")?)
    };
    inputs.push(Input::of_file("checkpoint", "sealed manifest.json", own.join("manifest.json"), sealed)?);
    let own = folder.join("kept-compute");
    copy_tree(&checkpoint, &own)?;
    let root = own.clone();
    let compute = move |_: &Path| -> Outcome {
        let mut precision: PrecisionConfig = serde_json::from_value(json!({"compute": "auto"}))?;
        keep_compute(&mut precision, &Start::At(root.clone()), [])?;
        Ok(1)
    };
    inputs.push(
        Input::of_file("checkpoint", "compute of a checkpoint", own.join("trainer/config.json"), compute)?
            .named(own.display().to_string()),
    );
    let own = folder.join("diverged");
    copy_tree(&runs.diverged()?, &own)?;
    let root = own.clone();
    let replay = move |_: &Path| -> Outcome {
        reseal(&root, "trainer/batch.json")?;
        Replay::open(&root)?.run()?;
        Ok(1)
    };
    inputs.push(
        Input::of_file("replay", "batch.json", own.join("trainer/batch.json"), replay)?
            .named(own.display().to_string()),
    );
    Ok(inputs)
}

fn part(folder: &Path, name: &str, is_signed: bool) -> Result<Input> {
    let root = folder.to_path_buf();
    let part = name.to_string();
    let read = move |_: &Path| {
        if is_signed {
            reseal(&root, &part)?;
        }
        let resumed = Resumed::read(Checkpoint::open(&root)?)?;
        resumed.checkpoint.tensors("model.safetensors")?;
        resumed.checkpoint.tensors("trainer/optimizer.safetensors")?;
        if is_signed { verified(&root) } else { Ok(1) }
    };
    let title = format!("{}checkpoint {name}", if is_signed { "signed " } else { "" });
    let input = Input::of_file("checkpoint", &title, folder.join(name), read)?;
    Ok(input.named(folder.display().to_string()))
}

/// As `mlmtrain checkpoint verify` reads a checkpoint.
fn verified(root: &Path) -> Outcome {
    let found = Unverified::find(root)?.context("a manifest is there")?;
    found.bytes();
    let checkpoint = found.verify(&|_| {}).map_err(|mut errors| errors.remove(0))?;
    let faults = inspect::faults(checkpoint, None, &|_| {});
    faults.into_iter().next().map_or(Ok(1), Err)
}

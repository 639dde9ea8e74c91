//! The files of a sentence-transformers folder, which define truncation, pooling and the steps after pooling.
//!
//! An unknown step is an error that names it, so that no vector silently differs from what the folder
//! defines.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use serde_json::{Map, Value};

use crate::tasks::embed::pooled::Mode;
use base::error::Problem;
use base::fs;
use model::checkpoint::TensorFile;

const CAP_BYTES: u64 = 1 << 20;
const MODULES: &str = "modules.json";
/// Names of the transformer's configuration file, the newest first.
const TRANSFORMER: [&str; 2] = ["sentence_bert_config.json", "sentence_roberta_config.json"];

/// A step after pooling.
pub(super) enum Step {
    /// Scales vectors to length 1.
    Normalize,
    /// A linear map with its activation.
    Dense(Dense),
}

/// `activation(x W^T + b)`, plus `x` if there is a residual connection.
pub(super) struct Dense {
    weight_oi: Tensor,
    bias_o: Option<Tensor>,
    activation: Activation,
    has_residual: bool,
}

#[derive(Debug, Clone, Copy)]
enum Activation {
    Identity,
    Tanh,
    Relu,
    Sigmoid,
}

impl Dense {
    pub(super) fn width(&self) -> Result<usize> {
        Ok(self.weight_oi.dims2()?.0)
    }

    /// Maps `[M, I]` to `[M, O]`, on the CPU.
    pub(super) fn forward(&self, x_mi: &Tensor) -> Result<Tensor> {
        let mut y_mo = x_mi.matmul(&self.weight_oi.t()?)?;
        if let Some(bias) = &self.bias_o {
            y_mo = y_mo.broadcast_add(bias)?;
        }
        y_mo = match self.activation {
            Activation::Identity => y_mo,
            Activation::Tanh => y_mo.tanh()?,
            Activation::Relu => y_mo.relu()?,
            Activation::Sigmoid => candle_nn::ops::sigmoid(&y_mo)?,
        };
        Ok(if self.has_residual { (y_mo + x_mi)? } else { y_mo })
    }
}

/// The definition of a folder's vectors.
pub(super) struct Recipe {
    /// The folder of the encoder.
    pub(super) transformer: PathBuf,
    /// The pooling modes; the vectors of several modes are concatenated.
    pub(super) modes: Vec<Mode>,
    /// Steps after pooling, in order.
    pub(super) steps: Vec<Step>,
    /// Longest sequence in tokens, if it is set.
    pub(super) max_seq_length: Option<usize>,
    /// True if text is lowercased in addition to what the tokenizer does.
    pub(super) lowers_letters: bool,
    /// Text to put before each text.
    pub(super) prompt: String,
}

impl Recipe {
    /// Reads the recipe of a folder; `None` if it has no `modules.json`.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(MODULES);
        if !fs::exists(&path) {
            return Ok(None);
        }
        let modules: Value = serde_json::from_slice(&fs::read_capped(&path, CAP_BYTES)?)
            .map_err(|e| Problem::new(format!("is not JSON: {e}")).at(path.display()))?;
        let list =
            modules.as_array().ok_or_else(|| Problem::new("is no list of modules").at(path.display()))?;
        let mut recipe = Self {
            transformer: folder.to_path_buf(),
            modes: Vec::new(),
            steps: Vec::new(),
            max_seq_length: None,
            lowers_letters: false,
            prompt: prompt(folder)?,
        };
        for (place, module) in list.iter().enumerate() {
            let kind = module["type"].as_str().unwrap_or_default();
            let at = folder.join(module["path"].as_str().unwrap_or_default());
            match (kind.rsplit('.').next().unwrap_or_default(), place, recipe.modes.is_empty()) {
                ("Transformer", 0, _) => recipe.read_transformer(at)?,
                ("Pooling", 1, true) => recipe.read_pooling(&at)?,
                ("Normalize", _, false) => {
                    check_inputs(&object(&at.join("config.json"))?, &at)?;
                    recipe.steps.push(Step::Normalize);
                }
                ("Dense", _, false) => recipe.steps.push(Step::Dense(dense(&at)?)),
                ("Dropout", ..) => {}
                _ => {
                    let name = if kind.is_empty() { "without a `type`" } else { kind };
                    return Err(Problem::new(format!("module {place}, `{name}`, is not supported there"))
                        .at(path.display())
                        .hint("a transformer, its pooling, then `Dense` and `Normalize` are; `--pooling` pools without these files")
                        .into());
                }
            }
        }
        if recipe.modes.is_empty() {
            return Err(Problem::new("names no `Pooling`").at(path.display()).into());
        }
        Ok(Some(recipe))
    }

    fn read_transformer(&mut self, at: PathBuf) -> Result<()> {
        let file = TRANSFORMER.iter().map(|name| at.join(name)).find(|path| fs::exists(path));
        if let Some(file) = file {
            let keys = object(&file)?;
            self.lowers_letters = match keys.get("do_lower_case") {
                None | Some(Value::Null) => false,
                Some(value) => value.as_bool().ok_or_else(|| unsupported(&file, &keys, "do_lower_case"))?,
            };
            self.max_seq_length = match keys.get("max_seq_length") {
                None | Some(Value::Null) => None,
                Some(value) => {
                    let length = value.as_u64();
                    Some(length.ok_or_else(|| unsupported(&file, &keys, "max_seq_length"))? as usize)
                }
            };
            if keys.get("transformer_task").is_some_and(|task| task != "feature-extraction") {
                return Err(unsupported(&file, &keys, "transformer_task").into());
            }
        }
        self.transformer = at;
        Ok(())
    }

    fn read_pooling(&mut self, at: &Path) -> Result<()> {
        let path = at.join("config.json");
        let keys = object(&path)?;
        let named: Vec<&str> = match keys.get("pooling_mode") {
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => {
                let old = Mode::ALL.iter().filter(|mode| keys.get(mode.old_key()) == Some(&true.into()));
                old.map(|mode| mode.name()).collect()
            }
        };
        for name in if named.is_empty() { vec!["mean"] } else { named } {
            let Some(mode) = Mode::ALL.iter().find(|mode| mode.name() == name) else {
                let message = format!("`pooling_mode` `{name}` is not supported");
                return Err(Problem::new(message).at(path.display()).into());
            };
            self.modes.push(*mode);
        }
        if keys.get("include_prompt") == Some(&false.into()) && !self.prompt.is_empty() {
            let message = "`include_prompt` false is not supported where texts have a prompt";
            return Err(Problem::new(message).at(path.display()).into());
        }
        Ok(())
    }
}

fn unsupported(file: &Path, keys: &Map<String, Value>, key: &str) -> Problem {
    Problem::new(format!("`{key}` is {}, which is not supported", keys[key])).at(file.display())
}

/// The prompt of `default_prompt_name`, to be put before each text; empty if there is none.
fn prompt(folder: &Path) -> Result<String> {
    let path = folder.join("config_sentence_transformers.json");
    let keys = object(&path)?;
    let Some(name) = keys.get("default_prompt_name").and_then(Value::as_str) else {
        return Ok(String::new());
    };
    let prompt = keys.get("prompts").and_then(|prompts| prompts[name].as_str());
    let prompt = prompt.ok_or_else(|| {
        Problem::new(format!("`prompts` has no {name:?}, the `default_prompt_name`")).at(path.display())
    })?;
    Ok(prompt.to_string())
}

/// Reads a linear map from its folder.
fn dense(at: &Path) -> Result<Dense> {
    let path = at.join("config.json");
    let keys = object(&path)?;
    check_inputs(&keys, at)?;
    let name = keys.get("activation_function").and_then(Value::as_str).unwrap_or("Tanh");
    let activation = match name.rsplit('.').next().unwrap_or_default() {
        "Identity" => Activation::Identity,
        "Tanh" => Activation::Tanh,
        "ReLU" => Activation::Relu,
        "Sigmoid" => Activation::Sigmoid,
        _ => {
            let message = format!("`activation_function` `{name}` is not supported");
            return Err(Problem::new(message).at(path.display()).into());
        }
    };
    let weights = at.join("model.safetensors");
    if !fs::exists(&weights) {
        let message = "there is no `model.safetensors`, and pickle files are not read";
        return Err(Problem::new(message)
            .at(at.display())
            .hint("save it once with `safe_serialization=True`")
            .into());
    }
    let mut tensors = TensorFile::open(&weights)?.tensors()?;
    let weight_oi = take_f32(&mut tensors, "linear.weight")?
        .ok_or_else(|| Problem::new("tensor `linear.weight` is missing").at(weights.display()))?;
    let bias_o = take_f32(&mut tensors, "linear.bias")?;
    let has_residual = keys.get("use_residual") == Some(&true.into());
    let (outputs, inputs) = weight_oi.dims2()?;
    if has_residual && inputs != outputs {
        return Err(Problem::new("`use_residual` between two widths is not supported")
            .at(path.display())
            .into());
    }
    Ok(Dense { weight_oi, bias_o, activation, has_residual })
}

/// Removes a tensor of this name, if there is one, and converts it to f32 on the CPU.
fn take_f32(tensors: &mut BTreeMap<String, Tensor>, name: &str) -> candle_core::Result<Option<Tensor>> {
    tensors.remove(name).map(|tensor| tensor.to_device(&Device::Cpu)?.to_dtype(DType::F32)).transpose()
}

/// Returns an error for a step on token vectors, since vectors of texts cannot be made that way.
fn check_inputs(keys: &Map<String, Value>, at: &Path) -> Result<(), Problem> {
    for key in ["module_input_name", "module_output_name"] {
        match keys.get(key) {
            None | Some(Value::Null) => {}
            Some(name) if name == "sentence_embedding" => {}
            Some(name) => {
                return Err(Problem::new(format!("`{key}` {name} of its config.json is not supported"))
                    .at(at.display()));
            }
        }
    }
    Ok(())
}

/// The object in a file; empty if the file does not exist.
fn object(path: &Path) -> Result<Map<String, Value>> {
    if !fs::exists(path) {
        return Ok(Map::new());
    }
    let value = serde_json::from_slice(&fs::read_capped(path, CAP_BYTES)?);
    Ok(value.map_err(|e| Problem::new(format!("is no JSON object: {e}")).at(path.display()))?)
}

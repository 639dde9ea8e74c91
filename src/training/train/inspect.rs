//! Checks the parts of a checkpoint other than its models, as a run that resumes from it would, and compares
//! the training state of two checkpoints.
//!
//! It takes verified checkpoints: hashes are checked in `checkpoint`.

use anyhow::{Error, Result};
use candle_core::{DType, Tensor};
use serde_json::Value;

use crate::train::average::TRAINED;
use crate::train::checkpoint_files::{CONFIG, OPTIMIZER, Resumed};
use crate::train::state::TrainState;
use base::error::Problem;
use config::OptimizerType;
use model::checkpoint::{Checkpoint, TensorFile};
use model::optim;
use ops::tensor::with_slice;

/// Returns true if a checkpoint contains the state of a run, and not only a model.
pub fn is_of_run(checkpoint: &Checkpoint) -> bool {
    checkpoint.names().any(|name| name == OPTIMIZER)
}

/// Every reason why a run could not resume from `checkpoint`: moments, or weights whose average is the model,
/// that are not finite or do not have `values` elements (if that number is known), and a state that cannot be
/// read. `read` is called with the bytes read after each tensor.
pub fn faults(checkpoint: Checkpoint, values: Option<usize>, read: &dyn Fn(u64)) -> Vec<Error> {
    let mut faults = Vec::new();
    for name in checkpoint.names().filter(|name| [OPTIMIZER, TRAINED].contains(name)) {
        let rules = if name == OPTIMIZER { rules_of(&checkpoint) } else { Vec::new() };
        match TensorFile::open(&checkpoint.path().join(name)) {
            Ok(file) => faults.extend(vectors(&file, values, &rules, read)),
            Err(e) => faults.push(e),
        }
    }
    faults.extend(Resumed::read(checkpoint).err());
    faults
}

/// Names of the state tensors of each update rule of the run; those of `AdamW` if its configuration cannot be
/// read.
fn rules_of(checkpoint: &Checkpoint) -> Vec<&'static [&'static str]> {
    let config = checkpoint.json(CONFIG).ok();
    let optim = config.and_then(|config| serde_json::from_value(config["training"]["optim"].clone()).ok());
    optim::state_names(optim.unwrap_or(OptimizerType::Adamw))
}

/// `rules` has the names of the tensors of each rule, which all have a value for each element that it
/// updates.
fn vectors(file: &TensorFile, values: Option<usize>, rules: &[&[&str]], read: &dyn Fn(u64)) -> Vec<Error> {
    let mut faults = Vec::new();
    for name in file.names() {
        let others = rules.iter().filter(|names| !names.contains(&name.as_str()));
        let of_others = others.filter_map(|names| file.info(names.first()?));
        let elsewhere = of_others.map(|info| info.bytes as usize / DType::F32.size_in_bytes()).sum();
        let wanted = values.map(|values| values.saturating_sub(elsewhere));
        faults.extend(file.tensor(&name).and_then(|tensor| vector(file, &name, &tensor, wanted)).err());
        read(file.info(&name).map_or(0, |info| info.bytes));
    }
    faults
}

fn vector(file: &TensorFile, name: &str, tensor: &Tensor, values: Option<usize>) -> Result<()> {
    if tensor.dtype() != DType::F32 {
        // An integer tensor is the number of updates or of averagings.
        return Ok(());
    }
    let not_finite = with_slice(tensor, |values| values.iter().filter(|value| !value.is_finite()).count())?;
    let fault = match values {
        _ if not_finite > 0 => {
            format!("has {not_finite} values of {} that are not finite", tensor.elem_count())
        }
        Some(values) if tensor.dims() != [values] => {
            format!("is {:?}, the model of `config.json` wants [{values}]", tensor.dims())
        }
        _ => return Ok(()),
    };
    Err(Problem::new(format!("tensor `{name}` {fault}")).at(file.path().display()).into())
}

/// The first field that differs between two training states, with both values. The elapsed seconds are not
/// compared: they differ in any two runs.
pub fn state_difference(left: &TrainState, right: &TrainState) -> Result<Option<String>> {
    let left = json_without_time(left)?;
    let right = json_without_time(right)?;
    for (key, value) in left.as_object().into_iter().flatten() {
        let other = &right[key.as_str()];
        if value != other {
            return Ok(Some(format!("`{key}` is {value} in the first, {other} in the second")));
        }
    }
    Ok(None)
}

/// The JSON of a training state without its elapsed seconds.
fn json_without_time(state: &TrainState) -> Result<Value> {
    TrainState { elapsed_seconds: 0.0, ..state.clone() }.to_json()
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use base::scores::Better;
    use base::sealed::write_sealed;
    use data::batches::Cursor;
    use model::checkpoint::Part;

    #[test]
    fn moments_must_be_finite_and_as_long_as_the_parameters() {
        let moments = vec![
            ("exp_avg".to_string(), Tensor::new(&[1.0, f32::NAN, 2.0], &Device::Cpu).unwrap()),
            ("exp_avg_sq".to_string(), Tensor::new(&[0.5f32; 4], &Device::Cpu).unwrap()),
            ("updates".to_string(), Tensor::new(&[3i64], &Device::Cpu).unwrap()),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint-3");
        let parts = vec![(OPTIMIZER.to_string(), Part::Tensors(moments))];
        write_sealed(&path, 3, &parts).unwrap();
        let [found, without_length] = [Some(3), None].map(|values| {
            let checkpoint = Checkpoint::open(&path).unwrap();
            assert!(is_of_run(&checkpoint));
            faults(checkpoint, values, &|_| {}).iter().map(|fault| format!("{fault:#}")).collect::<Vec<_>>()
        });
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("optimizer.safetensors: tensor `exp_avg` has 1 values of 3"), "{found:?}");
        assert!(
            found[1].contains("tensor `exp_avg_sq` is [4]") && found[1].contains("wants [3]"),
            "{found:?}"
        );
        assert!(found[2].contains("trainer/state.json"), "{found:?}");
        assert_eq!(without_length.len(), 2);
    }

    /// The state of a run with Muon is divided among two rules.
    #[test]
    fn the_tensors_of_all_rules_together_are_as_long_as_the_parameters() {
        let tensors = [("momentum_buffer", 3), ("exp_avg", 2), ("exp_avg_sq", 1)]
            .map(|(name, len)| (name.to_string(), Tensor::zeros(len, DType::F32, &Device::Cpu).unwrap()));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint-3");
        let config = serde_json::json!({"training": {"optim": "muon"}});
        let parts = vec![
            (OPTIMIZER.to_string(), Part::Tensors(tensors.to_vec())),
            (CONFIG.to_string(), Part::Json(config)),
        ];
        write_sealed(&path, 3, &parts).unwrap();
        let found = faults(Checkpoint::open(&path).unwrap(), Some(5), &|_| {});
        let found: Vec<String> = found.iter().map(|fault| format!("{fault:#}")).collect();
        assert!(found[0].contains("`exp_avg_sq` is [1]") && found[0].contains("wants [2]"), "{found:?}");
        assert!(found[1].contains("trainer/state.json") && found.len() == 2, "{found:?}");
    }

    #[test]
    fn states_differ_in_what_counts_and_not_in_time() {
        let state = TrainState::new(Cursor::default(), Better::Lower);
        let later = TrainState { elapsed_seconds: 9.5, ..state.clone() };
        assert_eq!(state_difference(&state, &later).unwrap(), None);
        let other = TrainState { num_input_tokens_seen: 7, ..later };
        let difference = state_difference(&state, &other).unwrap().unwrap();
        assert_eq!(difference, "`num_input_tokens_seen` is 0 in the first, 7 in the second");
    }

    #[test]
    fn the_loss_of_an_earlier_evaluation_is_not_that_of_this_step() {
        let mut state = TrainState::new(Cursor::default(), Better::Lower);
        assert_eq!(state.eval_loss(), None);
        state.step = 5;
        state.evaluated(&[("loss".to_string(), 2.5), ("accuracy".to_string(), 0.5)], "loss");
        assert_eq!(state.eval_loss(), Some(2.5));
        state.step = 6;
        assert_eq!(state.eval_loss(), None);
    }
}

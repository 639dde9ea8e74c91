//! Values of a model folder into the parameters of a model; a head that the folder has not keeps its initial
//! values.

use anyhow::Result;

use crate::config::Family;
use crate::error::Problem;
use crate::interop::PretrainedFolder;
use crate::layers::Parameters;

/// Fills `parameters` from `folder`; `place` names it in errors. Gives the names of the parameters that are
/// new.
///
/// Only a head may be new: BERT's pooler and a classifier, or one for another number of labels.
pub fn fill(parameters: &Parameters, folder: &PretrainedFolder, place: &str) -> Result<Vec<String>> {
    let mut new = Vec::new();
    for spec in parameters.layout().specs() {
        let is_classifier = spec.name.starts_with("classifier.") || spec.name.starts_with("bert.pooler.");
        match folder.tensors.get(&spec.name) {
            Some(tensor) if tensor.dims() == spec.shape => parameters.set(&spec.name, tensor)?,
            _ if is_classifier => new.push(spec.name.clone()),
            Some(tensor) => {
                let message = format!(
                    "tensor `{}` is {:?}, the model wants {:?}",
                    spec.name,
                    tensor.dims(),
                    spec.shape
                );
                return Err(Problem::new(message).at(place).into());
            }
            None => {
                let kind = if folder.config.family == Family::Bert { "cls.predictions" } else { "lm_head" };
                let hint = format!(
                    "a masked language model has `{kind}.*`; this folder may hold an encoder or a classifier only"
                );
                return Err(Problem::new(format!("tensor `{}` is missing", spec.name))
                    .at(place)
                    .hint(hint)
                    .into());
            }
        }
    }
    Ok(new)
}

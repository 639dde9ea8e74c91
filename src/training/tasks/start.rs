//! The start of fine-tuning runs: hashes of their inputs, the architecture and the tokenizer, and notes about
//! the model folder that they start from.

use anyhow::Result;
use serde::Serialize;

use crate::tasks::run::Inputs;
use crate::telemetry::Progress;
use base::error::Problem;
use base::families::ModelConfig;
use base::fs;
use base::fs::Sha256Sum;
use config::{FinetuneConfig, TrainingConfig};
use data::tokenizer::Tokenizer;
use model::interop::{Filled, PretrainedFolder};
use model::layers::Part;
use model::models::Encoder;
use model::optim::first_trained;

/// SHA-256 of examples in order, independent of the file that contains them.
pub(super) fn sha256_of<T: Serialize>(examples: impl Iterator<Item = T>) -> Result<String> {
    let mut sum = Sha256Sum::default();
    for example in examples {
        // As JSON, so that moving text from the end of one example to the start of the next one changes the
        // hash.
        sum.add(&serde_json::to_vec(&example)?);
    }
    Ok(sum.finish())
}

/// Loads the tokenizer of a model folder. Returns an error if it has tokens beyond the model's embedding
/// table.
pub(super) fn tokenizer_of(folder: &PretrainedFolder) -> Result<Tokenizer> {
    let tokenizer = Tokenizer::load(&folder.path)?;
    let rows = folder.config.encoder.vocab_size;
    let entries = tokenizer.vocab_size();
    // Control tokens that only a configuration file names get ids after the vocabulary, and no text contains
    // them.
    if entries > rows && (rows as u32..entries as u32).any(|id| !tokenizer.is_unused_control(id)) {
        return Err(Problem::new(format!("the tokenizer has {entries} entries, the model {rows}"))
            .at(folder.path.display())
            .into());
    }
    Ok(tokenizer)
}

/// The inputs of a run: hashes of its model folder, of its examples by the key of their file, and of its
/// label names.
pub(super) fn inputs(
    folder: &PretrainedFolder,
    examples: impl IntoIterator<Item = (&'static str, String)>,
    names: &[String],
) -> Result<Inputs> {
    let own = [("model", folder.sha256()?), ("data.labels", fs::sha256_of(&[&serde_json::to_vec(names)?]))];
    Ok(own.into_iter().chain(examples).map(|(key, hash)| (key.to_string(), hash)).collect())
}

/// The architecture that a run trains: that of the folder, with the dropout probabilities of the
/// configuration if it sets any. The dropout before the classifier is `hidden_dropout_prob` unless the folder
/// sets another one.
pub(super) fn model_of(config: &FinetuneConfig, folder: &ModelConfig) -> Result<ModelConfig> {
    let mut model = folder.clone();
    let family = model.family;
    let keys = [
        ("hidden_dropout_prob", config.hidden_dropout_prob, &mut model.encoder.hidden_dropout_prob),
        (
            "attention_probs_dropout_prob",
            config.attention_probs_dropout_prob,
            &mut model.encoder.attention_probs_dropout_prob,
        ),
    ];
    for (key, given, own) in keys {
        let Some(given) = given else { continue };
        if family.key(key).is_none() {
            return Err(Problem::usage(format!(
                "the model's family, `{}`, has no such dropout",
                family.name
            ))
            .at(key)
            .hint("remove it: the model's folder says what is dropped")
            .into());
        }
        *own = given;
    }
    Ok(model)
}

/// Sets which layers of an encoder are trained and which activations they save. Returns an error if more
/// layers are to be frozen than the encoder has.
pub(super) fn follow(training: &TrainingConfig, encoder: &mut Encoder) -> Result<()> {
    encoder.gradient_checkpointing = training.gradient_checkpointing.is_on();
    encoder.first_trained = first_trained(training);
    let layers = encoder.num_layers();
    if encoder.first_trained > Part::Layer(layers) {
        return Err(Problem::usage(format!("freezes more than the {layers} layers that the model has"))
            .at("training.frozen_layers")
            .hint(format!("`{layers}` trains the head alone"))
            .into());
    }
    let some_are_frozen =
        Part::Layer(0) < encoder.first_trained && encoder.first_trained < Part::Layer(layers);
    if encoder.shares_layers && some_are_frozen {
        return Err(Problem::usage(
            "freezes some of the layers, and the model has one set of parameters for all",
        )
        .at("training.frozen_layers")
        .hint(format!("freeze the `embeddings`, or all {layers} layers"))
        .into());
    }
    refuse_rates_of_layers(training, encoder)
}

/// Returns an error if layers are to have their own learning rates, but share their parameters.
pub(super) fn refuse_rates_of_layers(training: &TrainingConfig, encoder: &Encoder) -> Result<()> {
    if encoder.shares_layers && training.layerwise_lr_decay < 1.0 {
        let message = "gives each layer its own rate, and the model has one set of parameters for all layers";
        return Err(Problem::usage(message)
            .at("training.layerwise_lr_decay")
            .hint("remove it; `training.head_learning_rate` gives the head another rate in fine-tuning")
            .into());
    }
    Ok(())
}

/// Returns the tokenizer of a fine-tuning run, configured by `data.split_special_tokens`. Prints notes about
/// tokenizer files that were ignored or changed.
pub(super) fn for_texts(config: &FinetuneConfig, tokenizer: Tokenizer, progress: &Progress) -> Tokenizer {
    for note in tokenizer.notes() {
        progress.note_once(&format!("{}: {note}", config.model.display()));
    }
    splitting(config, tokenizer)
}

/// As [`for_texts`], without notes.
pub(super) fn splitting(config: &FinetuneConfig, tokenizer: Tokenizer) -> Tokenizer {
    if config.data.split_special_tokens { tokenizer } else { tokenizer.with_split_special_tokens(false) }
}

/// Prints notes about problems of the folder, and the names of newly initialised parameters.
pub(super) fn tell(config: &FinetuneConfig, folder: &PretrainedFolder, filled: &Filled, progress: &Progress) {
    for note in folder.notes.iter().chain(&filled.notes) {
        progress.note_once(&format!("{}: {note}", config.model.display()));
    }
    if !filled.new.is_empty() {
        progress.note_once(&format!("newly initialised with the seed of the run: {}", filled.new.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::families::{EncoderConfig, Family};

    #[test]
    fn a_family_without_a_kind_of_dropout_takes_none() {
        let without =
            Family::ALL.into_iter().filter(|family| family.key("hidden_dropout_prob").is_none()).count();
        assert_eq!(without, 1, "ModernBERT alone");
        for family in Family::ALL {
            let own = ModelConfig { family, encoder: EncoderConfig::of(family) };
            let found =
                model_of(&config_with("attention_probs_dropout_prob"), &own).expect("all have it").encoder;
            assert_eq!(found, EncoderConfig { attention_probs_dropout_prob: 0.3, ..own.encoder.clone() });
            let found = model_of(&config_with("hidden_dropout_prob"), &own);
            if family.key("hidden_dropout_prob").is_some() {
                let wanted = EncoderConfig { hidden_dropout_prob: 0.3, ..own.encoder.clone() };
                assert_eq!(found.expect("has it").encoder, wanted);
            } else {
                let error = format!("{:#}", found.expect_err("has it not"));
                assert!(error.contains(family.name) && error.contains("no such dropout"), "{error}");
            }
        }
    }

    /// A configuration with this dropout probability set.
    fn config_with(key: &str) -> FinetuneConfig {
        let mut all = serde_json::json!({"model": "m", "data": {"train_file": "a", "eval_file": "b"}});
        all[key] = 0.3.into();
        serde_json::from_value(all).expect("has the shape")
    }
}

//! What runs of fine-tuning begin with: the hashes of their inputs, and what a user should know of the model
//! folder that they start from.

use anyhow::Result;
use serde::Serialize;

use crate::config::FinetuneConfig;
use crate::config::TrainingConfig;
use crate::error::Problem;
use crate::families::ModelConfig;
use crate::fs;
use crate::fs::Sha256Sum;
use crate::interop::Filled;
use crate::interop::PretrainedFolder;
use crate::layers::Part;
use crate::models::Encoder;
use crate::optim::first_trained;
use crate::tasks::run::Inputs;
use crate::telemetry::Progress;
use crate::tokenizer::Tokenizer;

/// SHA-256 of examples in their order, whatever file they stand in.
pub(super) fn sha256_of<T: Serialize>(examples: impl Iterator<Item = T>) -> Result<String> {
    let mut sum = Sha256Sum::default();
    for example in examples {
        // As JSON, so that the end of a text cannot pass for the beginning of the next one.
        sum.add(&serde_json::to_vec(&example)?);
    }
    Ok(sum.finish())
}

/// The tokenizer of a model folder; an error where it has tokens that the model has no rows for.
pub(super) fn tokenizer_of(folder: &PretrainedFolder) -> Result<Tokenizer> {
    let tokenizer = Tokenizer::load(&folder.path)?;
    let (rows, entries) = (folder.config.encoder.vocab_size, tokenizer.vocab_size());
    // Control tokens that only a config names get ids behind the vocabulary, and no text has them.
    if entries > rows && (rows as u32..entries as u32).any(|id| !tokenizer.is_unused_control(id)) {
        return Err(Problem::new(format!("the tokenizer has {entries} entries, the model {rows}"))
            .at(folder.path.display())
            .into());
    }
    Ok(tokenizer)
}

/// The inputs of a run: its model, the hashes of its examples, and the names of what is learnt.
pub(super) fn inputs(folder: &PretrainedFolder, examples: [String; 2], names: &[String]) -> Result<Inputs> {
    let [train, eval] = examples;
    let hashes = [
        ("model", folder.sha256()?),
        ("data.train_file", train),
        ("data.eval_file", eval),
        ("data.labels", fs::sha256_of(&[&serde_json::to_vec(names)?])),
    ];
    Ok(hashes.map(|(key, hash)| (key.to_string(), hash)).into())
}

/// The architecture that a run trains: that of its folder, with the dropout of the configuration where it has
/// any. What is dropped before the classifier follows `hidden_dropout_prob` unless the folder says otherwise.
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

/// Tells an encoder which of its layers are trained and what they save; an error where more are to be frozen
/// than it has.
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

/// An error where layers are to learn at rates of their own, but share their parameters.
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

/// The tokenizer of a run of fine-tuning, as `data.split_special_tokens` wants it; says what of its files was
/// ignored or changed.
pub(super) fn for_texts(config: &FinetuneConfig, tokenizer: Tokenizer, progress: &Progress) -> Tokenizer {
    for note in tokenizer.notes() {
        progress.note(&format!("{}: {note}", config.model.display()));
    }
    splitting(config, tokenizer)
}

/// As [`for_texts`], without a word.
pub(super) fn splitting(config: &FinetuneConfig, tokenizer: Tokenizer) -> Tokenizer {
    if config.data.split_special_tokens { tokenizer } else { tokenizer.with_split_special_tokens(false) }
}

/// Says what of the folder was not as it should be, and which parameters are new.
pub(super) fn tell(
    config: &FinetuneConfig,
    folder: &PretrainedFolder,
    filled: &Filled,
    seed: u64,
    progress: &Progress,
) {
    for note in folder.notes.iter().chain(&filled.notes) {
        progress.note(&format!("{}: {note}", config.model.display()));
    }
    if !filled.new.is_empty() {
        progress.note(&format!("newly initialised (seed {seed}): {}", filled.new.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::EncoderConfig;
    use crate::families::Family;

    #[test]
    fn a_family_without_a_kind_of_dropout_takes_none() {
        let config = |key: &str| -> FinetuneConfig {
            let mut all = serde_json::json!({"model": "m", "data": {"train_file": "a", "eval_file": "b"}});
            all[key] = 0.3.into();
            serde_json::from_value(all).expect("has the shape")
        };
        let without =
            Family::ALL.into_iter().filter(|family| family.key("hidden_dropout_prob").is_none()).count();
        assert_eq!(without, 1, "ModernBERT alone");
        for family in Family::ALL {
            let own = ModelConfig { family, encoder: EncoderConfig::of(family) };
            let found = model_of(&config("attention_probs_dropout_prob"), &own).expect("all have it").encoder;
            assert_eq!(found, EncoderConfig { attention_probs_dropout_prob: 0.3, ..own.encoder.clone() });
            let found = model_of(&config("hidden_dropout_prob"), &own);
            if family.key("hidden_dropout_prob").is_some() {
                let wanted = EncoderConfig { hidden_dropout_prob: 0.3, ..own.encoder.clone() };
                assert_eq!(found.expect("has it").encoder, wanted);
            } else {
                let error = format!("{:#}", found.expect_err("has it not"));
                assert!(error.contains(family.name) && error.contains("no such dropout"), "{error}");
            }
        }
    }
}

//! Finds the key that a user probably meant by an unknown flag named like a key, such as `--weight-decay`.

use crate::check::places;
use crate::foreign::Elsewhere;
use crate::kind::Kind;
use crate::shape::{Shape, name_of};
use crate::{FinetuneConfig, PretrainConfig, foreign};

/// Returns the setting that a flag called `name` must mean: `training.weight_decay=VALUE` for `weight-decay`.
/// Names of other trainers are known, too. Returns `None` unless exactly one key can be meant.
pub fn meant_by_flag(name: &str, kind: Kind) -> Option<String> {
    let shape = match kind {
        Kind::Pretrain => Shape::from_struct::<PretrainConfig>(),
        Kind::Finetune => Shape::from_struct::<FinetuneConfig>(),
    };
    let name = name.to_lowercase().replace('-', "_");
    let mut paths = places(&shape, name_of(&name));
    // Keys of sections have precedence over keys of the same name in the tables of models.
    if paths.iter().any(|path| !path.starts_with("model.")) {
        paths.retain(|path| !path.starts_with("model."));
    }
    if let [path] = paths.as_slice() {
        return Some(format!("{path}=VALUE"));
    }
    match foreign::key(&name)? {
        Elsewhere::Key(path, _) => Some(format!("{path}=VALUE")),
        Elsewhere::Value(path, value) => Some(format!("{path}={value}")),
        Elsewhere::Nowhere(_) | Elsewhere::Hint(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_named_like_keys_lead_to_their_settings() {
        assert_eq!(settings("weight-decay"), ["training.weight_decay=VALUE"; 2]);
        assert_eq!(
            settings("per_device_train_batch_size"),
            ["training.per_device_train_batch_size=VALUE"; 2]
        );
        assert_eq!(settings("warmup-ratio"), ["training.warmup_steps=VALUE"; 2]);
        assert_eq!(settings("mlm-probability"), ["mlm.mlm_probability=VALUE", ""]);
        assert_eq!(
            settings("hidden-dropout-prob"),
            ["model.<family>.hidden_dropout_prob=VALUE", "hidden_dropout_prob=VALUE"]
        );
        assert_eq!(settings("vocab-size"), ["tokenizer.vocab_size=VALUE", ""]);
        assert_eq!(settings("lr"), ["training.learning_rate=VALUE"; 2]);
        assert_eq!(settings("fp16"), ["precision.compute=f16"; 2]);
        assert_eq!(settings("colour"), ["", ""]);
        assert_eq!(settings("files"), ["", ""], "in a list");
    }

    /// Returns the settings that a flag means in `pretrain` and in `finetune`; empty for none.
    fn settings(name: &str) -> [String; 2] {
        [Kind::Pretrain, Kind::Finetune].map(|kind| meant_by_flag(name, kind).unwrap_or_default())
    }
}

//! Flags that are no flags, but named as keys: which key is meant.

use crate::config::FinetuneConfig;
use crate::config::PretrainConfig;
use crate::config::check::places;
use crate::config::foreign;
use crate::config::foreign::Elsewhere;
use crate::config::schema::Kind;
use crate::config::shape::Shape;
use crate::config::shape::name_of;

/// The setting that a flag called `name` must mean: `training.weight_decay=VALUE` for `weight-decay`. Names of
/// other trainers are known, too; none where no key, or more than one, could be meant.
pub fn meant_by_flag(name: &str, kind: Kind) -> Option<String> {
    let shape = match kind {
        Kind::Pretrain => Shape::of::<PretrainConfig>(),
        Kind::Finetune => Shape::of::<FinetuneConfig>(),
    };
    let name = name.to_lowercase().replace('-', "_");
    let mut paths = places(&shape, name_of(&name));
    // Keys of sections go before those that tables of models have by the same name.
    if paths.iter().any(|path| !path.starts_with("model.")) {
        paths.retain(|path| !path.starts_with("model."));
    }
    if let [path] = paths.as_slice() {
        return Some(format!("{path}=VALUE"));
    }
    match foreign::key(&name)? {
        Elsewhere::Key(path, _) => Some(format!("{path}=VALUE")),
        Elsewhere::Value(path, value) => Some(format!("{path}={value}")),
        Elsewhere::Nowhere(_) | Elsewhere::Told(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_that_is_named_as_a_key_is_told_the_key() {
        let of = |name: &str| {
            [Kind::Pretrain, Kind::Finetune].map(|kind| meant_by_flag(name, kind).unwrap_or_default())
        };
        assert_eq!(of("weight-decay"), ["training.weight_decay=VALUE"; 2]);
        assert_eq!(of("per_device_train_batch_size"), ["training.per_device_train_batch_size=VALUE"; 2]);
        assert_eq!(of("warmup-ratio"), ["training.warmup_steps=VALUE"; 2]);
        assert_eq!(of("mlm-probability"), ["mlm.mlm_probability=VALUE", ""]);
        assert_eq!(
            of("hidden-dropout-prob"),
            ["model.<family>.hidden_dropout_prob=VALUE", "hidden_dropout_prob=VALUE"]
        );
        assert_eq!(of("vocab-size"), ["tokenizer.vocab_size=VALUE", ""]);
        assert_eq!(of("lr"), ["training.learning_rate=VALUE"; 2]);
        assert_eq!(of("fp16"), ["precision.compute=f16"; 2]);
        assert_eq!(of("colour"), ["", ""]);
        assert_eq!(of("files"), ["", ""], "in a list");
    }
}

//! Detects the command that a configuration is for, by the keys that only one of the two kinds has.
//!
//! The keys are read from the shapes of both kinds, so new keys count without a change here.

use crate::kind::Kind;
use crate::shape::Shape;
use crate::tree::Node;
use crate::{FinetuneConfig, PretrainConfig};
use base::error::Problem;

/// Returns the kind that has more of the keys to itself. If both have the same number, a `model` that is a
/// text is taken for a folder to fine-tune.
pub(super) fn detect(root: &Node) -> Kind {
    let (pretrain, finetune) = own_keys(root);
    let is_finetune = pretrain < finetune || pretrain == finetune && names_a_folder(root);
    if is_finetune { Kind::Finetune } else { Kind::Pretrain }
}

/// Refuses a configuration of the other kind. Otherwise most of its keys would be reported, and not the one
/// problem that matters.
pub(super) fn expect(root: &Node, kind: Kind) -> Result<(), Problem> {
    let (pretrain, finetune) = own_keys(root);
    let (wrong, right) = match kind {
        Kind::Pretrain if pretrain == 0 && finetune > 0 => ("finetune", "pretrain"),
        Kind::Finetune if finetune == 0 && pretrain > 0 => ("pretrain", "finetune"),
        _ => return Ok(()),
    };
    Err(Problem::usage(format!("is a configuration of `{wrong}`, and one of `{right}` is wanted"))
        .hint(format!("`mlmtrain {wrong} --config FILE` trains by it; `mlmtrain plan` tells time and cost")))
}

/// Returns the number of keys that only pretraining has, and that of keys that only fine-tuning has.
fn own_keys(root: &Node) -> (usize, usize) {
    let pretrain = Shape::from_struct::<PretrainConfig>();
    let finetune = Shape::from_struct::<FinetuneConfig>();
    (keys_of(root, &pretrain, &finetune), keys_of(root, &finetune, &pretrain))
}

/// Counts the keys, at the top and one level below it, that `shape` knows and `other` does not.
fn keys_of(root: &Node, shape: &Shape, other: &Shape) -> usize {
    let mut count = 0;
    for entry in root.entries() {
        let Some(field) = shape.field(&entry.key) else { continue };
        count += usize::from(is_own(&entry.key, shape, Some(other)));
        let other = other.field(&entry.key).map(|field| &field.shape);
        let below = entry.node.entries().iter();
        count += below.filter(|entry| is_own(&entry.key, &field.shape, other)).count();
    }
    count
}

/// Returns true if `shape` has a key and `other` does not.
fn is_own(key: &str, shape: &Shape, other: Option<&Shape>) -> bool {
    shape.field(key).is_some() && other.is_none_or(|other| other.field(key).is_none())
}

fn names_a_folder(root: &Node) -> bool {
    root.entries().iter().any(|entry| {
        ["model", "model_name_or_path"].contains(&entry.key.as_str()) && entry.node.value.text().is_some()
    })
}

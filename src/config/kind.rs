//! Which command a configuration is for, told by the keys that only one of the two kinds has.
//!
//! It reads the shapes of both, so that a new key of either tells them apart as well.

use crate::config::FinetuneConfig;
use crate::config::PretrainConfig;
use crate::config::schema::Kind;
use crate::config::shape::Shape;
use crate::config::tree::Node;
use crate::error::Problem;

/// The kind that more keys speak for; where neither has more, a `model` that is a text is a folder to
/// fine-tune.
pub(super) fn of(root: &Node) -> Kind {
    let (pretrain, finetune) = own_keys(root);
    let is_finetune = pretrain < finetune || pretrain == finetune && names_a_folder(root);
    if is_finetune { Kind::Finetune } else { Kind::Pretrain }
}

/// Refuses a configuration of the other kind: most of its keys would be problems, and none of them the one
/// that matters.
pub(super) fn expect(root: &Node, kind: Kind) -> Result<(), Problem> {
    let (pretrain, finetune) = own_keys(root);
    let (wrong, right, command) = match kind {
        Kind::Pretrain if pretrain == 0 && finetune > 0 => {
            ("finetune", "pretrain", "finetune --task classify")
        }
        Kind::Finetune if finetune == 0 && pretrain > 0 => ("pretrain", "finetune", "pretrain"),
        _ => return Ok(()),
    };
    Err(Problem::usage(format!("is a configuration of `{wrong}`, and one of `{right}` is wanted"))
        .hint(format!("`mlmtrain {command} --config FILE` reads it")))
}

/// The keys that only pretraining has, and those that only fine-tuning has.
fn own_keys(root: &Node) -> (usize, usize) {
    let (pretrain, finetune) = (Shape::of::<PretrainConfig>(), Shape::of::<FinetuneConfig>());
    (keys_of(root, &pretrain, &finetune), keys_of(root, &finetune, &pretrain))
}

/// The keys, at the top and one level below it, that `shape` knows and `other` does not.
fn keys_of(root: &Node, shape: &Shape, other: &Shape) -> usize {
    let is_own = |key: &str, shape: &Shape, other: Option<&Shape>| {
        shape.field(key).is_some() && other.is_none_or(|other| other.field(key).is_none())
    };
    let below = |key: &str, node: &Node| {
        let Some(field) = shape.field(key) else { return 0 };
        let other = other.field(key).map(|field| &field.shape);
        node.entries().iter().filter(|entry| is_own(&entry.key, &field.shape, other)).count()
    };
    let count = |key: &str, node: &Node| usize::from(is_own(key, shape, Some(other))) + below(key, node);
    root.entries().iter().map(|entry| count(&entry.key, &entry.node)).sum()
}

fn names_a_folder(root: &Node) -> bool {
    let is_model = |key: &str| ["model", "model_name_or_path"].contains(&key);
    root.entries().iter().any(|entry| is_model(&entry.key) && entry.node.value.text().is_some())
}

//! Loads a file of any kind: a configuration of `pretrain`, one of `finetune`, or tasks for `compare`.

use std::path::Path;

use crate::kind::Kind;
use crate::load::Loaded;
use crate::overrides::Override;
use crate::sweep::{FinetunePlan, Swept};
use crate::tasks_file::NamedTask;
use crate::tree::Node;
use crate::{FinetuneConfig, PretrainConfig, detect_kind, load, sweep, tasks_file, variables};
use base::error::Problems;

/// A loaded file of any kind.
#[derive(Debug)]
pub enum AnyLoaded {
    /// A configuration of `pretrain` and `prepare`.
    Pretrain(Box<Loaded<PretrainConfig>>),
    /// A configuration of `finetune`.
    Finetune(Box<Loaded<FinetuneConfig>>),
    /// A configuration of a sweep of `finetune`, without the swept keys.
    Sweep(Box<Loaded<FinetuneConfig>>),
    /// The tasks of `compare`.
    Tasks(Vec<NamedTask>),
}

/// Reads a configuration and detects the command that it is for. The file is read once, since it may be a
/// pipe.
pub fn load_any(path: &Path, overrides: &[Override]) -> Result<AnyLoaded, Problems> {
    load_root(path, load::read(path, overrides)?, overrides)
}

/// Like [`load_any`], for a configuration that a run saved, perhaps on another machine: paths keep the
/// variables that are not set here.
pub fn load_saved(path: &Path) -> Result<AnyLoaded, Problems> {
    let mut root = load::read(path, &[])?;
    variables::keep_unset(&mut root, &variables::environment);
    load_root(path, root, &[])
}

fn load_root(path: &Path, root: Node, overrides: &[Override]) -> Result<AnyLoaded, Problems> {
    if tasks_file::has_tasks(&root) {
        return tasks_file::tasks_of(path, root, overrides).map(AnyLoaded::Tasks);
    }
    Ok(match detect_kind::detect(&root) {
        Kind::Pretrain => AnyLoaded::Pretrain(Box::new(load::pretrain_of(Some((path, root)), overrides)?)),
        Kind::Finetune => match sweep::plan_of(Some((path, root.clone())), overrides, Swept::default())? {
            FinetunePlan::Single(loaded) => AnyLoaded::Finetune(loaded),
            FinetunePlan::Sweep(_) => {
                AnyLoaded::Sweep(Box::new(load::finetune_of(Some((path, root)), overrides)?))
            }
        },
    })
}

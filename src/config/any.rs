//! A file of whichever kind: a configuration of `pretrain`, one of `finetune`, or tasks for `compare`.

use std::path::Path;

use crate::config::FinetuneConfig;
use crate::config::PretrainConfig;
use crate::config::kind;
use crate::config::load;
use crate::config::load::Loaded;
use crate::config::overrides::Override;
use crate::config::schema::Kind;
use crate::config::sweep;
use crate::config::sweep::FinetunePlan;
use crate::config::sweep::Swept;
use crate::config::tasks_file;
use crate::config::tasks_file::NamedTask;
use crate::config::tree::Node;
use crate::config::variables;
use crate::error::Problems;

/// A configuration of whichever command it is for.
#[derive(Debug)]
pub enum AnyLoaded {
    /// Of `pretrain` and `prepare`.
    Pretrain(Box<Loaded<PretrainConfig>>),
    /// Of `finetune`.
    Finetune(Box<Loaded<FinetuneConfig>>),
    /// Of a sweep of `finetune`, without what is swept.
    Sweep(Box<Loaded<FinetuneConfig>>),
    /// Of `compare`.
    Tasks(Vec<NamedTask>),
}

/// Reads a configuration and finds out which command it is for. The file is read once: it may be a pipe.
pub fn load_any(path: &Path, overrides: &[Override]) -> Result<AnyLoaded, Problems> {
    any_of(path, load::read(path, overrides)?, overrides)
}

/// As [`load_any`], of a run that may be another machine's: paths keep the variables that are not set here.
pub fn load_saved(path: &Path) -> Result<AnyLoaded, Problems> {
    let mut root = load::read(path, &[])?;
    variables::keep_unset(&mut root, &variables::environment);
    any_of(path, root, &[])
}

fn any_of(path: &Path, root: Node, overrides: &[Override]) -> Result<AnyLoaded, Problems> {
    if tasks_file::is_one(&root) {
        return tasks_file::tasks_of(path, root, overrides).map(AnyLoaded::Tasks);
    }
    Ok(match kind::of(&root) {
        Kind::Pretrain => AnyLoaded::Pretrain(Box::new(load::pretrain_of(Some((path, root)), overrides)?)),
        Kind::Finetune => match sweep::plan_of(Some((path, root.clone())), overrides, Swept::default())? {
            FinetunePlan::Single(loaded) => AnyLoaded::Finetune(loaded),
            FinetunePlan::Sweep(_) => {
                AnyLoaded::Sweep(Box::new(load::finetune_of(Some((path, root)), overrides)?))
            }
        },
    })
}

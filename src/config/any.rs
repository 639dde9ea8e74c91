//! A file of whichever kind: a configuration of `pretrain`, one of `finetune`, or tasks for `compare`.

use std::path::Path;

use crate::config::FinetuneConfig;
use crate::config::PretrainConfig;
use crate::config::kind;
use crate::config::load;
use crate::config::load::Loaded;
use crate::config::schema::Kind;
use crate::config::sweep;
use crate::config::sweep::FinetunePlan;
use crate::config::sweep::Swept;
use crate::config::tasks_file;
use crate::config::tasks_file::NamedTask;
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
pub fn load_any(path: &Path, sets: &[String]) -> Result<AnyLoaded, Problems> {
    let overrides = load::overrides(sets)?;
    let root = load::read(path).map_err(|problem| Problems(vec![problem]))?;
    if tasks_file::is_one(&root) {
        return tasks_file::tasks_of(path, root, &overrides).map(AnyLoaded::Tasks);
    }
    Ok(match kind::of(&root) {
        Kind::Pretrain => AnyLoaded::Pretrain(Box::new(load::pretrain_of(Some((path, root)), &overrides)?)),
        Kind::Finetune => match sweep::plan_of(Some((path, root.clone())), &overrides, Swept::default())? {
            FinetunePlan::Single(loaded) => AnyLoaded::Finetune(loaded),
            FinetunePlan::Sweep(_) => {
                AnyLoaded::Sweep(Box::new(load::finetune_of(Some((path, root)), &overrides)?))
            }
        },
    })
}

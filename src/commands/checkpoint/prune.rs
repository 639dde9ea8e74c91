//! `mlmtrain checkpoint prune`: deletes old checkpoints, after it has verified the ones to keep.

use std::path::Path;

use anyhow::Result;

use crate::checkpoint::{Checkpoint, CheckpointStore};
use crate::commands::checkpoint::args::PruneArgs;
use crate::commands::checkpoint::store_of_run;
use crate::commands::terminal;
use crate::error::Problem;
use crate::fs;
use crate::fs::FolderLock;
use crate::quantity::format_bytes;
use crate::telemetry::{Progress, Unit};
use crate::train::checkpoint_files::Resumed;
use crate::words::counted;

/// The checkpoints to keep and to delete, by their steps.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// The newest intact checkpoints, newest first.
    kept: Vec<u64>,
    /// The best checkpoint, if it is not one of `kept`. It is kept, too.
    best: Option<u64>,
    /// Damaged checkpoints that are newer than the oldest of `kept`, with the reason. They are kept, too.
    damaged: Vec<(u64, String)>,
    /// The checkpoints to delete, oldest first.
    gone: Vec<u64>,
}

/// A checkpoint that a run could resume from.
struct Whole {
    /// Step of the best checkpoint when this one was saved.
    best: Option<u64>,
}

pub(super) fn run(args: &PruneArgs) -> Result<()> {
    let store = store_of_run(&args.folder)?;
    // The lock excludes a running training, which deletes checkpoints itself. A dry run leaves no trace, not
    // even a lock.
    let _lock = (!args.dry_run).then(|| FolderLock::take(&args.folder)).transpose()?;
    let progress = Progress::detect(terminal::is_quiet());
    let steps = store.steps()?;
    let bar = progress.stage("verifying", Unit::Items, None);
    let plan = plan(&steps, args.keep as usize, |step| {
        let whole = whole(&store, step);
        bar.advance(1);
        whole
    });
    bar.finish("done");
    for (_, why) in &plan.damaged {
        progress.warn(&format!("{why}; it stays"));
    }
    if plan.kept.is_empty() && !steps.is_empty() {
        return Err(Problem::new("none of the checkpoints is whole, so nothing is deleted")
            .at(args.folder.display())
            .hint("`mlmtrain checkpoint verify` says what is wrong with each")
            .into());
    }
    carry_out(&store, &plan, args.dry_run)
}

/// Reads a checkpoint as a run would that resumes from it.
fn whole(store: &CheckpointStore, step: u64) -> Result<Whole> {
    let path = store.path_of(step);
    let resumed = Resumed::read(Checkpoint::open(&path)?)?;
    if resumed.state.step == step {
        return Ok(Whole { best: resumed.state.best.step() });
    }
    let message = format!("holds step {}, against its name", resumed.state.step);
    Err(Problem::new(message).at(path.display()).into())
}

/// Plans which of `steps` to keep: the `keep` newest that `whole` can read, the best one according to the
/// newest of these, and everything newer than the oldest of these.
fn plan(steps: &[u64], keep: usize, mut whole: impl FnMut(u64) -> Result<Whole>) -> Plan {
    let mut newest_first = steps.to_vec();
    newest_first.sort_unstable_by(|a, b| b.cmp(a));
    let mut plan = Plan::default();
    for &step in &newest_first {
        if plan.kept.len() == keep.max(1) {
            break;
        }
        match whole(step) {
            Ok(Whole { best }) => {
                // Only the newest checkpoint knows the current best one.
                if plan.kept.is_empty() {
                    plan.best = best;
                }
                plan.kept.push(step);
            }
            Err(e) => plan.damaged.push((step, format!("{e:#}"))),
        }
    }
    plan.best = plan.best.filter(|best| newest_first.contains(best) && !plan.kept.contains(best));
    let oldest = plan.kept.last().copied().unwrap_or(0);
    plan.gone = newest_first.into_iter().rev().filter(|&s| s < oldest && Some(s) != plan.best).collect();
    plan
}

/// Deletes the checkpoints of a plan, unless it is a dry run, and prints what is kept and deleted.
fn carry_out(store: &CheckpointStore, plan: &Plan, dry_run: bool) -> Result<()> {
    for &step in plan.kept.iter().rev() {
        print_action("keep    ", &store.path_of(step), "")?;
    }
    if let Some(best) = plan.best {
        print_action("keep    ", &store.path_of(best), ", the best one")?;
    }
    let verb = if dry_run { "would go" } else { "deleted " };
    let mut freed = 0u64;
    for &step in &plan.gone {
        let path = store.path_of(step);
        let bytes = fs::bytes_below(&path)?;
        if !dry_run {
            store.remove(step)?;
        }
        freed = freed.saturating_add(bytes);
        print_action(&format!("{verb}  "), &path, &format!(", {}", format_bytes(bytes)))?;
    }
    let count = counted(plan.gone.len(), "checkpoint");
    let would = if dry_run { "would be " } else { "" };
    terminal::stdout_line(&format!("{count} {would}deleted, {} {would}freed", format_bytes(freed)))
}

fn print_action(action: &str, path: &Path, detail: &str) -> Result<()> {
    terminal::stdout_line(&terminal::printable(&format!("{action}{}{detail}", path.display())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan_of(steps: &[u64], keep: usize, damaged: &[u64], best: Option<u64>) -> Plan {
        plan(steps, keep, |step| {
            if damaged.contains(&step) {
                return Err(Problem::new(format!("checkpoint {step} is cut")).into());
            }
            Ok(Whole { best })
        })
    }

    #[test]
    fn the_newest_intact_ones_and_the_best_are_kept() {
        let plan = plan_of(&[8, 16, 24, 32, 40], 2, &[32], Some(16));
        assert_eq!((plan.kept, plan.best, plan.gone), (vec![40, 24], Some(16), vec![8]));
        assert_eq!(plan.damaged.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [32]);
        let plan = plan_of(&[8, 16, 24], 1, &[], Some(24));
        assert_eq!((plan.kept, plan.best, plan.gone), (vec![24], None, vec![8, 16]));
    }

    #[test]
    fn nothing_is_deleted_if_no_checkpoint_is_intact() {
        let plan = plan_of(&[8, 16], 1, &[8, 16], Some(8));
        assert_eq!((plan.kept, plan.gone), (vec![], vec![]));
        assert_eq!(plan_of(&[], 1, &[], None), Plan::default());
    }

    proptest! {
        #[test]
        fn deleted_ones_are_older_than_the_kept_intact_ones(
            steps in proptest::collection::btree_set(0..40_u64, 0..12),
            damaged in proptest::collection::vec(0..40_u64, 0..8),
            keep in 0..5_usize,
            best in proptest::option::of(0..40_u64),
        ) {
            let steps: Vec<u64> = steps.into_iter().collect();
            let plan = plan_of(&steps, keep, &damaged, best);
            let whole = steps.iter().filter(|step| !damaged.contains(step)).count();
            prop_assert_eq!(plan.kept.len(), whole.min(keep.max(1)));
            prop_assert!(plan.gone.iter().all(|step| Some(*step) != best), "the best stays");
            prop_assert!(plan.gone.is_empty() || !plan.kept.is_empty(), "never below one whole");
            for gone in &plan.gone {
                prop_assert!(plan.kept.iter().all(|kept| kept > gone));
            }
        }
    }
}

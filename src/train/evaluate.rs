//! Evaluation: the loss over all batches of a set, interruptible between two batches.

use anyhow::Result;

use crate::batches::Batch;
use crate::tasks::Loss;
use crate::tasks::Task;
use crate::train::signals::Signals;

/// Loss over `batches` without dropout; `None` when a signal came in meanwhile.
pub fn evaluate(
    task: &dyn Task,
    batches: impl IntoIterator<Item = Result<Batch>>,
    signals: &Signals,
) -> Result<Option<Loss>> {
    let mut total = Loss::default();
    for batch in batches {
        if signals.received().is_some() {
            return Ok(None);
        }
        total += task.evaluate(&batch?)?;
    }
    Ok(Some(total))
}

/// Trainer's names for a loss: `loss`, `perplexity`, `accuracy`.
pub fn mlm_scores(loss: &Loss) -> Vec<(String, f64)> {
    vec![
        ("loss".into(), loss.mean()),
        ("perplexity".into(), loss.mean().exp()),
        ("accuracy".into(), loss.accuracy()),
    ]
}

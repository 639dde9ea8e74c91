//! Runs a model over examples: its predictions, and the loss where the labels are known.

use anyhow::Result;

use crate::tasks::divided::for_each_output;
use crate::tasks::finetuning_task::{Answer, Collator, Encoded, FinetuningTask, Input, Row, decode};
use crate::tasks::{Loss, PendingLoss, Task};
use data::batches::Batch;
use model::distributed::World;
use model::models::Objective;

/// A model, and how examples become batches of it.
pub(super) struct Judge<'a, T: FinetuningTask> {
    pub(super) target: &'a T,
    pub(super) task: &'a dyn Task,
    pub(super) collator: &'a Collator<T>,
    /// The processes that share the work.
    pub(super) world: World,
    /// Number of sequences in a batch.
    pub(super) batch_size: usize,
}

/// Predictions for examples.
pub(super) struct Verdict<T: FinetuningTask> {
    /// The prediction for each example.
    pub(super) answers: Vec<Answer<T>>,
    /// The loss; of no targets if the labels are not known.
    pub(super) loss: Loss,
    /// The first example for which an output is not finite.
    pub(super) not_finite: Option<usize>,
}

/// The labels of sequences, as the loss reads them.
fn labels<T: FinetuningTask>(target: &T, gold: &[T::Gold], encoded: &[&Encoded<T>]) -> Vec<u32> {
    let mut labels = Vec::new();
    for place in encoded.iter().flat_map(|encoded| T::Input::places(encoded)) {
        target.push_labels(&gold[place.example], place.word, &mut labels);
    }
    labels
}

/// Makes a batch of sequences with their labels.
pub(super) fn batch<T: FinetuningTask>(
    target: &T,
    gold: &[T::Gold],
    collator: &Collator<T>,
    encoded: &[&Encoded<T>],
    first_row: u64,
) -> Batch {
    Batch { labels: labels(target, gold, encoded), ..T::Input::batch(collator, encoded, first_row) }
}

impl<T: FinetuningTask> Judge<'_, T> {
    /// The first batch of sequences; without labels all labels are 0.
    pub(super) fn batch(&self, encoded: &[&Encoded<T>], gold: Option<&[T::Gold]>) -> Batch {
        if let Some(gold) = gold {
            return batch(self.target, gold, self.collator, encoded, 0);
        }
        let places = encoded.iter().flat_map(|encoded| T::Input::places(encoded));
        Batch { labels: vec![0; places.count()], ..T::Input::batch(self.collator, encoded, 0) }
    }

    /// Predicts the examples `rows`, whose sequences are `encoded`. `None` if it was interrupted.
    pub(super) fn verdict(
        &self,
        rows: &[Row<T>],
        encoded: &[Encoded<T>],
        gold: Option<&[T::Gold]>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Verdict<T>>> {
        let objective = Objective::of(T::HEAD);
        let mut verdict = Verdict {
            answers: rows.iter().map(T::Input::unanswered).collect(),
            loss: Loss::default(),
            not_finite: None,
        };
        let encoded: Vec<&Encoded<T>> = encoded.iter().collect();
        let chunks: Vec<&[&Encoded<T>]> = encoded.chunks(self.batch_size).collect();
        let batches = chunks.iter().map(|chunk| self.batch(chunk, gold));
        let is_whole = for_each_output(self.world, self.task, batches, interrupted, |number, logits| {
            if let Some(gold) = gold {
                let labels = labels(self.target, gold, chunks[number]);
                let totals = objective.totals(&logits, labels.as_slice().into())?;
                verdict.loss += PendingLoss::of_totals(totals, labels.len()).read()?;
            }
            let finite = logits.to_vec2::<f32>()?;
            let places = chunks[number].iter().flat_map(|encoded| T::Input::places(encoded));
            for ((place, outputs), logits) in places.zip(decode(&objective, &logits)?).zip(finite) {
                if !logits.iter().all(|logit| logit.is_finite()) {
                    verdict.not_finite.get_or_insert(place.example);
                }
                T::Input::put(&mut verdict.answers[place.example], place.word, outputs);
            }
            Ok(())
        })?;
        Ok(is_whole.then_some(verdict))
    }
}

//! The data of a token-classification run: windows of sentences, the position of the next step, and the
//! predictions for the evaluation sentences.

use std::path::Path;

use anyhow::Result;

use crate::batches::StepBatches;
use crate::distributed::World;
use crate::error::Problem;
use crate::fs;
use crate::fs::StagedFile;
use crate::scores::{EntityCounts, EntityTally};
use crate::tasks::Task;
use crate::tasks::divided::for_each_output;
use crate::tasks::labelled::Sentence;
use crate::tasks::labelled::tags::iob2;
use crate::tasks::run::{Beginning, Data, Scores, Setting};
use crate::tasks::shuffled::Shuffled;
use crate::tasks::token_classify::tagger::{Predicted, Predictions, encode};
use crate::tasks::token_classify::windows::{Window, WindowCollator};
use crate::tasks::token_classify::{TagSet, TaggedExamples, report};
use crate::telemetry::Progress;
use crate::tokenizer::Tokenizer;

/// Files with the predictions for the evaluation sentences, in the run's folder: as JSONL, and as columns.
pub const PREDICTIONS: [&str; 2] = ["predictions.jsonl", "predictions.conll"];

/// Training and evaluation windows, and the results of the latest evaluation.
pub struct TrainingData<'a> {
    examples: &'a TaggedExamples,
    train: Vec<Window>,
    eval: Vec<Window>,
    collator: WindowCollator,
    order: Shuffled,
    /// The processes that share an evaluation.
    world: World,
    eval_rows: usize,
    /// Prediction for each word of each sentence, from the latest evaluation.
    predicted: Vec<Vec<Predicted>>,
    /// Counts of entities, from the latest evaluation.
    pub tally: EntityTally,
}

impl<'a> TrainingData<'a> {
    /// Tokenizes all sentences, and prints notes about long sentences, words without tokens and truncated
    /// words.
    pub(super) fn encode(
        examples: &'a TaggedExamples,
        tokenizer: &Tokenizer,
        collator: WindowCollator,
        setting: Setting<'_>,
    ) -> Result<Self> {
        let progress = setting.progress;
        let TaggedExamples { train, train_ids, eval, eval_ids, .. } = examples;
        let train = encode_with_notes("training", train, train_ids, tokenizer, &collator, progress)?;
        if train.is_empty() {
            return Err(Problem::new("the tokenizer makes nothing of any word to train on")
                .at("data.train_file")
                .hint("is it the tokenizer of this language?")
                .into());
        }
        Ok(Self {
            train,
            eval: encode_with_notes("evaluation", eval, eval_ids, tokenizer, &collator, progress)?,
            examples,
            collator,
            order: Shuffled::new(&setting),
            world: setting.machine.world,
            eval_rows: setting.training.per_device_eval_batch_size,
            predicted: Vec::new(),
            tally: EntityTally::default(),
        })
    }

    /// Returns the counts of entities in each evaluation sentence, from the latest evaluation.
    pub(super) fn sentence_counts(&self) -> Vec<EntityCounts> {
        let mut counts = Vec::with_capacity(self.predicted.len());
        for (sentence, predicted) in self.examples.eval.iter().zip(&self.predicted) {
            let sentence = std::slice::from_ref(sentence);
            let predicted = std::slice::from_ref(predicted);
            counts.push(tally(&self.examples.labels, sentence, predicted).overall());
        }
        counts
    }

    /// Number of rows of all updates of an epoch, as if the last update were full.
    pub(super) fn rows_per_epoch(&self) -> u64 {
        self.order.rows_per_epoch(self.train.len())
    }

    /// The evaluation sentences, each with its predictions.
    fn predicted(&self) -> impl Iterator<Item = (&Sentence, &[Predicted])> {
        self.examples.eval.iter().zip(self.predicted.iter().map(Vec::as_slice))
    }
}

/// The windows of sentences with these labels; prints notes about what is unusual about them.
fn encode_with_notes(
    what: &str,
    sentences: &[Sentence],
    ids: &[Vec<u32>],
    tokenizer: &Tokenizer,
    collator: &WindowCollator,
    progress: &Progress,
) -> Result<Vec<Window>> {
    let encoded = encode(tokenizer, collator, &words(sentences), ids)?;
    let many = sentences.len();
    let length = collator.max_seq_length;
    if encoded.long_sentences > 0 {
        let long = encoded.long_sentences;
        let windows = encoded.windows.len() as u64 - encoded.short_sentences;
        progress.note(&format!(
            "{long} of {many} {what} sentences are longer than {length} tokens: \
             read in {windows} windows"
        ));
    }
    if encoded.unseen_words > 0 {
        let count = encoded.unseen_words;
        progress
            .note(&format!("{count} {what} words are nothing to the tokenizer: the model never sees them"));
    }
    if encoded.cut_words > 0 {
        let count = encoded.cut_words;
        progress.note_once(&format!("{count} {what} words were cut at {length} tokens"));
    }
    Ok(encoded.windows)
}

/// The words of each sentence.
pub(super) fn words(sentences: &[Sentence]) -> Vec<&[String]> {
    sentences.iter().map(|sentence| sentence.words.as_slice()).collect()
}

/// Counts the entities in the gold tags of sentences, which are IOB2, and in the tags predicted for them.
/// Predictions of a model with another scheme are converted to IOB2 first. Words that the model never saw are
/// not counted, as in transformers' run_ner.py.
pub(super) fn tally(labels: &TagSet, sentences: &[Sentence], predicted: &[Vec<Predicted>]) -> EntityTally {
    let mut tally = EntityTally::default();
    for (sentence, predicted) in sentences.iter().zip(predicted) {
        let seen = sentence.tags.iter().zip(predicted).filter(|(_, word)| word.is_seen());
        let (gold, tags): (Vec<&str>, Vec<&str>) =
            seen.map(|(tag, word)| (tag.as_str(), labels.tag(word.label))).unzip();
        if labels.is_iob2() {
            tally.add(&gold, &tags);
        } else {
            let tags = iob2(&tags);
            tally.add(&gold, &tags.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
    tally
}

/// Writes a file of predictions: columns if its name ends in `.conll`, else JSONL. Returns false if it was
/// interrupted.
pub(super) fn write_predictions<'s>(
    path: &Path,
    labels: &TagSet,
    predicted: impl Iterator<Item = (&'s Sentence, &'s [Predicted])>,
    interrupted: &dyn Fn() -> bool,
) -> Result<bool> {
    let is_columns = path.extension().is_some_and(|extension| extension == "conll");
    let row = if is_columns { report::columns } else { report::line };
    let mut file = StagedFile::create(path)?;
    for (sentence, predicted) in predicted {
        if interrupted() {
            return Ok(false);
        }
        file.write(row(&sentence.words, &sentence.tags, labels, predicted).as_bytes())?;
    }
    file.publish(b"")?;
    Ok(true)
}

impl Data for TrainingData<'_> {
    fn start(&mut self, beginning: Beginning) -> Result<()> {
        self.order.start(beginning.cursor);
        Ok(())
    }

    fn next_step(&mut self) -> Result<StepBatches> {
        Ok(self.order.next_step(&self.train, |rows, first| self.collator.batch(rows.iter().copied(), first)))
    }

    fn evaluate(&mut self, task: &dyn Task, interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        let mut predictions = Predictions::new(&words(&self.examples.eval));
        let batches: Vec<&[Window]> = self.eval.chunks(self.eval_rows).collect();
        let made = batches.iter().map(|windows| self.collator.batch(*windows, 0));
        let is_whole = for_each_output(self.world, task, made, interrupted, |number, logits| {
            predictions.add(batches[number], &logits)
        })?;
        if !is_whole {
            return Ok(None);
        }
        self.tally = tally(&self.examples.labels, &self.examples.eval, &predictions.by_sentence);
        self.predicted = predictions.by_sentence;
        Ok(Some(report::scores(predictions.loss.mean(), &self.tally)))
    }

    fn score_names(&self) -> Vec<String> {
        report::score_names(&self.examples.labels)
    }

    fn wants_evaluation(&self) -> bool {
        self.predicted.is_empty()
    }

    fn finish_bytes(&self) -> u64 {
        report::rows_bytes(words(&self.examples.eval).into_iter(), &self.examples.labels)
    }

    fn finish(&mut self, output: &Path, interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        for name in PREDICTIONS {
            let path = output.join(name);
            fs::require_space(&path, self.finish_bytes(), "the predictions do not fit").map_err(
                |problem| {
                    problem.hint(
                        "free some room and run the same command again; the model is in the last checkpoint",
                    )
                },
            )?;
            if !write_predictions(&path, &self.examples.labels, self.predicted(), interrupted)? {
                return Ok(None);
            }
        }
        Ok(Some(Scores::new()))
    }
}

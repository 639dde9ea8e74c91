//! Whole texts, or pairs of texts, as the examples of a task: classes, several labels, and numbers of each.
//!
//! `collate.rs` adds special tokens and cuts, `labels.rs` knows the names of labels. Neither knows the model.

pub mod collate;
pub mod labels;

use std::ops::AddAssign;

use anyhow::Result;

use crate::tasks::finetuning_task::{Input, Place, PlanWords};
use crate::tasks::labelled::{Example, InputFile, InputText, TrainedColumns};
use crate::tasks::planned::Lengths;
use crate::tasks::run::TargetShare;
use crate::tasks::start;
use crate::tasks::trained::Scored;
use base::error::Problem;
use base::families::ModelConfig;
use config::FinetuneConfig;
use data::batches::Batch;
use data::tokenizer::Tokenizer;
use model::interop::PretrainedFolder;
use model::models::{Blueprint, ClassificationHead, Objective};

pub use collate::{Collator, Encoded, Truncation};
pub use labels::LabelSet;

/// Examples that are texts or pairs of texts. The prediction for one is what its outputs mean: probabilities
/// or numbers.
pub struct Texts;

impl Input for Texts {
    type Row = Example;
    type Encoded = Encoded;
    type Collator = Collator;
    type Unusual = Truncation;
    type Answer = Vec<f32>;
    type Question = InputText;
    type Head = ClassificationHead;

    const WORDS: PlanWords = PlanWords { labels: "labels", longest: "longest text", too_long: "cut" };
    const REACH_HEAD: TargetShare = TargetShare::OneARow;

    fn blueprint(
        config: &ModelConfig,
        outputs: usize,
        objective: Objective,
    ) -> candle_core::Result<Blueprint<ClassificationHead>> {
        let Blueprint { config, encoder, head, layout } = Blueprint::classifier(config, outputs);
        Ok(Blueprint { config, encoder, head: head.with_objective(objective), layout })
    }

    fn framing(
        folder: &PretrainedFolder,
        max_seq_length: usize,
        config: Option<&FinetuneConfig>,
    ) -> Result<(Tokenizer, Collator)> {
        let tokenizer = start::tokenizer_of(folder)?;
        let longest = folder.config.max_sequence_length();
        if max_seq_length > longest {
            return Err(Problem::usage(format!("is {max_seq_length}, the model takes {longest} tokens"))
                .at("data.max_seq_length")
                .hint(format!("set it to {longest} or less"))
                .into());
        }
        let pairs = config.is_none_or(|config| config.data.text_pair_column.is_some());
        let collator =
            Collator::new(&tokenizer, folder.config.encoder.type_vocab_size, max_seq_length, pairs)?;
        Ok((tokenizer, collator))
    }

    fn cut_at(collator: Collator, length: usize) -> Collator {
        collator.cut_at(length)
    }

    fn encode(
        tokenizer: &Tokenizer,
        collator: &Collator,
        rows: &[Example],
    ) -> Result<(Vec<Encoded>, Truncation)> {
        let firsts: Vec<&str> = rows.iter().map(|row| row.text.as_str()).collect();
        let seconds: Vec<Option<&str>> = rows.iter().map(|row| row.text_pair.as_deref()).collect();
        encode(tokenizer, collator, &firsts, &seconds)
    }

    fn places(encoded: &Encoded) -> impl Iterator<Item = Place> {
        std::iter::once(Place { example: encoded.sample_id as usize, word: 0 })
    }

    fn batch(collator: &Collator, encoded: &[&Encoded], first_row: u64) -> Batch {
        collator.batch(encoded.iter().copied(), first_row)
    }

    fn files(config: &FinetuneConfig) -> Vec<(String, Vec<u8>)> {
        vec![TrainedColumns::new(&config.data).file()]
    }

    fn text(row: &Example) -> String {
        row.whole_text()
    }

    fn unanswered(_: &Example) -> Vec<f32> {
        Vec::new()
    }

    fn put(answer: &mut Vec<f32>, _word: usize, outputs: Vec<f32>) {
        *answer = outputs;
    }

    fn lengths(rows: &[Example], lost: &Truncation) -> Lengths {
        Lengths { examples: rows.len(), longest: lost.longest, too_long: lost.examples }
    }

    fn too_long(length: usize) -> String {
        format!("texts, at {length} tokens")
    }

    fn notes(
        set: &str,
        _encoded: &[Encoded],
        rows: &[Example],
        lost: &Truncation,
        collator: &Collator,
    ) -> Vec<String> {
        let Truncation { examples: cut, tokens, .. } = lost;
        let all = rows.len();
        let length = collator.max_seq_length();
        let note = format!("{cut} of {all} {set} examples were cut at {length} tokens, {tokens} tokens lost");
        (*cut > 0).then_some(note).into_iter().collect()
    }

    fn count(rows: &[Example], scored: &mut Scored) {
        scored.add("examples", rows.len(), "examples", rows.len());
    }

    fn count_unusual(lost: &Truncation, scored: &mut Scored) {
        let Truncation { examples, tokens, .. } = lost;
        if *examples > 0 {
            scored.add(
                "examples_cut",
                *examples,
                "cut",
                format!("{examples} examples, {tokens} tokens lost"),
            );
        }
    }

    fn note_of_predict(examples: usize, lost: &Truncation) -> Option<String> {
        let cut = lost.examples;
        (cut > 0)
            .then(|| format!("note: {cut} of {examples} texts were longer than the model takes and were cut"))
    }

    fn questions(input: &InputFile<'_>) -> Result<Box<dyn Iterator<Item = Result<InputText>>>> {
        Ok(Box::new(input.texts()?))
    }

    fn origin(question: &InputText) -> &InputText {
        question
    }

    fn row(question: &InputText) -> Example {
        let (text, text_pair) = question.texts.clone();
        Example { text, text_pair, ..Example::default() }
    }
}

impl AddAssign for Truncation {
    fn add_assign(&mut self, other: Self) {
        self.examples += other.examples;
        self.tokens += other.tokens;
        self.longest = self.longest.max(other.longest);
    }
}

/// Tokenizes texts, each with the second text of a pair if it has one, and cuts them to the longest sequence
/// of `collator`.
pub(in crate::tasks) fn encode(
    tokenizer: &Tokenizer,
    collator: &Collator,
    firsts: &[&str],
    seconds: &[Option<&str>],
) -> Result<(Vec<Encoded>, Truncation)> {
    // By default, `<mask>` spelled out in a text is ordinary text, as in pretraining; the tokenizer may be
    // set otherwise.
    let first_ids = tokenizer.encode_examples(firsts)?;
    let texts: Vec<&str> = seconds.iter().map(|second| second.unwrap_or_default()).collect();
    let second_ids = tokenizer.encode_examples(&texts)?;
    let mut encoded = Vec::with_capacity(firsts.len());
    for (index, (first, second)) in first_ids.into_iter().zip(second_ids).enumerate() {
        let second = seconds[index].map(|_| second);
        encoded.push(Encoded { first, second, sample_id: index as u64 });
    }
    let lost = collator.truncate(&mut encoded);
    Ok((encoded, lost))
}

/// The text of each example, for a pair both texts as one.
pub(in crate::tasks) fn whole_texts(examples: &[Example]) -> Vec<String> {
    examples.iter().map(Example::whole_text).collect()
}

/// Most bytes of a probability in a row of predictions, including the punctuation around it and its label.
pub(in crate::tasks) const PROBABILITY_BYTES: u64 = 30;

/// Bytes of the texts of examples.
pub(in crate::tasks) fn text_bytes(examples: &[Example]) -> u64 {
    let texts = examples.iter().map(|e| e.text.len() + e.text_pair.as_ref().map_or(0, String::len));
    texts.sum::<usize>() as u64
}

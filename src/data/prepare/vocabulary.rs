//! Trains the tokenizer on a sample of the training side of a corpus.

use anyhow::{Context, Result};

use crate::corpus::{KeptDocuments, Scan, Side, StoredDocument};
use crate::prepare::meter::{Meter, Progress, Stage};
use crate::prepare::portions::Kept;
use crate::prepare::rounds;
use crate::prepare::rounds::Work;
use crate::tokenizer::{PieceCounts, Trained, Trainer, TrainerOptions};
use base::error::Problem;
use base::processes::Processes;
use config::PretrainConfig;

/// Least slice of a document, in bytes, that is used to train the tokenizer; shorter documents are used as a
/// whole.
const SLICE_BYTES_MIN: u64 = 4 << 10;

/// Trains the tokenizer that `config` describes on the documents of the training side. All but rank 0
/// call [`help`].
pub(super) fn train(
    processes: Processes,
    config: &PretrainConfig,
    kept: &KeptDocuments,
    scan: &Scan,
    observer: &mut dyn FnMut(Progress),
) -> Result<Trained> {
    let mut counter = Counter {
        trainer: trainer(config)?,
        sample: Sample::new(config, scan),
        meter: Some(Meter::new(Stage::CountWords, scan.train.bytes, observer)),
    };
    rounds::run(processes, kept, scan.split, 0, &mut counter)?;
    let mut trainer = counter.trainer;
    let words = words(processes, &mut trainer)?;
    let total = config.tokenizer.padded_vocab_size() as u64;
    trainer.learn(words, |entries| {
        if entries % 256 == 0 {
            observer(Progress { stage: Stage::LearnVocabulary, done: entries as u64, total });
        }
    })
}

/// Counts this process's share of the words, while rank 0 calls [`train`].
pub(super) fn help(
    processes: Processes,
    config: &PretrainConfig,
    kept: &KeptDocuments,
    scan: &Scan,
) -> Result<()> {
    let mut counter = Counter { trainer: trainer(config)?, sample: Sample::new(config, scan), meter: None };
    rounds::run(processes, kept, scan.split, 0, &mut counter)?;
    words(processes, &mut counter.trainer).map(drop)
}

/// Sends the counts of rank 0 to all processes, cuts them into words, a share in each process, and combines
/// the shares on rank 0.
fn words(processes: Processes, trainer: &mut Trainer) -> Result<PieceCounts> {
    let counts = trainer.take_counts();
    if !processes.is_shared() {
        return trainer.cut(&counts);
    }
    let counts = counts_of_another(&processes.gather_bytes(counts.to_bytes())?[0])?;
    let own = trainer.cut(&counts.share(processes.rank, processes.size))?;
    let all = processes.gather_bytes(own.to_bytes())?;
    let others = if processes.is_first() { &all[1..] } else { &[] };
    others.iter().try_fold(own, |words, bytes| Ok(words.and(counts_of_another(bytes)?)))
}

fn counts_of_another(bytes: &[u8]) -> Result<PieceCounts> {
    PieceCounts::from_bytes(bytes).context("counts of another process cannot be read")
}

fn trainer(config: &PretrainConfig) -> Result<Trainer> {
    let model = config.model().ok_or_else(|| Problem::usage("wants exactly one family").at("model"))?;
    Trainer::new(TrainerOptions::new(&config.tokenizer, model.family, model.max_sequence_length()))
}

/// Counts the words of a sample of the documents.
struct Counter<'a> {
    trainer: Trainer,
    sample: Sample,
    /// Reports progress; on rank 0 only.
    meter: Option<Meter<'a>>,
}

impl Work for Counter<'_> {
    /// Slices of the documents to train on.
    type Portion = Vec<String>;
    type Made = PieceCounts;

    fn select(&mut self, portion: Vec<Kept>) -> Vec<String> {
        // Neither tokenizer nor model is trained on validation text.
        let train = portion.into_iter().filter(|kept| kept.side == Side::Train);
        let slices = train.map(|Kept { document: StoredDocument { mut text, .. }, .. }| {
            self.meter.iter_mut().for_each(|meter| meter.add(text.len() as u64));
            text.truncate(self.sample.slice(&text).len());
            text
        });
        slices.filter(|slice| !slice.is_empty()).collect()
    }

    fn make(&self, portion: &Vec<String>) -> Result<PieceCounts> {
        self.trainer.count(portion)
    }

    fn take(&mut self, _: Vec<String>, made: PieceCounts) -> Result<()> {
        self.trainer.add_counts(made);
        Ok(())
    }

    fn to_bytes(made: &PieceCounts) -> Vec<u8> {
        made.to_bytes()
    }

    fn from_bytes(bytes: &[u8]) -> Option<PieceCounts> {
        PieceCounts::from_bytes(bytes)
    }
}

/// Selects at most `budget` of `total` bytes of text, spread evenly over the documents.
struct Sample {
    budget: u64,
    total: u64,
    seen: u64,
    taken: u64,
}

impl Sample {
    fn new(config: &PretrainConfig, scan: &Scan) -> Self {
        Self { budget: config.tokenizer.train_bytes, total: scan.train.bytes.max(1), seen: 0, taken: 0 }
    }

    /// Returns the part of `text` to train on: all of the text, its beginning, or nothing.
    fn slice<'a>(&mut self, text: &'a str) -> &'a str {
        let len = text.len() as u64;
        self.seen += len;
        let due = (u128::from(self.budget) * u128::from(self.seen) / u128::from(self.total))
            .min(u128::from(self.budget)) as u64;
        let room = due.saturating_sub(self.taken);
        if self.budget >= self.total {
            return text;
        }
        // Very short slices would consist of cut words, so the unused budget adds up until it allows a longer
        // one.
        if room < len.min(SLICE_BYTES_MIN.min(self.budget)) {
            return "";
        }
        let mut end = room.min(len) as usize;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.taken += end as u64;
        &text[..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_keeps_its_budget_and_is_spread_evenly() {
        let text = "a ".repeat(50_000);
        let mut sample = Sample { budget: 200_000, total: 1_000_000, seen: 0, taken: 0 };
        let taken: Vec<usize> = (0..10).map(|_| sample.slice(&text).len()).collect();
        assert_eq!(taken, [20_000; 10]);
        let mut whole = Sample { budget: 10, total: 10, seen: 0, taken: 0 };
        assert_eq!(whole.slice("short text"), "short text");
        let mut tiny = Sample { budget: 100, total: 1000, seen: 0, taken: 0 };
        let taken: usize = (0..100).map(|_| tiny.slice("ten bytes.").len()).sum();
        assert!((90..=100).contains(&taken), "{taken}");
    }
}

//! Tells an observer how far the stages of `prepare` have come, about once a mebibyte.

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for another run that prepares the same folder; no progress.
    Wait,
    /// Reading, cleaning and filtering the corpus; progress in bytes of the files.
    Read,
    /// Looking for duplicates; progress in records.
    Compare,
    /// Counting what is kept; progress in bytes of text.
    Count,
    /// Counting words for the tokenizer; progress in bytes of text.
    CountWords,
    /// Learning the vocabulary; progress in entries.
    LearnVocabulary,
    /// Tokenizing and writing shards; progress in bytes of text.
    Tokenize,
}

impl Stage {
    /// What to show beside a progress bar.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wait => "waiting for another run that prepares this folder",
            Self::Read => "reading the corpus",
            Self::Compare => "finding duplicates",
            Self::Count => "counting documents",
            Self::CountWords => "counting words",
            Self::LearnVocabulary => "learning the vocabulary",
            Self::Tokenize => "tokenizing",
        }
    }

    /// Whether progress is in bytes (else in things).
    pub fn is_bytes(self) -> bool {
        !matches!(self, Self::Wait | Self::LearnVocabulary | Self::Compare)
    }
}

/// How far a stage has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The stage.
    pub stage: Stage,
    /// Bytes or things done.
    pub done: u64,
    /// Bytes or things in all; 0 when that is not known.
    pub total: u64,
}

/// Passes on each further mebibyte of a stage.
pub(super) struct Meter<'a> {
    progress: Progress,
    told: u64,
    observer: &'a mut dyn FnMut(Progress),
}

impl<'a> Meter<'a> {
    pub(super) fn new(stage: Stage, total: u64, observer: &'a mut dyn FnMut(Progress)) -> Self {
        let progress = Progress { stage, done: 0, total };
        observer(progress);
        Self { progress, told: 0, observer }
    }

    pub(super) fn at(&mut self, done: u64) {
        self.progress.done = done;
        if done >= self.told + (1 << 20) || (done == self.progress.total && done > self.told) {
            self.told = done;
            (self.observer)(self.progress);
        }
    }

    pub(super) fn add(&mut self, bytes: u64) {
        self.at(self.progress.done + bytes);
    }
}

//! Reports the progress of the stages of `prepare` to an observer, about once per mebibyte.

/// A stage of `prepare`.
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
    /// Writing the cleaned text for other programs; progress in bytes of text.
    WriteText,
}

impl Stage {
    /// Returns the text shown next to a progress bar.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wait => "waiting for another run that prepares this folder",
            Self::Read => "reading the corpus",
            Self::Compare => "finding duplicates",
            Self::Count => "counting documents",
            Self::CountWords => "counting words",
            Self::LearnVocabulary => "learning the vocabulary",
            Self::Tokenize => "tokenizing",
            Self::WriteText => "writing the cleaned text",
        }
    }

    /// True if progress is counted in bytes, false if it is counted in items.
    pub fn is_bytes(self) -> bool {
        !matches!(self, Self::Wait | Self::LearnVocabulary | Self::Compare)
    }
}

/// Progress of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The stage.
    pub stage: Stage,
    /// Bytes or items done.
    pub done: u64,
    /// Bytes or items in total; 0 when that is not known.
    pub total: u64,
}

/// Reports the progress of one stage each time another mebibyte is done, and at its end.
pub(super) struct Meter<'a> {
    progress: Progress,
    reported: u64,
    observer: &'a mut dyn FnMut(Progress),
}

impl<'a> Meter<'a> {
    pub(super) fn new(stage: Stage, total: u64, observer: &'a mut dyn FnMut(Progress)) -> Self {
        let progress = Progress { stage, done: 0, total };
        observer(progress);
        Self { progress, reported: 0, observer }
    }

    pub(super) fn set_done(&mut self, done: u64) {
        self.progress.done = done;
        if done >= self.reported + (1 << 20) || (done == self.progress.total && done > self.reported) {
            self.reported = done;
            (self.observer)(self.progress);
        }
    }

    pub(super) fn add(&mut self, bytes: u64) {
        self.set_done(self.progress.done + bytes);
    }
}

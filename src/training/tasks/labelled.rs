//! Labelled files and files of texts to answer. CSV, TSV, JSONL and plain lines are read into rows, and rows
//! into examples or texts; CoNLL columns and JSONL are read into sentences of tagged words.
//!
//! Independent of models and tasks; all tasks with labels use these readers.

mod bad_rows;
pub(in crate::tasks) mod files;
mod guess;
pub mod input;
mod memory;
pub mod read;
pub mod sentences;
mod several;
pub mod tagged;
pub mod tags;
pub mod texts;
mod trained_columns;
pub mod twins;

pub use bad_rows::BadRows;
pub use files::{files_of, missing, require};
pub use guess::{KnownColumns, guess_columns, is_usual_name, other_texts, usual_text_column};
pub use input::InputFile;
pub use read::{Columns, Example, number_column, read_examples, read_examples_skipping};
pub use sentences::{Sentence, SentenceColumns, Sentences};
pub use tagged::{TaggedFile, Tagging, read_tagged};
pub use texts::{InputText, InputTexts, TextPair};
pub use trained_columns::TrainedColumns;

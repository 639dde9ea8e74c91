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
pub mod rows;
pub mod sentences;
mod several;
pub mod tagged;
pub mod tags;
pub mod texts;
mod trained_columns;
pub mod twins;

pub use bad_rows::BadRows;
pub use bad_rows::RowError;
pub use files::files_of;
pub use files::missing;
pub use files::require;
pub use guess::guess_columns;
pub use input::InputFile;
pub use read::Columns;
pub use read::Example;
pub use read::read_examples;
pub use read::read_examples_skipping;
pub use rows::RowFormat;
pub use sentences::Sentence;
pub use sentences::SentenceColumns;
pub use sentences::Sentences;
pub use tagged::TaggedFile;
pub use tagged::Tagging;
pub use tagged::read_tagged;
pub use texts::InputText;
pub use texts::InputTexts;
pub use texts::TextPair;
pub use trained_columns::TrainedColumns;

//! Files of examples and of texts to answer: CSV, TSV, JSONL and plain lines -> rows -> examples or texts.
//!
//! They know no model and no task: every task that learns from labels reads them.

pub mod read;
pub mod rows;
pub mod texts;

pub use read::Columns;
pub use read::Example;
pub use read::read_examples;
pub use rows::RowFormat;
pub use texts::InputText;
pub use texts::InputTexts;
pub use texts::TextPair;

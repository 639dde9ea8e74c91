//! The configurations that `mlmtrain init` writes: of `pretrain` for a text, a budget of time and the speed
//! of a machine, and of `finetune` for labelled files.
//!
//! `sample.rs` reads a sample of the text, `size.rs` lists the model sizes, `choose.rs` chooses one for the
//! budget, `plan.rs` computes its steps and batches, and `write.rs` writes the commented YAML. `labelled.rs`
//! writes a configuration of `finetune`, and `crawl.rs` measures how much of a text from the web each filter
//! drops. The speed of the machine is measured by the caller.

mod choose;
mod crawl;
mod labelled;
mod plan;
mod sample;
mod size;
mod write;

#[cfg(test)]
mod tests;

pub use choose::{Choice, Limit, choose};
pub use crawl::{ExpectedLanguage, FilterPreview, crawl_filters, crawl_reason, preview_filters};
pub use labelled::{LabelColumns, LabelledFacts, TextColumns};
pub use plan::Plan;
pub use sample::{BadFile, Cut, TextSample, document_unit};
pub use size::{SHORT_LENGTH, Size};
pub use write::{Wish, to_yaml};

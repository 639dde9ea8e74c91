//! A configuration of `pretrain` for a text, a budget of time and the speed of a machine: what `mlmtrain init`
//! writes.
//!
//! `sample.rs` looks at the text, `size.rs` knows the models that are chosen from, `choose.rs` weighs the two
//! against the budget, `plan.rs` makes steps of it, and `write.rs` writes it as commented YAML. `labelled.rs` writes a
//! configuration of `finetune`, and `crawl.rs` measures how much of a text from the web each filter drops. The caller
//! measures speed.

mod choose;
mod crawl;
mod labelled;
mod plan;
mod sample;
mod size;
mod write;

#[cfg(test)]
mod tests;

pub use choose::Choice;
pub use choose::Limit;
pub use choose::choose;
pub use crawl::FilterPreview;
pub use crawl::crawl_filters;
pub use crawl::crawl_reason;
pub use crawl::preview_filters;
pub use labelled::LabelledFacts;
pub use labelled::TextColumns;
pub use plan::Plan;
pub use sample::Cut;
pub use sample::TextSample;
pub use sample::document_unit;
pub use size::SHORT_LENGTH;
pub use size::Size;
pub use write::Wish;
pub use write::to_yaml;

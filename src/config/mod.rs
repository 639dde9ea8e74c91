//! What a run is told: strict YAML/JSON structs with the names of Hugging Face's hyper-parameters.
//!
//! Knows no tensor and no device, so that checking a configuration takes milliseconds on any machine.

pub mod batching;
pub mod cleaning;
pub mod contamination;
pub mod data;
pub mod deduplication;
pub mod filters;
pub mod finetune;
pub mod mlm;
pub mod model;
pub mod pretrain;
pub mod sources;
pub mod tokenizer;
pub mod training;

mod check;
mod load;
mod overrides;
mod resume;
mod scalar;
mod schema;
mod shape;
mod show;
mod suggest;
mod tree;
mod validate;

#[cfg(test)]
mod tests;

pub use batching::BatchSizeRamp;
pub use batching::PackingConfig;
pub use batching::PackingMode;
pub use batching::TrainingPhase;
pub use cleaning::CleaningConfig;
pub use contamination::ContaminationAction;
pub use contamination::ContaminationConfig;
pub use data::DataConfig;
pub use deduplication::DeduplicationConfig;
pub use filters::C4Filter;
pub use filters::CharactersFilter;
pub use filters::FiltersConfig;
pub use filters::GopherFilter;
pub use filters::LanguageFilter;
pub use filters::LengthFilter;
pub use filters::LinesFilter;
pub use filters::MarkupFilter;
pub use filters::PerplexityFilter;
pub use filters::RepetitionFilter;
pub use filters::StopWords;
pub use filters::WordsFilter;
pub use filters::language_code;
pub use finetune::ClassifyData;
pub use finetune::FinetuneConfig;
pub use load::Loaded;
pub use load::kind_of;
pub use load::load_finetune;
pub use load::load_finetune_with;
pub use load::load_pretrain;
pub use load::overrides;
pub use mlm::MaskingUnit;
pub use mlm::MlmConfig;
pub use model::EncoderConfig;
pub use model::Family;
pub use model::ModelConfig;
pub use overrides::Override;
pub use pretrain::PretrainConfig;
pub use pretrain::RunSection;
pub use resume::Change;
pub use resume::compare_for_resume;
pub use resume::diff;
pub use schema::Kind;
pub use schema::schema_json;
pub use show::Origins;
pub use show::to_json;
pub use show::to_yaml;
pub use sources::DocumentUnit;
pub use sources::Format;
pub use sources::InvalidUtf8;
pub use sources::SourceConfig;
pub use tokenizer::TokenizerAlgorithm;
pub use tokenizer::TokenizerConfig;
pub use training::SchedulerType;
pub use training::TrainingConfig;
pub use validate::validate_finetune;
pub use validate::validate_pretrain;

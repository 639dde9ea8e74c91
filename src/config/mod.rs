//! What a run is told: strict YAML/JSON structs with the names of Hugging Face's hyper-parameters.
//!
//! Knows no tensor and no device, so that checking a configuration takes milliseconds on any machine.

pub mod data;
pub mod finetune;
pub mod model;
pub mod pretrain;
pub mod training;

pub use data::DataConfig;
pub use data::Format;
pub use data::MlmConfig;
pub use data::SourceConfig;
pub use data::TokenizerConfig;
pub use finetune::FinetuneConfig;
pub use model::EncoderConfig;
pub use model::Family;
pub use model::ModelConfig;
pub use pretrain::PretrainConfig;
pub use pretrain::RunSection;
pub use training::SchedulerType;
pub use training::TrainingConfig;

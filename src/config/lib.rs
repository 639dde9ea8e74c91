//! The configuration of a run: strict YAML/JSON structs with the names of Hugging Face's hyper-parameters.
//!
//! Uses no tensors and no devices, so checking a configuration takes milliseconds on any machine. Each field
//! declares what is known about its key (`facts.rs`); `validate` has the rules that several keys make together.

pub mod batch_size;
pub mod batching;
pub mod cache;
pub mod checkpointing;
pub mod class_weights;
pub mod cleaning;
pub mod contamination;
mod convert;
pub mod data;
mod decay;
mod decaying;
pub mod deduplication;
pub mod defaults;
pub mod device;
mod distributed;
mod dotted;
mod evaluation;
mod facts;
mod file_kind;
pub mod filters;
pub mod finetune;
pub mod frozen_layers;
pub mod mlm;
pub mod model;
pub mod muon;
pub mod phases;
pub mod precision;
pub mod pretrain;
mod run;
pub mod sources;
pub mod task;
pub mod tokenizer;
pub mod training;

mod any;
mod auto;
mod axes;
mod check;
mod flags;
mod flat;
mod foreign;
mod include;
mod kind;
mod likeness;
mod load;
mod merge;
mod on_resume;
mod overrides;
mod prices;
mod profiles;
mod protocol;
mod reference;
mod resume;
mod rtd;
mod scalar;
mod schema;
mod seeds;
mod shape;
mod show;
mod suggest;
mod sweep;
mod tasks_file;
mod tree;
mod tuning;
mod validate;
mod variables;
mod weight_average;

#[cfg(test)]
mod tests;

pub use any::{AnyLoaded, load_any, load_saved};
pub use batch_size::BatchSize;
pub use batching::{BatchSizeRamp, PackingConfig, PackingMode, Shuffle};
pub use cache::CacheConfig;
pub use checkpointing::GradientCheckpointing;
pub use class_weights::ClassWeights;
pub use cleaning::CleaningConfig;
pub use contamination::{ContaminationAction, ContaminationConfig};
pub use convert::{Converted, Purpose, convert};
pub use data::DataConfig;
pub use decay::DecayFrom;
pub use decaying::compare_for_decay;
pub use deduplication::DeduplicationConfig;
pub use device::DeviceChoice;
pub use distributed::{DistributedConfig, SumOrder, Wire};
pub use evaluation::{BandPoint, EvaluationConfig, LossBand};
pub use filters::{
    C4Filter, CharactersFilter, FiltersConfig, GopherFilter, LanguageFilter, LengthFilter, LinesFilter,
    MarkupFilter, PerplexityFilter, RepetitionFilter, StopWords, WordsFilter, language_code,
};
pub use finetune::{ClassifyData, FinetuneConfig, RenamedTypes, TagScheme};
pub use flags::meant_by_flag;
pub use flat::flat;
pub use frozen_layers::FrozenLayers;
pub use kind::Kind;
pub use load::{Loaded, load_finetune, load_finetune_with, load_pretrain, load_pretrain_with, overrides};
pub use mlm::{MaskingUnit, MlmConfig};
pub use model::{InitialEmbeddings, ModelSection};
pub use muon::{AdjustLrFn, MuonConfig};
pub use overrides::Override;
pub use phases::{PhaseObjective, SourceWeight, TrainingPhase, value_at};
pub use precision::{ComputeChoice, ComputeType, LossScaleConfig, PrecisionConfig};
pub use pretrain::PretrainConfig;
pub use prices::{Price, load_prices};
pub use protocol::{Departure, Protocol, ProtocolTask, PublishedScore};
pub use reference::keys_markdown;
pub use resume::{Change, compare_for_resume, diff, refuse_other_length, with_former_defaults};
pub use rtd::RtdConfig;
pub use run::{RunSection, Tracker};
pub use schema::schema_json;
pub use seeds::for_seed_folder;
pub use show::{Origins, saved, to_json, to_yaml};
pub use sources::{DocumentUnit, Format, InvalidUtf8, OnBadRecord, SourceConfig};
pub use sweep::{FinetunePlan, Setting, Sweep, Swept, load_plan};
pub use task::{FinetuneTask, Goal, PretrainTask, ProblemType, SentencePairs};
pub use tasks_file::{NamedTask, load_tasks};
pub use tokenizer::{TokenizerAlgorithm, TokenizerConfig};
pub use training::{DecayType, OptimizerType, SchedulerType, TrainingConfig};
pub use tuning::{Candidate, Tuning, TuningPlan, Vary, load_tuning};
pub use validate::{validate_finetune, validate_generator, validate_pretrain};
pub use variables::{moved, portable, with_variables};
pub use weight_average::WeightAverage;

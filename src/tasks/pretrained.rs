//! The tasks of pretraining, by the name in a configuration.

use anyhow::Result;

use crate::config::PretrainConfig;
use crate::config::PretrainTask;
use crate::families::ModelConfig;
use crate::tasks::masked_lm::MaskedLm;
use crate::tasks::pretraining;
use crate::tasks::pretraining::Pretrained;
use crate::tasks::replaced_token_detection::ReplacedTokenDetection;
use crate::tasks::run::Shapes;

/// What is done with a task that is known by its name.
pub trait Visitor {
    /// What comes of it.
    type Output;

    /// Does it.
    fn visit<T: Pretrained>(self) -> Result<Self::Output>;
}

/// Shows the task of `config` to `visitor`.
pub fn visit<V: Visitor>(config: &PretrainConfig, visitor: V) -> Result<V::Output> {
    match config.task() {
        PretrainTask::MaskedLm => visitor.visit::<MaskedLm>(),
        PretrainTask::ReplacedTokenDetection => visitor.visit::<ReplacedTokenDetection>(),
    }
}

/// The sizes of a run of `config` with `model`, whose vocabulary is known.
pub fn shapes(config: &PretrainConfig, model: &ModelConfig) -> Result<Shapes> {
    struct OfShapes<'a>(&'a PretrainConfig, &'a ModelConfig);
    impl Visitor for OfShapes<'_> {
        type Output = Shapes;

        fn visit<T: Pretrained>(self) -> Result<Shapes> {
            pretraining::shapes::<T>(self.0, self.1)
        }
    }
    visit(config, OfShapes(config, model))
}

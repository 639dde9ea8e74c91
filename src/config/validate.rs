//! Checks the ranges and combinations of values in a configuration whose keys and types are right.
//!
//! Uses no files, no devices and no clock. Commands check that the named files exist.

use crate::kind::Kind;
use crate::{DistributedConfig, FinetuneConfig, PretrainConfig, SchedulerType, SumOrder, Wire};
use base::error::Problem;
use base::families::ModelConfig;

mod batching;
mod curation;
mod data;
mod declared;
mod deduplication;
mod model;
mod phases;
mod precision;
mod sources;
mod tokenizer;
mod training;
mod unused;

#[cfg(test)]
mod tests;

/// Number of special tokens that mlmtrain's own tokenizers have at least: begin, padding, end, unknown, mask.
pub(super) const SPECIAL_TOKENS: usize = 5;

/// A problem and the keys that cause it, the most important first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) paths: Vec<String>,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

/// Returns all problems of a configuration of `pretrain`; the place of each is the dotted path of its key.
pub fn validate_pretrain(config: &PretrainConfig) -> Vec<Problem> {
    pretrain_findings(config).into_iter().map(problem).collect()
}

/// Returns all problems of a configuration of `finetune`; the place of each is the dotted path of its key.
pub fn validate_finetune(config: &FinetuneConfig) -> Vec<Problem> {
    finetune_findings(config).into_iter().map(problem).collect()
}

/// Returns all problems of the generator that a configuration of `pretrain` adds to a model, which may be
/// that of a folder.
pub fn validate_generator(config: &PretrainConfig, model: &ModelConfig) -> Vec<Problem> {
    let mut findings = Findings::default();
    model::generator(config, model, &mut findings);
    findings.0.into_iter().map(problem).collect()
}

pub(super) fn pretrain_findings(config: &PretrainConfig) -> Vec<Finding> {
    let mut findings = Findings::default();
    let mut decaying = config.clone();
    if config.decay_from.is_some() {
        // The length and the schedule of a decay follow from the checkpoint.
        decaying.training.max_steps = 0;
        decaying.training.lr_scheduler_type = SchedulerType::WarmupStableDecay;
    }
    let config = &decaying;
    declared::declarations(Kind::Pretrain, config, &mut findings);
    data::run(&config.run, &mut findings);
    data::unlimited(config, &mut findings);
    sources::sources(&config.data, &config.training.phases, &mut findings);
    deduplication::deduplication(&config.data.deduplication, &mut findings);
    curation::curation(&config.data, &mut findings);
    tokenizer::tokenizer(&config.tokenizer, &mut findings);
    data::masking(&config.mlm, &mut findings);
    batching::batching(config, &mut findings);
    phases::phases(config, &mut findings);
    data::sample_text(config, &mut findings);
    model::model(config, &mut findings);
    training::training(&config.training, config.data.max_seq_length, &mut findings);
    distributed(&config.distributed, &mut findings);
    precision::precision(&config.precision, &mut findings);
    precision::weight_gradients(&config.precision, &config.training, &mut findings);
    unused::pretrain(config, &mut findings);
    findings.0
}

pub(super) fn finetune_findings(config: &FinetuneConfig) -> Vec<Finding> {
    let mut findings = Findings::default();
    declared::declarations(Kind::Finetune, config, &mut findings);
    data::run(&config.run, &mut findings);
    data::examples(config, &mut findings);
    batching::finetune(config, &mut findings);
    training::training(&config.training, config.data.sequence_length(), &mut findings);
    distributed(&config.distributed, &mut findings);
    precision::precision(&config.precision, &mut findings);
    precision::weight_gradients(&config.precision, &config.training, &mut findings);
    unused::finetune(config, &mut findings);
    findings.0
}

fn distributed(distributed: &DistributedConfig, findings: &mut Findings) {
    let hint = "make it longer than it takes to save a checkpoint";
    training::time("distributed.timeout", &distributed.timeout, hint, findings);
    if (distributed.sum, distributed.wire) == (SumOrder::Fast, Wire::Bf16) {
        let message = "`distributed.sum: fast` leaves adding up to MPI, which knows no bf16".to_string();
        findings.add(&["distributed.wire", "distributed.sum"], message, "leave one of the two out");
    }
}

fn problem(finding: Finding) -> Problem {
    let place = finding.paths.first().cloned();
    Problem { place, hint: finding.hint, ..Problem::usage(finding.message) }
}

/// Collects problems; each check adds at most one.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, paths: &[&str], message: String, hint: impl Into<String>) {
        let paths = paths.iter().map(|p| (*p).to_string()).collect();
        self.0.push(Finding { paths, message, hint: Some(hint.into()) });
    }

    /// Requires a text or path that is not empty.
    fn text(&mut self, path: &str, is_empty: bool, example: &str) {
        if is_empty {
            self.add(&[path], format!("`{path}` is empty"), format!("write it like `{example}`"));
        }
    }
}

fn percent_hint(value: f64) -> String {
    if (2.0..=100.0).contains(&value) {
        format!("{value} percent is written `{}`", value / 100.0)
    } else {
        "write a share such as `0.1`".to_string()
    }
}

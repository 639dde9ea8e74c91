//! Which runs of pretraining are alike: all that decides their losses but the seed.

use std::fmt::Write;

use crate::config::PretrainConfig;
use crate::config::resume::Change;
use crate::config::resume::diff;
use crate::families::EncoderConfig;
use crate::families::ModelConfig;
use crate::fs::sha256_of;

/// Sections that decide losses.
const DECIDING: [&str; 4] = ["model.", "mlm.", "rtd.", "training."];

/// Keys elsewhere that do.
const KEYS: [&str; 4] = ["task", "data.max_seq_length", "data.shuffle", "data.shuffle_window_shards"];

/// Keys of those sections that do not.
const CADENCE: [&str; 5] = [
    "training.eval_steps",
    "training.save_steps",
    "training.max_train_time",
    "training.per_device_eval_batch_size",
    "training.load_best_model_at_end",
];

/// Digits of it: enough for chance never to make two the same.
const DIGITS: usize = 12;

impl PretrainConfig {
    /// A hash of what decides the losses of a run, where its data have the hashes `data`: of the keys that are
    /// not at their defaults, so that a key that a later version adds leaves it as it is. `None` where the model is
    /// not known yet.
    pub fn likeness(&self, data: &[&str]) -> Option<String> {
        let family = self.model()?.family;
        let plain = ModelConfig { family, encoder: EncoderConfig::of(family) };
        let plain = Self::of_model(plain).with_task_defaults();
        let is_deciding = |path: &str| {
            let own = DECIDING.iter().any(|section| path.starts_with(section));
            (own || KEYS.contains(&path)) && !CADENCE.contains(&path)
        };
        // Whole documents were shuffled before there was a choice.
        let is_former = |change: &Change| change.path == "data.shuffle" && change.new == "documents";
        let changes = diff(&plain, self).into_iter().filter(|change| !is_former(change));
        let mut text = family.name.to_string();
        for change in changes.filter(|change| is_deciding(&change.path) && !change.keeps_numbers()) {
            write!(text, "\n{}={}", change.path, change.new).expect("writing to a string cannot fail");
        }
        let mut parts = vec![text.as_bytes()];
        parts.extend(data.iter().map(|hash| hash.as_bytes()));
        let mut hash = sha256_of(&parts);
        hash.truncate(DIGITS);
        Some(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Shuffle;
    use crate::families::named_model;

    #[test]
    fn runs_are_alike_whatever_their_seed_their_folder_and_their_cadence() {
        let config = PretrainConfig::of_model(named_model("tiny").unwrap());
        let with = |change: fn(&mut PretrainConfig)| {
            let mut other = config.clone();
            change(&mut other);
            other.likeness(&["a"])
        };
        let own = config.likeness(&["a"]);
        assert_eq!(own.as_ref().map(String::len), Some(DIGITS));
        assert_eq!(with(|c| c.run.seed = 7), own);
        assert_eq!(with(|c| c.data.shuffle = Some(Shuffle::Documents)), own);
        assert_eq!(with(|c| c.run.output_dir = "elsewhere".into()), own);
        assert_eq!(with(|c| c.training.eval_steps = 7), own);
        assert_eq!(with(|c| c.training.save_total_limit = 7), own);
        for change in [
            (|c| c.training.learning_rate = 0.5) as fn(&mut PretrainConfig),
            |c| c.training.max_steps = 7,
            |c| c.mlm.mlm_probability = 0.4,
            |c| c.data.max_seq_length = 7,
            |c| c.data.shuffle = Some(Shuffle::Rows),
            |c| c.model.tables[0].encoder.hidden_size = 64,
        ] {
            assert_ne!(with(change), own);
        }
        assert_ne!(config.likeness(&["b"]), own);
    }
}

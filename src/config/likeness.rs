//! A hash of everything that decides the losses of a pretraining run, except the seed. Runs with the same
//! hash have comparable losses.

use std::fmt::Write;

use crate::PretrainConfig;
use crate::facts;
use crate::resume::{Change, diff};
use base::families::{EncoderConfig, ModelConfig};
use base::fs::sha256_of;

/// Number of digits of the hash, enough to make collisions by chance practically impossible.
const DIGITS: usize = 12;

impl PretrainConfig {
    /// Returns a hash of everything that decides the losses of a run on data with the hashes `data`. Only
    /// keys with values other than the default are hashed, so a key that a later version adds does not change
    /// the hash. `None` if the model is not known yet.
    pub fn likeness(&self, data: &[&str]) -> Option<String> {
        let family = self.model()?.family;
        let plain = ModelConfig { family, encoder: EncoderConfig::of(family) };
        let plain = Self::of_model(plain).with_task_defaults();
        let mut text = family.name.to_string();
        for change in diff(&plain, self).iter().filter(|change| decides_losses(change)) {
            write!(text, "\n{}={}", change.path, change.new).expect("writing to a string cannot fail");
        }
        let mut parts = vec![text.as_bytes()];
        parts.extend(data.iter().map(|hash| hash.as_bytes()));
        let mut hash = sha256_of(&parts);
        hash.truncate(DIGITS);
        Some(hash)
    }
}

fn decides_losses(change: &Change) -> bool {
    let is_deciding = facts::nearest(&change.path, |facts| facts.decides_losses).unwrap_or(false);
    // Before `data.shuffle` existed, whole documents were shuffled: this value keeps the hashes of
    // that time.
    let is_former_default = change.path == "data.shuffle" && change.new == "documents";
    is_deciding && !is_former_default && !change.keeps_numbers()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shuffle;
    use base::families::named_model;

    #[test]
    fn seed_folder_and_cadence_do_not_change_the_hash() {
        let config = PretrainConfig::of_model(named_model("tiny").unwrap());
        let own = config.likeness(&["a"]);
        assert_eq!(own.as_ref().map(String::len), Some(DIGITS));
        assert_eq!(likeness_with(|c| c.run.seed = 7), own);
        assert_eq!(likeness_with(|c| c.data.shuffle = Some(Shuffle::Documents)), own);
        assert_eq!(likeness_with(|c| c.run.output_dir = "elsewhere".into()), own);
        assert_eq!(likeness_with(|c| c.training.eval_steps = 7), own);
        assert_eq!(likeness_with(|c| c.training.save_total_limit = 7), own);
        for change in [
            (|c| c.training.learning_rate = 0.5) as fn(&mut PretrainConfig),
            |c| c.training.max_steps = 7,
            |c| c.mlm.mlm_probability = 0.4,
            |c| c.data.max_seq_length = 7,
            |c| c.data.shuffle = Some(Shuffle::Rows),
            |c| c.model.tables[0].encoder.hidden_size = 64,
        ] {
            assert_ne!(likeness_with(change), own);
        }
        assert_ne!(config.likeness(&["b"]), own);
    }

    /// Returns the hash of a small model's run on data `a` after one change.
    fn likeness_with(change: fn(&mut PretrainConfig)) -> Option<String> {
        let mut config = PretrainConfig::of_model(named_model("tiny").unwrap());
        change(&mut config);
        config.likeness(&["a"])
    }
}

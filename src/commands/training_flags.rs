//! Flags of `pretrain` and `finetune` for the hyper-parameters that are changed most often.
//!
//! Values are not checked here: each becomes a setting of the configuration, whose errors name the flag.

use clap::Args;

use crate::config::Override;

/// The values of the flags, as the user typed them.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Training (for keys of the configuration; `--set` wins over these)")]
pub struct TrainingFlags {
    /// Peak learning rate (key `training.learning_rate`)
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub learning_rate: Option<String>,
    /// Passes over the training data, in the place of a number of steps that the configuration gives (key
    /// `training.num_train_epochs`)
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with = "max_steps")]
    pub epochs: Option<String>,
    /// Updates in all (key `training.max_steps`)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_steps: Option<String>,
    /// Rows that a device takes at once, or `auto` (key `training.per_device_train_batch_size`)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub batch_size: Option<String>,
    /// Longest sequence in tokens (key `data.max_seq_length`)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_seq_length: Option<String>,
    /// Steps in which the learning rate rises; below 1, their share of all steps (key
    /// `training.warmup_steps`)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub warmup: Option<String>,
    /// Dropout of hidden states and of attention probabilities (keys `hidden_dropout_prob` and
    /// `attention_probs_dropout_prob`, which a pretraining configuration has in the table of its model)
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub dropout: Option<String>,
    /// Type that the model computes in: `f32`, `bf16`, `f16` or `auto` (key `precision.compute`)
    #[arg(long, value_name = "TYPE")]
    pub precision: Option<String>,
}

impl TrainingFlags {
    /// Returns the settings for a pretraining configuration.
    pub fn of_pretraining(&self) -> Vec<Override> {
        let dropout = self.dropout.as_ref().map(|share| Override::dropout_of_model("--dropout", share));
        self.shared().into_iter().chain(dropout).collect()
    }

    /// Returns the settings for a fine-tuning configuration.
    pub fn of_finetuning(&self) -> Vec<Override> {
        let keys = ["hidden_dropout_prob", "attention_probs_dropout_prob"];
        let dropout =
            self.dropout.as_ref().map(|share| keys.map(|key| Override::typed("--dropout", key, share)));
        self.shared().into_iter().chain(dropout.into_iter().flatten()).collect()
    }

    fn shared(&self) -> Vec<Override> {
        // `max_steps: -1` removes a number of steps in the file, which would take precedence over the epochs.
        let any_steps = self.epochs.as_ref().map(|_| "-1".to_string());
        let flags = [
            ("--learning-rate", "training.learning_rate", &self.learning_rate),
            ("--epochs", "training.max_steps", &any_steps),
            ("--epochs", "training.num_train_epochs", &self.epochs),
            ("--max-steps", "training.max_steps", &self.max_steps),
            ("--batch-size", "training.per_device_train_batch_size", &self.batch_size),
            ("--max-seq-length", "data.max_seq_length", &self.max_seq_length),
            ("--warmup", "training.warmup_steps", &self.warmup),
            ("--precision", "precision.compute", &self.precision),
        ];
        let given = flags.into_iter().filter_map(|(flag, key, text)| Some((flag, key, text.as_ref()?)));
        given.map(|(flag, key, text)| Override::typed(flag, key, text)).collect()
    }
}

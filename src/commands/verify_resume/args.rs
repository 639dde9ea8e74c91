//! The arguments of `verify-resume`.

use std::path::PathBuf;

use clap::Args;

use crate::commands::config_args::RunChangeArgs;

/// Arguments of `verify-resume`.
#[derive(Debug, Args)]
pub struct VerifyResumeArgs {
    /// YAML or JSON configuration of `pretrain` or of `finetune`
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Steps to train, or a few less, so that a checkpoint is due at the last; a shorter run is trained to
    /// its end
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..))]
    pub steps: u64,
    /// Changes to the configuration.
    #[command(flatten)]
    pub changes: RunChangeArgs,
    /// Leave the folders of both runs where they are, to look at
    #[arg(long)]
    pub keep: bool,
}

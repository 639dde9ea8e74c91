//! The arguments of `verify-resume`.

use std::path::PathBuf;

use clap::Args;

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
    /// Lay a profile of the configuration over the rest, as the other commands do; may be repeated
    #[arg(long, value_name = "NAME")]
    pub profile: Vec<String>,
    /// Change one key, as the other commands do; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Threads; 0 means one for each core that this process may use (key `run.threads`)
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    /// Leave the folders of both runs where they are, to look at
    #[arg(long)]
    pub keep: bool,
}

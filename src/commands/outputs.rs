//! The flag `--overwrite`, and the check of the output files that a command line names.

use std::path::Path;

use anyhow::Result;
use clap::Args;

use crate::fs;
use crate::fs::Output;
use crate::telemetry::log;

/// The flag of all commands that write a file named on the command line.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct OverwriteArgs {
    /// Replace a file that exists already; one that the command reads is never replaced
    #[arg(long)]
    pub overwrite: bool,
}

impl OverwriteArgs {
    /// Refuses outputs that would replace one of the `inputs`, the log file, or, without `--overwrite`,
    /// another existing file that an earlier run of the command did not write.
    pub(super) fn require(self, outputs: &[Output<'_>], inputs: &[&Path]) -> Result<()> {
        let log = log::place();
        let inputs: Vec<&Path> = inputs.iter().copied().chain(log.as_deref()).collect();
        fs::require_outputs(outputs, &inputs, self.overwrite)
    }
}

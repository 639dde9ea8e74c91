//! Files that a command line names to be written, and the flag that lets one take the place of another file.

use std::path::Path;

use anyhow::Result;
use clap::Args;

use crate::fs;
use crate::fs::Output;
use crate::telemetry::log;

/// The flag of all commands that write a file which the command line names.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct OverwriteArgs {
    /// Replace a file that exists already; one that the command reads is never replaced
    #[arg(long)]
    pub overwrite: bool,
}

impl OverwriteArgs {
    /// Refuses outputs that would replace one of the `inputs`, the log file, or what the command did not write.
    pub(super) fn require(self, outputs: &[Output<'_>], inputs: &[&Path]) -> Result<()> {
        let log = log::place();
        let inputs: Vec<&Path> = inputs.iter().copied().chain(log.as_deref()).collect();
        fs::require_outputs(outputs, &inputs, self.overwrite)
    }
}

//! `mlmtrain completions SHELL`: a script that completes subcommands and flags.

use anyhow::Result;
use clap::{Args, Command};

use crate::commands::terminal::Output;

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Which shell
    pub shell: clap_complete::Shell,
}

/// Prints the script for a command line.
pub fn run(args: &CompletionsArgs, mut cli: Command) -> Result<()> {
    // The generator panics if its writer fails, so it writes into memory first.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli, "mlmtrain", &mut script);
    let mut output = Output::stdout();
    output.write(&script)?;
    output.finish()
}

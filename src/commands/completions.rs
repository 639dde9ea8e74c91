//! `mlmtrain completions SHELL`: a script that completes subcommands and flags.

use anyhow::Result;
use clap::CommandFactory;

use crate::commands::cli::Cli;
use crate::commands::cli::CompletionsArgs;
use crate::commands::terminal::Output;

/// Prints the script.
pub fn run(args: &CompletionsArgs) -> Result<()> {
    // The generator panics when its writer fails, and memory does not.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "mlmtrain", &mut script);
    let mut output = Output::stdout();
    output.write(&script)?;
    output.finish()
}

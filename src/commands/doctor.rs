//! `mlmtrain doctor`: prints the hardware and software of this machine, and the part that a run would use.

mod table;
#[cfg(test)]
mod tests;

use anyhow::Result;
use clap::Args;

use crate::commands::terminal;
use crate::commands::terminal::Output;
use crate::machine::survey::Survey;

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print one JSON object instead of tables; what is unknown is null
    #[arg(long)]
    pub json: bool,
}

/// Runs the subcommand.
pub fn run(args: &DoctorArgs) -> Result<()> {
    let survey = Survey::here();
    if args.json {
        return terminal::stdout_line(&serde_json::to_string(&survey)?);
    }
    let mut output = Output::stdout();
    for line in table::lines(&survey) {
        // Names of folders and of hardware come from outside and are escaped.
        output.line(&terminal::printable(&line))?;
    }
    output.finish()
}

//! The subcommands, each in a file or folder of its own. They share the command line (`cli`) and the terminal
//! (`terminal`).

pub mod advise_network;
pub mod bench;
pub mod checkpoint;
pub mod cli;
pub mod compare;
pub mod completions;
pub mod config;
pub mod config_args;
mod device;
pub mod doctor;
pub mod embed;
pub mod evaluate;
pub mod example;
pub mod finetune;
mod forecast;
pub mod home;
pub mod init;
pub mod manual;
mod model_folder;
mod next_step;
mod notify;
mod outputs;
pub mod plan;
pub mod predict;
pub mod prepare;
pub mod pretrain;
pub mod replay;
pub mod report;
pub mod runs;
pub mod scoring_args;
pub mod shards;
mod staging;
pub mod terminal;
mod together;
pub mod tokenizer;
pub mod training_flags;
pub mod tune;
mod upload;
pub mod usage;
pub mod verify_resume;

#[cfg(test)]
mod tests;

use anyhow::Result;
use clap::CommandFactory;

use crate::commands::cli::{Cli, Command};
use crate::error::Problem;
use crate::telemetry::{events, log};
use crate::{fs, instructions};

/// Runs the subcommand of the command line.
pub fn run(cli: &Cli) -> Result<()> {
    terminal::set_quiet(cli.quiet);
    log::set_verbose(cli.verbose);
    events::set_on(cli.events);
    if let Some(path) = &cli.log_file {
        log::open(path).map_err(|e| Problem::usage(format!("{e:#}")).at("--log-file"))?;
    }
    if cli.verbose {
        let version = env!("CARGO_PKG_VERSION");
        let process = std::process::id();
        let host = fs::host_name().unwrap_or_else(|| "unknown".to_string());
        terminal::note(&format!("mlmtrain {version}, process {process} on {host}"));
    }
    fs::heed_size_limit();
    // A mistyped limit on the CPU's instructions is an error: without it the program would use all
    // instructions.
    instructions::choice()?;
    match &cli.command {
        Command::Example(args) => example::run(args),
        Command::Init(args) => init::run(args),
        Command::Plan(args) => plan::run(args),
        Command::AdviseNetwork(args) => advise_network::run(args),
        Command::Pretrain(args) => pretrain::run(args),
        Command::Prepare(args) => prepare::run(args),
        Command::Finetune(args) => finetune::run(args),
        Command::Tune(args) => tune::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Evaluate(args) => evaluate::run(args),
        Command::Predict(args) => predict::run(args),
        Command::Embed(args) => embed::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Runs(args) => runs::run(args),
        Command::Report(args) => report::run(args),
        Command::Shards(command) => shards::run(command),
        Command::Checkpoint(command) => checkpoint::run(command),
        Command::VerifyResume(args) => verify_resume::run(args),
        Command::Tokenizer(command) => tokenizer::run(command),
        Command::Bench(args) => bench::run(args),
        Command::BenchJob(args) => bench::run_job(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Config(command) => config::run(command),
        Command::Completions(args) => completions::run(args, Cli::command()),
        Command::Manual(args) => manual::run(args, Cli::command()),
    }
}

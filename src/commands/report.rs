//! `mlmtrain report`: runs as one HTML page.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::commands::terminal;
use crate::commands::terminal::Output;
use crate::error::Problem;
use crate::fs;
use crate::quantity::format_bytes;
use crate::report;
use crate::report::Run;

/// More would be no page that anybody reads.
const MOST_RUNS: usize = 100;

/// Name of the page where none is given.
const PAGE: &str = "report.html";

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Folders of runs, or of several (all seeds, a sweep, a comparison)
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// Where the page goes; `-` for standard output; without it `report.html`, in the folder of a single RUN or in
    /// the current one
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(args: &ReportArgs) -> Result<()> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for folder in &args.runs {
        for path in report::runs_of(folder)? {
            let is_new = !paths.iter().any(|known| fs::canonical(known) == fs::canonical(&path));
            paths.extend(is_new.then_some(path));
        }
    }
    if paths.len() > MOST_RUNS {
        let problem = Problem::usage(format!("{} runs are more than the {MOST_RUNS} of a page", paths.len()));
        return Err(problem.hint("name fewer folders").into());
    }
    let mut runs: Vec<Run> = paths.iter().map(|path| Run::read(path)).collect::<Result<_>>()?;
    report::name_all(&mut runs);
    let output = match (&args.output, args.runs.as_slice()) {
        (Some(output), _) => output.clone(),
        (None, [folder]) => folder.join(PAGE),
        (None, _) => PathBuf::from(PAGE),
    };
    if output == Path::new("-") {
        let mut output = Output::stdout();
        output.line(report::page(&runs, None).trim_end())?;
        return output.finish();
    }
    let folder = fs::parent_of(&output);
    fs::create_folder(&folder)?;
    let page = report::page(&runs, Some(&folder));
    fs::write_bytes(&output, page.as_bytes())?;
    let size = format_bytes(page.len() as u64);
    let place = output.display().to_string();
    terminal::stdout_line(&format!("{} ({size})", terminal::printable(&place)))
}

//! `mlmtrain report`: writes one HTML page about one or several runs.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use crate::commands::outputs::OverwriteArgs;
use crate::commands::terminal;
use crate::commands::terminal::Output;
use crate::error::Problem;
use crate::quantity::format_bytes;
use crate::report::Run;
use crate::{fs, pages, report};

/// Most runs of a page: a page of more would be too long to read.
const MOST_RUNS: usize = 100;

/// Default file name of the page.
const PAGE: &str = "report.html";

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Folders of runs, or of several (all seeds, a sweep, a tuning, a comparison)
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// File of the page; `-` for standard output; without it `report.html`, in the folder of a single RUN or
    /// in the current one
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Permission to replace a file that is not a report.
    #[command(flatten)]
    pub overwrite: OverwriteArgs,
}

/// Runs the subcommand.
pub fn run(args: &ReportArgs) -> Result<()> {
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut unread = Vec::new();
    for folder in &args.runs {
        let found = report::runs_of(folder)?;
        unread.extend(found.unread);
        if let Some(page) = report::own_page(folder).filter(|_| !found.runs.contains(folder)) {
            let text = format!("note: `{}` is {page}", folder.display());
            terminal::note(&terminal::printable(&text));
        }
        for path in found.runs {
            let is_new = !paths.iter().any(|known| fs::canonical(known) == fs::canonical(&path));
            paths.extend(is_new.then_some(path));
        }
    }
    if paths.len() > MOST_RUNS {
        let problem = Problem::usage(format!("{} runs are more than the {MOST_RUNS} of a page", paths.len()));
        return Err(problem.hint("name fewer folders").into());
    }
    let mut runs: Vec<Run> = Vec::new();
    for path in &paths {
        match Run::read(path) {
            Ok(run) => runs.push(run),
            // Without any run there is no page.
            Err(error) if paths.len() == 1 => return Err(error),
            Err(error) => unread.push(error),
        }
    }
    if runs.is_empty()
        && let Some(error) = unread.pop()
    {
        return Err(error);
    }
    terminal::note_left_out(&unread);
    report::name_all(&mut runs);
    let name = match args.runs.as_slice() {
        [folder] => fs::canonical(folder).file_name().map(|name| name.to_string_lossy().into_owned()),
        _ => None,
    };
    let output = match (&args.output, args.runs.as_slice()) {
        (Some(output), _) => output.clone(),
        (None, [folder]) => folder.join(PAGE),
        (None, _) => PathBuf::from(PAGE),
    };
    if output == Path::new("-") {
        let mut output = Output::stdout();
        output.line(report::page(&runs, name.as_deref(), None).trim_end())?;
        return output.finish();
    }
    let inputs: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let page = fs::Output { is_own: pages::html::is_page, ..fs::Output::new("--output", &output) };
    args.overwrite.require(&[page], &inputs)?;
    let folder = fs::parent_of(&output);
    fs::create_folder(&folder)?;
    let page = report::page(&runs, name.as_deref(), Some(&folder));
    fs::write_bytes(&output, page.as_bytes())?;
    let size = format_bytes(page.len() as u64);
    let place = output.display().to_string();
    terminal::stdout_line(&format!("{} ({size})", terminal::printable(&place)))
}

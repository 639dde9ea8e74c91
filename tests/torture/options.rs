//! What the driver is asked for on its command line.
//!
//! It runs nothing.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::table::Row;

const USAGE: &str = "usage: torture [--quick|--full] [--seed N] [--output FOLDER] [--program FILE] \
     [--scratch FOLDER] [ROW...]; a ROW is a name of the table or how one begins";

/// The command line, with its defaults filled in.
pub(crate) struct Options {
    /// The counts of the documentation instead of small ones.
    pub(crate) is_full: bool,
    /// What everything random is drawn from.
    pub(crate) seed: u64,
    /// Where results are kept, so that a later call goes on with the missing rows; without it none are.
    pub(crate) output: Option<PathBuf>,
    /// The release build that is tortured.
    pub(crate) program: PathBuf,
    /// Where runs take place: in memory if there is room, since nearly all time would go by in waiting for a
    /// disk.
    pub(crate) scratch: PathBuf,
    /// Beginnings of names; all rows where there are none.
    rows: Vec<String>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let program = std::env::var_os("MLMTRAIN_PROGRAM").map(PathBuf::from);
        let mut options = Self {
            is_full: false,
            seed: 1,
            output: None,
            program: program.unwrap_or_else(|| here.join("target/release/mlmtrain")),
            scratch: scratch(),
            rows: Vec::new(),
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{argument} wants a value\n{USAGE}"));
            match argument.as_str() {
                "--quick" => options.is_full = false,
                "--full" => options.is_full = true,
                "--seed" => options.seed = value()?.parse().context("--seed wants a number")?,
                "--output" => options.output = Some(value()?.into()),
                "--program" => options.program = value()?.into(),
                "--scratch" => options.scratch = value()?.into(),
                row if !row.starts_with('-') => options.rows.push(row.to_string()),
                _ => bail!("unknown argument `{argument}`\n{USAGE}"),
            }
        }
        if !options.program.is_file() {
            bail!("there is no program `{}`; `cargo build --release` makes it", options.program.display());
        }
        options.program = options.program.canonicalize()?;
        Ok(options)
    }

    /// The rows that were named, in their order.
    pub(crate) fn chosen(&self, rows: Vec<Row>) -> Result<Vec<Row>> {
        let is_wanted = |row: &Row, name: &String| row.name.starts_with(name.as_str());
        if let Some(unknown) = self.rows.iter().find(|name| !rows.iter().any(|row| is_wanted(row, name))) {
            let known: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
            bail!("there is no row `{unknown}`; there are {}", known.join(", "));
        }
        let is_chosen = |row: &Row| self.rows.is_empty() || self.rows.iter().any(|name| is_wanted(row, name));
        Ok(rows.into_iter().filter(is_chosen).collect())
    }

    /// How the size of the counts is called.
    pub(crate) fn size(&self) -> &'static str {
        if self.is_full { "full" } else { "quick" }
    }
}

fn scratch() -> PathBuf {
    const ENOUGH_BYTES: u64 = 6 << 30;
    let memory = PathBuf::from("/dev/shm");
    let has_room = mlmtrain::fs::free_bytes(&memory).is_ok_and(|bytes| bytes >= ENOUGH_BYTES);
    if memory.is_dir() && has_room { memory } else { std::env::temp_dir() }
}

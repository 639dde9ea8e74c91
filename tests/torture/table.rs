//! The table: what a row is, what came of it, how it is printed, and the file that keeps it.
//!
//! It knows no promise and breaks nothing.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::job::Job;
use crate::options::Options;
use crate::place::Bench;

pub(crate) const HEADER: &str =
    "row                 seconds  result   figure  |  target  |  control, which must fail";

/// How a row is run.
pub(crate) type Run = fn(&Bench, Job) -> Result<Outcome>;

/// A row of the table.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) job: Job,
    pub(crate) target: &'static str,
    pub(crate) run: Run,
}

impl Row {
    pub(crate) fn of(name: &str, job: Job, target: &'static str, run: Run) -> Self {
        Self { name: format!("{name}-{}", job.name()), job, target, run }
    }
}

/// What came of a row.
pub(crate) enum Outcome {
    /// It was measured.
    Ran {
        figure: String,
        /// What missed the target, or was broken; empty where the target is reached.
        misses: Vec<String>,
        control: String,
        /// Whether every planted fault was noticed.
        control_failed: bool,
    },
    /// Something that it needs is missing on this machine, which is a miss.
    NotRun(String),
}

impl Outcome {
    /// A row that an error of the driver or of the machine cut off.
    pub(crate) fn broken(error: &anyhow::Error) -> Self {
        Self::Ran {
            figure: "broken off".to_string(),
            misses: vec![format!("{error:#}")],
            control: "none".to_string(),
            control_failed: false,
        }
    }
}

/// Faults planted by a control, and how many of them the driver noticed.
#[derive(Default)]
pub(crate) struct Control {
    planted: usize,
    noticed: usize,
    names: Vec<String>,
}

impl Control {
    /// A fault was planted; `fault` is what the driver said of it.
    pub(crate) fn expect(&mut self, name: &str, fault: Option<&String>) {
        self.planted += 1;
        self.noticed += usize::from(fault.is_some());
        let sign = if fault.is_some() { "fails" } else { "NOT NOTICED" };
        self.names.push(format!("{name} {sign}"));
    }

    pub(crate) fn outcome(self, figure: String, misses: Vec<String>) -> Outcome {
        let control_failed = self.planted > 0 && self.noticed == self.planted;
        Outcome::Ran { figure, misses, control: self.names.join(", "), control_failed }
    }
}

/// A row that is done.
#[derive(Clone)]
pub(crate) struct Finished {
    value: Value,
}

impl Finished {
    fn text(&self, key: &str) -> &str {
        self.value[key].as_str().unwrap_or("?")
    }

    fn is_ok(&self) -> bool {
        self.text("result") == "ok"
    }

    /// The row as it is printed, with what missed below it.
    pub(crate) fn line(&self) -> String {
        let (name, seconds) = (self.text("row"), self.value["seconds"].as_f64().unwrap_or(f64::NAN));
        let (result, figure) = (self.text("result"), self.text("figure"));
        let (target, control) = (self.text("target"), self.text("control"));
        let misses = self.value["misses"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let below: Vec<String> =
            misses.map(|miss| format!("\n    {}", miss.replace('\n', "\n    "))).collect();
        let below = below.concat();
        format!("{name:18} {seconds:8.1}  {result:7}  {figure}  |  {target}  |  {control}{below}")
    }
}

/// What is done, in memory and in a file.
pub(crate) struct Results {
    file: Option<PathBuf>,
    /// Results of another program or of other counts are none of this table.
    setting: Value,
    finished: Vec<Finished>,
}

/// The end of the table.
pub(crate) struct Summary {
    pub(crate) text: String,
    pub(crate) code: ExitCode,
}

impl Results {
    /// Those of earlier calls with the same program and size, if they are kept.
    pub(crate) fn open(options: &Options) -> Result<Self> {
        let program = Sha256::digest(fs::read(&options.program)?);
        let program: Vec<String> = program.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let program = program.concat();
        let setting = json!({"program": program, "size": options.size()});
        let mut results = Self { file: None, setting, finished: Vec::new() };
        if let Some(folder) = &options.output {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            let file = folder.join("results.jsonl");
            results.finished = results.read(&file);
            results.file = Some(file);
        }
        Ok(results)
    }

    fn read(&self, file: &Path) -> Vec<Finished> {
        let text = fs::read_to_string(file).unwrap_or_default();
        let values = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        values
            .filter(|value| value["setting"] == self.setting)
            .map(|value| Finished { value })
            .filter(Finished::is_ok)
            .collect()
    }

    /// The row of this name, if it is done.
    pub(crate) fn find(&self, name: &str) -> Option<Finished> {
        self.finished.iter().find(|finished| finished.text("row") == name).cloned()
    }

    pub(crate) fn add(&mut self, row: &Row, outcome: Outcome, took: Duration) -> Result<Finished> {
        let (result, figure, misses, control) = match outcome {
            Outcome::NotRun(why) => ("NOT RUN", why, Vec::new(), String::new()),
            Outcome::Ran { figure, misses, control, control_failed } => {
                let is_ok = misses.is_empty() && control_failed;
                (if is_ok { "ok" } else { "MISSED" }, figure, misses, control)
            }
        };
        let value = json!({
            "setting": self.setting, "row": row.name, "result": result, "figure": figure, "misses": misses,
            "target": row.target, "control": control, "seconds": took.as_secs_f64(),
        });
        if let Some(file) = &self.file {
            let mut file = fs::OpenOptions::new().create(true).append(true).open(file)?;
            file.write_all(format!("{value}\n").as_bytes())?;
        }
        self.finished.push(Finished { value });
        Ok(self.finished[self.finished.len() - 1].clone())
    }

    /// 0 where every row reached its target and every control failed, 3 where nothing but rows that could not
    /// run is missing, else 1.
    pub(crate) fn summary(&self, rows: &[Row]) -> Summary {
        let result =
            |row: &Row| self.find(&row.name).map_or("MISSED".to_string(), |f| f.text("result").into());
        let of = |wanted: &str| rows.iter().filter(|row| result(row) == wanted).count();
        let (ok, not_run) = (of("ok"), of("NOT RUN"));
        let missed = rows.len() - ok - not_run;
        let code = match (missed, not_run) {
            (0, 0) => 0,
            (0, _) => 3,
            _ => 1,
        };
        Summary {
            text: format!("{ok} of {} rows ok, {missed} missed, {not_run} not run", rows.len()),
            code: ExitCode::from(code),
        }
    }
}

//! `mlmtrain runs`: lists the runs below a folder with state, step, loss and score, and where they resume.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use crate::checkpoint::CheckpointStore;
use crate::commands::terminal;
use crate::commands::terminal::Output;
use crate::config::AnyLoaded;
use crate::error::Problem;
use crate::pages::columns;
use crate::quantity::format_age;
use crate::report::State;
use crate::train::results;
use crate::train::run_folder::METRICS;
use crate::{config, fs, report};

/// Bytes at the end of `metrics.jsonl` that are read, enough for the last records.
const TAIL_BYTES: u64 = 1 << 16;

/// Columns that are left out on a narrow terminal, in this order.
const DISPENSABLE: [&str; 5] = ["last record", "task", "eval loss", "step", RESUMES];

/// Title of the column with the steps that runs resume after.
const RESUMES: &str = "resumes after";

/// Least characters of a run's name: before a name is cut further, a column is left out.
const NAME_CHARS: usize = 24;

/// Suffix of the mean of a result over seeds.
const MEAN: &str = "_mean";

/// Suffix of the standard deviation of a result over seeds.
const SPREAD: &str = "_std";

/// Main scores of tasks, of which a run has at most one. A run without any has only its loss.
const SCORES: [&str; 4] = ["eval_accuracy", "eval_overall_f1", "eval_f1_micro", "eval_pearson"];

/// Arguments of `runs`.
#[derive(Debug, Args)]
pub struct RunsArgs {
    /// A folder with runs in it, or below it
    #[arg(value_name = "DIR", default_value = "runs")]
    pub folder: PathBuf,
    /// Print a JSON object for each run instead of a table
    #[arg(long)]
    pub json: bool,
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    path: PathBuf,
    task: String,
    state: State,
    /// Step of the last record.
    step: Option<u64>,
    /// Step of the checkpoint from which the run would resume; absent for a complete run.
    resumes_after: Option<u64>,
    loss: Option<f64>,
    /// Name of the main score without `eval_`, and its value.
    score: Option<(String, f64)>,
    /// The standard deviation of the score over seeds.
    spread: Option<f64>,
    /// Seconds since the last record was written.
    age_seconds: Option<u64>,
}

/// Runs the subcommand.
pub fn run(args: &RunsArgs) -> Result<()> {
    if !fs::is_folder(&args.folder) {
        let problem = Problem::usage("is no folder").at(args.folder.display());
        return Err(problem.hint("name the folder that holds your runs").into());
    }
    let report::Found { runs, mut unread } = report::find(&args.folder)?;
    let mut rows: Vec<Row> = Vec::new();
    for path in runs {
        match Row::read(path) {
            Ok(row) => rows.push(row),
            Err(error) => unread.push(error),
        }
    }
    terminal::note_left_out(&unread);
    let mut output = Output::stdout();
    if args.json {
        rows.iter().try_for_each(|row| output.line(&row.to_json().to_string()))?;
    } else if rows.is_empty() {
        output.line(&format!("no run is below `{}`", args.folder.display()))?;
    } else {
        for line in table(&rows, &args.folder, terminal::width()) {
            output.line(terminal::printable(&line).trim_end())?;
        }
    }
    output.finish()
}

impl Row {
    fn read(path: PathBuf) -> Result<Self> {
        // A run of another version may have other keys, and a damaged file none. The row has the values that
        // can be read.
        let mut whole = results::read(&path).unwrap_or_default();
        let last = last_records(&path.join(METRICS));
        let state = State::read(&path, &whole)?;
        // A folder that cannot be listed shows no checkpoint.
        let resumes_after =
            if state.can_go_on() { CheckpointStore::new(&path).newest_step().ok().flatten() } else { None };
        whole.retain(|_, value| value.is_finite());
        let scored = SCORES.iter().find_map(|name| Some((*name, score(name, &whole, &last)?)));
        let age = fs::modified(&path.join(METRICS)).or_else(|_| fs::modified(&path.join("all_results.json")));
        let age = age.ok().and_then(|time| SystemTime::now().duration_since(time).ok());
        Ok(Self {
            task: task_of(&path.join("config.yaml")).unwrap_or_else(|| "unknown".to_string()),
            state,
            step: latest(&last, "step").map(|step| step as u64),
            resumes_after,
            loss: score("eval_loss", &whole, &last),
            spread: scored.and_then(|(name, _)| whole.get(&format!("{name}{SPREAD}")).copied()),
            score: scored.map(|(name, value)| (name.trim_start_matches("eval_").to_string(), value)),
            age_seconds: age.map(|age| age.as_secs()),
            path,
        })
    }

    fn to_json(&self) -> Value {
        json!({
            "path": self.path.display().to_string(),
            "task": self.task,
            "state": self.state.name(),
            "step": self.step,
            "resumes_after": self.resumes_after,
            "eval_loss": self.loss,
            "metric": self.score.as_ref().map(|(name, _)| name),
            "score": self.score.as_ref().map(|(_, value)| value),
            "spread": self.spread,
            "age_seconds": self.age_seconds,
        })
    }
}

/// The latest value of a key in the last records of a run.
fn latest(records: &[Value], key: &str) -> Option<f64> {
    records.iter().rev().find_map(|record| record.get(key)?.as_f64())
}

/// A score of a run: of the final model, else its mean over seeds, else of the latest evaluation.
fn score(name: &str, results: &BTreeMap<String, f64>, records: &[Value]) -> Option<f64> {
    let result = results.get(name).or_else(|| results.get(&format!("{name}{MEAN}"))).copied();
    result.or_else(|| latest(records, &name.replacen('_', "/", 1)))
}

/// The name of the task in a configuration.
fn task_of(path: &Path) -> Option<String> {
    let task = match config::load_saved(path).ok()? {
        AnyLoaded::Pretrain(loaded) => serde_json::to_value(loaded.config.task()),
        AnyLoaded::Finetune(loaded) | AnyLoaded::Sweep(loaded) => serde_json::to_value(loaded.config.task),
        AnyLoaded::Tasks(_) => Ok(Value::from("compare")),
    };
    Some(task.ok()?.as_str()?.to_string())
}

/// Reads the last records of a run; without a file there are no records. The first line may be cut, and the
/// last one may be incomplete while it is written: these are skipped.
fn last_records(path: &Path) -> Vec<Value> {
    let text = fs::read_tail(path, TAIL_BYTES).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn table(rows: &[Row], folder: &Path, width: Option<usize>) -> Vec<String> {
    let header = ["run", "task", "state", "step", RESUMES, "eval loss", "score", "last record"];
    let mut cells = vec![header.map(str::to_string).to_vec()];
    for row in rows {
        let name = row.path.strip_prefix(folder).ok().filter(|name| !name.as_os_str().is_empty());
        let spread = row.spread.map(|spread| format!(" ± {:.2}", 100.0 * spread)).unwrap_or_default();
        cells.push(vec![
            name.unwrap_or(&row.path).display().to_string(),
            row.task.clone(),
            row.state.name().to_string(),
            or_dash(row.step.map(|step| step.to_string())),
            or_dash(row.resumes_after.map(|step| step.to_string())),
            or_dash(row.loss.map(|loss| format!("{loss:.4}"))),
            or_dash(row.score.as_ref().map(|(name, value)| format!("{name} {:.2}{spread} %", 100.0 * value))),
            or_dash(row.age_seconds.map(|age| format!("{} ago", format_age(age)))),
        ]);
    }
    if !rows.iter().any(|row| row.state.can_go_on()) {
        leave_out(&mut cells, RESUMES);
    }
    if let Some(width) = width {
        fit(&mut cells, width);
    }
    let names = cells[0].iter().filter(|title| ["run", "task", "state"].contains(&title.as_str())).count();
    columns::aligned(&cells, names)
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_string())
}

/// Columns that the aligned table is wider than `width`.
fn excess(cells: &[Vec<String>], width: usize) -> usize {
    let line = columns::aligned(cells, 0).first().map_or(0, |line| columns::width(line));
    line.saturating_sub(width)
}

/// Makes lines at most `width` wide: cuts the names of runs, and leaves out columns if that is not enough.
fn fit(cells: &mut [Vec<String>], width: usize) {
    let longest = cells.iter().map(|row| columns::width(&row[0])).max().unwrap_or(0);
    let least = longest.min(NAME_CHARS);
    for title in DISPENSABLE {
        if excess(cells, width) + least <= longest {
            break;
        }
        leave_out(cells, title);
    }
    let most = longest.saturating_sub(excess(cells, width)).max(least);
    for row in cells {
        row[0] = columns::without_middle(&row[0], most);
    }
}

/// Removes the column with this title, if there is one.
fn leave_out(cells: &mut [Vec<String>], title: &str) {
    let at = cells.first().and_then(|header| header.iter().position(|cell| cell == title));
    if let Some(at) = at {
        for row in cells {
            row.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_dash_for_unknown_values() {
        let running = pretraining("b/long", State::Running, Some(5), None, None);
        let rows = [
            pretraining("a", State::Complete, Some(3000), Some(4.36), Some(0.26)),
            Row { resumes_after: Some(4), ..running },
            pretraining("c", State::Stopped, None, None, None),
        ];
        insta::assert_snapshot!(table(&rows, Path::new("runs"), None).join("\n"), @r"
        run     task       state     step  resumes after  eval loss             score  last record
        a       masked_lm  complete  3000              -     4.3600  accuracy 26.00 %       5m ago
        b/long  masked_lm  running      5              4          -                 -       5m ago
        c       masked_lm  stopped      -              -          -                 -            -
        ");
        // Complete runs resume nowhere.
        insta::assert_snapshot!(table(&rows[..1], Path::new("runs"), None).join("\n"), @r"
        run  task       state     step  eval loss             score  last record
        a    masked_lm  complete  3000     4.3600  accuracy 26.00 %       5m ago
        ");
    }

    #[test]
    fn a_narrow_terminal_shows_fewer_columns() {
        let names = ["names", "sweep/learning_rate=0.00003,num_train_epochs=4/seed-1"];
        let rows = names.map(|name| Row {
            path: Path::new("runs").join(name),
            task: "token-classify".to_string(),
            state: State::Complete,
            step: Some(12_000),
            resumes_after: None,
            loss: Some(0.4321),
            score: Some(("overall_f1".to_string(), 0.5)),
            spread: Some(0.0125),
            age_seconds: Some(300),
        });
        for width in [64, 80, 100, 120] {
            let lines = table(&rows, Path::new("runs"), Some(width));
            let widest = lines.iter().map(|line| columns::width(line.trim_end())).max().unwrap();
            assert!(widest <= width, "{width}: {lines:#?}");
            assert!(lines[1].starts_with("names ") && lines[2].contains("/seed-1 "), "{lines:#?}");
            assert!(lines[1].contains("overall_f1 50.00 ± 1.25 %"), "{lines:#?}");
        }
        for (width, has_age) in [(120, true), (80, false)] {
            let header = table(&rows, Path::new("runs"), Some(width)).remove(0);
            assert_eq!(header.contains("last record"), has_age, "{header}");
        }
        assert_eq!(table(&rows, Path::new("runs"), Some(500)), table(&rows, Path::new("runs"), None));
    }

    fn pretraining(
        name: &str,
        state: State,
        step: Option<u64>,
        loss: Option<f64>,
        score: Option<f64>,
    ) -> Row {
        Row {
            path: Path::new("runs").join(name),
            task: "masked_lm".to_string(),
            state,
            step,
            resumes_after: None,
            loss,
            score: score.map(|value| ("accuracy".to_string(), value)),
            spread: None,
            age_seconds: step.map(|_| 300),
        }
    }
}

//! Models compared: each fine-tuned on each task with the same budget, beside what needs no pretraining.
//!
//! It may be stopped at any moment: the same command goes on, and leaves the same tables. Only records and
//! predictions of the cells are kept, no weights.

mod html;
mod report;
mod result;

use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;

use crate::config::NamedTask;
use crate::error::Problem;
use crate::fs;
use crate::fs::FolderLock;
use crate::interop::PretrainedFolder;
use crate::interop::read_folder;
use crate::scores::measured;
use crate::tasks::finetuned::Finetuned;
use crate::tasks::finetuned::Floor;
use crate::tasks::list;
use crate::tasks::list::FinetunedVisitor;
use crate::train::used;
use crate::trials::cell::Cell;
use crate::trials::cell::Done;
use crate::trials::cell::file_name;
use crate::trials::cell::require_files;
use crate::trials::comparison::result::Row;
use crate::trials::comparison::result::RowKind;
use crate::trials::comparison::result::TaskResult;
use crate::trials::equipment::Equipment;
use crate::trials::forecast::Forecast;
use crate::trials::lanes;
use crate::trials::record;

/// Who is compared on what, and where.
pub struct Comparison<'a> {
    /// The tasks.
    pub tasks: &'a [NamedTask],
    /// Model folders.
    pub models: &'a [PathBuf],
    /// The folder of all cells and of the tables.
    pub output: &'a Path,
    /// What all cells are trained with.
    pub with: Equipment<'a>,
}

/// A model as it is compared.
struct Entrant {
    /// As tables and folders call it.
    name: String,
    path: PathBuf,
    folder: PretrainedFolder,
    kind: RowKind,
}

impl Comparison<'_> {
    /// Trains whatever is not done yet; gives the lines of the tables, which also lie in `output`: in the first
    /// process, where there are several.
    pub fn run(&self) -> Result<Vec<String>> {
        let is_first = self.with.world.is_first();
        if is_first {
            used::refuse_for_many(self.output, &report::FILES)?;
        }
        let _lock = is_first.then(|| FolderLock::take(self.output)).transpose()?;
        require_files(self.tasks.iter().map(|task| &task.config))?;
        let entrants = entrants(self.models)?;
        check_lengths(self.tasks, &entrants)?;
        // All files are read before anything is trained: a wrong line of the last one is found now.
        let mut floors = Vec::new();
        for task in self.tasks {
            self.with.progress.note(&format!("reading `{}`", task.name));
            floors.push(list::finetuned(task.config.goal(), OfFloors(task))?);
        }
        let cells = self.tasks.iter().map(|task| task.seeds.len() * entrants.len()).sum();
        let mut forecast = Forecast::new(self.with.progress, cells);
        let mut results = Vec::new();
        for (task, floors) in self.tasks.iter().zip(floors) {
            let training = OfTask { comparison: self, task, entrants: &entrants, forecast: &mut forecast };
            let mut rows = list::finetuned(task.config.goal(), training)?;
            rows.extend(floors.into_iter().map(|Floor { name, outcomes }| Row {
                name: name.to_string(),
                kind: RowKind::Floor,
                outcomes: vec![outcomes],
                diverged: 0,
            }));
            results.push(TaskResult::new(task, &rows));
        }
        if is_first { report::write(&results, self.output) } else { Ok(Vec::new()) }
    }

    /// The cells of a model on a task, one for each seed.
    fn cells(&self, task: &NamedTask, entrant: &Entrant) -> Vec<Cell> {
        let mut config = task.config.clone();
        config.model.clone_from(&entrant.path);
        let cell = |&seed: &u64| {
            let name = format!("{}: {}, seed={seed}", task.name, entrant.name);
            Cell::new(name, folder(self.output, task, &entrant.name, seed), seed, &config)
        };
        task.seeds.iter().map(cell).collect()
    }

    /// The folders of all cells.
    pub fn folders(tasks: &[NamedTask], models: &[PathBuf], output: &Path) -> Vec<PathBuf> {
        let names = names(models);
        let of_task = |task: &NamedTask| -> Vec<PathBuf> {
            let of = |name: &String| {
                task.seeds.iter().map(|&seed| folder(output, task, name, seed)).collect::<Vec<PathBuf>>()
            };
            names.iter().flat_map(of).collect()
        };
        tasks.iter().flat_map(of_task).collect()
    }
}

fn folder(output: &Path, task: &NamedTask, name: &str, seed: u64) -> PathBuf {
    output.join(file_name(&task.name)).join(file_name(name)).join(format!("seed-{seed}"))
}

/// The models, and an untrained twin of each that has another architecture or tokenizer than those before.
fn entrants(models: &[PathBuf]) -> Result<Vec<Entrant>> {
    let mut entrants = Vec::new();
    for (path, name) in models.iter().zip(names(models)) {
        entrants.push(Entrant { name, path: path.clone(), folder: read_folder(path)?, kind: RowKind::Model });
    }
    let mut kinds = Vec::new();
    for at in 0..models.len() {
        let (folder, name) = (&entrants[at].folder, &entrants[at].name);
        let hashes = folder.tokenizer_files.iter().map(|path| fs::sha256_of_file(path));
        let kind = (folder.config.clone(), hashes.collect::<Result<Vec<String>>>()?);
        if kinds.contains(&kind) {
            continue;
        }
        kinds.push(kind);
        let (name, path) = (format!("random twin of {name}"), models[at].clone());
        let folder = read_folder(&path)?.untrained();
        entrants.push(Entrant { name, path, folder, kind: RowKind::Twin });
    }
    Ok(entrants)
}

/// What models are called: the last folder of their path, without the `final` of our runs; the whole path
/// where two would be called the same.
fn names(models: &[PathBuf]) -> Vec<String> {
    let short = |path: &PathBuf| {
        let is_name = |part: &&std::ffi::OsStr| *part != "final" && *part != ".";
        let parts: Vec<&std::ffi::OsStr> = path.iter().filter(is_name).collect();
        parts.last().unwrap_or(&path.as_os_str()).to_string_lossy().into_owned()
    };
    let is_alone = |path: &PathBuf| models.iter().filter(|other| short(other) == short(path)).count() == 1;
    models.iter().map(|path| if is_alone(path) { short(path) } else { path.display().to_string() }).collect()
}

fn check_lengths(tasks: &[NamedTask], entrants: &[Entrant]) -> Result<()> {
    for (task, entrant) in tasks.iter().flat_map(|task| entrants.iter().map(move |entrant| (task, entrant))) {
        let (length, longest) =
            (task.config.data.sequence_length(), entrant.folder.config.max_sequence_length());
        if length > longest {
            let message = format!("is {length}, and `{}` takes {longest} tokens", entrant.path.display());
            return Err(Problem::usage(message)
                .at(format!("task `{}`: data.max_seq_length", task.name))
                .hint(format!("set it to {longest} or less, for all models alike"))
                .into());
        }
    }
    Ok(())
}

/// What a task has to beat.
struct OfFloors<'a>(&'a NamedTask);

impl FinetunedVisitor for OfFloors<'_> {
    type Output = Result<Vec<Floor>>;

    fn visit<T: Finetuned>(self) -> Self::Output {
        Ok(T::read(&self.0.config)?.floors())
    }
}

/// All cells of a task.
struct OfTask<'a> {
    comparison: &'a Comparison<'a>,
    task: &'a NamedTask,
    entrants: &'a [Entrant],
    forecast: &'a mut Forecast,
}

impl FinetunedVisitor for OfTask<'_> {
    type Output = Result<Vec<Row>>;

    fn visit<T: Finetuned>(self) -> Self::Output {
        let Self { comparison, task, entrants, forecast } = self;
        let examples = T::read(&task.config)?;
        comparison.with.progress.note(&format!("{}: {}", task.name, examples.summary()));
        let jobs: Vec<Cell> = entrants.iter().flat_map(|entrant| comparison.cells(task, entrant)).collect();
        let mut lanes = jobs.len();
        for Entrant { folder, .. } in entrants {
            let machine = comparison.with.machine;
            lanes = lanes.min(lanes::lanes(&jobs, &examples, &task.config, folder, machine)?);
        }
        forecast.at_once(lanes, comparison.with.world.size);
        let run = |at: usize, with: Equipment<'_>| {
            let done = jobs[at].run(&examples, &entrants[at / task.seeds.len()].folder, with)?;
            // Not by two processes at the same time.
            if done.took.is_some() || with.world.is_first() {
                record::remove_weights(&jobs[at].folder)?;
            }
            Ok(done)
        };
        let mut outcomes = vec![None; jobs.len()];
        lanes::side_by_side(&jobs, lanes, comparison.with, run, |at, done: Done| {
            outcomes[at] = done.record.outcomes;
            let told = outcomes[at].as_ref().map_or("training diverged".to_string(), |outcomes| {
                let score = measured(outcomes.score(task.metric), |score| format!("{score:.4}"));
                format!("{} {score}", task.metric.name())
            });
            forecast.add(&jobs[at].name, &told, done.took);
            Ok(())
        })?;
        let rows = entrants.iter().zip(outcomes.chunks(task.seeds.len())).map(|(entrant, of_seeds)| Row {
            name: entrant.name.clone(),
            kind: entrant.kind,
            outcomes: of_seeds.iter().flatten().cloned().collect(),
            diverged: of_seeds.iter().filter(|of_seed| of_seed.is_none()).count(),
        });
        Ok(rows.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_called_by_their_run_unless_two_would_be_the_same() {
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(names(&paths(&["runs/a/final", "models/minilm/", "."])), ["a", "minilm", "."]);
        assert_eq!(names(&paths(&["x/a/final", "y/a", "z/b"])), ["x/a/final", "y/a", "b"]);
    }
}

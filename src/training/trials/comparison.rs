//! The comparison of models: each is fine-tuned on each task with the same budget, and compared with
//! untrained twins and with floors, baselines without a neural network.
//!
//! A comparison may be stopped at any moment: the same command resumes it and writes the same tables. It
//! keeps the records and predictions of the cells, no weights.

mod every_eval_ever;
mod files;
mod protocol;
mod protocol_files;
mod report;
mod result;
mod tables;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::tasks::finetuning_task::{Examples, FinetuningTask, Floor};
use crate::tasks::list;
use crate::tasks::list::FinetunedVisitor;
use crate::tasks::run::Kind;
use crate::train::used;
use crate::trials::cell::{Cell, Done, file_name, require_files};
use crate::trials::comparison::protocol::ProtocolResult;
use crate::trials::comparison::result::{ModelSize, Row, RowKind, TaskResult};
use crate::trials::equipment::Equipment;
use crate::trials::forecast::Forecast;
use crate::trials::grid_folder::Grid;
use crate::trials::{grid_folder, lanes, record};
use base::error::Problem;
use base::families::ModelConfig;
use base::fs;
use base::fs::FolderLock;
use base::scores::measured;
use base::words::joined;
use config::NamedTask;
use data::tokenizer::Tokenizer;
use model::interop::{PretrainedFolder, read_folder};

pub use files::pages_of;

/// The file with the time at which a comparison began, in seconds since 1970.
const STARTED: &str = "started";

const STARTED_CAP_BYTES: u64 = 64;

/// The models and tasks of a comparison, and the folder for its results.
pub struct Comparison<'a> {
    /// The tasks.
    pub tasks: &'a [NamedTask],
    /// Model folders.
    pub models: &'a [PathBuf],
    /// True if untrained twins are trained and floors are computed, too.
    pub with_baselines: bool,
    /// The folder for all cells and for the tables.
    pub output: &'a Path,
    /// The machine, progress and signals that all cells share.
    pub with: Equipment<'a>,
}

/// One model of the comparison: as given, or the untrained twin of one.
pub struct Entrant {
    /// The name in messages and in the paths of cells, and of a model in tables.
    pub name: String,
    /// The name in tables: that of a twin names all of its models.
    title: String,
    /// The model folder; a twin has the one of the model whose architecture and tokenizer it shares.
    pub path: PathBuf,
    /// The opened model folder.
    pub folder: PretrainedFolder,
    kind: RowKind,
}

impl Entrant {
    /// True for an untrained twin.
    pub fn is_twin(&self) -> bool {
        self.kind == RowKind::Twin
    }

    /// The work of training on a row, relative to that of other models: about the parameters of the layers.
    fn work(&self) -> f64 {
        let shape = &self.folder.config.encoder;
        shape.num_hidden_layers as f64 * (shape.hidden_size as f64).powi(2)
    }
}

impl Comparison<'_> {
    /// Trains the cells that are not done yet, writes the tables into `output` and returns their lines. With
    /// several processes, only rank 0 writes; the others return no lines.
    pub fn run(&self) -> Result<Vec<String>> {
        let is_first = self.with.world.is_first();
        if is_first {
            refuse_used(self.tasks, self.output)?;
        }
        let _lock = is_first.then(|| FolderLock::take(self.output)).transpose()?;
        require_files(self.tasks.iter().map(|task| &task.config))?;
        let entrants = checked_entrants(self.tasks, self.models, self.with_baselines)?;
        // All files are read before anything is trained, so that a wrong line of the last one is found now.
        let mut floors = Vec::new();
        for task in self.tasks {
            self.with.progress.note(&format!("reading `{}`", task.name));
            let floors_of_task = ComputeFloors { task, is_wanted: self.with_baselines };
            floors.push(list::finetuned(task.config.goal(), floors_of_task)?);
        }
        let seeds: usize = self.tasks.iter().map(|task| task.seeds.len()).sum();
        let work = seeds as f64 * entrants.iter().map(Entrant::work).sum::<f64>();
        let mut forecast = Forecast::new(self.with.progress, seeds * entrants.len(), work);
        let started = (is_first && follows_protocol(self.tasks)).then(|| started(self.output)).transpose()?;
        let mut results = Vec::new();
        let mut protocol_results = Vec::new();
        for (task, floors) in self.tasks.iter().zip(floors) {
            let training = TrainTask { comparison: self, task, entrants: &entrants, forecast: &mut forecast };
            let mut rows = list::finetuned(task.config.goal(), training)?;
            rows.extend(floors);
            match &task.protocol {
                Some(protocol) => protocol_results.push(ProtocolResult::new(task, protocol, &rows)),
                None => results.push(TaskResult::new(task, &rows)),
            }
        }
        match started {
            _ if !is_first => Ok(Vec::new()),
            Some(started) => protocol_files::write(&protocol_results, self.output, started),
            None => files::write(&results, self.output),
        }
    }

    /// Returns the folders of all cells.
    pub fn folders(tasks: &[NamedTask], models: &[PathBuf], output: &Path) -> Vec<PathBuf> {
        let names = names(models);
        tasks
            .iter()
            .flat_map(|task: &NamedTask| -> Vec<PathBuf> {
                names
                    .iter()
                    .flat_map(|name| {
                        task.seeds
                            .iter()
                            .map(|&seed| folder(output, task, name, seed))
                            .collect::<Vec<PathBuf>>()
                    })
                    .collect()
            })
            .collect()
    }
}

/// Returns the cells of a model on a task, one for each seed, in folders below `output`.
pub fn cells(output: &Path, task: &NamedTask, entrant: &Entrant) -> Vec<Cell> {
    let mut config = task.config.clone();
    config.model.clone_from(&entrant.path);
    task.seeds
        .iter()
        .map(|&seed| {
            let name = format!("{}: {}, seed={seed}", task.name, entrant.name);
            Cell::new(name, folder(output, task, &entrant.name, seed), seed, &config)
        })
        .collect()
}

/// True if the tasks are trained and scored by a published protocol.
fn follows_protocol(tasks: &[NamedTask]) -> bool {
    tasks.iter().any(|task| task.protocol.is_some())
}

/// Refuses an output folder with tables that no comparison has written, or with the runs of another command.
pub fn refuse_used(tasks: &[NamedTask], output: &Path) -> Result<()> {
    let more = follows_protocol(tasks).then_some(protocol_files::EVERY_EVAL_EVER);
    used::refuse_for_many(output, &files::FILES.into_iter().chain(more).collect::<Vec<_>>())?;
    grid_folder::refuse_used(output, Grid::Comparison)
}

fn folder(output: &Path, task: &NamedTask, name: &str, seed: u64) -> PathBuf {
    output.join(file_name(&task.name)).join(file_name(name)).join(format!("seed-{seed}"))
}

/// Opens the models, and with `with_twins` adds an untrained twin for each architecture and tokenizer among
/// them. Refuses a model that takes fewer tokens than a task has.
pub fn checked_entrants(tasks: &[NamedTask], models: &[PathBuf], with_twins: bool) -> Result<Vec<Entrant>> {
    let mut entrants = Vec::new();
    for (path, name) in models.iter().zip(names(models)) {
        let (title, path, folder) = (name.clone(), path.clone(), read_folder(path)?);
        entrants.push(Entrant { name, title, path, folder, kind: RowKind::Model });
    }
    if with_twins {
        add_twins(&mut entrants)?;
    }
    check_lengths(tasks, &entrants)?;
    Ok(entrants)
}

/// Adds an untrained twin for each architecture and tokenizer among the models.
fn add_twins(entrants: &mut Vec<Entrant>) -> Result<()> {
    // Each kind of twin with the models that it is the twin of.
    let mut kinds: Vec<(TwinKind, Vec<usize>)> = Vec::new();
    for (at, entrant) in entrants.iter().enumerate() {
        let kind = TwinKind::new(&entrant.folder)?;
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, models)) => models.push(at),
            None => kinds.push((kind, vec![at])),
        }
    }
    for (_, models) in kinds {
        let names: Vec<&str> = models.iter().map(|&at| entrants[at].name.as_str()).collect();
        let (name, title) = (twin_name(&names[..1]), twin_name(&names));
        let path = entrants[models[0]].path.clone();
        let folder = read_folder(&path)?.untrained();
        entrants.push(Entrant { name, title, path, folder, kind: RowKind::Twin });
    }
    Ok(())
}

/// The name of the twin that these models share.
fn twin_name(models: &[&str]) -> String {
    match models {
        [first, others @ ..] if others.len() > 1 => {
            format!("random twin of {first} and {} others", others.len())
        }
        _ => format!("random twin of {}", joined(models, "and")),
    }
}

/// Architecture and tokenizer of a model, which its untrained twin has, too. Models with the same ones share a
/// twin.
#[derive(PartialEq)]
struct TwinKind {
    architecture: ModelConfig,
    /// The files of the tokenizer, but for the longest sequence, which the task determines.
    tokenizer: Vec<(String, Vec<u8>)>,
}

impl TwinKind {
    fn new(folder: &PretrainedFolder) -> Result<Self> {
        // Fine-tuning writes this length and the names of the inputs into the tokenizer's files. Where they
        // are written here, too, the files of a model and of its fine-tuned form are the same.
        let tokenizer = Tokenizer::load(&folder.path)?.with_model_max_length(1);
        let mut files = tokenizer.files_of_model(true);
        files.sort();
        Ok(Self { architecture: folder.config.clone(), tokenizer: files })
    }
}

/// Returns the names of models in tables: the last folder of each path (a run's folder, not its `final`), or
/// the whole path if two models would have the same name.
fn names(models: &[PathBuf]) -> Vec<String> {
    let short: Vec<String> = models.iter().map(|path| short_name(path)).collect();
    let names = models.iter().zip(&short).map(|(path, name)| {
        let is_unique = short.iter().filter(|other| *other == name).count() == 1;
        if is_unique { name.clone() } else { path.display().to_string() }
    });
    names.collect()
}

/// The last part of `path` that is not `final` or `.`.
fn short_name(path: &Path) -> String {
    let last = path.iter().rfind(|part| *part != "final" && *part != ".");
    last.unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
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

/// Returns the time at which the comparison in `output` began, in seconds since 1970. It is stored, so that a
/// comparison that was interrupted ends in the same bytes.
fn started(output: &Path) -> Result<u64> {
    let path = output.join(STARTED);
    if fs::exists(&path) {
        let text = fs::read_text_capped(&path, STARTED_CAP_BYTES)?;
        return text.trim().parse().map_err(|_| {
            let problem = Problem::new("is no number of seconds").at(path.display());
            problem.hint("remove the file").into()
        });
    }
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    fs::write_bytes(&path, format!("{seconds}\n").as_bytes())?;
    Ok(seconds)
}

/// Reads the files of a task, and computes its floors if they are wanted: scores that models have to beat.
struct ComputeFloors<'a> {
    task: &'a NamedTask,
    is_wanted: bool,
}

impl FinetunedVisitor for ComputeFloors<'_> {
    type Output = Result<Vec<Row>>;

    fn visit<T: FinetuningTask>(self) -> Self::Output {
        let NamedTask { config, seeds, .. } = self.task;
        let examples = Examples::<T>::read(config)?;
        if !self.is_wanted {
            return Ok(Vec::new());
        }
        if !config.data.bootstrap {
            let tested = examples.tested().map(|tested| tested.floors());
            return Ok(floor_rows(vec![examples.floors()], tested.into_iter().collect()));
        }
        let mut floors = Vec::new();
        let mut tested = Vec::new();
        for drawn in seeds.iter().filter_map(|&seed| examples.drawn(config, seed)) {
            floors.push(drawn.floors());
            tested.extend(drawn.tested().map(|tested| tested.floors()));
        }
        Ok(floor_rows(floors, tested))
    }
}

/// Turns the floors of each draw of the examples, and those on its test examples, into a row for each floor.
fn floor_rows(floors: Vec<Vec<Floor>>, tested: Vec<Vec<Floor>>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for Floor { name, .. } in floors.first().into_iter().flatten() {
        rows.push(Row {
            name: (*name).to_string(),
            kind: RowKind::Floor,
            outcomes: Vec::new(),
            test_outcomes: Vec::new(),
            diverged: 0,
            size: None,
        });
    }
    for draw in floors {
        rows.iter_mut().zip(draw).for_each(|(row, floor)| row.outcomes.push(floor.outcomes));
    }
    for draw in tested {
        rows.iter_mut().zip(draw).for_each(|(row, floor)| row.test_outcomes.push(floor.outcomes));
    }
    rows
}

/// Trains all cells of a task and returns a row for each model.
struct TrainTask<'a> {
    comparison: &'a Comparison<'a>,
    task: &'a NamedTask,
    entrants: &'a [Entrant],
    forecast: &'a mut Forecast,
}

impl FinetunedVisitor for TrainTask<'_> {
    type Output = Result<Vec<Row>>;

    fn visit<T: FinetuningTask>(self) -> Self::Output {
        let Self { comparison, task, entrants, forecast } = self;
        let examples = Examples::<T>::read(&task.config)?;
        comparison.with.progress.note(&format!("{}: {}", task.name, examples.summary()));
        if let Some(text) = examples.warning() {
            comparison.with.progress.warn(&format!("{}: {text}", task.name));
        }
        let jobs: Vec<Cell> =
            entrants.iter().flat_map(|entrant| cells(comparison.output, task, entrant)).collect();
        let mut lanes = jobs.len();
        let mut sizes = Vec::new();
        for Entrant { folder, .. } in entrants {
            let machine = comparison.with.machine;
            lanes = lanes.min(lanes::lanes(&jobs, &examples, &task.config, folder, machine)?);
            sizes.push(ModelSize {
                parameters: examples.kind(&task.config, folder).shapes()?.outline.num_parameters(),
                max_sequence_length: folder.config.max_sequence_length(),
                vocabulary_size: folder.config.encoder.vocab_size,
            });
        }
        forecast.at_once(lanes, comparison.with.world.size);
        let mut outcomes = vec![None; jobs.len()];
        let mut test_outcomes = vec![None; jobs.len()];
        lanes::side_by_side(
            &jobs,
            lanes,
            comparison.with,
            |at, with| {
                let done = jobs[at].run(&examples, &entrants[at / task.seeds.len()].folder, with)?;
                // Two processes must not remove the same weights at the same time.
                if done.took.is_some() || with.world.is_first() {
                    record::remove_weights(&jobs[at].folder)?;
                }
                Ok(done)
            },
            |at, done: Done| {
                outcomes[at] = done.record.outcomes;
                test_outcomes[at] = done.record.test_outcomes;
                let result = outcomes[at].as_ref().map_or("training diverged".to_string(), |outcomes| {
                    let score = measured(outcomes.score(task.metric), |score| format!("{score:.4}"));
                    format!("{} {score}", task.metric.name())
                });
                let work = entrants[at / task.seeds.len()].work();
                forecast.add(&jobs[at].name, &result, done.took, work);
                Ok(())
            },
        )?;
        let mut rows = Vec::new();
        for (at, (entrant, size)) in entrants.iter().zip(sizes).enumerate() {
            let own = at * task.seeds.len()..(at + 1) * task.seeds.len();
            rows.push(Row {
                name: entrant.title.clone(),
                kind: entrant.kind,
                outcomes: outcomes[own.clone()].iter().flatten().cloned().collect(),
                test_outcomes: test_outcomes[own.clone()].iter().flatten().cloned().collect(),
                diverged: outcomes[own].iter().filter(|of_seed| of_seed.is_none()).count(),
                size: Some(size),
            });
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_called_by_their_run_unless_two_would_be_the_same() {
        for (paths, expected) in [
            (["runs/a/final", "models/minilm/", "."], ["a", "minilm", "."]),
            (["x/a/final", "y/a", "z/b"], ["x/a/final", "y/a", "b"]),
        ] {
            assert_eq!(names(&paths.map(PathBuf::from)), expected);
        }
    }

    #[test]
    fn a_twin_is_called_by_its_models() {
        let models = ["a", "b", "c"];
        let expected = ["random twin of a", "random twin of a and b", "random twin of a and 2 others"];
        assert_eq!([1, 2, 3].map(|count| twin_name(&models[..count])), expected);
    }
}

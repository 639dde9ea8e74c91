//! A sweep: trains each setting with each seed, in their order, and keeps the weights of the best run.
//!
//! A sweep may be stopped at any moment: the same command resumes it and writes the same table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use crate::machine::Machine;
use crate::tasks::finetuning_task::{Examples, FinetuningTask};
use crate::tasks::list::FinetunedVisitor;
use crate::tasks::trained::learnt_nothing;
use crate::train::run_folder::FINAL;
use crate::train::used;
use crate::trials::cell::{Cell, Done, file_name, require_files};
use crate::trials::curve::{Curve, Point};
use crate::trials::equipment::Equipment;
use crate::trials::forecast::Forecast;
use crate::trials::grid_folder::{Grid, WITHOUT_KEYS};
use crate::trials::summary::{SeedRun, Summary, short_names, swept_values};
use crate::trials::{grid_folder, lanes, record};
use base::error::Problem;
use base::fs;
use base::fs::FolderLock;
use base::pages::table::Table;
use base::scores::{Better, Metric, NOT_MEASURED};
use base::words::counted;
use config::{Setting, Sweep};
use model::interop::{PretrainedFolder, read_folder};

/// Name of the link to the folder of the best run, in the folder of the sweep.
pub const BEST: &str = "best";

/// Name of the file with all scores of a sweep.
pub const RESULTS: &str = Grid::Sweep.results();

/// Key of a learning curve in that file.
const CURVE: &str = "learning_curve";

/// Largest file of scores that is read, in bytes.
pub const RESULTS_CAP_BYTES: u64 = 64 << 20;

/// A sweep and the folder that it is run in.
pub struct SweepRun<'a> {
    /// The settings and seeds.
    pub sweep: &'a Sweep,
    /// The folder of all cells, `run.output_dir`.
    pub output: &'a Path,
    /// The machine, progress and signals that all cells share.
    pub with: Equipment<'a>,
}

/// The result of a sweep.
#[derive(Debug, Clone)]
pub struct Swept {
    /// A row for each setting.
    pub table: Table,
    /// The folder of the best model; `None` if all settings diverged, and in all processes but rank 0.
    pub best: Option<PathBuf>,
    /// The lines to print below the table.
    pub notes: Vec<String>,
}

impl FinetunedVisitor for SweepRun<'_> {
    type Output = Result<Swept>;

    fn visit<T: FinetuningTask>(self) -> Result<Swept> {
        let Self { sweep, output, with } = self;
        let world = with.world;
        if world.is_first() {
            refuse_used(sweep, output)?;
        }
        let _lock = world.is_first().then(|| FolderLock::take(output)).transpose()?;
        require_files(sweep.settings.iter().map(|setting| &setting.config))?;
        let models = models(sweep)?;
        let runs = sweep.settings.len() * sweep.seeds.len();
        let mut forecast = Forecast::new(with.progress, runs, runs as f64);
        let mut summary: Option<Summary<'_>> = None;
        let mut points = Vec::new();
        let mut is_warned = false;
        // The names of cells by their place in the sweep: cells end in any order.
        let mut uniform: BTreeMap<String, BTreeMap<usize, String>> = BTreeMap::new();
        // Only settings with the same data are trained at the same time: one data set is in memory at once.
        for group in groups(sweep) {
            let jobs: Vec<Cell> = group.iter().flat_map(|setting| cells(sweep, setting, output)).collect();
            let Some(setting) = group.first() else { continue };
            let examples = Examples::<T>::read(&setting.config)?;
            with.progress.note(&examples.summary());
            if let Some(text) = examples.warning().filter(|_| !is_warned) {
                with.progress.warn(text);
                is_warned = true;
            }
            let named = setting.config.training.metric_for_best_model.as_deref();
            let metric = named.map_or(T::BEST, |name| name.strip_prefix("eval_").unwrap_or(name));
            let better = Better::of(metric);
            let summary = summary.get_or_insert_with(|| Summary {
                sweep,
                metric: format!("eval_{metric}"),
                better,
                columns: T::COLUMNS,
                settings: Vec::new(),
            });
            let lanes = at_once(group, &jobs, &examples, &models, with.machine)?;
            forecast.at_once(lanes, world.size);
            let mut runs: Vec<Option<SeedRun>> = vec![None; jobs.len()];
            let seeds = sweep.seeds.len();
            let cells_before = summary.settings.len() * seeds;
            let mut whole = 0;
            lanes::side_by_side(
                &jobs,
                lanes,
                with,
                |at, with| jobs[at].run(&examples, &models[&jobs[at].config.model], with),
                |at, done: Done| {
                    let Cell { name, folder, seed, .. } = &jobs[at];
                    forecast.add(name, &score_text(&done, &summary.metric), done.took, 1.0);
                    if let Some(how) = done.record.uniform_answers() {
                        uniform.entry(how).or_default().insert(cells_before + at, name.clone());
                    }
                    runs[at] =
                        Some(SeedRun { seed: *seed, folder: folder.clone(), scores: done.record.scores });
                    // Settings enter the summary in their order, each once all of its seeds are done.
                    while let Some(of_setting) = runs.get(whole * seeds..(whole + 1) * seeds) {
                        let Some(of_setting) = of_setting.iter().cloned().collect() else { break };
                        summary.settings.push(of_setting);
                        if world.is_first() {
                            keep_best(summary)?;
                        }
                        whole += 1;
                    }
                    Ok(())
                },
            )?;
            if is_curve(sweep) {
                points.push(point(summary, setting, &examples, metric));
            }
        }
        let Some(summary) = summary else { return Err(Problem::new("the sweep has no settings").into()) };
        if !world.is_first() {
            return Ok(Swept { table: summary.table(), best: None, notes: Vec::new() });
        }
        for (how, names) in uniform {
            let names: Vec<String> = names.into_values().collect();
            with.progress.warn(&format!("{}: {}", names.join("; "), learnt_nothing(&how)));
        }
        restore_best::<T>(&summary, &models, output, with)?;
        finish(&summary, points, output)
    }
}

/// Refuses the folder of another command, or of a sweep with other keys or with more values.
pub fn refuse_used(sweep: &Sweep, output: &Path) -> Result<()> {
    used::refuse_for_many(output, &[RESULTS, "sweep.md", "learning_curve.svg", BEST])?;
    grid_folder::refuse_used(output, Grid::Sweep)?;
    if fs::exists(&output.join(RESULTS)) {
        refuse_other_results(sweep, output)
    } else {
        refuse_other_cells(sweep, output)
    }
}

/// Returns the cells of a sweep, in their order.
pub fn all_cells(sweep: &Sweep, output: &Path) -> Vec<Cell> {
    sweep.settings.iter().flat_map(|setting| cells(sweep, setting, output)).collect()
}

/// Returns the settings in groups with the same data; those of a group are trained side by side.
pub fn groups(sweep: &Sweep) -> impl Iterator<Item = &[Setting]> {
    sweep.settings.chunk_by(|one, other| one.config.data == other.config.data)
}

/// Returns how many of the cells `jobs` of settings with the same data are trained at the same time.
pub fn at_once<T: FinetuningTask>(
    group: &[Setting],
    jobs: &[Cell],
    examples: &Examples<T>,
    models: &BTreeMap<PathBuf, PretrainedFolder>,
    machine: &Machine,
) -> Result<usize> {
    group.iter().try_fold(jobs.len(), |least, Setting { config, .. }| {
        Ok(least.min(lanes::lanes(jobs, examples, config, &models[&config.model], machine)?))
    })
}

fn cells(sweep: &Sweep, setting: &Setting, output: &Path) -> Vec<Cell> {
    let names = short_names(&sweep.keys);
    let pairs = names.iter().zip(&setting.values);
    let title: Vec<String> = pairs.clone().map(|(name, value)| format!("{name}={value}")).collect();
    let folder: Vec<String> = pairs.map(|(name, value)| format!("{name}={}", file_name(value))).collect();
    // Without swept keys the folder is `sweep`, apart from the folders of `finetune --seeds`, whose weights a
    // sweep must not remove.
    let above = output.join(if folder.is_empty() { WITHOUT_KEYS.to_string() } else { folder.join(",") });
    sweep
        .seeds
        .iter()
        .map(|&seed| {
            let name = [&title[..], &[format!("seed={seed}")]].concat().join(", ");
            Cell::new(name, above.join(format!("seed-{seed}")), seed, &setting.config)
        })
        .collect()
}

/// Opens the model folders of all settings, each once. Tensors are read later, on demand.
pub fn models(sweep: &Sweep) -> Result<BTreeMap<PathBuf, PretrainedFolder>> {
    let mut models = BTreeMap::new();
    for setting in &sweep.settings {
        let path = &setting.config.model;
        if !models.contains_key(path) {
            models.insert(path.clone(), read_folder(path)?);
        }
    }
    Ok(models)
}

/// The score of a finished cell for the progress line.
fn score_text(done: &Done, metric: &str) -> String {
    match done.record.scores.get(metric) {
        Some(score) => format!("{metric} {score:.4}"),
        None if done.record.outcomes.is_some() => format!("{metric} {NOT_MEASURED}"),
        None => "training diverged".to_string(),
    }
}

/// Removes the weights of all finished runs except the best one: the weights of a whole grid would fill the
/// disk.
fn keep_best(summary: &Summary<'_>) -> Result<()> {
    let best = summary.best_setting().and_then(|setting| summary.best_seed(setting));
    let runs = summary.settings.iter().flatten();
    runs.filter(|run| best.is_none_or(|best| best.folder != run.folder))
        .try_for_each(|run| record::remove_weights(&run.folder))
}

/// Trains the best run again if its weights are gone, for example because an earlier sweep in this folder had
/// another best run.
fn restore_best<T: FinetuningTask>(
    summary: &Summary<'_>,
    models: &BTreeMap<PathBuf, PretrainedFolder>,
    output: &Path,
    with: Equipment<'_>,
) -> Result<()> {
    let Some(setting) = summary.best_setting() else { return Ok(()) };
    let Some(best) = summary.best_seed(setting) else { return Ok(()) };
    if fs::exists(&best.folder.join(FINAL)) {
        return Ok(());
    }
    let setting = &summary.sweep.settings[setting];
    let cells = cells(summary.sweep, setting, output);
    let Some(cell) = cells.iter().find(|cell| cell.seed == best.seed) else { return Ok(()) };
    with.progress.note(&format!("the best run's weights are gone, it is trained again: {}", cell.name));
    record::forget(&cell.folder)?;
    cell.run(&Examples::<T>::read(&setting.config)?, &models[&setting.config.model], with).map(|_| ())
}

/// True if the sweep is a learning curve: its only key is the share of the training examples.
fn is_curve(sweep: &Sweep) -> bool {
    sweep.keys.len() == 1 && sweep.keys[0] == "data.max_train_fraction"
}

/// Refuses the folder of a complete sweep over other keys, or of one with runs that this sweep does not have:
/// its table and its best model would be replaced.
fn refuse_other_results(sweep: &Sweep, output: &Path) -> Result<()> {
    let path = output.join(RESULTS);
    let found: Value = serde_json::from_slice(&fs::read_capped(&path, RESULTS_CAP_BYTES)?).map_err(|e| {
        let problem = Problem::new(format!("is no result of a sweep: {e}")).at(path.display());
        problem.hint("remove the file; the same sweep writes it again")
    })?;
    let rows = found["settings"].as_array().map(Vec::as_slice).unwrap_or_default();
    let problem = if rows.iter().any(|row| !has_keys(&row["setting"], &sweep.keys)) {
        let is_curve = found.get(CURVE).is_some();
        let other = if is_curve { "a learning curve" } else { "a sweep over other keys" };
        Problem::usage(format!("holds the results of {other}, which this run would replace"))
            .hint("choose another folder with `--output-dir`")
    } else if let Some(folder) = left_out(sweep, rows) {
        Problem::usage(format!("holds the results of `{folder}`, which this sweep would leave out"))
            .hint("name the earlier values and seeds as well, or choose another folder with `--output-dir`")
    } else {
        return Ok(());
    };
    Err(problem.at(path.display()).into())
}

/// Refuses the folder of an interrupted sweep over other keys, which has cells and no results yet.
fn refuse_other_cells(sweep: &Sweep, output: &Path) -> Result<()> {
    let mut own = short_names(&sweep.keys);
    own.sort_unstable();
    for name in grid_folder::settings_in(output)? {
        let mut keys = grid_folder::swept_keys(&name).unwrap_or_default();
        keys.sort_unstable();
        if keys != own {
            return Err(Problem::usage(format!("holds `{name}` of a sweep over other keys"))
                .at(output.display())
                .hint("choose another folder with `--output-dir`")
                .into());
        }
    }
    Ok(())
}

/// Returns true if a setting in the results of a sweep has values of exactly these keys.
fn has_keys(setting: &Value, keys: &[String]) -> bool {
    let values = setting.as_object();
    values.is_some_and(|values| values.len() == keys.len() && keys.iter().all(|key| values.contains_key(key)))
}

/// The folder of the first run in the results of an earlier sweep that `sweep` does not have.
fn left_out<'a>(sweep: &Sweep, rows: &'a [Value]) -> Option<&'a str> {
    let settings: Vec<Value> =
        sweep.settings.iter().map(|setting| swept_values(&sweep.keys, setting)).collect();
    for row in rows {
        let has_setting = settings.contains(&row["setting"]);
        for run in row["runs"].as_array().into_iter().flatten() {
            let has_seed = run["seed"].as_u64().is_some_and(|seed| sweep.seeds.contains(&seed));
            if !has_setting || !has_seed {
                return Some(run["folder"].as_str().unwrap_or_default());
            }
        }
    }
    None
}

/// Returns the point of a learning curve for the last setting in `summary`, and the name of the floor if the
/// task has one.
fn point<T: FinetuningTask>(
    summary: &Summary<'_>,
    setting: &Setting,
    examples: &Examples<T>,
    metric: &str,
) -> (Point, Option<&'static str>) {
    let floor = examples.floors().pop();
    // The loss of a regression is the mean squared error.
    let metric = if metric == "loss" { Metric::Mse.name() } else { metric };
    let floor_score = floor.as_ref().and_then(|floor| {
        let metric = floor.outcomes.metrics().iter().copied().find(|known| known.name() == metric)?;
        Some(floor.outcomes.score(metric))
    });
    let point = Point {
        share: setting.config.data.max_train_fraction.unwrap_or(1.0),
        examples: examples.num_train(),
        scores: summary.values(summary.settings.len() - 1, &summary.metric),
        floor: floor_score,
    };
    (point, floor.map(|floor| floor.name))
}

/// Writes the table as JSON and Markdown, the learning curve if there is one, and the link to the best run.
fn finish(summary: &Summary<'_>, points: Vec<(Point, Option<&'static str>)>, output: &Path) -> Result<Swept> {
    let mut table = summary.table();
    let best = summary.best_setting().and_then(|setting| summary.best_seed(setting));
    let seeds = counted(summary.sweep.seeds.len(), "seed");
    let metric = &summary.metric;
    let way = if summary.better == Better::Higher { "highest" } else { "lowest" };
    let mut notes = vec![format!(
        "mean ± standard deviation over {seeds}; chosen by the {way} mean `{metric}` of the evaluation file"
    )];
    let link = output.join(BEST);
    match best {
        None => {
            fs::remove_file(&link)?;
            notes.push(format!(
                "no setting was trained with all seeds without diverging, and `{metric}` measured with each"
            ));
        }
        Some(best) => {
            fs::relink(best.folder.strip_prefix(output).unwrap_or(&best.folder), &link)?;
            let tied = summary.tied_settings();
            if tied.len() > 1 {
                let values: Vec<String> =
                    tied.iter().map(|&setting| summary.sweep.settings[setting].values.join(", ")).collect();
                notes.push(format!(
                    "a tie: {} have the same mean, so none is marked, and the first of them is taken",
                    values.join(" and ")
                ));
            }
            notes.push(format!("best run: {} (also {})", best.folder.display(), link.display()));
        }
    }
    let mut json = summary.json();
    if !points.is_empty() {
        let floor = points.iter().find_map(|(_, name)| *name);
        let column = summary.columns.iter().find(|column| column.score == summary.metric);
        let metric = column.map_or(("loss", 1.0), |column| (column.title, column.factor));
        let curve = Curve { points: points.into_iter().map(|(point, _)| point).collect(), metric, floor };
        table = curve.table(summary);
        json[CURVE] = serde_json::to_value(&curve.points)?;
        let path = output.join("learning_curve.svg");
        fs::write_bytes(&path, curve.svg().as_bytes())?;
        notes.push(format!("learning curve: {}", path.display()));
    }
    fs::write_bytes(&output.join(RESULTS), format!("{json:#}\n").as_bytes())?;
    let markdown = format!("{}\n{}\n", table.markdown(), notes.join("  \n"));
    fs::write_bytes(&output.join("sweep.md"), markdown.as_bytes())?;
    Ok(Swept { table, best: best.map(|best| best.folder.join(FINAL)), notes })
}

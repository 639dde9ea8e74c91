//! A grid of fine-tuning runs: the configuration of each combination of the values of the swept keys.
//!
//! Does not run anything; `trials` does.

use std::path::Path;

use crate::axes::{Axis, SEEDS_KEY};
use crate::load::Loaded;
use crate::overrides::Override;
use crate::shape::Shape;
use crate::tree::Node;
use crate::{FinetuneConfig, axes, load};
use base::error::{Problem, Problems};

/// Largest number of runs of a sweep; more are a typing error.
const MOST_RUNS: usize = 10_000;

/// The sweep that the command line asks for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Swept<'a> {
    /// The texts after `--sweep`: `learning_rate=1e-5,3e-5`.
    pub axes: &'a [String],
    /// The shares of the training examples after `--fractions`.
    pub fractions: &'a [f64],
}

/// The run or runs that `finetune` trains.
#[derive(Debug, Clone)]
pub enum FinetunePlan {
    /// One configuration, with one seed or several.
    Single(Box<Loaded<FinetuneConfig>>),
    /// A grid of configurations.
    Sweep(Sweep),
}

/// A grid of settings, of which each is trained with each seed. The last key changes fastest.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// Dotted paths of the swept keys, without that of the seeds.
    pub keys: Vec<String>,
    /// The settings; no two are the same.
    pub settings: Vec<Setting>,
    /// Seeds that each setting is trained with.
    pub seeds: Vec<u64>,
}

/// A value for each swept key.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// The values as they were written, in the order of [`Sweep::keys`].
    pub values: Vec<String>,
    /// The whole configuration, without seeds.
    pub config: FinetuneConfig,
}

/// Loads the plan of `finetune`: a sweep if `swept` or the table `sweep` of the file names keys and their
/// values. The file is read once, since it may be a pipe. Later overrides win.
pub fn load_plan(
    path: Option<&Path>,
    overrides: &[Override],
    swept: Swept<'_>,
) -> Result<FinetunePlan, Problems> {
    let root = path.map(|path| load::read(path, overrides)).transpose()?;
    plan_of(path.zip(root), overrides, swept)
}

/// Like [`load_plan`], for a file that was already read.
pub(super) fn plan_of(
    file: Option<(&Path, Node)>,
    overrides: &[Override],
    swept: Swept<'_>,
) -> Result<FinetunePlan, Problems> {
    let of_file = file.as_ref().map(|(path, root)| (*path, root));
    let axes = all_axes(of_file, swept).map_err(|problem| Problems(vec![problem]))?;
    if axes.is_empty() {
        return Ok(FinetunePlan::Single(Box::new(load::finetune_of(file, overrides)?)));
    }
    settings(of_file, overrides, axes).map(FinetunePlan::Sweep)
}

/// Returns the axes of the command line, followed by those of the file with other keys.
fn all_axes(file: Option<(&Path, &Node)>, swept: Swept<'_>) -> Result<Vec<Axis>, Problem> {
    let shape = Shape::from_struct::<FinetuneConfig>();
    let mut found: Vec<Axis> = Vec::new();
    for text in swept.axes {
        found.push(axes::written(text, &shape, &axes::SWEEP)?);
    }
    if let Some((_, root)) = file {
        let of_file = axes::in_file(root, &shape, &axes::SWEEP)?;
        let given: Vec<String> = found.iter().map(|axis| axis.key.clone()).collect();
        found.extend(of_file.into_iter().filter(|axis| !given.contains(&axis.key)));
    }
    if !swept.fractions.is_empty() {
        if let Some(axis) = found.iter().find(|axis| axis.key != SEEDS_KEY) {
            let message = format!("`--fractions` and a sweep over `{}` do not go together", axis.key);
            let hint = "sweep first, then draw the curve of the best setting";
            return Err(Problem::usage(message).at(&axis.place).hint(hint));
        }
        found.push(axes::fractions(swept.fractions)?);
    }
    check(&found).map(|()| found)
}

fn check(axes: &[Axis]) -> Result<(), Problem> {
    let mut numbered = axes.iter().enumerate();
    let repeated = numbered.find(|(at, axis)| axes[..*at].iter().any(|other| other.key == axis.key));
    if let Some((_, axis)) = repeated {
        let message = format!("`{}` is swept twice", axis.key);
        return Err(Problem::usage(message).at(&axis.place).hint("write all of its values behind one key"));
    }
    let runs = axes.iter().fold(1usize, |runs, axis| runs.saturating_mul(axis.values.len()));
    if runs > MOST_RUNS {
        let message = format!("the sweep has {runs} runs, the most is {MOST_RUNS}");
        return Err(Problem::usage(message).hint("sweep fewer keys or values at once"));
    }
    Ok(())
}

/// Loads the configuration of each combination.
fn settings(
    file: Option<(&Path, &Node)>,
    overrides: &[Override],
    mut axes: Vec<Axis>,
) -> Result<Sweep, Problems> {
    let seeds = axes.iter().position(|axis| axis.key == SEEDS_KEY).map(|at| axes.remove(at));
    let mut sweep = Sweep { keys: Vec::new(), settings: Vec::new(), seeds: Vec::new() };
    for values in combinations(&axes) {
        let swept = swept_overrides(&axes, &values);
        let mut all = [overrides, &swept].concat();
        let plain = load_config(file, &all)?;
        if let Some(axis) = seeds.as_ref().filter(|_| !plain.seeds.is_empty()) {
            let problem = Problem::usage("the seed is swept, and `seeds` names seeds as well");
            let hint = "keep one of the two; `--set seeds=[]` drops those of the file";
            return Err(Problems(vec![problem.at(&axis.place).hint(hint)]));
        }
        let mut config = match &seeds {
            Some(axis) => {
                let list = format!("[{}]", axis.values.join(", "));
                all.push(Override::placed(&axis.place, SEEDS_KEY, &list));
                load_config(file, &all)?
            }
            None => plain,
        };
        let seeds = std::mem::take(&mut config.seeds);
        sweep.seeds = if seeds.is_empty() { vec![config.run.seed] } else { seeds };
        if let Some(curve) = axes.iter().find(|axis| axis.place == axes::FRACTIONS)
            && config.data.max_train_samples.is_some()
        {
            let problem = Problem::usage("shares are of all examples: `data.max_train_samples` limits them");
            return Err(Problems(vec![problem.at(&curve.place).hint("remove the limit")]));
        }
        let values: Vec<String> = values.into_iter().map(bare).collect();
        if let Some(same) = sweep.settings.iter().find(|other| other.config == config) {
            let message = format!("{} and {} are the same setting", shown(&same.values), shown(&values));
            let place = axes.last().map_or("--sweep", |axis| &axis.place);
            return Err(Problems(vec![Problem::usage(message).at(place).hint("keep one of the two")]));
        }
        sweep.settings.push(Setting { values, config });
    }
    sweep.keys = axes.into_iter().map(|axis| axis.key).collect();
    Ok(sweep)
}

/// Returns the overrides that give each axis its value.
fn swept_overrides(axes: &[Axis], values: &[&str]) -> Vec<Override> {
    let mut all = Vec::new();
    for (axis, value) in axes.iter().zip(values) {
        all.push(Override::placed(&axis.place, &axis.key, value));
        all.extend(smaller_shares(axis, value));
    }
    all
}

fn load_config(file: Option<(&Path, &Node)>, overrides: &[Override]) -> Result<FinetuneConfig, Problems> {
    let file = file.map(|(path, root)| (path, root.clone()));
    load::finetune_of(file, overrides).map(|loaded| loaded.config)
}

/// Returns the setting of the smaller shares of a learning curve, whose examples must be among those of the
/// share `value`; `None` for other axes and for the smallest share.
fn smaller_shares(axis: &Axis, value: &str) -> Option<Override> {
    let smaller: Vec<&str> =
        axis.values.iter().map(String::as_str).take_while(|share| *share != value).collect();
    let key = "data.nested_train_fractions";
    let is_curve = axis.place == axes::FRACTIONS && !smaller.is_empty();
    is_curve.then(|| Override::placed(&axis.place, key, &format!("[{}]", smaller.join(", "))))
}

/// Returns all combinations of one value for each axis; the last axis changes fastest.
fn combinations(axes: &[Axis]) -> Vec<Vec<&str>> {
    let mut all: Vec<Vec<&str>> = vec![Vec::new()];
    for axis in axes {
        all = all
            .iter()
            .flat_map(|before| axis.values.iter().map(move |value| [&before[..], &[value.as_str()]].concat()))
            .collect();
    }
    all
}

/// Removes the quotation marks of a text in YAML.
fn bare(value: &str) -> String {
    serde_json::from_str(value).unwrap_or_else(|_| value.to_string())
}

fn shown(values: &[String]) -> String {
    format!("`{}`", values.join(", "))
}

#[cfg(test)]
mod tests;

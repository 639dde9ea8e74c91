//! Loads a checked struct from a file and the command line, in these stages: read, tree, profiles, `--set`,
//! variables, shape, combinations.
//!
//! All problems are reported at once, each with its place. Does not check that the files named in a
//! configuration exist: commands do.

use std::collections::BTreeSet;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::check::{Checked, Wrong, check};
use crate::defaults::Derived;
use crate::kind::Kind;
use crate::overrides::Override;
use crate::shape::{PROFILES, SWEPT, Shape};
use crate::show::Origins;
use crate::tree::{Node, Place};
use crate::validate::Finding;
use crate::{FinetuneConfig, PretrainConfig, detect_kind, include, profiles, show, validate, variables};
use base::error::{Problem, Problems};

/// Largest number of problems that are reported; nobody would read a longer list.
const MOST_PROBLEMS: usize = 50;

/// A configuration and the origin of each of its values.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded<T> {
    /// The values, with defaults filled in.
    pub config: T,
    /// The origins of the values.
    pub origins: Origins,
}

impl<T: Serialize> Loaded<T> {
    /// Returns the keys that were given in files or on the command line as YAML, each with its origin as a
    /// comment; secrets are blanked.
    pub fn given(&self) -> String {
        show::given(&self.config, &self.origins)
    }

    /// Returns the resolved configuration as YAML, each value with its origin as a comment; secrets are
    /// blanked.
    pub fn show(&self) -> String {
        show::with_origins(&self.config, &self.origins)
    }
}

/// Reads the configuration of `pretrain` and `prepare`; `sets` are the texts after `--set`.
pub fn load_pretrain(path: &Path, sets: &[String]) -> Result<Loaded<PretrainConfig>, Problems> {
    load_pretrain_with(path, &overrides(&[], sets)?)
}

/// Like [`load_pretrain`], with overrides, which may come from flags. Later overrides win.
pub fn load_pretrain_with(path: &Path, overrides: &[Override]) -> Result<Loaded<PretrainConfig>, Problems> {
    pretrain_of(Some((path, read(path, overrides)?)), overrides)
}

pub(super) fn pretrain_of(
    file: Option<(&Path, Node)>,
    overrides: &[Override],
) -> Result<Loaded<PretrainConfig>, Problems> {
    load(
        file,
        overrides,
        Kind::Pretrain,
        |config: PretrainConfig, is_given| config.with_task_defaults().with_training_defaults(is_given),
        validate::pretrain_findings,
    )
}

/// Reads the configuration of `finetune`; `sets` are the texts after `--set`.
pub fn load_finetune(path: &Path, sets: &[String]) -> Result<Loaded<FinetuneConfig>, Problems> {
    load_finetune_with(Some(path), &overrides(&[], sets)?)
}

/// Like [`load_finetune`], also without a file if flags give everything. Later overrides win.
pub fn load_finetune_with(
    path: Option<&Path>,
    overrides: &[Override],
) -> Result<Loaded<FinetuneConfig>, Problems> {
    let root = path.map(|path| read(path, overrides)).transpose()?;
    finetune_of(path.zip(root), overrides)
}

/// Loads the configuration of a single run; ignores a sweep in the file.
pub(super) fn finetune_of(
    mut file: Option<(&Path, Node)>,
    overrides: &[Override],
) -> Result<Loaded<FinetuneConfig>, Problems> {
    if let Some((_, root)) = &mut file {
        root.take(SWEPT);
        profiles::remove_keys(root, &[SWEPT]);
    }
    load(file, overrides, Kind::Finetune, |config, _| (config, Vec::new()), validate::finetune_findings)
}

/// Parses the texts after `--profile` and after `--set`; reports all that are malformed.
pub fn overrides(profiles: &[String], sets: &[String]) -> Result<Vec<Override>, Problems> {
    let (right, wrong): (Vec<_>, Vec<_>) =
        sets.iter().map(|text| Override::set(text)).partition(Result::is_ok);
    let problems: Vec<Problem> = wrong.into_iter().filter_map(Result::err).collect();
    if problems.is_empty() {
        let profiles = profiles.iter().map(|name| Override::profile(name));
        Ok(profiles.chain(right.into_iter().filter_map(Result::ok)).collect())
    } else {
        Err(Problems(problems))
    }
}

/// Reads a file with its included files and the profiles that are asked for.
pub(super) fn read(path: &Path, overrides: &[Override]) -> Result<Node, Problems> {
    let root = include::read(path).map_err(|problem| Problems(vec![problem]))?;
    let asked: Vec<&str> = overrides.iter().filter_map(Override::as_profile).collect();
    profiles::apply(root, &path.display().to_string(), &asked)
}

/// Loads a configuration. `resolved` fills in defaults that depend on other values and returns their keys;
/// its second argument tests if a key was given. `findings` checks combinations.
fn load<T>(
    file: Option<(&Path, Node)>,
    overrides: &[Override],
    kind: Kind,
    resolved: impl Fn(T, &dyn Fn(&str) -> bool) -> (T, Vec<Derived>),
    findings: fn(&T) -> Vec<Finding>,
) -> Result<Loaded<T>, Problems>
where
    T: JsonSchema + Serialize + DeserializeOwned,
{
    if file.is_none()
        && let Some(name) = overrides.iter().find_map(Override::as_profile)
    {
        let problem = Problem::usage(format!("`{name}` is asked for, and there is no `--config`"));
        return Err(Problems(vec![problem.at("--profile").hint("profiles stand in a configuration file")]));
    }
    let (file, root) = file.map(|(path, root)| (path.display().to_string(), root)).unzip();
    let mut root = root.unwrap_or_else(|| Node::empty_table(Place::Flag("command line".to_string())));
    detect_kind::expect(&root, kind).map_err(|problem| Problems(vec![Problem { place: file, ..problem }]))?;
    let shape = Shape::from_struct::<T>();
    let mut wrong: Vec<Wrong> =
        root.take(PROFILES).map(|table| profiles::wrong(&table, &shape)).unwrap_or_default();
    wrong.extend(overrides.iter().filter_map(|one| one.apply(&mut root, &shape).err()));
    let mut unfilled = Vec::new();
    variables::fill(&mut root, "", &variables::environment, &mut unfilled);
    let (json, mut checked) = check(&root, &shape);
    // Values of variables that could not be filled in are unknown, so they are not checked further.
    checked.problems.retain(|problem| unfilled.iter().all(|(_, other)| other.place != problem.place));
    checked.replaced.extend(unfilled.iter().map(|(path, _)| path.clone()));
    wrong.extend(unfilled.into_iter().map(|(_, wrong)| wrong));
    wrong.append(&mut checked.problems);
    match serde_json::from_value::<T>(json) {
        Ok(config) => {
            let (config, derived) = resolved(config, &|path| checked.places.contains_key(path));
            wrong
                .extend(findings(&config).into_iter().filter_map(|finding| placed(finding, &checked, &root)));
            if wrong.is_empty() {
                return Ok(Loaded { config, origins: Origins::new(checked.places, derived) });
            }
        }
        // Only reached if serde requires more than the schema; serde reports only the first such problem.
        Err(e) => wrong.push(Wrong { place: root.place.clone(), message: e.to_string(), hint: None }),
    }
    wrong.sort_by(|a, b| a.place.cmp(&b.place));
    // Each problem once: a profile in use is checked by itself and as a part of the whole.
    let mut reported = BTreeSet::new();
    wrong.retain(|wrong| reported.insert((wrong.place.clone(), wrong.message.clone())));
    let omitted = wrong.len().saturating_sub(MOST_PROBLEMS);
    let mut problems: Vec<Problem> = wrong.into_iter().take(MOST_PROBLEMS).map(Wrong::problem).collect();
    if omitted > 0 {
        problems.push(
            Problem::usage(format!("and {omitted} more problems")).hint("is it really a configuration?"),
        );
    }
    Err(Problems(problems))
}

/// Gives a finding the place of the first of its keys that is written somewhere. Returns `None` if the value
/// of one of its keys is a placeholder for a wrong one, which is reported already.
fn placed(finding: Finding, checked: &Checked, root: &Node) -> Option<Wrong> {
    if finding.paths.iter().any(|path| checked.replaced.iter().any(|bad| overlap(bad, path))) {
        return None;
    }
    let written = finding.paths.iter().find_map(|path| checked.places.get(path));
    let place = written
        .or_else(|| finding.paths.iter().find_map(|path| checked.places.get(path.rsplit_once('.')?.0)))
        .unwrap_or(&root.place)
        .clone();
    Some(Wrong { place, message: finding.message, hint: finding.hint })
}

/// Returns true if two dotted paths are the same or one is below the other; the empty path is above all.
fn overlap(bad: &str, path: &str) -> bool {
    bad.is_empty()
        || bad == path
        || bad.starts_with(&format!("{path}."))
        || path.starts_with(&format!("{bad}."))
}

//! From a file and the command line to a checked struct: read -> tree -> `--set` -> shape -> combinations.
//!
//! Every problem is reported in one go, each with its place. Whether the files named in a configuration exist
//! is the commands' business.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config::FinetuneConfig;
use crate::config::PretrainConfig;
use crate::config::axes;
use crate::config::check::Checked;
use crate::config::check::Wrong;
use crate::config::check::check;
use crate::config::kind;
use crate::config::overrides::Override;
use crate::config::schema::Kind;
use crate::config::shape::Shape;
use crate::config::show;
use crate::config::show::Origins;
use crate::config::tree;
use crate::config::tree::Node;
use crate::config::tree::Place;
use crate::config::validate;
use crate::config::validate::Finding;
use crate::error::Class;
use crate::error::Problem;
use crate::error::Problems;
use crate::fs;

/// Most bytes of a configuration file: a thousand times what one needs.
const CAP_BYTES: u64 = 1 << 20;

/// A list of more would not be read.
const MOST_PROBLEMS: usize = 50;

/// A configuration and where each of its values comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded<T> {
    /// The values, defaults filled in.
    pub config: T,
    /// Where they come from.
    pub origins: Origins,
}

impl<T: Serialize> Loaded<T> {
    /// The resolved configuration as YAML, each value with its origin as a comment; secrets are blanked.
    pub fn show(&self) -> String {
        show::with_origins(&self.config, &self.origins)
    }
}

/// Reads the configuration of `pretrain` and `prepare`; `sets` are the texts after `--set`.
pub fn load_pretrain(path: &Path, sets: &[String]) -> Result<Loaded<PretrainConfig>, Problems> {
    load_pretrain_with(path, &overrides(sets)?)
}

/// As [`load_pretrain`], with overrides that flags may have made. Later ones win.
pub fn load_pretrain_with(path: &Path, overrides: &[Override]) -> Result<Loaded<PretrainConfig>, Problems> {
    pretrain_of(Some(at(path)?), overrides)
}

pub(super) fn pretrain_of(
    file: Option<(&Path, Node)>,
    overrides: &[Override],
) -> Result<Loaded<PretrainConfig>, Problems> {
    load(file, overrides, Kind::Pretrain, PretrainConfig::with_task_defaults, validate::pretrain_findings)
}

/// Reads the configuration of `finetune`; `sets` are the texts after `--set`.
pub fn load_finetune(path: &Path, sets: &[String]) -> Result<Loaded<FinetuneConfig>, Problems> {
    load_finetune_with(Some(path), &overrides(sets)?)
}

/// As [`load_finetune`], without a file when all is said by flags. Later overrides win.
pub fn load_finetune_with(
    path: Option<&Path>,
    overrides: &[Override],
) -> Result<Loaded<FinetuneConfig>, Problems> {
    finetune_of(path.map(at).transpose()?, overrides)
}

/// A single run's configuration: a sweep in the file is left aside.
pub(super) fn finetune_of(
    mut file: Option<(&Path, Node)>,
    overrides: &[Override],
) -> Result<Loaded<FinetuneConfig>, Problems> {
    if let Some((_, root)) = &mut file {
        root.take(axes::TABLE);
    }
    load(file, overrides, Kind::Finetune, |config| config, validate::finetune_findings)
}

/// Reads the texts after `--set`, reporting all that are malformed.
pub fn overrides(sets: &[String]) -> Result<Vec<Override>, Problems> {
    let (right, wrong): (Vec<_>, Vec<_>) =
        sets.iter().map(|text| Override::set(text)).partition(Result::is_ok);
    let problems: Vec<Problem> = wrong.into_iter().filter_map(Result::err).collect();
    if problems.is_empty() {
        Ok(right.into_iter().filter_map(Result::ok).collect())
    } else {
        Err(Problems(problems))
    }
}

fn at(path: &Path) -> Result<(&Path, Node), Problems> {
    read(path).map(|root| (path, root)).map_err(|problem| Problems(vec![problem]))
}

fn load<T>(
    file: Option<(&Path, Node)>,
    overrides: &[Override],
    kind: Kind,
    resolved: fn(T) -> T,
    findings: fn(&T) -> Vec<Finding>,
) -> Result<Loaded<T>, Problems>
where
    T: JsonSchema + Serialize + DeserializeOwned,
{
    let (file, root) = file.map(|(path, root)| (path.display().to_string(), root)).unzip();
    let mut root = root.unwrap_or_else(|| Node::empty_table(Place::Flag("command line".to_string())));
    kind::expect(&root, kind)
        .map_err(|problem| Problems(vec![Problem { place: file.clone(), ..problem }]))?;
    let shape = Shape::of::<T>();
    let mut wrong: Vec<Wrong> =
        overrides.iter().filter_map(|one| one.apply(&mut root, &shape).err()).collect();
    let (json, mut checked) = check(&root, &shape);
    wrong.append(&mut checked.problems);
    match serde_json::from_value::<T>(json) {
        Ok(config) => {
            let config = resolved(config);
            wrong
                .extend(findings(&config).into_iter().filter_map(|finding| placed(finding, &checked, &root)));
            if wrong.is_empty() {
                return Ok(Loaded { config, origins: Origins::new(file, checked.places) });
            }
        }
        // Only reached when serde asks for more than the schema says; the first such problem is all it tells.
        Err(e) => wrong.push(Wrong { place: root.place.clone(), message: e.to_string(), hint: None }),
    }
    wrong.sort_by(|a, b| a.place.cmp(&b.place));
    let unsaid = wrong.len().saturating_sub(MOST_PROBLEMS);
    let mut problems: Vec<Problem> =
        wrong.into_iter().take(MOST_PROBLEMS).map(|w| problem(w, file.as_deref())).collect();
    if unsaid > 0 {
        problems.push(
            Problem::usage(format!("and {unsaid} more problems")).hint("is it really a configuration?"),
        );
    }
    Err(Problems(problems))
}

pub(super) fn read(path: &Path) -> Result<Node, Problem> {
    let file = path.display().to_string();
    let text = fs::read_text_stream_capped(path, CAP_BYTES).map_err(|e| match e.downcast::<Problem>() {
        Ok(problem) if problem.hint.is_none() => {
            problem.class(Class::Usage).hint("a configuration is a small YAML or JSON file")
        }
        Ok(problem) => problem.class(Class::Usage),
        Err(e) => {
            Problem::usage(format!("{e:#}")).hint("check the path; it is relative to the current folder")
        }
    })?;
    tree::parse(text.trim_start_matches('\u{feff}'), &file)
}

/// Puts a finding to the first of its keys that is written somewhere; none when one of them stands in for a
/// wrong value.
fn placed(finding: Finding, checked: &Checked, root: &Node) -> Option<Wrong> {
    let related = |bad: &String, path: &String| {
        bad.is_empty()
            || bad == path
            || bad.starts_with(&format!("{path}."))
            || path.starts_with(&format!("{bad}."))
    };
    if finding.paths.iter().any(|path| checked.replaced.iter().any(|bad| related(bad, path))) {
        return None;
    }
    let written = finding.paths.iter().find_map(|path| checked.places.get(path));
    let above = || finding.paths.iter().find_map(|path| checked.places.get(path.rsplit_once('.')?.0));
    let place = written.or_else(above).unwrap_or(&root.place).clone();
    Some(Wrong { place, message: finding.message, hint: finding.hint })
}

fn problem(wrong: Wrong, file: Option<&str>) -> Problem {
    let place = wrong.place.shown(file);
    Problem { hint: wrong.hint, ..Problem::usage(wrong.message).at(place) }
}

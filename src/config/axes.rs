//! Parses the keys of a sweep and their values from `--sweep`, from `--fractions` and from the table `sweep`
//! of a file, and those of a tuning from `--vary`.
//!
//! Does not check values: each becomes a setting like that of `--set`, which the loader checks.

use crate::check::Wrong;
use crate::overrides::Override;
use crate::shape::{SWEPT, Shape, name_of, quoted};
use crate::suggest::closest;
use crate::tree::{Entry, Node, Value, shortened};
use crate::variables;
use base::error::Problem;

/// A flag that names keys with several values each.
pub(super) struct VariedBy {
    /// The flag.
    pub(super) flag: &'static str,
    /// The command, for errors.
    pub(super) name: &'static str,
    /// Lists of the keys and tables that all runs share.
    pub(super) shared: &'static [&'static [&'static str]],
}

/// The flag of a sweep.
pub(super) const SWEEP: VariedBy = VariedBy { flag: "--sweep", name: "sweep", shared: &[&SHARED] };

/// Keys that cannot be swept because all runs of a sweep share their value. Scores are comparable only on one
/// machine, in one number type and on one evaluation file.
pub(super) const SHARED: [&str; 12] = [
    "run",
    "task",
    "problem_type",
    "precision",
    "runs_at_once",
    "data.eval_file",
    "data.eval_fraction",
    "data.test_file",
    "data.max_eval_samples",
    "data.max_test_samples",
    "data.bootstrap",
    "data.labels",
];

/// The key of the seeds of training.
pub(super) const SEEDS_KEY: &str = "seeds";
/// All names of [`SEEDS_KEY`] in a sweep. `run.seed` itself cannot be swept: it also draws the examples of a
/// subset, which all runs of a sweep share.
const SEEDS: [&str; 3] = ["seed", "run.seed", SEEDS_KEY];

/// The key that a learning curve varies.
const SHARE_KEY: &str = "data.max_train_fraction";
/// Place of the axis of a learning curve, for errors.
pub(super) const FRACTIONS: &str = "--fractions";

/// One swept key with its values.
pub(super) struct Axis {
    /// Dotted path of the key.
    pub(super) key: String,
    /// Place of the axis in a file or on the command line, for errors.
    pub(super) place: String,
    /// The values as YAML.
    pub(super) values: Vec<String>,
}

/// Parses the text after `--sweep`, such as `learning_rate=1e-5,3e-5`.
pub(super) fn written(text: &str, shape: &Shape, by: &VariedBy) -> Result<Axis, Problem> {
    let flag = by.flag;
    let Some((key, values)) = text.split_once('=').filter(|(key, _)| !key.trim().is_empty()) else {
        let message = format!("`{}` is not of the form `key=value,value`", shortened(text));
        return Err(malformed(message, flag));
    };
    let place = format!("{flag} {}", key.trim());
    let values = items(values);
    if values.iter().any(String::is_empty) {
        let message = if values.len() == 1 { "has no values" } else { "has an empty value" };
        return Err(malformed(message.to_string(), flag).at(&place));
    }
    Ok(Axis { key: full_key(key.trim(), &place, shape, by)?, place, values })
}

fn malformed(message: String, flag: &str) -> Problem {
    Problem::usage(message).at(flag).hint(format!("write it like `{flag} learning_rate=1e-5,3e-5`"))
}

/// Splits a text at the commas outside of brackets and quotation marks.
fn items(text: &str) -> Vec<String> {
    let mut items = vec![String::new()];
    let mut depth = 0u32;
    let mut quote = None;
    for character in text.chars() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (None, '"' | '\'') => quote = Some(character),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                items.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = items.last_mut() {
            last.push(character);
        }
    }
    items.iter().map(|item| item.trim().to_string()).collect()
}

/// Returns the dotted path of a key that is given by its full path, or by its last name if only one key has
/// that name.
fn full_key(key: &str, place: &str, shape: &Shape, by: &VariedBy) -> Result<String, Problem> {
    if SEEDS.contains(&key) {
        return Ok(SEEDS_KEY.to_string());
    }
    let path = if key.contains('.') || shape.field(key).is_some() {
        key.to_string()
    } else {
        match shape.find(name_of(key)).as_slice() {
            [path] => path.clone(),
            [] => return Err(unknown(key, shape).at(place)),
            several => {
                let message = format!("`{key}` may be {}", quoted(several));
                return Err(Problem::usage(message).at(place).hint("write the whole path"));
            }
        }
    };
    if path == SHARE_KEY {
        let problem =
            Problem::usage(format!("`{path}` is the axis of a learning curve, not of a {}", by.name));
        return Err(problem
            .at(place)
            .hint("write `--fractions 0.1,1`: the smaller shares lie in the larger"));
    }
    if by
        .shared
        .iter()
        .copied()
        .flatten()
        .any(|shared| path == *shared || path.starts_with(&format!("{shared}.")))
    {
        Override::placed(place, &path, "").require_key(shape).map_err(Wrong::problem)?;
        let hint = format!("give it with `--set`, and start a {} of its own for each value", by.name);
        let problem = Problem::usage(format!("`{path}` holds for a whole {}", by.name));
        return Err(problem.at(place).hint(hint));
    }
    Ok(path)
}

fn unknown(key: &str, shape: &Shape) -> Problem {
    let mut names = Vec::new();
    leaves(shape, &mut names);
    let hint = match closest(key, &names) {
        Some(name) => format!("did you mean `{name}`?"),
        None => "`mlmtrain config schema` lists every key".to_string(),
    };
    Problem::usage(format!("unknown key `{}`", shortened(key))).hint(hint)
}

/// Adds the names of all keys that are not tables.
fn leaves<'a>(shape: &'a Shape, names: &mut Vec<&'a str>) {
    for field in shape.fields() {
        match &field.shape {
            Shape::Table(_) => leaves(&field.shape, names),
            _ => names.push(&field.name),
        }
    }
}

/// Returns the axes in the table `sweep` of a file, in the file's order, as `by` would take them.
pub(super) fn in_file(root: &Node, shape: &Shape, by: &VariedBy) -> Result<Vec<Axis>, Problem> {
    let Some(mut table) = root.clone().take(SWEPT) else { return Ok(Vec::new()) };
    variables::fill_at_once(&mut table.node, SWEPT)?;
    let Value::Table(entries) = &table.node.value else {
        let message = format!("`{SWEPT}` wants a table of keys, not {}", table.node.value.described());
        return Err(refuse(&table, message, "write `sweep:`, and below it `learning_rate: [1e-5, 3e-5]`"));
    };
    let mut axes = Vec::new();
    for entry in entries {
        let name = format!("{SWEPT}.{}", shortened(&entry.key));
        let Value::List(nodes) = &entry.node.value else {
            let message = format!("`{name}` wants a list of values, not {}", entry.node.value.described());
            return Err(refuse(entry, message, "write it as `[a, b]`"));
        };
        let values: Option<Vec<String>> = nodes.iter().map(|node| text_of(&node.value)).collect();
        match values {
            None => {
                let message = format!("`{name}` holds a list or a table, single values are wanted");
                return Err(refuse(entry, message, "`--sweep` takes lists: `--sweep key=[a],[b]`"));
            }
            Some(values) if values.is_empty() => {
                return Err(refuse(entry, format!("`{name}` has no values"), "name one, or remove the key"));
            }
            Some(values) => {
                let place = entry.place.shown();
                axes.push(Axis { key: full_key(&entry.key, &place, shape, by)?, place, values });
            }
        }
    }
    Ok(axes)
}

fn refuse(entry: &Entry, message: String, hint: &str) -> Problem {
    Problem::usage(message).at(entry.place.shown()).hint(hint)
}

/// Returns a single value as YAML; `None` for a list or a table.
fn text_of(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => "null".to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Float(value) => serde_json::Value::from(*value).to_string(),
        Value::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        // The text came from a variable and may be a number, so it is not quoted.
        Value::Filled(filled) => filled.text.clone(),
        Value::List(_) | Value::Table(_) => return None,
    })
}

/// Returns the axis of a learning curve with the given shares of the training examples, in ascending order.
pub(super) fn fractions(shares: &[f64]) -> Result<Axis, Problem> {
    if let Some(wrong) = shares.iter().find(|share| !(**share > 0.0 && **share <= 1.0)) {
        let message = format!("`{wrong}` is no share of the examples, it must be above 0 and at most 1");
        return Err(Problem::usage(message).at(FRACTIONS).hint("`0.1` takes a tenth of each label"));
    }
    let mut shares = shares.to_vec();
    shares.sort_by(f64::total_cmp);
    let values = shares.iter().map(ToString::to_string).collect();
    Ok(Axis { key: SHARE_KEY.to_string(), place: FRACTIONS.to_string(), values })
}

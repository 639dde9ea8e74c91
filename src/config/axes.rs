//! The keys of a sweep and their values, as `--sweep`, `--fractions` and the table `sweep` of a file write
//! them.
//!
//! What a value may be is not judged here: it becomes a setting like that of `--set`.

use crate::config::shape::Shape;
use crate::config::shape::name_of;
use crate::config::shape::quoted;
use crate::config::suggest::closest;
use crate::config::tree::Entry;
use crate::config::tree::Node;
use crate::config::tree::Value;
use crate::config::tree::shortened;
use crate::config::variables;
use crate::error::Problem;

/// The table of a file that names swept keys.
pub(super) const TABLE: &str = "sweep";

/// What all runs of a sweep share: its scores compare on one machine, in one type, on one evaluation file.
const SHARED: [&str; 8] = [
    "run",
    "task",
    "problem_type",
    "precision",
    "runs_at_once",
    "data.eval_file",
    "data.eval_fraction",
    "data.labels",
];

/// The key of the seeds of training, and what else stands for it in a sweep: `run.seed` draws the examples of
/// a subset as well, which all runs of a sweep share.
pub(super) const SEEDS_KEY: &str = "seeds";
const SEEDS: [&str; 3] = ["seed", "run.seed", SEEDS_KEY];

/// The key of the axis of a learning curve, and its place.
const SHARE_KEY: &str = "data.max_train_fraction";
pub(super) const FRACTIONS: &str = "--fractions";

/// One swept key.
pub(super) struct Axis {
    /// Dotted path.
    pub(super) key: String,
    /// Where it is written, for errors.
    pub(super) place: String,
    /// As YAML.
    pub(super) values: Vec<String>,
}

/// `learning_rate=1e-5,3e-5`.
pub(super) fn written(text: &str, shape: &Shape) -> Result<Axis, Problem> {
    let refuse = |message: String| {
        Problem::usage(message).at("--sweep").hint("write it like `--sweep learning_rate=1e-5,3e-5`")
    };
    let Some((key, values)) = text.split_once('=').filter(|(key, _)| !key.trim().is_empty()) else {
        return Err(refuse(format!("`{}` is not of the form `key=value,value`", shortened(text))));
    };
    let place = format!("--sweep {}", key.trim());
    let values = items(values);
    if values.iter().any(String::is_empty) {
        let what = if values.len() == 1 { "has no values" } else { "has an empty value" };
        return Err(refuse(what.to_string()).at(&place));
    }
    Ok(Axis { key: full_key(key.trim(), &place, shape)?, place, values })
}

/// The values between the commas that stand outside of brackets and quotation marks.
fn items(text: &str) -> Vec<String> {
    let (mut items, mut depth, mut quote) = (vec![String::new()], 0u32, None);
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

/// The dotted path that a key stands for: its full path, or its last name where only one key has it.
fn full_key(key: &str, place: &str, shape: &Shape) -> Result<String, Problem> {
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
        let problem = Problem::usage(format!("`{path}` is the axis of a learning curve, not of a sweep"));
        return Err(problem
            .at(place)
            .hint("write `--fractions 0.1,1`: the smaller shares lie in the larger"));
    }
    let is_below = |shared: &str| path == shared || path.starts_with(&format!("{shared}."));
    if SHARED.into_iter().any(is_below) {
        let hint = "give it with `--set`, and start a sweep of its own for each value";
        return Err(Problem::usage(format!("`{path}` holds for a whole sweep")).at(place).hint(hint));
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

fn leaves<'a>(shape: &'a Shape, names: &mut Vec<&'a str>) {
    for field in shape.fields() {
        match &field.shape {
            Shape::Table(_) => leaves(&field.shape, names),
            _ => names.push(&field.name),
        }
    }
}

/// The axes of a file's table `sweep`, in its order.
pub(super) fn in_file(root: &Node, shape: &Shape) -> Result<Vec<Axis>, Problem> {
    let Some(mut table) = root.clone().take(TABLE) else { return Ok(Vec::new()) };
    variables::fill_at_once(&mut table.node, TABLE)?;
    let refuse = |entry: &Entry, message: String, hint: &str| {
        Err(Problem::usage(message).at(entry.place.shown()).hint(hint))
    };
    let Value::Table(entries) = &table.node.value else {
        let message = format!("`{TABLE}` wants a table of keys, not {}", table.node.value.described());
        return refuse(&table, message, "write `sweep:`, and below it `learning_rate: [1e-5, 3e-5]`");
    };
    let mut axes = Vec::new();
    for entry in entries {
        let name = format!("{TABLE}.{}", shortened(&entry.key));
        let Value::List(nodes) = &entry.node.value else {
            let message = format!("`{name}` wants a list of values, not {}", entry.node.value.described());
            return refuse(entry, message, "write it as `[a, b]`");
        };
        let values: Option<Vec<String>> = nodes.iter().map(|node| text_of(&node.value)).collect();
        match values {
            None => {
                let message = format!("`{name}` holds a list or a table, single values are wanted");
                return refuse(entry, message, "`--sweep` takes lists: `--sweep key=[a],[b]`");
            }
            Some(values) if values.is_empty() => {
                return refuse(entry, format!("`{name}` has no values"), "name one, or remove the key");
            }
            Some(values) => {
                let place = entry.place.shown();
                axes.push(Axis { key: full_key(&entry.key, &place, shape)?, place, values });
            }
        }
    }
    Ok(axes)
}

/// A single value as YAML.
fn text_of(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => "null".to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Float(value) => serde_json::Value::from(*value).to_string(),
        Value::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        // A number may have come from a variable: it is no text yet.
        Value::Filled(filled) => filled.text.clone(),
        Value::List(_) | Value::Table(_) => return None,
    })
}

/// The shares of a learning curve, ascending.
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

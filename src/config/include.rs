//! `include`: a configuration file that begins with the values of others.
//!
//! Paths are those of the file that includes, as links on a page are. All else that a file names stays
//! relative to the current folder.

use std::path::Path;
use std::path::PathBuf;

use crate::config::FinetuneConfig;
use crate::config::PretrainConfig;
use crate::config::axes;
use crate::config::merge::merged;
use crate::config::shape::INCLUDE;
use crate::config::shape::PROFILES;
use crate::config::shape::Shape;
use crate::config::shape::name_of;
use crate::config::tree;
use crate::config::tree::Node;
use crate::config::tree::Place;
use crate::config::tree::Value;
use crate::config::variables;
use crate::error::Class;
use crate::error::Problem;
use crate::fs;

/// Most bytes of a configuration file: a thousand times what one needs.
const CAP_BYTES: u64 = 1 << 20;

/// More files than these below each other are no order that a person keeps in mind.
const MAX_DEPTH: usize = 8;

const SHAPE: &str = "write `include: base.yaml`, or `include: [a.yaml, b.yaml]`; later ones win";

/// Reads a file and those that it includes as one tree: of the files that it names later ones win, and the
/// file itself wins over all of them. The file is read once: it may be a pipe.
pub(super) fn read(path: &Path) -> Result<Node, Problem> {
    let mut reader = Reader { open: Vec::new(), read: Vec::new() };
    let text = text_of(path).map_err(|problem| match problem {
        Problem { place: None, .. } => problem.hint("check the path; it is relative to the current folder"),
        problem => problem,
    })?;
    reader.file(path, &text)
}

/// What has been read on the way.
struct Reader {
    /// The files that are being read, each including the next.
    open: Vec<(PathBuf, String)>,
    /// The files that were included, and where.
    read: Vec<(PathBuf, Place)>,
}

impl Reader {
    fn file(&mut self, path: &Path, text: &str) -> Result<Node, Problem> {
        let name = path.display().to_string();
        let mut own = tree::parse(text.trim_start_matches('\u{feff}'), &name)?;
        let Some(mut entry) = own.take(INCLUDE) else { return Ok(own) };
        variables::fill_at_once(&mut entry.node, INCLUDE)?;
        let names = names(&entry.node)?;
        self.open.push((fs::canonical(path), name));
        let mut base = Node::empty_table(own.place.clone());
        for (name, place) in names {
            base = merged(base, self.included(&fs::parent_of(path).join(name), &place)?);
        }
        self.open.pop();
        // A second `include` stays, and is told as an unknown key would be.
        Ok(merged(base, own))
    }

    fn included(&mut self, path: &Path, place: &Place) -> Result<Node, Problem> {
        let refuse = |message: String, hint: &str| Problem::usage(message).at(place.shown()).hint(hint);
        let (known, name) = (fs::canonical(path), path.display());
        if let Some(at) = self.open.iter().position(|(open, _)| *open == known) {
            let way: Vec<&str> = self.open[at..].iter().map(|(_, name)| name.as_str()).collect();
            let message = format!("`{name}` includes itself: {} -> {name}", way.join(" -> "));
            return Err(refuse(message, "remove one of these includes"));
        }
        if let Some((_, first)) = self.read.iter().find(|(read, _)| *read == known) {
            let message = format!("`{name}` is included a second time, first in {}", first.shown());
            return Err(refuse(message, "keep one of the two: its values would win over what lies between"));
        }
        if self.open.len() >= MAX_DEPTH {
            let message = format!("files include each other more than {MAX_DEPTH} deep");
            return Err(refuse(message, "let this file include fewer others"));
        }
        self.read.push((known, place.clone()));
        let text = text_of(path).map_err(|problem| match problem {
            Problem { place: None, message, .. } => {
                refuse(message, "check the path; it is relative to the folder of the file that includes it")
            }
            Problem { message, hint, .. } => refuse(format!("`{name}` {message}"), &hint.unwrap_or_default()),
        })?;
        // The file may be anything, and what an error would quote from it may be a secret.
        let stranger = || {
            let hint = "name a file with keys of a configuration";
            refuse(format!("`{name}` is no configuration"), hint)
        };
        let root =
            tree::parse(text.trim_start_matches('\u{feff}'), &name.to_string()).map_err(|problem| {
                Problem {
                    // What follows may quote the file.
                    message: problem.message.split(": ").next().unwrap_or_default().to_string(),
                    ..problem
                }
            })?;
        if has_known_key(&root) { self.file(path, &text) } else { Err(stranger()) }
    }
}

/// Returns true if the file is empty, or at least one of its keys belongs to a configuration.
fn has_known_key(root: &Node) -> bool {
    let Value::Table(entries) = &root.value else { return false };
    let shapes = [Shape::of::<PretrainConfig>(), Shape::of::<FinetuneConfig>()];
    let is_known = |key: &str| {
        let of_files = [INCLUDE, PROFILES, axes::TABLE, "tasks", "seeds", "runs_at_once"];
        let in_tables = |shape: &Shape| shape.field(key).is_some() || !shape.find(name_of(key)).is_empty();
        of_files.contains(&key) || shapes.iter().any(in_tables)
    };
    entries.is_empty() || entries.iter().any(|entry| is_known(&entry.key))
}

/// The paths behind the key, each with its place.
fn names(node: &Node) -> Result<Vec<(String, Place)>, Problem> {
    let wrong = |node: &Node| {
        let message = format!("`{INCLUDE}` wants a path or a list of paths, not {}", node.value.described());
        Problem::usage(message).at(node.place.shown()).hint(SHAPE)
    };
    let one = |node: &Node| -> Result<(String, Place), Problem> {
        let text = node.value.text().filter(|text| !text.trim().is_empty());
        text.map(|text| (text.to_string(), node.place.clone())).ok_or_else(|| wrong(node))
    };
    match &node.value {
        Value::List(nodes) => nodes.iter().map(one).collect(),
        _ => Ok(vec![one(node)?]),
    }
}

/// A problem has a place where the file is there and cannot be a configuration.
fn text_of(path: &Path) -> Result<String, Problem> {
    // A pipe that a shell hands over has no name in a folder: one with a name may be waited for in vain.
    if fs::is_named_pipe(path) {
        let problem = Problem::usage("is a pipe in the place of a file, and is not waited for");
        return Err(problem.at(path.display()).hint("a configuration is a small YAML or JSON file"));
    }
    fs::read_text_stream_capped(path, CAP_BYTES).map_err(|e| match e.downcast::<Problem>() {
        Ok(problem) if problem.hint.is_none() => {
            problem.class(Class::Usage).hint("a configuration is a small YAML or JSON file")
        }
        Ok(problem) => problem.class(Class::Usage),
        Err(e) => Problem::usage(format!("{e:#}")),
    })
}

//! Reads configuration files with `include`, which starts a file from the values of others.
//!
//! Included paths are relative to the file that includes them, like links on a page. All other paths in a
//! file are relative to the current folder.

use std::path::{Path, PathBuf};

use crate::merge::merged;
use crate::shape::{INCLUDE, LIST_KEYS, PROFILES, SWEPT, Shape, name_of};
use crate::tree::{Node, Place, Value};
use crate::{FinetuneConfig, PretrainConfig, tree, variables};
use base::error::{Class, Problem};
use base::fs;

/// Largest configuration file in bytes, a thousand times the size of a usual one.
const CAP_BYTES: u64 = 1 << 20;

/// Largest number of files that include each other in a chain; no person could follow a longer one.
const MAX_DEPTH: usize = 8;

const SHAPE: &str = "write `include: base.yaml`, or `include: [a.yaml, b.yaml]`; later ones win";

/// Reads a file and those that it includes as one tree. Later included files win over earlier ones, and the
/// file itself wins over all of them. The file is read once, since it may be a pipe.
pub(super) fn read(path: &Path) -> Result<Node, Problem> {
    let mut reader = Reader { open: Vec::new(), read: Vec::new() };
    let text = text_of(path).map_err(|problem| match problem {
        Problem { place: None, .. } => problem.hint("check the path; it is relative to the current folder"),
        problem => problem,
    })?;
    reader.file(path, &text)
}

/// The files that are open and those that were included.
struct Reader {
    /// The files that are being read, each of which includes the next: canonical path, and name for errors.
    open: Vec<(PathBuf, String)>,
    /// The files that were included, each with the place of its `include`.
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
        // A second `include` remains in the tree, so it is reported as an unknown key.
        Ok(merged(base, own))
    }

    fn included(&mut self, path: &Path, place: &Place) -> Result<Node, Problem> {
        let known = fs::canonical(path);
        let name = path.display();
        if let Some(at) = self.open.iter().position(|(open, _)| *open == known) {
            let chain: Vec<&str> = self.open[at..].iter().map(|(_, name)| name.as_str()).collect();
            let message = format!("`{name}` includes itself: {} -> {name}", chain.join(" -> "));
            return Err(refuse(place, message, "remove one of these includes"));
        }
        if let Some((_, first)) = self.read.iter().find(|(read, _)| *read == known) {
            let message = format!("`{name}` is included a second time, first in {}", first.shown());
            return Err(refuse(
                place,
                message,
                "keep one of the two: its values would win over what lies between",
            ));
        }
        if self.open.len() >= MAX_DEPTH {
            let message = format!("files include each other more than {MAX_DEPTH} deep");
            return Err(refuse(place, message, "let this file include fewer others"));
        }
        self.read.push((known, place.clone()));
        let text = text_of(path).map_err(|problem| match problem {
            Problem { place: None, message, .. } => refuse(
                place,
                message,
                "check the path; it is relative to the folder of the file that includes it",
            ),
            Problem { message, hint, .. } => {
                refuse(place, format!("`{name}` {message}"), &hint.unwrap_or_default())
            }
        })?;
        let root =
            tree::parse(text.trim_start_matches('\u{feff}'), &name.to_string()).map_err(|problem| {
                Problem {
                    // The rest of the message may quote the file.
                    message: problem.message.split(": ").next().unwrap_or_default().to_string(),
                    ..problem
                }
            })?;
        // An error of the loader could quote a secret from a file that is not a configuration.
        if has_known_key(&root) {
            self.file(path, &text)
        } else {
            let hint = "name a file with keys of a configuration";
            Err(refuse(place, format!("`{name}` is no configuration"), hint))
        }
    }
}

fn refuse(place: &Place, message: String, hint: &str) -> Problem {
    Problem::usage(message).at(place.shown()).hint(hint)
}

/// Returns true if the file is empty, or at least one of its keys belongs to a configuration.
fn has_known_key(root: &Node) -> bool {
    let Value::Table(entries) = &root.value else { return false };
    let shapes = [Shape::from_struct::<PretrainConfig>(), Shape::from_struct::<FinetuneConfig>()];
    let of_files = [INCLUDE, PROFILES, SWEPT, "tasks", "seeds", "runs_at_once"];
    entries.is_empty()
        || entries.iter().map(|entry| entry.key.as_str()).any(|key| {
            of_files.contains(&key)
                || LIST_KEYS.contains(&key)
                || shapes
                    .iter()
                    .any(|shape| shape.field(key).is_some() || !shape.find(name_of(key)).is_empty())
        })
}

/// Returns the paths in the value of `include`, each with its place.
fn names(node: &Node) -> Result<Vec<(String, Place)>, Problem> {
    match &node.value {
        Value::List(nodes) => nodes.iter().map(path_in).collect(),
        _ => Ok(vec![path_in(node)?]),
    }
}

fn path_in(node: &Node) -> Result<(String, Place), Problem> {
    let Some(text) = node.value.text().filter(|text| !text.trim().is_empty()) else {
        let found = node.value.described();
        let message = format!("`{INCLUDE}` wants a path or a list of paths, not {found}");
        return Err(refuse(&node.place, message, SHAPE));
    };
    Ok((text.to_string(), node.place.clone()))
}

/// Reads the text of a file. The problem has a place if the file exists and cannot be a configuration.
fn text_of(path: &Path) -> Result<String, Problem> {
    // Named pipes are refused, since waiting for their writer may take forever. Pipes that a shell passes
    // have no name in a folder.
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

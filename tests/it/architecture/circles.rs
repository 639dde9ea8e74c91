//! Circles inside a module at any depth: its files and folders that use each other, also by way of others.
//!
//! Its own file has no part in them, since it declares all of them; what it exports is a use of the file
//! that it comes from.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::source::Source;

/// Which file or folder of a module uses which other one, and where first.
type Uses<'a> = BTreeMap<&'a str, BTreeMap<&'a str, String>>;

/// Each circle once, from the member that is the first by name.
pub(super) fn circles(sources: &[Source]) -> Vec<String> {
    let modules: BTreeSet<&[String]> =
        sources.iter().flat_map(|source| (1..source.path.len()).map(|depth| &source.path[..depth])).collect();
    modules.into_iter().flat_map(|module| circles_of(module, sources)).collect()
}

fn circles_of(module: &[String], sources: &[Source]) -> Vec<String> {
    let uses = uses_of(module, sources);
    let name = module.join("::");
    let mut told = BTreeSet::new();
    let mut found = Vec::new();
    for first in uses.keys() {
        let Some(circle) = way_back(first, &uses).filter(|_| !told.contains(first)) else { continue };
        let steps = circle.windows(2).map(|step| format!(" -> {} ({})", step[1], uses[step[0]][step[1]]));
        found.push(format!("`{name}` has a circle: {first}{}", steps.collect::<String>()));
        told.extend(circle);
    }
    found
}

fn uses_of<'a>(module: &[String], sources: &'a [Source]) -> Uses<'a> {
    let depth = module.len();
    let inside = || sources.iter().filter(|source| source.path.starts_with(module));
    let exports: BTreeMap<&str, &str> =
        inside().filter(|source| source.path.len() == depth).flat_map(exports_of).collect();
    let mut uses = Uses::new();
    for source in inside().filter(|source| source.path.len() > depth) {
        let user = source.path[depth].as_str();
        for line in source.lines.iter().filter(|line| !line.in_tests) {
            for name in source.used(depth, line) {
                let used = exports.get(name).copied().unwrap_or(name);
                if used != user {
                    let place = || format!("{}:{}", source.file, line.number);
                    uses.entry(user).or_default().entry(used).or_insert_with(place);
                }
            }
        }
    }
    uses
}

/// The names that a module exports, and the child that each comes from: `pub use child::Name;`.
fn exports_of(source: &Source) -> Vec<(&str, &str)> {
    let exports = source.lines.iter().filter_map(|line| {
        let (visibility, path) = line.code.strip_suffix(';')?.split_once("use ")?;
        let (child, rest) = path.split_once("::")?;
        let name = rest.rsplit([':', ' ']).next()?;
        visibility.starts_with("pub").then_some((name, child))
    });
    exports.collect()
}

/// The shortest way from a member over others back to it, both ends included.
fn way_back<'a>(first: &'a str, uses: &Uses<'a>) -> Option<Vec<&'a str>> {
    let mut seen = BTreeSet::new();
    let mut ways = VecDeque::from([vec![first]]);
    while let Some(way) = ways.pop_front() {
        for used in uses.get(way[way.len() - 1]).into_iter().flat_map(BTreeMap::keys) {
            let longer = || way.iter().chain([used]).copied().collect();
            if *used == first {
                return Some(longer());
            }
            if seen.insert(*used) {
                ways.push_back(longer());
            }
        }
    }
    None
}

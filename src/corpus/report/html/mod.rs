//! The report as one page: inline SVG and style, no script, nothing from the network.

mod charts;
mod page;
mod tables;

pub(super) use page::page;

use crate::pages::html::escape;

/// The name of a reason, a step or a column as people read it.
fn words(name: &str) -> String {
    escape(&name.replace('_', " "))
}

/// The colour class of reason `index`; all behind the eighth share one.
fn color(index: usize) -> String {
    if index < 8 { format!("c{index}") } else { "rest".to_string() }
}

/// The colour class of source `index`, unlike those of the reasons.
fn source_color(index: usize) -> String {
    if index < 6 { format!("s{index}") } else { "rest".to_string() }
}

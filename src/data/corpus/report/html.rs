//! The report as one page.

mod charts;
mod page;
mod tables;

pub(super) use page::page;

/// Formats the name of a reason, a step or a column for readers.
fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// Returns the colour class of reason `index`; those after the eighth share one.
fn color(index: usize) -> String {
    if index < 8 { format!("c{index}") } else { "rest".to_string() }
}

/// Returns the colour class of source `index`; these differ from the classes of the reasons.
fn source_color(index: usize) -> String {
    if index < 6 { format!("s{index}") } else { "rest".to_string() }
}

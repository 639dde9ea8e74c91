//! The report: an HTML page about one or several runs, with scores, curves, mistakes, time, cost and
//! configuration.
//!
//! The report reads run folders of any version and changes nothing in them. Values that a run did not record
//! are left out of the page; files that cannot be read are listed as gaps.

mod curves;
mod facts;
mod find;
mod page;
mod parts;
mod predictions;
mod rows;
mod run;
mod settings;
mod state;
mod sweep;
mod table;
mod thinned;
mod units;
mod wrong;

pub use find::{Found, find, own_page, runs_of};
pub use page::page;
pub use run::{Run, name_all};
pub use state::State;

#[cfg(test)]
mod tests;

//! One page to look back at runs: what each came to, its curves, what it got wrong, what it took, and how it
//! was made.
//!
//! It reads run folders, of any version, and changes nothing in them. What a run did not record is not told;
//! what cannot be read is told as a gap.

mod curves;
mod facts;
mod find;
mod page;
mod parts;
mod predictions;
mod rows;
mod run;
mod state;
mod table;
mod thinned;
mod units;
mod wrong;

pub use find::Found;
pub use find::find;
pub use find::runs_of;
pub use page::page;
pub use run::Run;
pub use run::name_all;
pub use state::State;

#[cfg(test)]
mod tests;

//! Reads and writes model folders in Hugging Face's layout, so that other programs can load what this one
//! saves and the reverse.
//!
//! Knows names, shapes and keys of such folders, and computes nothing. Start at [`read_folder`] and
//! [`HubConfig`].

mod config_json;
mod fill;
mod folder;
mod hub;
mod label_rows;
mod names;
mod refit;
#[cfg(test)]
mod tests;
mod verify;

pub use config_json::HubConfig;
pub use fill::Filled;
pub use folder::{
    DISCRIMINATOR, DISCRIMINATOR_PLACE, GENERATOR, GENERATOR_PLACE, PretrainedFolder, TOKENIZER_FILES,
    holds_pair, open_folder, read_folder,
};
pub use hub::cached_folder;
pub use refit::Refit;

//! Model folders in Hugging Face's layout: what others saved is read, and what we save others read.
//!
//! It knows names, shapes and keys, and computes nothing. Start at [`read_folder`] and [`HubConfig`].

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
pub use folder::DISCRIMINATOR;
pub use folder::DISCRIMINATOR_PLACE;
pub use folder::GENERATOR;
pub use folder::GENERATOR_PLACE;
pub use folder::PretrainedFolder;
pub use folder::TOKENIZER_FILES;
pub use folder::holds_pair;
pub use folder::open_folder;
pub use folder::read_folder;
pub use hub::cached_folder;
pub use refit::Refit;

//! Whole layers with explicit forward and backward, and the flat buffers of their parameters.
//!
//! Independent of batches, files and families: the builder of a layer passes in the names of its parameters.

pub mod context;
pub mod embeddings;
pub mod encoder_layer;
pub mod feed_forward;
pub mod footprint;
pub mod gradient_places;
pub mod gradients;
pub mod init;
pub mod linear;
pub mod mask_decoder;
pub mod norm;
pub mod output_block;
pub mod parameters;
pub mod relative_positions;
pub mod self_attention;
pub mod stream;
#[cfg(test)]
mod tests;

pub use context::{Chosen, Context, Rows, Site};
pub use footprint::{Footprint, Footprints};
pub use gradient_places::GradientPlaces;
pub use gradients::{GradientBuffers, Gradients};
pub use init::Init;
pub use parameters::{Layout, ParameterId, ParameterSpec, Parameters, Part, Registry};
pub use stream::{NormPlacement, Stream};

//! What reports have in common: aligned columns of text for a terminal, and the frame of an HTML page.

pub mod columns;
pub mod html;

//! Heads: hidden states of chosen positions to predictions, with explicit backward.

pub mod masked_lm;
pub mod sequence_classification;

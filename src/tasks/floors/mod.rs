//! What a task reaches without a neural network: a model that does not beat it has learnt nothing of
//! language.

pub mod dictionary;
mod lbfgs;
mod logistic;
mod ridge;
pub mod tf_idf;

//! Baselines without a neural network: a model that does not beat them has learnt nothing about language.

pub mod dictionary;
mod lbfgs;
mod logistic;
mod ridge;
pub mod tf_idf;

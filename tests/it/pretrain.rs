//! `mlmtrain pretrain` as its users meet it: the built program on a small corpus, in a folder of its own.

mod albert;
mod average;
mod deberta;
mod decay;
mod diverging;
pub(super) mod electra;
mod ending;
mod family;
mod first_embeddings;
mod interruption;
mod modernbert;
mod mpnet;
mod neobert;
mod origin;
mod phases;
mod probes;
mod recipe;
mod refusals;
mod report;
mod sentence_pairs;
mod shuffle;

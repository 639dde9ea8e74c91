//! `mlmtrain prepare` from raw text to shards: killed and resumed, on a made corpus with planted faults, on
//! real corpora.

mod interruption;
mod made_corpus;
mod real;
mod shared;
mod standard_input;

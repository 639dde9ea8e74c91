//! `mlmtrain pretrain` as its users meet it: the built program on a small corpus, in a folder of its own.

mod ending;
mod interruption;
mod refusals;
mod report;

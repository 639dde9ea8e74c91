//! mlmtrain: from raw text to a pretrained and fine-tuned encoder, without Python.
//!
//! This page is the map of the source. The flow in one line:
//!
//! ```text
//! text -> corpus -> tokenizer -> shards -> batches -> task(model(layers(ops))) -> loss
//!      -> precision -> distributed -> optim -> checkpoint + telemetry -> report
//! ```
//!
//! # Modules
//!
//! A module may use only modules above it in this table; `tests/it/architecture.rs` fails on an import
//! against it. Seven crates below this one are compiled by themselves, in this order: `src/base` (errors,
//! files, random streams, scores, families), `src/stores` (networks), `src/config`, `src/data` (from text to
//! batches), `src/ops` (operations), `src/model` (layers to files of weights) and `src/training` (tasks, the
//! loop, many runs). The last three know tensors and change with the features of this crate; the others are
//! compiled once for all of them.
//!
//! | module | owns |
//! |---|---|
//! | [`secrets`] | values from the environment that are never printed |
//! | [`error`] | errors with a hint |
//! | [`pages`] | columns of text, the frame of HTML pages and charts, for reports |
//! | [`quantity`] | durations, bytes and counts |
//! | [`words`] | lists of names and counted nouns in sentences |
//! | [`quietly`] | panics of other crates as errors |
//! | [`instructions`] | the processor's vector instructions, and the user's cap on them |
//! | [`processes`] | several processes: common decisions, exchange of counts and bytes |
//! | [`rng`] | counter-based random streams |
//! | [`scores`] | scores as pure functions |
//! | [`fs`] | the only place that opens files: path in every error, atomic writes, locks |
//! | [`sealed`] | folders of files with a manifest of their hashes |
//! | [`stores`] | objects behind URLs, and their cache on this disk |
//! | [`families`] | what differs between RoBERTa, BERT, ...: data, a file each |
//! | [`config`] | strict YAML/JSON structs, overrides, validation, schema |
//! | [`records`] | rows of tables, JSON, Parquet and lines, of bounded length, each with its line |
//! | [`corpus`] | read -> clean -> filter -> deduplicate -> split, and the report of what was left out |
//! | [`tokenizer`] | trains and loads; fast encoding; special tokens; fingerprint |
//! | [`shards`] | tokenised text on the disk: format, writer, reader, manifest |
//! | [`prepare`] | from raw text to tokenizer and shards, stage by stage; the report of it |
//! | [`batches`] | order -> pack -> mask -> collate -> prefetch; cursor |
//! | [`ops`] | one folder an op: contract, reference, CPU, CUDA |
//! | [`distributed`] | several processes: how they find each other, all-reduce of gradients |
//! | [`layers`] | the parameter store and whole layers with explicit forward and backward |
//! | [`models`] | one encoder for all families, heads, counts of FLOPs and memory |
//! | [`checkpoint`] | named tensors + JSON parts, retention |
//! | [`precision`] | which dtype where; loss scaling |
//! | [`telemetry`] | records to progress bar, metrics.jsonl, TensorBoard, MLflow, Prometheus |
//! | [`optim`] | update rules and which parameters each updates, parameter groups, schedules |
//! | [`interop`] | Hugging Face names, config.json, tokenizer files |
//! | [`machine`] | the hardware of a run: device, number types, threads, processes |
//! | [`recipe`] | a configuration for a text, a budget and the speed of a machine |
//! | [`tasks`] | examples + head + loss + score |
//! | [`train`] | the loop, one step, cadence, evaluation, state |
//! | [`estimate`] | memory, time, energy and cost of a run on a device |
//! | [`trials`] | many runs as one: sweeps, learning curves, comparisons of models, tunings |
//! | [`report`] | one page about finished runs |
//! | [`commands`] | one file or folder a subcommand |
//!
//! # Invariants
//!
//! 1. `config` knows no tensor: `mlmtrain config check` runs anywhere in milliseconds.
//! 2. `corpus`, `shards`, `prepare`, `batches` know no model; `models` know no file, no batch, no device;
//!    `ops` know no configuration.
//! 3. `checkpoint` stores named tensors and JSON; owners give `snapshot()` and take `restore()`.
//! 4. Telemetry is write-only for the trainer.
//! 5. Schedules, cadence, retention, masking, packing, scores: same inputs, same output; no clock, no hidden
//!    RNG.
//! 6. The number of threads, ranks, micro-batches and loader workers never changes which tokens are masked,
//!    which are dropped out, or in which order documents come.
//! 7. Everything random comes from [`rng::Stream`]: there is no RNG state to save, and dropout masks are
//!    regenerated in backward instead of stored.
//! 8. Only `fs` touches files; only `main`, `commands` and the progress sink touch the terminal.
//! 9. Only `stores` talks to a network.
//!
//! # Shape letters
//!
//! `B` rows, `T` tokens of a batch (all rows packed end to end), `S` longest sequence, `D` hidden, `H` heads,
//! `K` head size, `F` feed-forward, `V` vocabulary, `L` layers, `M` masked positions, `N` parameters in the
//! flat buffer. A tensor's name may carry them as a suffix: `hidden_td`, `logits_mv`.
//!
//! Start reading in `training/` at `train/run.rs` (a whole run), `train.rs` (the loop) and
//! `train/rollback.rs` (a run in trouble), then `tasks/supervised.rs`; what a pretraining task brings along
//! is `tasks/pretraining.rs`, a fine-tuning one `tasks/finetuning_task.rs`. Go on in `model/` at
//! `models/encoder.rs`; two models of one run are `models/pair.rs`. An op to begin with is `ops/layer_norm/`.
//! In `data/` the path of the text starts at `prepare/job.rs`, then `corpus/pass.rs`, `batches/loader.rs`. A
//! family is a file of data in `base/families/`; CONTRIBUTING lists the files of a task.

pub use base::{
    error, families, fs, instructions, pages, processes, quantity, quietly, rng, scores, sealed, secrets,
    words,
};

pub use stores;

pub use config;

pub use data::{batches, corpus, prepare, records, shards, tokenizer};

pub use ops;

pub use model::{checkpoint, distributed, interop, layers, models, optim, precision};

pub use training::{machine, recipe, tasks, telemetry, train, trials};

pub mod estimate;

pub mod report;

pub mod commands;

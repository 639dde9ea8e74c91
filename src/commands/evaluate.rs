//! `mlmtrain evaluate`: scores a model on a file; the kind of model decides what the file holds.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use candle_core::Device;
use candle_core::Tensor;

use crate::batches::Batch;
use crate::batches::EvaluationBatches;
use crate::batches::Frame;
use crate::batches::Masking;
use crate::checkpoint::write_tensors;
use crate::commands::cli::EvaluateArgs;
use crate::commands::terminal;
use crate::config::DataConfig;
use crate::config::SourceConfig;
use crate::corpus::Corpus;
use crate::corpus::Item;
use crate::error::Problem;
use crate::families::HeadKind;
use crate::fs;
use crate::interop::read_folder;
use crate::machine;
use crate::scores::Confusion;
use crate::scores::unigram_entropy;
use crate::shards::ShardSet;
use crate::tasks::Loss;
use crate::tasks::Task;
use crate::tasks::classify::Classifier;
use crate::tasks::classify::Columns;
use crate::tasks::classify::LabelSet;
use crate::tasks::classify::TextPair;
use crate::tasks::classify::confusion_table;
use crate::tasks::classify::read_examples;
use crate::tasks::classify::report::best_class;
use crate::tasks::masked_lm::MaskedLm;

/// Longest rows that text is scored in, unless the model takes less.
const ROW_TOKENS: usize = 512;

/// Runs the subcommand.
pub fn run(args: &EvaluateArgs) -> Result<()> {
    machine::use_threads(args.compute.threads)?;
    let lines = match read_folder(&args.model)?.head {
        HeadKind::SequenceClassification => classifier(args)?,
        HeadKind::MaskedLm => masked_lm(args)?,
        HeadKind::None => {
            return Err(Problem::new("holds an encoder without a head, which cannot be scored")
                .at(args.model.display())
                .into());
        }
    };
    lines.into_iter().try_for_each(|line| terminal::stdout_line(&line))
}

fn row(name: &str, text: impl std::fmt::Display) -> String {
    format!("{name:20} {text}")
}

fn classifier(args: &EvaluateArgs) -> Result<Vec<String>> {
    let classifier = Classifier::load(&args.model, &Device::Cpu)?;
    let columns = Columns {
        text: args.columns.text_column.as_deref(),
        text_pair: args.columns.text_pair_column.as_deref(),
        label: args.label_column.as_deref(),
        labelled: true,
    };
    let examples = read_examples(&args.data, &columns)?;
    let ids = LabelSet::given(&classifier.labels)?.ids(&args.data, &examples)?;
    let texts: Vec<TextPair> = examples.into_iter().map(|e| (e.text, e.text_pair)).collect();
    let (encoded, lost) = classifier.encode(&texts, &ids)?;
    let (mut predicted, mut loss) = (Vec::with_capacity(ids.len()), 0.0);
    for batch in encoded.chunks(args.compute.batch_size as usize) {
        for (example, probabilities) in batch.iter().zip(classifier.probabilities(batch)?) {
            predicted.push(best_class(&probabilities) as u32);
            loss -= f64::from(probabilities[example.label as usize]).ln();
        }
    }
    let confusion = Confusion::of(classifier.labels.len(), &ids, &predicted);
    let mut lines = vec![
        row("examples", ids.len()),
        row("loss", format!("{:.4}", loss / ids.len() as f64)),
        row("accuracy", format!("{:.2} %", 100.0 * confusion.accuracy())),
        row("macro F1", format!("{:.2} %", 100.0 * confusion.macro_f1())),
        row("Matthews", format!("{:.4}", confusion.matthews())),
    ];
    if lost.examples > 0 {
        lines.push(row("cut", format!("{} examples, {} tokens lost", lost.examples, lost.tokens)));
    }
    lines.push(confusion_table(&confusion.rows(), &classifier.labels).trim_end().to_string());
    Ok(lines)
}

fn masked_lm(args: &EvaluateArgs) -> Result<Vec<String>> {
    let (task, tokenizer) = MaskedLm::load(&args.model, &Device::Cpu)?;
    let (documents, left_out) = documents(args)?;
    let ids = tokenizer.encode_corpus(&documents)?;
    let mut counts = vec![0u64; tokenizer.vocab_size()];
    ids.iter().flatten().for_each(|&id| counts[id as usize] += 1);
    let tokens: u64 = counts.iter().sum();
    if tokens == 0 {
        return Err(Problem::new("holds no text").at(args.data.display()).into());
    }
    let frame = Frame::new(&tokenizer, ROW_TOKENS.min(task.model.config.max_sequence_length()))?;
    let shards = Arc::new(ShardSet::in_memory(&ids, tokenizer.vocab_size()));
    let batches = EvaluationBatches::new(
        &shards,
        frame,
        Masking::for_evaluation(&tokenizer)?,
        args.compute.batch_size as usize,
    )?;
    let mut total = Loss::default();
    for (number, batch) in batches.enumerate() {
        let batch = batch?;
        if let (0, Some(path)) = (number, &args.dump_logits) {
            dump_logits(path, &task, &batch)?;
        }
        task.evaluate(&batch)?.into_iter().for_each(|loss| total += loss);
    }
    let mut lines = vec![
        row("documents", documents.len()),
        row("tokens", tokens),
        row("loss", format!("{:.4}", total.mean())),
        row("perplexity", format!("{:.2}", total.mean().exp())),
        row("masked accuracy", format!("{:.2} %", 100.0 * total.accuracy())),
        row("unigram baseline", format!("{:.4}", unigram_entropy(&counts))),
    ];
    if left_out > 0 {
        lines.push(row(
            "left out",
            format!("{left_out}, over {} bytes long", DataConfig::default().max_line_bytes),
        ));
    }
    Ok(lines)
}

/// The texts of the file, and how many were left out for their length; empty ones are not missed.
fn documents(args: &EvaluateArgs) -> Result<(Vec<String>, u64)> {
    // A missing file is named as such, not as a pattern without a match.
    fs::open(&args.data)?;
    let pattern = args.data.display().to_string();
    let field = args.columns.text_column.clone().unwrap_or_else(|| "text".to_string());
    let source = SourceConfig { field, ..SourceConfig::of_files(vec![pattern]) };
    let corpus = Corpus::open(&DataConfig { sources: vec![source], ..DataConfig::default() })?;
    let (mut texts, mut left_out) = (Vec::new(), 0);
    for item in corpus.documents() {
        match item? {
            Item::Document(document) => texts.push(document.text),
            Item::Rejected(rejected) => left_out += u64::from(rejected.rejection.reason != "empty"),
        }
    }
    Ok((texts, left_out))
}

/// Writes the first batch and its logits, so that another program can be held against them.
fn dump_logits(path: &Path, task: &MaskedLm, batch: &Batch) -> Result<()> {
    let ids = |name: &str, values: &[u32]| anyhow::Ok((name.to_string(), Tensor::new(values, &Device::Cpu)?));
    let tensors = vec![
        ids("ids", &batch.ids)?,
        ids("token_type_ids", &batch.token_type_ids)?,
        ids("position_ids", &batch.position_ids)?,
        ids("cu_seqlens", &batch.cu_seqlens)?,
        ids("label_positions", &batch.label_positions)?,
        ids("labels", &batch.labels)?,
        ("logits".to_string(), task.logits(batch)?),
    ];
    fs::write_atomic(path, |file| write_tensors(file, &tensors))
}

//! `mlmtrain evaluate`: scores a model on a file; the kind of model decides what the file holds.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use candle_core::Device;
use candle_core::Tensor;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::batches::Batch;
use crate::batches::EvaluationBatches;
use crate::batches::Frame;
use crate::batches::Masking;
use crate::checkpoint::write_tensors;
use crate::commands::device;
use crate::commands::scoring_args::EvaluateArgs;
use crate::commands::terminal;
use crate::config::DataConfig;
use crate::config::SourceConfig;
use crate::corpus::Corpus;
use crate::corpus::Item;
use crate::error::Problem;
use crate::families::HeadKind;
use crate::fs;
use crate::interop::holds_pair;
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
use crate::tasks::pretraining::Pretrained;
use crate::tasks::pretraining::corpus;
use crate::tasks::replaced_token_detection::ReplacedTokenDetection;
use crate::tokenizer::Tokenizer;

/// Longest rows that text is scored in, unless the model takes less.
const ROW_TOKENS: usize = 512;

/// Runs the subcommand.
pub fn run(args: &EvaluateArgs) -> Result<()> {
    machine::use_threads(args.compute.threads)?;
    let device = device::pick(args.compute.device)?;
    let scores = scored(args, &device)?;
    if args.json {
        return terminal::stdout_line(&Value::from(scores.json).to_string());
    }
    scores.lines.iter().try_for_each(|line| terminal::stdout_line(line))
}

/// The scores of whatever kind of model the folder holds.
fn scored(args: &EvaluateArgs, device: &Device) -> Result<Scores> {
    if holds_pair(&args.model) {
        return replaced_tokens(args, device);
    }
    match read_folder(&args.model)?.head {
        HeadKind::SequenceClassification => classifier(args, device),
        HeadKind::MaskedLm => masked_lm(args, device),
        HeadKind::ReplacedTokenDetection => {
            let message = "holds a discriminator, whose replaced tokens a generator must draw";
            let hint = "name the folder that holds both, in `generator/` and `discriminator/`";
            Err(Problem::new(message).at(args.model.display()).hint(hint).into())
        }
        HeadKind::None => Err(Problem::new("holds an encoder without a head, which cannot be scored")
            .at(args.model.display())
            .into()),
    }
}

/// What was found, for people and for programs.
#[derive(Default)]
struct Scores {
    lines: Vec<String>,
    json: Map<String, Value>,
}

impl Scores {
    /// A number by the name that the Trainer gives it, and a line with a name of its own.
    fn add(&mut self, key: &str, value: impl Into<Value>, name: &str, text: impl std::fmt::Display) {
        self.json.insert(format!("eval_{key}"), value.into());
        self.lines.push(format!("{name:20} {text}"));
    }
}

fn classifier(args: &EvaluateArgs, device: &Device) -> Result<Scores> {
    let classifier = Classifier::load(&args.model, device)?;
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
    for (number, batch) in encoded.chunks(args.compute.batch_size as usize).enumerate() {
        if let (0, Some(path)) = (number, &args.dump_logits) {
            dump_logits(path, &classifier.task, &classifier.collator.batch(batch, 0))?;
        }
        for (example, probabilities) in batch.iter().zip(classifier.probabilities(batch)?) {
            predicted.push(best_class(&probabilities) as u32);
            loss -= f64::from(probabilities[example.label as usize]).ln();
        }
    }
    let confusion = Confusion::of(classifier.labels.len(), &ids, &predicted);
    let (loss, accuracy, f1) = (loss / ids.len() as f64, confusion.accuracy(), confusion.macro_f1());
    let mut scores = Scores::default();
    scores.add("examples", ids.len(), "examples", ids.len());
    scores.add("loss", loss, "loss", format!("{loss:.4}"));
    scores.add("accuracy", accuracy, "accuracy", format!("{:.2} %", 100.0 * accuracy));
    scores.add("f1", f1, "macro F1", format!("{:.2} %", 100.0 * f1));
    let matthews = confusion.matthews();
    scores.add("matthews_correlation", matthews, "Matthews", format!("{matthews:.4}"));
    if lost.examples > 0 {
        let text = format!("{} examples, {} tokens lost", lost.examples, lost.tokens);
        scores.add("examples_cut", lost.examples, "cut", text);
    }
    let by_class = classifier.labels.iter().zip(confusion.per_class());
    let by_class = by_class.map(|(label, of)| {
        let of = json!({"precision": of.precision, "recall": of.recall, "f1": of.f1, "support": of.support});
        (label.clone(), of)
    });
    scores.json.insert("eval_by_class".to_string(), Value::Object(by_class.collect()));
    let names: Vec<String> = classifier.labels.iter().map(|label| terminal::printable(label)).collect();
    scores.lines.push(confusion_table(&confusion, &names).trim_end().to_string());
    Ok(scores)
}

fn masked_lm(args: &EvaluateArgs, device: &Device) -> Result<Scores> {
    let (task, tokenizer) = MaskedLm::load(&args.model, device)?;
    let mut scores = Scores::default();
    let (losses, entropy) = pretrained(args, &task, &tokenizer, &mut scores)?;
    let (loss, accuracy) = (losses[0].mean(), losses[0].accuracy());
    scores.add("loss", loss, "loss", format!("{loss:.4}"));
    scores.add("perplexity", loss.exp(), "perplexity", format!("{:.2}", loss.exp()));
    scores.add("accuracy", accuracy, "masked accuracy", format!("{:.2} %", 100.0 * accuracy));
    // A baseline that has seen the file which it is scored on is better than any that has not.
    let text = format!("{entropy:.4} (entropy of this file's own token frequencies)");
    scores.add("own_unigram_entropy", entropy, "unigram entropy", text);
    Ok(scores)
}

/// Scores of a generator and its discriminator.
fn replaced_tokens(args: &EvaluateArgs, device: &Device) -> Result<Scores> {
    let (task, tokenizer) = ReplacedTokenDetection::load(&args.model, device)?;
    let mut scores = Scores::default();
    let (losses, _) = pretrained(args, &task, &tokenizer, &mut scores)?;
    for (name, value) in ReplacedTokenDetection::scores(task.terms(), &losses) {
        let is_share = !name.ends_with("loss");
        let text = if is_share { format!("{:.2} %", 100.0 * value) } else { format!("{value:.4}") };
        scores.add(&name, value, &name.replace('_', " "), text);
    }
    Ok(scores)
}

/// The losses of a task over the documents of the file, and the entropy of their tokens; says what was read.
fn pretrained<T: Pretrained>(
    args: &EvaluateArgs,
    task: &T,
    tokenizer: &Tokenizer,
    scores: &mut Scores,
) -> Result<(Vec<Loss>, f64)> {
    let (documents, left_out) = documents(args)?;
    let ids = tokenizer.encode_corpus(&documents)?;
    let mut counts = vec![0u64; tokenizer.vocab_size()];
    ids.iter().flatten().for_each(|&id| counts[id as usize] += 1);
    let tokens: u64 = counts.iter().sum();
    if tokens == 0 {
        return Err(Problem::new("holds no text").at(args.data.display()).into());
    }
    let frame = Frame::new(tokenizer, ROW_TOKENS.min(task.longest()))?;
    let shards = Arc::new(ShardSet::in_memory(&ids, tokenizer.vocab_size()));
    let batches = EvaluationBatches::new(
        &shards,
        frame,
        Masking::for_evaluation(T::NAME, tokenizer)?,
        args.compute.batch_size as usize,
    )?;
    let mut batches = batches.peekable();
    if let (Some(path), Some(Ok(first))) = (&args.dump_logits, batches.peek()) {
        dump_logits(path, task, first)?;
    }
    let losses = corpus::evaluate(task, batches, &|| false)?.unwrap_or_default();
    scores.add("examples", documents.len(), "documents", documents.len());
    scores.add("tokens", tokens, "tokens", tokens);
    if left_out > 0 {
        let text = format!("{left_out}, over {} bytes long", DataConfig::default().max_line_bytes);
        scores.add("documents_left_out", left_out, "left out", text);
    }
    Ok((losses, unigram_entropy(&counts)))
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
fn dump_logits(path: &Path, task: &dyn Task, batch: &Batch) -> Result<()> {
    let ids = |name: &str, values: &[u32]| anyhow::Ok((name.to_string(), Tensor::new(values, &Device::Cpu)?));
    let tensors = vec![
        ids("ids", &batch.ids)?,
        ids("token_type_ids", &batch.token_type_ids)?,
        ids("position_ids", &batch.position_ids)?,
        ids("cu_seqlens", &batch.cu_seqlens)?,
        ids("label_positions", &batch.label_positions)?,
        ids("labels", &batch.labels)?,
        ("logits".to_string(), task.logits(batch)?.to_device(&Device::Cpu)?),
    ];
    fs::write_atomic(path, |file| write_tensors(file, &tensors))
}

//! Scores of a pretrained model on a file of text, which is cleaned as by `prepare` and not filtered.

use std::sync::Arc;

use anyhow::Result;

use crate::tasks::Loss;
use crate::tasks::finite::not_finite;
use crate::tasks::labelled::usual_text_column;
use crate::tasks::pretraining::{Pretrained, corpus};
use crate::tasks::trained::{Evaluation, Scored};
use base::error::Problem;
use base::fs;
use base::scores::unigram_entropy;
use config::{DataConfig, SourceConfig};
use data::batches::{EvaluationBatches, Frame, Masking};
use data::corpus::{Corpus, Item, Judge};
use data::shards::ShardSet;
use data::tokenizer::{MUCH_UNKNOWN, Tokenizer, UnknownText};

/// Longest rows for scoring text, unless the model takes shorter ones only.
const ROW_TOKENS: usize = 512;

/// Returns the losses of a task over the documents of the file, and the entropy of their tokens. Adds the
/// numbers of documents and tokens to `scores`.
pub fn losses<T: Pretrained>(
    evaluation: &Evaluation<'_>,
    task: &T,
    tokenizer: &Tokenizer,
    scores: &mut Scored,
) -> Result<(Vec<Loss>, f64)> {
    evaluation.refuse_predictions()?;
    evaluation.refuse_all_but(&[], "a pretrained model, which reads text without labels")?;
    let (documents, left_out) = documents(evaluation)?;
    let ids = tokenizer.encode_corpus(&documents)?;
    let mut counts = vec![0u64; tokenizer.vocab_size()];
    ids.iter().flatten().for_each(|&id| counts[id as usize] += 1);
    let tokens: u64 = counts.iter().sum();
    if tokens == 0 {
        return Err(Problem::new("holds no text").at(evaluation.data.display()).into());
    }
    let frame = Frame::new(tokenizer, ROW_TOKENS.min(task.longest()))?;
    let shards = Arc::new(ShardSet::in_memory(&ids, tokenizer.vocab_size()));
    let masking = Masking::for_evaluation(T::NAME, tokenizer)?;
    let mut batches = EvaluationBatches::new(&shards, frame, masking, evaluation.batch_size)?.peekable();
    if let Some(Ok(first)) = batches.peek() {
        evaluation.dump_logits(task, first)?;
    }
    let losses = corpus::evaluate(task, batches, &|| false)?.unwrap_or_default();
    if losses.iter().any(Loss::is_not_finite) {
        return Err(not_finite(evaluation.data.display().to_string()).into());
    }
    scores.add("examples", documents.len(), "documents", documents.len());
    scores.add("tokens", tokens, "tokens", tokens);
    let unknown = UnknownText::of(tokenizer, &documents, &ids)?.share();
    if unknown >= MUCH_UNKNOWN {
        let text = format!("{:.1} % of the bytes: unknown tokens are not predicted", 100.0 * unknown);
        scores.add("unknown_text", unknown, "unknown text", text);
    }
    if left_out > 0 {
        let text = format!("{left_out}, over {} bytes long", DataConfig::default().max_line_bytes);
        scores.add("documents_left_out", left_out, "left out", text);
    }
    Ok((losses, unigram_entropy(&counts)))
}

/// Returns the cleaned texts of a file, and the number of those left out for their length; empty ones are not
/// counted.
fn documents(evaluation: &Evaluation<'_>) -> Result<(Vec<String>, u64)> {
    let path = evaluation.data;
    let field = evaluation.columns.text;
    // A missing file is reported as such, not as a pattern without a match. It is not opened here, since a
    // pipe cannot be opened twice.
    fs::len_bytes(path)?;
    if fs::is_folder(path) {
        return Err(Problem::new("is a folder, a file is wanted").at(path.display()).into());
    }
    let encoding = evaluation.columns.encoding;
    let field = field.or_else(|| usual_text_column(path, encoding)).unwrap_or("text").to_string();
    let source = SourceConfig { field, encoding, ..SourceConfig::of_files(vec![path.display().to_string()]) };
    let cleaning = evaluation.cleaning.clone();
    let data = DataConfig { sources: vec![source], cleaning, ..DataConfig::default() };
    let corpus = Corpus::open(&data)?;
    let judge = Judge::new(&data)?;
    let mut texts = Vec::new();
    let mut left_out = 0;
    for item in corpus.documents() {
        match item? {
            Item::Document(document) => {
                let judged = judge.judge(&document.text);
                texts.extend(judged.rejection.is_none().then_some(judged.text));
            }
            Item::Rejected(rejected) => left_out += u64::from(rejected.rejection.reason != "empty"),
        }
    }
    Ok((texts, left_out))
}

//! The log-likelihood that a pretrained model gives a sentence.
//!
//! For a masked language model it is the pseudo-log-likelihood: the sum over all tokens of the
//! log-probability of each token while it is masked (Salazar et al., arXiv:1910.14659). Optionally the rest
//! of the token's word is masked too; otherwise a long word seems likely because its end gives away its
//! beginning (Kauf and Ivanova, arXiv:2305.10588). For a discriminator it is the sum of the log-probabilities
//! that each token was not replaced. Special tokens around the sentence do not count.

use std::path::Path;

use anyhow::Result;
use candle_core::{DType, Device, Tensor};

use crate::tasks::Task;
use crate::tasks::finite::not_finite;
use crate::tasks::masked_lm::MaskedLm;
use crate::tasks::minimal_pairs::{Judged, Pair};
use crate::tasks::pretraining::Pretrained;
use crate::tasks::replaced_token_detection::Discriminator;
use base::error::Problem;
use base::families::HeadKind;
use data::batches::Batch;
use data::tokenizer::{Frame, Tokenizer, WordBoundaries};
use model::interop::{DISCRIMINATOR, holds_pair, read_folder};
use ops::cross_entropy;

/// Tokens of a batch: enough to keep a CPU busy, with a few hundred rows of logits.
const TOKENS_AT_ONCE: usize = 4096;

/// The tokens that are masked while one token is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Masking {
    /// Only the predicted token.
    Token,
    /// The predicted token and those after it in its word.
    RestOfWord,
}

/// A model that scores sentences.
pub enum Likelihood {
    /// A masked language model, scored by the pseudo-log-likelihood.
    Masked(Box<Masked>),
    /// A discriminator, scored by the probabilities that tokens were not replaced.
    Discriminator(Box<Discriminator>),
}

/// A masked language model with its tokenizer and its kind of masking.
pub struct Masked {
    task: MaskedLm,
    tokenizer: Tokenizer,
    /// The word boundaries, if the rest of a word is masked; otherwise `None`.
    words: Option<WordBoundaries>,
}

impl Likelihood {
    /// Opens the model of a folder in the Hugging Face layout; of an ELECTRA run, the discriminator. Returns
    /// an error if the head of the model is not that of a pretraining task.
    pub fn open(path: &Path, device: &Device, masking: Masking) -> Result<Self> {
        let path = if holds_pair(path) { &path.join(DISCRIMINATOR) } else { path };
        match read_folder(path)?.head {
            HeadKind::MaskedLm | HeadKind::SentencePairs => {
                let (task, tokenizer) = MaskedLm::load(path, device)?;
                let words = match masking {
                    Masking::Token => None,
                    Masking::RestOfWord => Some(tokenizer.word_boundaries()?),
                };
                Ok(Self::Masked(Box::new(Masked { task, tokenizer, words })))
            }
            HeadKind::ReplacedTokenDetection if masking == Masking::RestOfWord => Err(refused(
                path,
                "holds a discriminator, which masks nothing",
                "leave out `--mask-rest-of-word`",
            )),
            HeadKind::ReplacedTokenDetection => {
                Ok(Self::Discriminator(Box::new(Discriminator::load(path, device)?)))
            }
            _ => Err(refused(
                path,
                "holds no pretrained model, which alone knows how likely a sentence is",
                "name the folder of `pretrain`, or a published one with a masked-LM head",
            )),
        }
    }

    /// Scores both sentences of each pair. Calls `done` with the number of sentences finished since the last
    /// call.
    pub fn judge(&self, pairs: &[Pair], done: &mut dyn FnMut(u64)) -> Result<Vec<Judged>> {
        let sentences: Vec<(&str, &str)> = pairs
            .iter()
            .flat_map(|pair| [&pair.good, &pair.bad].map(|text| (text.as_str(), pair.place.as_str())))
            .collect();
        let scores = self.of_sentences(&sentences, done)?;
        Ok(scores.as_chunks::<2>().0.iter().map(|&[good, bad]| Judged { good, bad }).collect())
    }

    /// Returns the log-likelihoods, in nats, of sentences that are given with their places for errors. Calls
    /// `done` with the number of sentences finished since the last call.
    pub fn of_sentences(&self, sentences: &[(&str, &str)], done: &mut dyn FnMut(u64)) -> Result<Vec<f64>> {
        let (tokenizer, longest) = match self {
            Self::Masked(masked) => (&masked.tokenizer, masked.task.longest()),
            Self::Discriminator(model) => (model.tokenizer(), model.longest()),
        };
        let (texts, places): (Vec<&str>, Vec<&str>) = sentences.iter().copied().unzip();
        let ids = tokenizer.encode_corpus(&texts)?;
        let mut sums = vec![0.0; ids.len()];
        let mut waiting = Waiting::default();
        for (index, ids) in ids.iter().enumerate() {
            let frame = tokenizer.framing().single;
            check(ids.len(), longest.saturating_sub(frame.special_tokens()), places[index])?;
            match self {
                Self::Masked(masked) => masked.push(ids, index, &mut waiting, &mut sums)?,
                Self::Discriminator(_) => {
                    let tokens = 0..ids.len() as u32;
                    waiting.push(&frame, ids, tokens.map(|at| (at, 0)), index);
                }
            }
            if waiting.batch.num_tokens() >= TOKENS_AT_ONCE || index + 1 == sums.len() {
                self.finish(&mut waiting, &mut sums)?;
            }
            done(1);
        }
        if let Some(at) = sums.iter().position(|sum| !sum.is_finite()) {
            return Err(not_finite(places[at]).into());
        }
        Ok(sums)
    }

    fn finish(&self, waiting: &mut Waiting, sums: &mut [f64]) -> Result<()> {
        match self {
            Self::Masked(masked) => masked.finish(waiting, sums),
            Self::Discriminator(model) => {
                let logits = model.logits(&waiting.batch)?;
                waiting.add(sums, |_, at| -softplus(f64::from(logits[at])));
                Ok(())
            }
        }
    }
}

fn refused(path: &Path, message: &str, hint: &str) -> anyhow::Error {
    Problem::usage(message).at(path.display()).hint(hint).into()
}

/// Returns an error for a sentence without tokens, and for one with more than `most` tokens.
fn check(tokens: usize, most: usize, place: &str) -> Result<(), Problem> {
    match tokens {
        0 => Err(Problem::new("has a sentence without a token of the vocabulary").at(place)),
        _ if tokens > most => {
            let message = format!("has a sentence of {tokens} tokens, the model takes {most}");
            Err(Problem::new(message).at(place).hint("shorten the sentence"))
        }
        _ => Ok(()),
    }
}

/// `log(1 + exp(x))`.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

impl Masked {
    /// Adds a copy of the sentence for each of its tokens, with that token masked.
    fn push(&self, ids: &[u32], sentence: usize, waiting: &mut Waiting, sums: &mut [f64]) -> Result<()> {
        let mask = self.tokenizer.special().mask()?;
        for at in 0..ids.len() {
            let mut masked = ids.to_vec();
            masked[at] = mask;
            if let Some(words) = &self.words {
                let rest = (at + 1..ids.len())
                    .take_while(|&next| !words.starts_word(ids[next]) && !words.ends_word(ids[next - 1]));
                rest.for_each(|next| masked[next] = mask);
            }
            let label = std::iter::once((at as u32, ids[at]));
            waiting.push(&self.tokenizer.framing().single, &masked, label, sentence);
            if waiting.batch.num_tokens() >= TOKENS_AT_ONCE {
                self.finish(waiting, sums)?;
            }
        }
        Ok(())
    }

    fn finish(&self, waiting: &mut Waiting, sums: &mut [f64]) -> Result<()> {
        if waiting.sentences.is_empty() {
            return Ok(());
        }
        let batch = &waiting.batch;
        let logits_mv = self.task.logits(batch)?;
        let labels = Tensor::new(batch.labels.as_slice(), logits_mv.device())?.unsqueeze(1)?;
        let label_logits =
            logits_mv.gather(&labels, 1)?.squeeze(1)?.to_dtype(DType::F32)?.to_vec1::<f32>()?;
        let normaliser = cross_entropy::forward(&logits_mv, batch.labels.as_slice())?.log_sum_exp_m;
        let normaliser = normaliser.to_vec1::<f32>()?;
        waiting.add(sums, |label, _| f64::from(label_logits[label]) - f64::from(normaliser[label]));
        Ok(())
    }
}

/// A growing batch, with the sentence of each of its labels.
#[derive(Default)]
struct Waiting {
    batch: Batch,
    sentences: Vec<usize>,
}

impl Waiting {
    /// Adds a segment; `labels` are pairs of a position in the text and the token at it.
    fn push(
        &mut self,
        frame: &Frame,
        ids: &[u32],
        labels: impl Iterator<Item = (u32, u32)>,
        sentence: usize,
    ) {
        let Self { batch, sentences } = self;
        let start = batch.ids.len() as u32;
        batch.ids.extend(frame.around(ids));
        let length = (ids.len() + frame.special_tokens()) as u32;
        batch.position_ids.extend(0..length);
        batch.token_type_ids.resize(batch.ids.len(), 0);
        batch.token_keys.extend(u64::from(start)..u64::from(start + length));
        if batch.cu_seqlens.is_empty() {
            batch.cu_seqlens.push(0);
        }
        batch.cu_seqlens.push(start + length);
        for (at, label) in labels {
            batch.label_positions.push(start + frame.before.len() as u32 + at);
            batch.labels.push(label);
            sentences.push(sentence);
        }
    }

    /// Adds the score of each label to the sum of its sentence, and starts a new batch. `score` is called
    /// with the index of the label and its position in the batch.
    fn add(&mut self, sums: &mut [f64], score: impl Fn(usize, usize) -> f64) {
        for (label, &sentence) in self.sentences.iter().enumerate() {
            sums[sentence] += score(label, self.batch.label_positions[label] as usize);
        }
        self.batch.clear();
        self.sentences.clear();
    }
}

#[cfg(test)]
mod tests;

//! How likely a pretrained model finds a sentence.
//!
//! A masked language model: the sum over the tokens of the log-probability of each, masked, among all others
//! (Salazar et al., arXiv:1910.14659); or with what follows of its word masked too, which keeps a long word
//! from being likely because its end gives away its beginning (Kauf and Ivanova, arXiv:2305.10588). A
//! discriminator: the sum of the log-probabilities that a token was not replaced. Special tokens around the
//! sentence do not count.

use std::path::Path;

use anyhow::Result;
use candle_core::DType;
use candle_core::Device;
use candle_core::Tensor;

use crate::batches::Batch;
use crate::error::Problem;
use crate::families::HeadKind;
use crate::interop::DISCRIMINATOR;
use crate::interop::holds_pair;
use crate::interop::read_folder;
use crate::ops::cross_entropy;
use crate::tasks::Task;
use crate::tasks::finite::not_finite;
use crate::tasks::masked_lm::MaskedLm;
use crate::tasks::minimal_pairs::Judged;
use crate::tasks::minimal_pairs::Pair;
use crate::tasks::pretraining::Pretrained;
use crate::tasks::replaced_token_detection::Discriminator;
use crate::tokenizer::Frame;
use crate::tokenizer::Tokenizer;
use crate::tokenizer::WordBoundaries;

/// Tokens of a batch: enough to keep a CPU busy, and a few hundred rows of logits.
const TOKENS_AT_ONCE: usize = 4096;

/// What is masked while a token is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Masking {
    /// The token alone.
    Token,
    /// The token and those behind it in its word.
    RestOfWord,
}

/// A model that knows how likely sentences are.
pub enum Likelihood {
    /// By the pseudo-log-likelihood.
    Masked(Box<Masked>),
    /// By a discriminator.
    Told(Box<Discriminator>),
}

/// A masked language model, and what it masks.
pub struct Masked {
    task: MaskedLm,
    tokenizer: Tokenizer,
    /// Where words end, if the rest of a word is masked.
    words: Option<WordBoundaries>,
}

impl Likelihood {
    /// The model of a folder in the Hugging Face layout; of the two of an ELECTRA run the discriminator. Errors
    /// where it is no pretrained one.
    pub fn open(path: &Path, device: &Device, masking: Masking) -> Result<Self> {
        let path = if holds_pair(path) { &path.join(DISCRIMINATOR) } else { path };
        let refused =
            |message: &str, hint: &str| Err(Problem::usage(message).at(path.display()).hint(hint).into());
        match read_folder(path)?.head {
            HeadKind::MaskedLm | HeadKind::SentencePairs => {
                let (task, tokenizer) = MaskedLm::load(path, device)?;
                let words = match masking {
                    Masking::Token => None,
                    Masking::RestOfWord => Some(tokenizer.word_boundaries()?),
                };
                Ok(Self::Masked(Box::new(Masked { task, tokenizer, words })))
            }
            HeadKind::ReplacedTokenDetection if masking == Masking::RestOfWord => {
                refused("holds a discriminator, which masks nothing", "leave out `--mask-rest-of-word`")
            }
            HeadKind::ReplacedTokenDetection => Ok(Self::Told(Box::new(Discriminator::load(path, device)?))),
            _ => refused(
                "holds no pretrained model, which alone knows how likely a sentence is",
                "name the folder of `pretrain`, or a published one with a masked-LM head",
            ),
        }
    }

    /// Both sentences of each pair; `done` is told how many sentences more are finished.
    pub fn judge(&self, pairs: &[Pair], done: &mut dyn FnMut(u64)) -> Result<Vec<Judged>> {
        let sentences: Vec<(&str, &str)> = pairs
            .iter()
            .flat_map(|pair| [&pair.good, &pair.bad].map(|text| (text.as_str(), pair.place.as_str())))
            .collect();
        let scores = self.of_sentences(&sentences, done)?;
        Ok(scores.as_chunks::<2>().0.iter().map(|&[good, bad]| Judged { good, bad }).collect())
    }

    /// The log-likelihoods, in nats, of sentences with their places, for errors; `done` is told how many
    /// sentences more are finished.
    pub fn of_sentences(&self, sentences: &[(&str, &str)], done: &mut dyn FnMut(u64)) -> Result<Vec<f64>> {
        let (tokenizer, longest) = match self {
            Self::Masked(masked) => (&masked.tokenizer, masked.task.longest()),
            Self::Told(told) => (told.tokenizer(), told.longest()),
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
                Self::Told(_) => {
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
            Self::Told(told) => {
                let logits = told.logits(&waiting.batch)?;
                waiting.add(sums, |_, at| -softplus(f64::from(logits[at])));
                Ok(())
            }
        }
    }
}

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
    /// A copy of the sentence for each of its tokens.
    fn push(&self, ids: &[u32], sentence: usize, waiting: &mut Waiting, sums: &mut [f64]) -> Result<()> {
        let mask = self.tokenizer.special().mask()?;
        for at in 0..ids.len() {
            let mut masked = ids.to_vec();
            masked[at] = mask;
            if let Some(words) = &self.words {
                let ends = |next: usize| words.starts_word(ids[next]) || words.ends_word(ids[next - 1]);
                let rest = (at + 1..ids.len()).take_while(|&next| !ends(next));
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
        let of_label = logits_mv.gather(&labels, 1)?.squeeze(1)?.to_dtype(DType::F32)?;
        let normaliser = cross_entropy::forward(&logits_mv, batch.labels.as_slice())?.log_sum_exp_m;
        let (of_label, normaliser) = (of_label.to_vec1::<f32>()?, normaliser.to_vec1::<f32>()?);
        waiting.add(sums, |label, _| f64::from(of_label[label]) - f64::from(normaliser[label]));
        Ok(())
    }
}

/// A batch that grows, and the sentence of each label.
#[derive(Default)]
struct Waiting {
    batch: Batch,
    sentences: Vec<usize>,
}

impl Waiting {
    /// Adds a segment with labels at places of its text.
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

    /// Adds what `score` says of each label, by its number and its place in the batch, to its sentence, and
    /// begins a new batch.
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

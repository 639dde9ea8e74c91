//! A token classifier ready for use: model, tokenizer and labels together turn words into tags.

use std::path::Path;

use anyhow::Result;
use candle_core::{D, DType, Device, Tensor};
use serde_json::Value;

use crate::distributed::World;
use crate::error::Problem;
use crate::families::{HeadKind, ModelConfig};
use crate::fs;
use crate::interop::{Filled, PretrainedFolder, read_folder};
use crate::models::Model;
use crate::ops::cross_entropy;
use crate::tasks::divided::for_each_output;
use crate::tasks::token_classify::windows::{Window, WindowCollator, windows};
use crate::tasks::token_classify::{TagSet, TokenClassify};
use crate::tasks::{Loss, PendingLoss, start};
use crate::tokenizer::Tokenizer;

/// Most bytes of a `config.json`.
const CONFIG_CAP_BYTES: u64 = 1 << 20;

/// A model with everything that turns words into tags.
pub struct Tagger {
    /// Model and head.
    pub task: TokenClassify,
    /// Tokenizer of the model.
    pub tokenizer: Tokenizer,
    /// Labels of the model.
    pub labels: TagSet,
    /// Adds special tokens to windows.
    pub collator: WindowCollator,
}

/// The prediction for a word.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Predicted {
    /// Id of the label with the highest probability, the first one of equals.
    pub label: u32,
    /// Probability of that label.
    pub score: f32,
}

impl Predicted {
    /// Prediction for a word for which the tokenizer returns no tokens, so that the model never sees it.
    pub(super) const UNSEEN: Self = Self { label: u32::MAX, score: f32::NAN };

    /// True if the model has seen the word.
    pub(super) fn is_seen(self) -> bool {
        self.label != Self::UNSEEN.label
    }
}

/// The windows of sentences, with counts of unusual cases.
#[derive(Debug, Clone, Default)]
pub struct Encoded {
    /// The windows of all sentences.
    pub windows: Vec<Window>,
    /// Number of sentences with several windows.
    pub long_sentences: u64,
    /// Number of sentences with one window.
    pub short_sentences: u64,
    /// Number of words that are longer than a window; only their first tokens are seen.
    pub cut_words: u64,
    /// Number of words for which the tokenizer returns no tokens, such as a lone joiner: transformers'
    /// run_ner.py gives them no label.
    pub unseen_words: u64,
    /// Length in tokens of the longest sentence, including special tokens.
    pub longest: u64,
}

impl Tagger {
    /// Loads a trained token classifier. The length of windows is the `model_max_length` of its
    /// `tokenizer_config.json`, the length used in training; without one, the longest sequence that the model
    /// takes.
    pub fn load(path: &Path, device: &Device) -> Result<Self> {
        let folder = read_folder(path)?;
        let Some(labels) = folder.id2label.clone().filter(|_| folder.head == HeadKind::TokenClassification)
        else {
            return Err(Problem::new("holds no token classifier")
                .at(path.display())
                .hint("make one with `mlmtrain finetune --task token-classify`")
                .into());
        };
        let longest = folder.config.max_sequence_length();
        let labels = TagSet::of_model(labels);
        let (mut tagger, _) = Self::from_folder(&folder, &folder.config, labels, longest, None, device)?;
        let least = tagger.collator.frame.special_tokens() + 1;
        if let Some(length) =
            tagger.tokenizer.model_max_length().filter(|length| (least..longest).contains(length))
        {
            tagger.collator.max_seq_length = length;
        }
        Ok(tagger)
    }

    /// Builds a token classifier for `labels` on the encoder of `folder`, with the architecture `config`,
    /// which may differ from the folder's in its dropout. Also returns what was read from the folder. If the
    /// folder has no head for these labels, `new_head` is the seed of the initial values of a new one;
    /// without it that is an error.
    pub fn from_folder(
        folder: &PretrainedFolder,
        config: &ModelConfig,
        labels: TagSet,
        max_seq_length: usize,
        new_head: Option<u64>,
        device: &Device,
    ) -> Result<(Self, Filled)> {
        let (tokenizer, collator) = framing(folder, max_seq_length, new_head.is_some())?;
        let count = labels.names().len();
        let model = Model::token_classifier(config, count, new_head.unwrap_or(0), device)
            .map_err(|e| Problem::new(e.to_string()).at(folder.path.display()))?;
        let filled = match new_head {
            Some(_) => {
                folder.fill_labelled(&model.parameters, HeadKind::TokenClassification, labels.names())?
            }
            None => folder.fill(&model.parameters, false)?,
        };
        Ok((Self { task: TokenClassify { model }, tokenizer, labels, collator }, filled))
    }

    /// Converts the model to compute in `dtype`.
    pub fn computing_in(self, dtype: DType) -> Result<Self> {
        Ok(Self { task: self.task.computing_in(dtype)?, ..self })
    }

    /// Predicts the tag of each word of some sentences, and computes the loss for their `labels`, with at
    /// most `batch_size` windows at a time.
    pub fn tag(
        &self,
        sentences: &[&[String]],
        labels: &[Vec<u32>],
        batch_size: usize,
    ) -> Result<(Encoded, Predictions)> {
        let encoded = encode(&self.tokenizer, &self.collator, sentences, labels)?;
        let mut predictions = Predictions::new(sentences);
        let batches: Vec<&[Window]> = encoded.windows.chunks(batch_size).collect();
        let made = batches.iter().map(|windows| self.collator.batch(*windows, 0));
        for_each_output(World::ALONE, &self.task, made, &|| false, |number, logits| {
            predictions.add(batches[number], &logits)
        })?;
        Ok((encoded, predictions))
    }
}

/// The tokenizer of a folder, and a collator for windows of this length. With `is_to_train` the folder is one
/// to fine-tune, otherwise a trained tagger.
pub(super) fn framing(
    folder: &PretrainedFolder,
    max_seq_length: usize,
    is_to_train: bool,
) -> Result<(Tokenizer, WindowCollator)> {
    let mut tokenizer = start::tokenizer_of(folder)?;
    // In text, words follow blanks, and pretraining saw them so. A trained tagger keeps the way in which it
    // was trained.
    let is_new = is_to_train && folder.head != HeadKind::TokenClassification;
    if is_new || had_blanks(folder, &tokenizer)? {
        tokenizer = tokenizer.for_words()?;
    }
    let longest = folder.config.max_sequence_length();
    let types = if tokenizer.gives_token_types() { folder.config.encoder.type_vocab_size as u32 } else { 0 };
    let frame = tokenizer.framing().with_types_below(types).single;
    let least = frame.special_tokens() + 1;
    if !(least..=longest).contains(&max_seq_length) {
        return Err(Problem::usage(format!(
            "is {max_seq_length}, the model takes {least} to {longest} tokens"
        ))
        .at("data.max_seq_length")
        .hint(format!("set it to {longest} or less: longer sentences are read in windows"))
        .into());
    }
    Ok((tokenizer, WindowCollator { frame, max_seq_length }))
}

/// Returns true if this tagger was trained with blanks before words although its tokenizer.json does not show
/// that. Earlier versions of mlmtrain wrote such folders; transformers, which writes its version into each
/// `config.json`, did not.
fn had_blanks(folder: &PretrainedFolder, tokenizer: &Tokenizer) -> Result<bool> {
    if folder.head != HeadKind::TokenClassification || !tokenizer.asks_for_words() {
        return Ok(false);
    }
    let config = fs::read_capped(&folder.path.join("config.json"), CONFIG_CAP_BYTES)?;
    let config: Value = serde_json::from_slice(&config)?;
    Ok(config["transformers_version"].is_null())
}

/// Splits sentences into windows; `labels` are those of their words, or empty if they are unknown.
pub(super) fn encode(
    tokenizer: &Tokenizer,
    collator: &WindowCollator,
    sentences: &[&[String]],
    labels: &[Vec<u32>],
) -> Result<Encoded> {
    let words: Vec<&str> = sentences.iter().copied().flatten().map(String::as_str).collect();
    let mut pieces = tokenizer.encode_words(&words)?.into_iter();
    let mut encoded = Encoded::default();
    for (index, sentence) in sentences.iter().enumerate() {
        let mut words: Vec<Vec<u32>> = pieces.by_ref().take(sentence.len()).collect();
        for word in &mut words {
            encoded.unseen_words += u64::from(word.is_empty());
            encoded.cut_words += u64::from(word.len() > collator.capacity());
            word.truncate(collator.capacity());
        }
        let tokens: usize = words.iter().map(Vec::len).sum();
        let special = collator.max_seq_length - collator.capacity();
        encoded.longest = encoded.longest.max((tokens + special) as u64);
        let labels = labels.get(index).map_or(&[][..], Vec::as_slice);
        let windows = windows(index, &words, labels, collator.capacity());
        encoded.long_sentences += u64::from(windows.len() > 1);
        encoded.short_sentences += u64::from(windows.len() == 1);
        encoded.windows.extend(windows);
    }
    Ok(encoded)
}

/// The predictions for sentences, assembled from their windows.
#[derive(Debug, Clone, Default)]
pub struct Predictions {
    /// The prediction for each word of each sentence.
    pub by_sentence: Vec<Vec<Predicted>>,
    /// Loss of all words, for the labels that they were given.
    pub loss: Loss,
}

impl Predictions {
    /// No predictions yet for the words of these sentences.
    pub(super) fn new(sentences: &[&[String]]) -> Self {
        let by_sentence = sentences.iter().map(|words| vec![Predicted::UNSEEN; words.len()]).collect();
        Self { by_sentence, loss: Loss::default() }
    }

    /// Probabilities of the predicted labels of each sentence, without words that the model never saw.
    pub(super) fn scores(&self) -> Vec<Vec<f32>> {
        let mut scores = Vec::with_capacity(self.by_sentence.len());
        for words in &self.by_sentence {
            scores.push(words.iter().filter(|word| word.is_seen()).map(|word| word.score).collect());
        }
        scores
    }

    /// Adds the logits, f32 on the CPU, of the words of some windows.
    pub(super) fn add(&mut self, windows: &[Window], logits: &Tensor) -> Result<()> {
        let labels: Vec<u32> = windows.iter().flat_map(|window| window.labels.iter().copied()).collect();
        let entropy = cross_entropy::forward(logits, &labels)?;
        self.loss += PendingLoss::of(entropy, labels.len()).read()?;
        let probabilities = candle_nn::ops::softmax(logits, D::Minus1)?.to_vec2::<f32>()?;
        let words = windows.iter().flat_map(|w| w.words.iter().map(|(word, _)| (w.sentence, *word)));
        for ((sentence, word), row) in words.zip(probabilities) {
            self.by_sentence[sentence][word] = best(&row);
        }
        Ok(())
    }
}

/// The label with the highest probability, the first one of equals.
fn best(probabilities: &[f32]) -> Predicted {
    let start = Predicted { label: 0, score: probabilities.first().copied().unwrap_or(0.0) };
    probabilities.iter().zip(0..).fold(start, |best, (&score, label)| {
        if score > best.score { Predicted { label, score } } else { best }
    })
}

//! Tests that compare likelihoods of a batch with sums computed one token at a time.

use candle_core::{D, Device};

use super::*;
use base::families::{EncoderConfig, Family, ModelConfig};
use config::TokenizerConfig;
use data::tokenizer::{Trainer, TrainerOptions};
use model::models::Model;

const TEXTS: [&str; 3] = ["the robin sang", "the key lay in the locked garden and robins sang", "earth"];

fn masked(masking: Masking) -> Masked {
    let family = Family::ROBERTA;
    let config = TokenizerConfig { vocab_size: 300, ..TokenizerConfig::default() };
    let mut trainer = Trainer::new(TrainerOptions::new(&config, family, 64)).unwrap();
    trainer.add(&["the robin sang in the locked garden, and the key lay in the earth"]).unwrap();
    let tokenizer = trainer.finish(|_| {}).unwrap().tokenizer;
    let encoder = EncoderConfig {
        vocab_size: tokenizer.vocab_size(),
        hidden_size: 32,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        intermediate_size: 48,
        initializer_range: 0.3,
        max_position_embeddings: 66,
        ..EncoderConfig::of(family)
    };
    let model = Model::masked_lm(&ModelConfig { family, encoder }, 3, &Device::Cpu).unwrap();
    let words = (masking == Masking::RestOfWord).then(|| tokenizer.word_boundaries().unwrap());
    Masked { task: MaskedLm { model }, tokenizer, words }
}

/// The sum of the log-probabilities of the tokens of `text`, each predicted in a separate pass. `masks`
/// returns the indices of the tokens that are masked while the token at an index is predicted.
fn one_by_one(model: &Masked, text: &str, masks: impl Fn(&[u32], usize) -> Vec<usize>) -> f64 {
    let inner = model.tokenizer.encode(text).unwrap();
    (0..inner.len()).map(|at| log_probability(model, &inner, at, &masks(&inner, at))).sum()
}

/// The log-probability of the token at the index `at` while the tokens at `masked` are masked.
fn log_probability(model: &Masked, inner: &[u32], at: usize, masked: &[usize]) -> f64 {
    let special = model.tokenizer.special();
    let mut ids = vec![special.cls];
    ids.extend(inner);
    ids.push(special.sep);
    for index in masked {
        ids[index + 1] = special.mask().unwrap();
    }
    let logits = model.task.logits(&Batch::of_segment(ids, vec![at as u32 + 1])).unwrap();
    let logits = logits.to_dtype(DType::F64).unwrap();
    let probabilities = candle_nn::ops::softmax(&logits, D::Minus1).unwrap().to_vec2::<f64>().unwrap();
    probabilities[0][inner[at] as usize].ln()
}

fn scores(model: &Likelihood, texts: &[&str]) -> Vec<f64> {
    let sentences: Vec<(&str, &str)> = texts.iter().map(|text| (*text, "a.jsonl:1")).collect();
    let mut done = 0;
    let scores = model.of_sentences(&sentences, &mut |count| done += count).unwrap();
    assert_eq!(done, texts.len() as u64);
    scores
}

#[track_caller]
fn assert_close(found: &[f64], wanted: impl Iterator<Item = f64>) {
    let wanted: Vec<f64> = wanted.collect();
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(&wanted) {
        assert!((found - wanted).abs() < 1e-4 * wanted.abs(), "{found} is not {wanted}");
    }
}

#[test]
fn a_sentence_is_the_sum_over_its_tokens_each_masked_alone() {
    let model = masked(Masking::Token);
    // The texts fill more than one batch.
    let texts = TEXTS.repeat(40);
    let wanted: Vec<f64> = TEXTS.iter().map(|text| one_by_one(&model, text, |_, at| vec![at])).collect();
    assert_close(&scores(&Likelihood::Masked(Box::new(model)), &texts), wanted.repeat(40).into_iter());
}

#[test]
fn the_rest_of_a_word_is_masked_with_it_and_nothing_of_the_next() {
    let model = masked(Masking::RestOfWord);
    let words = model.tokenizer.word_boundaries().unwrap();
    let wanted = TEXTS.iter().map(|text| {
        one_by_one(&model, text, |ids, at| {
            let end = (at + 1..ids.len()).find(|&next| words.starts_word(ids[next])).unwrap_or(ids.len());
            (at..end).collect()
        })
    });
    let wanted: Vec<f64> = wanted.collect();
    let alone: Vec<f64> = TEXTS.iter().map(|text| one_by_one(&model, text, |_, at| vec![at])).collect();
    assert!(
        wanted.iter().zip(&alone).any(|(rest, alone)| (rest - alone).abs() > 1e-3),
        "no word of many tokens"
    );
    assert_close(&scores(&Likelihood::Masked(Box::new(model)), &TEXTS), wanted.into_iter());
}

#[test]
fn sentences_that_cannot_be_scored_are_named() {
    let model = Likelihood::Masked(Box::new(masked(Masking::Token)));
    let long = "robin ".repeat(80);
    let error = scoring_error(&model, &long);
    assert!(error.starts_with("a.jsonl:7: has a sentence of ") && error.contains("takes 62"), "{error}");
    assert!(scoring_error(&model, "").contains("without a token"));
}

fn scoring_error(model: &Likelihood, text: &str) -> String {
    model.of_sentences(&[(text, "a.jsonl:7")], &mut |_| {}).unwrap_err().to_string()
}

//! Predictions of a masked language model for the mask tokens of a text.

use anyhow::Result;
use candle_core::{D, DType, Device};

use crate::tasks::Task;
use crate::tasks::finite::require_finite;
use base::error::Problem;
use data::batches::Batch;
use data::tokenizer::Tokenizer;

/// Number of candidates for each mask.
const CANDIDATES: usize = 5;

/// One candidate for a mask.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Id in the vocabulary.
    pub id: u32,
    /// The token as text, with its leading space if it has one.
    pub token: String,
    /// Probability of the token.
    pub probability: f64,
}

/// Returns the best candidates for each mask token of `text`, most probable first. `longest` is the most
/// tokens that the model takes; `place` names the text in errors.
pub fn fill_mask(
    task: &dyn Task,
    longest: usize,
    tokenizer: &Tokenizer,
    text: &str,
    place: &str,
) -> Result<Vec<Vec<Candidate>>> {
    let mask = tokenizer.special().mask()?;
    let ids = tokenizer.framing().single.around(&tokenizer.encode(text)?);
    let positions: Vec<u32> = (0..ids.len() as u32).filter(|&i| ids[i as usize] == mask).collect();
    if positions.is_empty() {
        let token = tokenizer.token(mask).unwrap_or_default();
        return Err(Problem::new(format!("has no mask token: {text:?}"))
            .at(place)
            .hint(format!("write `{token}` where a word is to be found"))
            .into());
    }
    if ids.len() > longest {
        return Err(Problem::new(format!("has {} tokens, the model takes {longest}", ids.len()))
            .at(place)
            .hint("shorten the text")
            .into());
    }
    // A model in training may compute in f16 or bf16; a softmax over the vocabulary needs f32.
    let logits_mv =
        task.logits(&Batch::of_segment(ids, positions))?.to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
    let probabilities = candle_nn::ops::softmax(&logits_mv, D::Minus1)?.to_vec2::<f32>()?;
    require_finite(&probabilities, |_| place.to_string())?;
    probabilities.iter().map(|row| best(row, CANDIDATES, tokenizer)).collect()
}

/// The `top` most probable tokens; of equally probable ones the lower id comes first.
fn best(probabilities: &[f32], top: usize, tokenizer: &Tokenizer) -> Result<Vec<Candidate>> {
    // A model may have more rows than its tokenizer has entries, if its vocabulary is padded to a round
    // number.
    let mut ids: Vec<u32> = (0..probabilities.len().min(tokenizer.vocab_size()) as u32).collect();
    ids.sort_by(|&a, &b| probabilities[b as usize].total_cmp(&probabilities[a as usize]).then(a.cmp(&b)));
    ids.truncate(top);
    let mut candidates = Vec::with_capacity(ids.len());
    for id in ids {
        let probability = f64::from(probabilities[id as usize]);
        candidates.push(Candidate { id, token: tokenizer.decode(&[id], false)?, probability });
    }
    Ok(candidates)
}

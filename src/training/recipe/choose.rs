//! Chooses the largest model that can be trained well within a budget of time and text.

use anyhow::Result;

use crate::recipe::size::Size;

/// Least number of training tokens per parameter of the layers. With fewer, a smaller model reaches a lower
/// loss.
pub(super) const TOKENS_PER_PARAMETER: f64 = 5.0;

/// Most epochs over a text. Each epoch draws new masks, but the text stays the same and teaches less each
/// time.
pub(super) const MOST_EPOCHS: f64 = 40.0;

/// The reason why a model is not larger or not trained for longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The next larger size would see too few tokens in the time.
    Time,
    /// The next larger size would need more epochs over the text than `MOST_EPOCHS`.
    Text,
    /// The next larger size does not fit into memory.
    Memory,
    /// There is no larger size.
    Sizes,
}

/// A chosen model size, with its vocabulary and its number of training tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Depth and width of the model.
    pub size: Size,
    /// Number of entries of the vocabulary.
    pub vocab_size: usize,
    /// Estimated number of tokens of the whole text with this vocabulary.
    pub text_tokens: f64,
    /// Training speed.
    pub tokens_per_second: f64,
    /// Number of tokens to train on, over all epochs.
    pub tokens: f64,
    /// The reason why the model is not larger.
    pub limit: Limit,
}

impl Choice {
    /// Number of epochs over the text.
    pub fn epochs(&self) -> f64 {
        self.tokens / self.text_tokens
    }

    /// Returns true if the length of the training is limited by the text, not by time.
    pub fn is_limited_by_text(&self) -> bool {
        self.epochs() > 0.999 * MOST_EPOCHS
    }

    /// Number of training tokens per parameter of the layers.
    pub fn tokens_per_parameter(&self) -> f64 {
        self.tokens / self.size.layer_parameters() as f64
    }
}

/// Chooses from [`Size::ALL`], from the smallest to the largest that sees `TOKENS_PER_PARAMETER` tokens.
///
/// `text_tokens` returns the number of tokens of the text for a vocabulary size. `tokens_per_second` returns
/// the training speed of a size with a vocabulary size, or `None` if the model does not fit into memory. The
/// smallest size is chosen even if it sees too few tokens. Returns `None` if the smallest size does not fit.
///
/// # Errors
/// Returns an error if one of the two functions fails.
pub fn choose(
    training_seconds: f64,
    text_tokens: impl Fn(usize) -> Result<f64>,
    mut tokens_per_second: impl FnMut(Size, usize) -> Result<Option<f64>>,
) -> Result<Option<Choice>> {
    let mut chosen: Option<Choice> = None;
    // The vocabulary size depends on the number of tokens, which depends on the vocabulary. A count with the
    // smallest vocabulary is good enough to choose the vocabulary size.
    let roughly = text_tokens(Size::ALL[0].vocab_size(0.0))?;
    let mut counted = (0, 0.0);
    for size in Size::ALL {
        let vocab_size = size.vocab_size(roughly);
        let Some(speed) = tokens_per_second(size, vocab_size)? else {
            return Ok(chosen.map(|choice| Choice { limit: Limit::Memory, ..choice }));
        };
        if counted.0 != vocab_size {
            counted = (vocab_size, text_tokens(vocab_size)?);
        }
        let text_tokens = counted.1;
        let by_time = speed * training_seconds;
        let by_text = MOST_EPOCHS * text_tokens;
        let tokens = by_time.min(by_text);
        let limit = if by_text < by_time { Limit::Text } else { Limit::Time };
        if chosen.is_some() && tokens < TOKENS_PER_PARAMETER * size.layer_parameters() as f64 {
            return Ok(chosen.map(|choice| Choice { limit, ..choice }));
        }
        chosen = Some(Choice {
            size,
            vocab_size,
            text_tokens,
            tokens_per_second: speed,
            tokens,
            limit: Limit::Sizes,
        });
    }
    Ok(chosen)
}

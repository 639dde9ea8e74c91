//! The largest model that a budget trains well.

use anyhow::Result;

use crate::recipe::size::Size;

/// Tokens of training for each parameter of the layers, below which a smaller model ends with the lower loss.
pub(super) const TOKENS_PER_PARAMETER: f64 = 5.0;

/// Times that a text is worth reading: masks are drawn anew each time, but what it says stays the same.
pub(super) const MOST_EPOCHS: f64 = 40.0;

/// What keeps a model from being trained for longer or from being larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The next size would see too few tokens.
    Time,
    /// The text would be read more often than it is worth.
    Text,
    /// The next size does not fit into memory.
    Memory,
    /// There is no larger size.
    Sizes,
}

/// A size, and what the budget gives it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The model.
    pub size: Size,
    /// Entries of its vocabulary.
    pub vocab_size: usize,
    /// Tokens of the whole text in this vocabulary, about.
    pub text_tokens: f64,
    /// Tokens of training a second.
    pub tokens_per_second: f64,
    /// Tokens to train on.
    pub tokens: f64,
    /// Why it is not a larger one.
    pub limit: Limit,
}

impl Choice {
    /// Times that the text is read.
    pub fn epochs(&self) -> f64 {
        self.tokens / self.text_tokens
    }

    /// Tokens of training for each parameter of the layers.
    pub fn tokens_per_parameter(&self) -> f64 {
        self.tokens / self.size.layer_parameters() as f64
    }
}

/// Chooses from [`Size::ALL`], from the smallest on: `text_tokens` counts the text in a vocabulary,
/// `tokens_per_second` says how fast a model trains (`None`: it does not fit). The smallest is taken where even
/// it would see too few tokens; an error when it does not fit, or when one of the two fails.
pub fn choose(
    training_seconds: f64,
    text_tokens: impl Fn(usize) -> Result<f64>,
    mut tokens_per_second: impl FnMut(Size, usize) -> Result<Option<f64>>,
) -> Result<Option<Choice>> {
    let mut chosen: Option<Choice> = None;
    // The size of a vocabulary follows from the tokens of the text, and these from the vocabulary: the smallest
    // one counts them well enough.
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
        let (by_time, by_text) = (speed * training_seconds, MOST_EPOCHS * text_tokens);
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

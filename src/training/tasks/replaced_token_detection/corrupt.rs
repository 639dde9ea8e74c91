//! The tokens of a batch with masked tokens replaced by those that the generator drew.

use candle_core::{DType, Device, Result, Tensor};

use crate::tasks::inputs::Inputs;
use model::models::TokenIds;
use ops::computed::AnyIndices;
use ops::replace_tokens;
use ops::replace_tokens::{Masked, Replaced};

/// The input and the targets of the discriminator.
pub(super) struct Corrupted<'a> {
    inputs: &'a Inputs<'a>,
    put: Replaced,
}

impl<'a> Corrupted<'a> {
    /// Puts the `drawn` ids, `[M]`, at the labelled positions. A drawn token that equals the original one
    /// counts as original. On a GPU nothing waits for the ids, which stay there.
    pub(super) fn new(inputs: &'a Inputs<'a>, drawn: Option<&Tensor>, vocabulary: usize) -> Result<Self> {
        let ids = inputs.ids();
        let targets = inputs.targets();
        let masked = Masked { ids, positions: targets.positions, originals: targets.labels };
        let put = match drawn {
            Some(drawn) => replace_tokens::forward(masked, drawn, vocabulary),
            // No position was masked.
            None => replace_tokens::forward(masked, &Tensor::zeros(0, DType::U32, &Device::Cpu)?, vocabulary),
        }?;
        Ok(Self { inputs, put })
    }

    /// The ids of the tokens after the replacement.
    pub(super) fn tokens(&self) -> TokenIds<'_> {
        TokenIds { ids: (&self.put.ids).into(), ..self.inputs.tokens() }
    }

    /// Targets of the discriminator, `[T]`: 1 for each token that is not the original one, else 0.
    pub(super) fn replaced(&self) -> AnyIndices<'_> {
        (&self.put.replaced).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::families::{EncoderConfig, Family, ModelConfig};
    use data::batches::Batch;

    #[test]
    fn drawn_tokens_are_put_at_their_positions_and_equal_ones_are_originals() {
        let batch = Batch {
            ids: vec![2, 4, 9, 4, 3],
            position_ids: vec![0, 1, 2, 3, 4],
            label_positions: vec![1, 2, 3],
            labels: vec![7, 9, 8],
            token_keys: vec![0; 5],
            ..Batch::default()
        };
        let drawn = Tensor::new(&[7u32, 5, 6], &Device::Cpu).unwrap();
        assert_eq!(corrupted(&batch, Some(&drawn)), (vec![2, 7, 5, 6, 3], vec![0, 0, 1, 1, 0]));
        let plain = Batch { label_positions: vec![], labels: vec![], ..batch };
        assert_eq!(corrupted(&plain, None), (vec![2, 4, 9, 4, 3], vec![0; 5]));
    }

    /// The tokens and the targets of the discriminator.
    fn corrupted(batch: &Batch, drawn: Option<&Tensor>) -> (Vec<u32>, Vec<u32>) {
        let config = ModelConfig { family: Family::ELECTRA, encoder: EncoderConfig::of(Family::ELECTRA) };
        let inputs = Inputs::new(batch, &config, &Device::Cpu, true).unwrap();
        let corrupted = Corrupted::new(&inputs, drawn, 10).unwrap();
        let tokens = corrupted.tokens();
        assert_eq!(tokens.position_ids.host(), batch.position_ids);
        (tokens.ids.host().unwrap().to_vec(), corrupted.replaced().host().unwrap().to_vec())
    }
}

//! The tokens of a batch with those that the generator drew in the place of masked ones.

use candle_core::DType;
use candle_core::Device;
use candle_core::Result;
use candle_core::Tensor;

use crate::models::TokenIds;
use crate::ops::computed::AnyIndices;
use crate::ops::replace_tokens;
use crate::ops::replace_tokens::Masked;
use crate::ops::replace_tokens::Replaced;
use crate::tasks::inputs::Inputs;

/// What the discriminator reads, and what it should find.
pub(super) struct Corrupted<'a> {
    inputs: &'a Inputs<'a>,
    put: Replaced,
}

impl<'a> Corrupted<'a> {
    /// Puts the ids that were `drawn`, `[M]`, to the labelled positions. A drawn token that is the original
    /// one counts as such. On a GPU nothing waits for the ids, which stay there.
    pub(super) fn new(inputs: &'a Inputs<'a>, drawn: Option<&Tensor>, vocabulary: usize) -> Result<Self> {
        let (ids, targets) = (inputs.ids(), inputs.targets());
        let masked = Masked { ids, positions: targets.positions, originals: targets.labels };
        let put = match drawn {
            Some(drawn) => replace_tokens::forward(masked, drawn, vocabulary),
            // Nothing was masked.
            None => replace_tokens::forward(masked, &Tensor::zeros(0, DType::U32, &Device::Cpu)?, vocabulary),
        }?;
        Ok(Self { inputs, put })
    }

    /// The ids of the tokens.
    pub(super) fn tokens(&self) -> TokenIds<'_> {
        TokenIds { ids: (&self.put.ids).into(), ..self.inputs.tokens() }
    }

    /// 1 for each token that is not the original one, else 0, `[T]`.
    pub(super) fn replaced(&self) -> AnyIndices<'_> {
        (&self.put.replaced).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::Batch;
    use crate::families::EncoderConfig;
    use crate::families::Family;
    use crate::families::ModelConfig;

    #[test]
    fn drawn_tokens_stand_at_their_places_and_equal_ones_are_originals() {
        let config = ModelConfig { family: Family::ELECTRA, encoder: EncoderConfig::of(Family::ELECTRA) };
        let corrupted = |batch: &Batch, drawn: Option<&Tensor>| {
            let inputs = Inputs::new(batch, &config, &Device::Cpu, true).unwrap();
            let corrupted = Corrupted::new(&inputs, drawn, 10).unwrap();
            let (tokens, replaced) = (corrupted.tokens(), corrupted.replaced());
            assert_eq!(tokens.position_ids.host(), batch.position_ids);
            (tokens.ids.host().unwrap().to_vec(), replaced.host().unwrap().to_vec())
        };
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
}

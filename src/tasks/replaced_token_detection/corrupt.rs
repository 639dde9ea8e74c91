//! A batch with the tokens that the generator drew in the place of masked ones.

use candle_core::Result;
use candle_core::Tensor;

use crate::batches::Batch;

/// What the discriminator reads, and what it should find.
pub(super) struct Corrupted {
    /// The batch, without labels.
    pub(super) batch: Batch,
    /// 1 for each token that is not the original one, else 0, `[T]`.
    pub(super) replaced: Vec<u32>,
}

impl Corrupted {
    /// Puts the ids that were `drawn`, `[M]`, to the labelled positions of `batch`. A drawn token that is the
    /// original one counts as such. Waits for the device.
    pub(super) fn new(batch: &Batch, drawn: Option<&Tensor>) -> Result<Self> {
        let drawn = drawn.map_or(Ok(Vec::new()), Tensor::to_vec1::<u32>)?;
        let mut replaced = vec![0; batch.num_tokens()];
        let mut corrupted = Batch { label_positions: Vec::new(), labels: Vec::new(), ..batch.clone() };
        for ((&at, &original), drawn) in batch.label_positions.iter().zip(&batch.labels).zip(drawn) {
            corrupted.ids[at as usize] = drawn;
            replaced[at as usize] = u32::from(drawn != original);
        }
        Ok(Self { batch: corrupted, replaced })
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn drawn_tokens_stand_at_their_places_and_equal_ones_are_originals() {
        let batch = Batch {
            ids: vec![2, 4, 9, 4, 3],
            label_positions: vec![1, 2, 3],
            labels: vec![7, 9, 8],
            ..Batch::default()
        };
        let drawn = Tensor::new(&[7u32, 5, 6], &Device::Cpu).unwrap();
        let Corrupted { batch: corrupted, replaced } = Corrupted::new(&batch, Some(&drawn)).unwrap();
        assert_eq!((corrupted.ids, replaced), (vec![2, 7, 5, 6, 3], vec![0, 0, 1, 1, 0]));
        assert!(corrupted.labels.is_empty());
        let plain = Batch { label_positions: vec![], labels: vec![], ..batch };
        assert_eq!(Corrupted::new(&plain, None).unwrap().replaced, [0; 5]);
    }
}

//! Converts a folder's tensors for a model with another vocabulary, more positions or more layers.

use std::borrow::Cow;

use candle_core::{Result, Tensor};

/// A mapping from the rows and layers of a model to those of a folder.
#[derive(Debug, Clone, Default)]
pub struct Refit {
    /// For each word of the model's vocabulary its row in the folder; a word with `None` starts from the mean
    /// of the folder's rows. Absent if the vocabulary is the same.
    pub words: Option<Vec<Option<u32>>>,
    /// Row of the position table of a sequence's first token, in the folder and in the model.
    pub position_offsets: (usize, usize),
    /// Number of layers of the folder, which a deeper model repeats in order. Absent if the model is not
    /// deeper.
    pub layers: Option<usize>,
}

impl Refit {
    /// Returns the model's rows of the word embedding `[words, hidden]`, or its values of the bias `[words]`.
    pub(super) fn refit_words(&self, table: &Tensor) -> Result<Tensor> {
        let Some(words) = &self.words else { return Ok(table.clone()) };
        let rows = table.dim(0)?;
        let mean = table.mean_keepdim(0)?;
        let with_mean = Tensor::cat(&[table, &mean], 0)?;
        let rows: Vec<u32> = words
            .iter()
            .map(|word| word.filter(|&old| (old as usize) < rows).unwrap_or(rows as u32))
            .collect();
        with_mean.index_select(&Tensor::new(rows, table.device())?, 0)
    }

    /// Returns the name in the folder of a tensor of layer `layer`; `layers` is the part of the name before
    /// the layer's number.
    pub(super) fn source_name<'a>(&self, name: &'a str, layers: &str, layer: usize) -> Cow<'a, str> {
        match self.layers {
            Some(count) if layer >= count => {
                let [there, here] = [layer % count, layer].map(|number| format!("{layers}.{number}."));
                name.replacen(&here, &there, 1).into()
            }
            _ => name.into(),
        }
    }

    /// Returns a position table of `count` rows that repeats the folder's rows.
    pub(super) fn refit_positions(&self, table: &Tensor, count: usize) -> Result<Tensor> {
        let (before, after) = self.position_offsets;
        let rows = table.dim(0)?;
        if rows == count && before == after {
            return Ok(table.clone());
        }
        let usable = rows.saturating_sub(before).max(1);
        // Rows before the first token's are padding: they keep the folder's values. Further ones repeat the
        // folder's last padding row, or its first row if it has no padding.
        let rows: Vec<u32> = (0..count)
            .map(|index| match index.checked_sub(after) {
                Some(position) => (before + position % usable) as u32,
                None => index.min(before.saturating_sub(1)) as u32,
            })
            .collect();
        table.index_select(&Tensor::new(rows, table.device())?, 0)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    fn column(values: &[f32]) -> Tensor {
        Tensor::new(values, &Device::Cpu).unwrap().unsqueeze(1).unwrap()
    }

    fn values(table: &Tensor) -> Vec<f32> {
        table.flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn rows_of_shared_words_are_kept_and_the_rest_is_the_mean() {
        let refit = Refit { words: Some(vec![Some(2), None, Some(0), Some(9)]), ..Refit::default() };
        assert_eq!(values(&refit.refit_words(&column(&[1.0, 2.0, 6.0])).unwrap()), [6.0, 3.0, 1.0, 3.0]);
        let bias = Tensor::new(&[1f32, 2.0, 6.0], &Device::Cpu).unwrap();
        assert_eq!(values(&refit.refit_words(&bias).unwrap()), [6.0, 3.0, 1.0, 3.0]);
        assert_eq!(values(&Refit::default().refit_words(&bias).unwrap()), [1.0, 2.0, 6.0]);
    }

    #[test]
    fn positions_repeat_after_the_last_row_of_the_folder() {
        let refit = Refit { position_offsets: (2, 2), ..Refit::default() };
        let table = column(&[0.0, 0.5, 1.0, 2.0, 3.0]);
        assert_eq!(
            values(&refit.refit_positions(&table, 9).unwrap()),
            [0.0, 0.5, 1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0]
        );
        let moved = Refit { position_offsets: (2, 1), ..Refit::default() };
        assert_eq!(values(&moved.refit_positions(&table, 4).unwrap()), [0.0, 1.0, 2.0, 3.0]);
    }

    #[test]
    fn a_deeper_model_repeats_layers_in_their_order() {
        let refit = Refit { layers: Some(3), ..Refit::default() };
        for (layer, source) in [(1, 1), (3, 0), (11, 2)] {
            let [name, source] =
                [layer, source].map(|layer| format!("bert.encoder.layer.{layer}.output.dense.weight"));
            assert_eq!(refit.source_name(&name, "encoder.layer", layer), source);
        }
        assert_eq!(
            Refit::default().source_name("encoder.layer.7.a", "encoder.layer", 7),
            "encoder.layer.7.a"
        );
    }
}

//! Tables of a folder for a model with another vocabulary, or more positions.

use std::borrow::Cow;

use candle_core::Result;
use candle_core::Tensor;

/// How the rows of a model's tables come out of a folder's.
#[derive(Debug, Clone, Default)]
pub struct Refit {
    /// For each row of the vocabulary the folder's row; `None` begins at the mean of the folder's rows.
    /// Absent for the same vocabulary.
    pub words: Option<Vec<Option<u32>>>,
    /// First row of the position table that a token takes, in the folder and in the model.
    pub position_offsets: (usize, usize),
    /// Layers of the folder, which a deeper model repeats in their order; absent for as many layers.
    pub layers: Option<usize>,
}

impl Refit {
    /// The rows of a table of words, or the values of a vector of them.
    pub(super) fn of_words(&self, table: &Tensor) -> Result<Tensor> {
        let Some(words) = &self.words else { return Ok(table.clone()) };
        let rows = table.dim(0)?;
        let mean = table.mean_keepdim(0)?;
        let with_mean = Tensor::cat(&[table, &mean], 0)?;
        let row = |word: &Option<u32>| word.filter(|&old| (old as usize) < rows).unwrap_or(rows as u32);
        let rows: Vec<u32> = words.iter().map(row).collect();
        with_mean.index_select(&Tensor::new(rows, table.device())?, 0)
    }

    /// The name in the folder of a tensor of a layer; `layers` is what stands before the layer's number.
    pub(super) fn of_layer<'a>(&self, name: &'a str, layers: &str, layer: usize) -> Cow<'a, str> {
        match self.layers {
            Some(count) if layer >= count => {
                let [there, here] = [layer % count, layer].map(|number| format!("{layers}.{number}."));
                name.replacen(&here, &there, 1).into()
            }
            _ => name.into(),
        }
    }

    /// A position table of `count` rows: those of the folder, again and again.
    pub(super) fn of_positions(&self, table: &Tensor, count: usize) -> Result<Tensor> {
        let (before, after) = self.position_offsets;
        let rows = table.dim(0)?;
        if rows == count && before == after {
            return Ok(table.clone());
        }
        let usable = rows.saturating_sub(before).max(1);
        // Rows before the first token's are padding: they stay what the folder has, or its first row.
        let row = |index: usize| match index.checked_sub(after) {
            Some(position) => (before + position % usable) as u32,
            None => index.min(before.saturating_sub(1)) as u32,
        };
        let rows: Vec<u32> = (0..count).map(row).collect();
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
        assert_eq!(values(&refit.of_words(&column(&[1.0, 2.0, 6.0])).unwrap()), [6.0, 3.0, 1.0, 3.0]);
        let bias = Tensor::new(&[1f32, 2.0, 6.0], &Device::Cpu).unwrap();
        assert_eq!(values(&refit.of_words(&bias).unwrap()), [6.0, 3.0, 1.0, 3.0]);
        assert_eq!(values(&Refit::default().of_words(&bias).unwrap()), [1.0, 2.0, 6.0]);
    }

    #[test]
    fn positions_repeat_behind_those_that_are_there() {
        let refit = Refit { position_offsets: (2, 2), ..Refit::default() };
        let table = column(&[0.0, 0.5, 1.0, 2.0, 3.0]);
        assert_eq!(
            values(&refit.of_positions(&table, 9).unwrap()),
            [0.0, 0.5, 1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0]
        );
        let moved = Refit { position_offsets: (2, 1), ..Refit::default() };
        assert_eq!(values(&moved.of_positions(&table, 4).unwrap()), [0.0, 1.0, 2.0, 3.0]);
    }

    #[test]
    fn a_deeper_model_repeats_layers_in_their_order() {
        let refit = Refit { layers: Some(3), ..Refit::default() };
        let name = |layer: usize| {
            let name = format!("bert.encoder.layer.{layer}.output.dense.weight");
            refit.of_layer(&name, "encoder.layer", layer).into_owned()
        };
        assert_eq!([1, 3, 11].map(name), [1, 0, 2].map(name));
        assert_eq!(Refit::default().of_layer("encoder.layer.7.a", "encoder.layer", 7), "encoder.layer.7.a");
    }
}

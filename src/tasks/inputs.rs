//! A batch as models take it: the host's numbers, what follows from them, and their copies where the model is
//! on a GPU.

use candle_core::Device;
use candle_core::Result;

use crate::batches::Batch;
use crate::families::ModelConfig;
use crate::layers::Rows;
use crate::models::Targets;
use crate::models::TokenIds;
use crate::ops::cuda::Gpu;
use crate::ops::indices::Indices;
use crate::ops::indices::Uploaded;
use crate::ops::upload::Numbers;
use crate::ops::upload::upload;

/// What a pass over a batch reads.
#[derive(Debug)]
pub(super) struct Inputs<'a> {
    batch: &'a Batch,
    /// Rows of the position table, the family's offset included, `[T]`.
    position_ids: Vec<u32>,
    /// Dropout keys of the labelled positions, `[M]`.
    label_keys: Vec<u64>,
    /// Copies in the order of [`Inputs::upload`].
    on_gpu: Option<[Uploaded; 8]>,
}

impl<'a> Inputs<'a> {
    /// The inputs that `batch` is for a model on `device`; with `backward`, what gradients need besides.
    pub(super) fn new(
        batch: &'a Batch,
        config: &ModelConfig,
        device: &Device,
        backward: bool,
    ) -> Result<Self> {
        let offset = config.position_offset() as u32;
        let position_ids = batch.position_ids.iter().map(|p| p + offset).collect();
        let label_keys = batch.label_positions.iter().map(|&t| batch.token_keys[t as usize]).collect();
        let mut inputs = Self { batch, position_ids, label_keys, on_gpu: None };
        if let Some(gpu) = Gpu::of_device(device)? {
            inputs.on_gpu = Some(inputs.upload(&gpu, config, backward)?);
        }
        Ok(inputs)
    }

    /// All arrays, each with the plan that its op wants.
    fn upload(&self, gpu: &Gpu, config: &ModelConfig, backward: bool) -> Result<[Uploaded; 8]> {
        let batch = self.batch;
        let padding = config.padding_rows();
        let ids =
            |rows, skip| if backward { Numbers::Scattered { rows, skip } } else { Numbers::Plain(rows) };
        let arrays = [
            ids(&batch.ids, padding.word),
            ids(&self.position_ids, padding.position),
            ids(&batch.token_type_ids, None),
            Numbers::Bounds(&batch.cu_seqlens),
            Numbers::Keys(&batch.token_keys),
            ids(&batch.label_positions, None),
            Numbers::Plain(&batch.labels),
            Numbers::Keys(&self.label_keys),
        ];
        upload(gpu, arrays)
    }

    fn at<'b, T>(&'b self, host: &'b [T], index: usize) -> Indices<'b, T> {
        self.on_gpu.as_ref().map_or(host.into(), |copies| Indices::uploaded(host, &copies[index]))
    }

    /// Rows of the word table, `[T]`.
    pub(super) fn ids(&self) -> Indices<'_> {
        self.at(&self.batch.ids, 0)
    }

    /// The ids of the tokens.
    pub(super) fn tokens(&self) -> TokenIds<'_> {
        TokenIds {
            ids: self.ids().into(),
            position_ids: self.at(&self.position_ids, 1),
            token_type_ids: self.at(&self.batch.token_type_ids, 2),
        }
    }

    /// Segments and keys.
    pub(super) fn rows(&self) -> Rows<'_> {
        Rows {
            cu_seqlens: self.at(&self.batch.cu_seqlens, 3),
            token_keys: self.at(&self.batch.token_keys, 4),
        }
    }

    /// The rows with labels.
    pub(super) fn targets(&self) -> Targets<'_> {
        Targets {
            positions: self.at(&self.batch.label_positions, 5),
            labels: self.at(&self.batch.labels, 6),
            keys: self.at(&self.label_keys, 7),
        }
    }
}

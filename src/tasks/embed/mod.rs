//! Vectors of texts: the last hidden states of an encoder, pooled. No head is looked at, so that any model
//! folder gives them.

mod file;
mod npy;
mod parquet;

use std::path::Path;

use anyhow::Result;
use candle_core::DType;
use candle_core::Device;

use crate::batches::Batch;
use crate::families::Pooling;
use crate::interop::DISCRIMINATOR;
use crate::interop::holds_pair;
use crate::interop::read_folder;
use crate::layers::Chosen;
use crate::layers::Context;
use crate::models::Blueprint;
use crate::models::Model;
use crate::models::Targets;
use crate::ops::segment_mean;
use crate::tasks::classify::Collator;
use crate::tasks::classify::classifier::collator;
use crate::tasks::classify::classifier::encode;
use crate::tasks::classify::collate::Truncation;
use crate::tasks::inputs::Inputs;
use crate::tasks::labelled::TextPair;
use crate::tasks::start;
use crate::tokenizer::Tokenizer;

pub use file::VectorFile;
pub use file::VectorFormat;

/// Everything that turns texts into vectors.
pub struct Embedder {
    model: Model<()>,
    tokenizer: Tokenizer,
    collator: Collator,
    pooling: Pooling,
    normalize: bool,
}

impl Embedder {
    /// The encoder of a model folder, of an ELECTRA run that of its discriminator. A vector is the first
    /// token's hidden state or the mean of all, special tokens included; with `normalize` of length 1.
    pub fn load(path: &Path, pooling: Pooling, normalize: bool, device: &Device) -> Result<Self> {
        let path = if holds_pair(path) { path.join(DISCRIMINATOR) } else { path.to_path_buf() };
        let folder = read_folder(&path)?;
        let tokenizer = start::tokenizer_of(&folder)?;
        let model = Blueprint::encoder_alone(&folder.config).initialise(0, device)?;
        // Tensors of a head stay unread, which is told of no other folder.
        folder.fill(&model.parameters, false)?;
        let longest = folder.config.max_sequence_length();
        let collator = collator(&folder.config, &tokenizer, longest, true)?;
        let length = tokenizer.model_max_length();
        let collator = length.map_or(collator, |length| collator.cut_at(length));
        Ok(Self { model, tokenizer, collator, pooling, normalize })
    }

    /// Values of a vector (D).
    pub fn width(&self) -> usize {
        self.model.config.encoder.hidden_size
    }

    /// The longest sequence in tokens, special tokens included.
    pub fn max_seq_length(&self) -> usize {
        self.collator.max_seq_length()
    }

    /// A vector for each text, in their order, and what was cut. Texts of like lengths are computed together,
    /// `batch_size` at a time.
    pub fn vectors(&self, texts: &[TextPair], batch_size: usize) -> Result<(Vec<Vec<f32>>, Truncation)> {
        let (encoded, lost) = encode(&self.tokenizer, &self.collator, texts, &[])?;
        let tokens =
            |&place: &usize| encoded[place].first.len() + encoded[place].second.as_ref().map_or(0, Vec::len);
        let mut order: Vec<usize> = (0..encoded.len()).collect();
        order.sort_by_key(tokens);
        let mut vectors = vec![Vec::new(); encoded.len()];
        for places in order.chunks(batch_size) {
            let batch = self.collator.batch(places.iter().map(|&place| &encoded[place]), 0);
            for (&place, vector) in places.iter().zip(self.pooled(&batch)?) {
                vectors[place] = if self.normalize { normalized(vector) } else { vector };
            }
        }
        Ok((vectors, lost))
    }

    /// A row for each text of a batch.
    fn pooled(&self, batch: &Batch) -> Result<Vec<Vec<f32>>> {
        let Model { config, encoder, parameters, .. } = &self.model;
        let inputs = Inputs::new(batch, config, parameters.flat().device(), false)?;
        let ctx = Context { parameters, rows: inputs.rows(), pass: None };
        let pooled_md = match self.pooling {
            Pooling::Cls => {
                let Targets { positions, keys, .. } = inputs.targets();
                encoder.infer(inputs.tokens(), Some(Chosen { positions, keys }), &ctx)?
            }
            Pooling::Mean => {
                let hidden_td = encoder.infer(inputs.tokens(), None, &ctx)?;
                segment_mean::forward(&hidden_td, ctx.rows.cu_seqlens)?
            }
        };
        Ok(pooled_md.to_device(&Device::Cpu)?.to_dtype(DType::F32)?.to_vec2()?)
    }
}

/// The vector divided by its length; one of zeros as it is.
fn normalized(vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    if length == 0.0 {
        return vector;
    }
    vector.into_iter().map(|value| (f64::from(value) / length) as f32).collect()
}

//! Initialises the word embeddings of a model with word vectors from the text instead of random values.

use anyhow::{Context, Result};
use candle_core::{Device, Tensor};

use crate::tasks::pretraining::word_vectors::{WordVectors, word_vectors};
use crate::tasks::run::Setting;
use base::families::ModelConfig;
use data::shards::ShardSet;
use model::layers::{Init, ParameterSpec, Parameters};

/// Overwrites the embedding of each token that occurs in the text with its word vector, scaled to the
/// expected length of a random row; rows of other tokens stay random. If two models share embeddings, this is
/// the one word table that is not initialised with zeros.
pub(super) fn begin_with_text(
    parameters: &Parameters,
    model: &ModelConfig,
    text: &ShardSet,
    setting: Setting<'_>,
) -> Result<()> {
    let ending = format!("{}.{}.weight", model.family.prefix, model.family.names.word);
    let is_table = |spec: &&ParameterSpec| spec.name.ends_with(&ending) && spec.init != Init::Zeros;
    let spec = parameters.layout().specs().find(is_table).context("every encoder has word embeddings")?;
    let [rows, width] = spec.shape[..] else { anyhow::bail!("embeddings are a matrix") };
    let WordVectors { rows: vectors, found } =
        word_vectors(text, width, setting.seed, setting.progress, &|| setting.go_on())?;
    let named = parameters.named()?;
    let (_, table) = named.iter().find(|(name, _)| *name == spec.name).context("it was just found")?;
    let mut values: Vec<f32> = table.flatten_all()?.to_vec1()?;
    let deviation = match spec.init {
        Init::Uniform(range) => range / 3f64.sqrt(),
        _ => model.encoder.initializer_range,
    };
    // Expected length of a random row.
    let length = deviation * (width as f64).sqrt();
    for (row, vector) in values.chunks_exact_mut(width).zip(vectors.chunks_exact(width)) {
        if vector.iter().any(|value| *value != 0.0) {
            row.iter_mut().zip(vector).for_each(|(row, value)| *row = (f64::from(*value) * length) as f32);
        }
    }
    parameters.set(&spec.name, &Tensor::from_vec(values, (rows, width), &Device::Cpu)?)?;
    setting.progress.note(&format!(
        "word embeddings: {found} of {rows} are initialised from co-occurrence counts, {} at random",
        rows - found
    ));
    Ok(())
}

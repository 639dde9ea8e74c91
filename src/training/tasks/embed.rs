//! Vectors of texts: the last hidden states of an encoder, pooled. The head is ignored, so any model folder
//! can be used. A folder of sentence-transformers gives the same vectors as in that library.

mod npy;
mod parquet;
mod pooled;
mod recipe;
mod vector_file;
mod vector_format;

use std::path::Path;

use anyhow::Result;
use candle_core::{DType, Device, Tensor};

use crate::tasks::inputs::Inputs;
use crate::tasks::labelled::TextPair;
use crate::tasks::sequence::{Collator, Truncation, encode};
use crate::tasks::start;
use base::families::Pooling;
use data::batches::Batch;
use data::tokenizer::Tokenizer;
use model::interop::{DISCRIMINATOR, cached_folder, holds_pair, read_folder};
use model::layers::{Chosen, Context};
use model::models::{Blueprint, Model, Targets};
use ops::segment_mean;

use pooled::Mode;
use recipe::{Recipe, Step};

pub use vector_file::VectorFile;
pub use vector_format::VectorFormat;

/// A model with everything that turns texts into vectors.
pub struct Embedder {
    model: Model<()>,
    tokenizer: Tokenizer,
    collator: Collator,
    pooling: Pooled,
    normalize: bool,
    steps: Vec<Step>,
    lowers_letters: bool,
    prompt: String,
    notes: Vec<String>,
}

/// The kind of pooling: one that classifiers use as well, or any of those of sentence-transformers.
enum Pooled {
    One(Pooling),
    Several(Vec<Mode>),
}

impl Embedder {
    /// Loads the encoder of a model folder; for an ELECTRA run, that of its discriminator. A vector is the
    /// hidden state of the first token or the mean of all tokens, including special tokens; with `normalize`
    /// it has length 1. Without `pooling`, the files of sentence-transformers in the folder select it; if
    /// there are none, it is the mean.
    pub fn load(path: &Path, pooling: Option<Pooling>, normalize: bool, device: &Device) -> Result<Self> {
        let path = if holds_pair(path) { path.join(DISCRIMINATOR) } else { path.to_path_buf() };
        let path = cached_folder(&path).unwrap_or(path);
        let recipe = if pooling.is_none() { Recipe::read(&path)? } else { None };
        let place = recipe.as_ref().map_or(path.as_path(), |recipe| &recipe.transformer);
        let folder = read_folder(place)?;
        let tokenizer = start::tokenizer_of(&folder)?;
        let model = Blueprint::encoder_alone(&folder.config).zeros(device)?;
        // Tensors of a head stay unread, without the note that other uses of a folder print about that.
        folder.fill(&model.parameters, false)?;
        let longest = folder.config.max_sequence_length();
        let collator = Collator::new(&tokenizer, folder.config.encoder.type_vocab_size, longest, true)?;
        let length =
            recipe.as_ref().and_then(|recipe| recipe.max_seq_length).or(tokenizer.model_max_length());
        let collator = length.map_or(collator, |length| collator.cut_at(length));
        let notes = tokenizer.notes().to_vec();
        let mut embedder = Self {
            model,
            tokenizer,
            collator,
            pooling: Pooled::One(pooling.unwrap_or(Pooling::Mean)),
            normalize,
            steps: Vec::new(),
            lowers_letters: false,
            prompt: String::new(),
            notes,
        };
        if let Some(recipe) = recipe {
            embedder.follow(recipe);
        }
        Ok(embedder)
    }

    /// Pools and changes vectors as the recipe of a folder says, and adds a note about that.
    fn follow(&mut self, recipe: Recipe) {
        let Recipe { modes, steps, lowers_letters, prompt, .. } = recipe;
        let names: Vec<&str> = modes.iter().map(|mode| mode.name()).collect();
        let mut note = format!("vectors as modules.json says: {}", names.join(" and "));
        for step in &steps {
            note += match step {
                Step::Normalize => ", normalized",
                Step::Dense(_) => ", a linear map",
            };
        }
        if !prompt.is_empty() {
            note = format!("{note}, each text behind {prompt:?}");
        }
        self.notes.push(note);
        self.pooling = match modes[..] {
            [Mode::Cls] => Pooled::One(Pooling::Cls),
            [Mode::Mean] => Pooled::One(Pooling::Mean),
            _ => Pooled::Several(modes),
        };
        self.steps = steps;
        self.lowers_letters = lowers_letters;
        self.prompt = prompt;
    }

    /// Notes for the log: files of the folder that were used or ignored.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Length of a vector.
    pub fn width(&self) -> Result<usize> {
        let dense = self.steps.iter().rev().find_map(|step| match step {
            Step::Dense(dense) => Some(dense.width()),
            Step::Normalize => None,
        });
        let pooled = match &self.pooling {
            Pooled::One(_) => 1,
            Pooled::Several(modes) => modes.len(),
        };
        dense.unwrap_or(Ok(pooled * self.model.config.encoder.hidden_size))
    }

    /// The longest sequence in tokens, including special tokens.
    pub fn max_seq_length(&self) -> usize {
        self.collator.max_seq_length()
    }

    /// Returns a vector for each text, in order, and the number of tokens lost to truncation. Texts of
    /// similar length are computed together, `batch_size` at a time.
    pub fn vectors(&self, texts: &[TextPair], batch_size: usize) -> Result<(Vec<Vec<f32>>, Truncation)> {
        let changed: Vec<TextPair>;
        let texts = if self.lowers_letters || !self.prompt.is_empty() {
            changed = texts.iter().map(|(first, second)| (self.changed(first), second.clone())).collect();
            &changed
        } else {
            texts
        };
        let firsts: Vec<&str> = texts.iter().map(|(first, _)| first.as_str()).collect();
        let seconds: Vec<Option<&str>> = texts.iter().map(|(_, second)| second.as_deref()).collect();
        let (encoded, lost) = encode(&self.tokenizer, &self.collator, &firsts, &seconds)?;
        let mut order: Vec<usize> = (0..encoded.len()).collect();
        order.sort_by_key(|&index| {
            encoded[index].first.len() + encoded[index].second.as_ref().map_or(0, Vec::len)
        });
        let mut vectors = vec![Vec::new(); encoded.len()];
        for places in order.chunks(batch_size) {
            let batch = self.collator.batch(places.iter().map(|&place| &encoded[place]), 0);
            for (&place, vector) in places.iter().zip(self.stepped(self.pooled(&batch)?)?) {
                vectors[place] = if self.normalize { normalized(vector) } else { vector };
            }
        }
        Ok((vectors, lost))
    }

    /// The text after the prompt, in lower case if the recipe wants that.
    fn changed(&self, text: &str) -> String {
        let text = format!("{}{text}", self.prompt);
        if self.lowers_letters { text.chars().flat_map(char::to_lowercase).collect() } else { text }
    }

    /// Applies the steps after pooling to one row for each text.
    fn stepped(&self, mut rows: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>> {
        for step in &self.steps {
            rows = match step {
                Step::Normalize => rows.into_iter().map(normalized).collect(),
                Step::Dense(dense) => dense.forward(&Tensor::new(rows, &Device::Cpu)?)?.to_vec2()?,
            };
        }
        Ok(rows)
    }

    /// The pooled hidden states of each text of a batch.
    fn pooled(&self, batch: &Batch) -> Result<Vec<Vec<f32>>> {
        let Model { config, encoder, parameters, .. } = &self.model;
        let inputs = Inputs::new(batch, config, parameters.flat().device(), false)?;
        let ctx = Context { parameters, rows: inputs.rows(), pass: None };
        let pooled_md = match &self.pooling {
            Pooled::One(Pooling::Cls) => {
                let Targets { positions, keys, .. } = inputs.targets();
                encoder.infer(inputs.tokens(), Some(Chosen { positions, keys }), &ctx)?
            }
            Pooled::One(Pooling::Mean) => {
                let hidden_td = encoder.infer(inputs.tokens(), None, &ctx)?;
                segment_mean::forward(&hidden_td, ctx.rows.cu_seqlens)?
            }
            Pooled::Several(modes) => {
                let hidden_td = encoder.infer(inputs.tokens(), None, &ctx)?;
                return pooled::pool(modes, &f32_on_cpu(&hidden_td)?, &batch.cu_seqlens);
            }
        };
        Ok(f32_on_cpu(&pooled_md)?.to_vec2()?)
    }
}

fn f32_on_cpu(tensor: &Tensor) -> candle_core::Result<Tensor> {
    tensor.to_device(&Device::Cpu)?.to_dtype(DType::F32)
}

/// Divides the vector by its length; a vector of zeros stays as it is.
fn normalized(vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    if length == 0.0 {
        return vector;
    }
    vector.into_iter().map(|value| (f64::from(value) / length) as f32).collect()
}

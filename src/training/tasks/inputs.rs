//! The arrays of a batch that a model reads: the host's numbers, arrays derived from them, and copies on the
//! GPU if the model is on one.
//!
//! The loader thread that makes a training batch can derive the arrays ([`planner`]), and the copies can be
//! sent before the batch's step ([`send`]). Whatever was not done in advance is done when a pass needs the
//! arrays.

use std::sync::Arc;

use candle_core::{Device, Result};

use base::families::ModelConfig;
use data::batches::{Batch, Planner};
use model::layers::Rows;
use model::models::{Targets, TokenIds};
use ops::cuda::Gpu;
use ops::indices::{Indices, Uploaded};
use ops::upload::{Numbers, Plans, upload};

/// The arrays that a pass over a batch reads.
#[derive(Debug)]
pub(super) struct Inputs<'a> {
    batch: &'a Batch,
    derived: Arc<Derived>,
    on_gpu: Option<Arc<Copies>>,
}

/// Number of arrays of a batch on a GPU.
const ARRAYS: usize = 8;

/// GPU copies in the order of [`Derived::arrays`].
type Copies = [Uploaded; ARRAYS];

/// Arrays that are derived from a batch for a model.
#[derive(Debug)]
struct Derived {
    /// Rows of the position embedding table, including the family's offset, `[T]`.
    position_ids: Vec<u32>,
    /// Dropout keys of the labelled positions, `[M]`.
    label_keys: Vec<u64>,
}

/// A batch after [`planner`]: the derived arrays, and the plans of the kernels that use them.
struct Planned {
    derived: Arc<Derived>,
    plans: Plans<ARRAYS>,
}

/// A batch after [`send`]: the derived arrays, and the copies on the GPU.
struct Sent {
    derived: Arc<Derived>,
    copies: Arc<Copies>,
}

impl Derived {
    fn new(batch: &Batch, config: &ModelConfig) -> Self {
        let offset = config.position_offset() as u32;
        Self {
            position_ids: batch.position_ids.iter().map(|p| p + offset).collect(),
            label_keys: batch.label_positions.iter().map(|&t| batch.token_keys[t as usize]).collect(),
        }
    }

    /// All arrays, each in the form that its op needs; `backward` includes what the gradients need.
    fn arrays<'b>(&'b self, batch: &'b Batch, config: &ModelConfig, backward: bool) -> [Numbers<'b>; ARRAYS] {
        let padding = config.padding_rows();
        let ids =
            |rows, skip| if backward { Numbers::Scattered { rows, skip } } else { Numbers::Plain(rows) };
        [
            ids(&batch.ids, padding.word),
            ids(&self.position_ids, padding.position),
            ids(&batch.token_type_ids, None),
            Numbers::Bounds(&batch.cu_seqlens),
            Numbers::Keys(&batch.token_keys),
            ids(&batch.label_positions, None),
            Numbers::Plain(&batch.labels),
            Numbers::Keys(&self.label_keys),
        ]
    }
}

impl Planned {
    fn new(batch: &Batch, config: &ModelConfig) -> Self {
        let derived = Arc::new(Derived::new(batch, config));
        let plans = Plans::of(derived.arrays(batch, config, true));
        Self { derived, plans }
    }

    fn send(&self, batch: &Batch, config: &ModelConfig, gpu: &Gpu) -> Result<Sent> {
        let copies = Arc::new(upload(gpu, self.derived.arrays(batch, config, true), &self.plans)?);
        Ok(Sent { derived: Arc::clone(&self.derived), copies })
    }
}

/// Returns a function that plans batches for the training of a model on `device`; `None` if that is not a
/// GPU.
pub(super) fn planner(config: &ModelConfig, device: &Device) -> Option<Planner> {
    // An unsupported device is refused by the first pass, not here.
    Gpu::of_device(device).ok()??;
    let config = config.clone();
    Some(Arc::new(move |batch: &mut Batch| {
        let planned = Planned::new(batch, &config);
        batch.ahead.set(planned);
    }))
}

/// Starts to copy a batch to the GPU of the model, in parallel with the computation there. The GPU memory is
/// freed when the batch is cleared or dropped on a thread that uses the GPU.
pub(super) fn send(batch: &mut Batch, config: &ModelConfig, device: &Device) -> Result<()> {
    let Some(gpu) = Gpu::of_device(device)? else { return Ok(()) };
    let sent = match batch.ahead.get::<Planned>() {
        Some(planned) => planned.send(batch, config, &gpu)?,
        None => Planned::new(batch, config).send(batch, config, &gpu)?,
    };
    batch.ahead.set(sent);
    Ok(())
}

impl<'a> Inputs<'a> {
    /// The inputs of `batch` for a model on `device`; `backward` includes what the gradients need.
    pub(super) fn new(
        batch: &'a Batch,
        config: &ModelConfig,
        device: &Device,
        backward: bool,
    ) -> Result<Self> {
        let Some(gpu) = Gpu::of_device(device)? else {
            return Ok(Self { batch, derived: Arc::new(Derived::new(batch, config)), on_gpu: None });
        };
        if !backward {
            let derived = Derived::new(batch, config);
            let arrays = derived.arrays(batch, config, false);
            let copies = Arc::new(upload(&gpu, arrays, &Plans::of(arrays))?);
            return Ok(Self::from_sent(batch, &Sent { derived: Arc::new(derived), copies }));
        }
        match (batch.ahead.get::<Sent>(), batch.ahead.get::<Planned>()) {
            (Some(sent), _) => Ok(Self::from_sent(batch, sent)),
            (None, Some(planned)) => Ok(Self::from_sent(batch, &planned.send(batch, config, &gpu)?)),
            (None, None) => {
                let sent = Planned::new(batch, config).send(batch, config, &gpu)?;
                Ok(Self::from_sent(batch, &sent))
            }
        }
    }

    fn from_sent(batch: &'a Batch, sent: &Sent) -> Self {
        Self { batch, derived: Arc::clone(&sent.derived), on_gpu: Some(Arc::clone(&sent.copies)) }
    }

    /// An array with its GPU copy, which has this index in [`Derived::arrays`].
    fn array<'b, T>(&'b self, host: &'b [T], index: usize) -> Indices<'b, T> {
        self.on_gpu.as_ref().map_or(host.into(), |copies| Indices::uploaded(host, &copies[index]))
    }

    /// Rows of the word embedding table, `[T]`.
    pub(super) fn ids(&self) -> Indices<'_> {
        self.array(&self.batch.ids, 0)
    }

    /// The token ids, position ids and token types.
    pub(super) fn tokens(&self) -> TokenIds<'_> {
        TokenIds {
            ids: self.ids().into(),
            position_ids: self.array(&self.derived.position_ids, 1),
            token_type_ids: self.array(&self.batch.token_type_ids, 2),
        }
    }

    /// The bounds of the segments and the dropout keys of the tokens.
    pub(super) fn rows(&self) -> Rows<'_> {
        Rows {
            cu_seqlens: self.array(&self.batch.cu_seqlens, 3),
            token_keys: self.array(&self.batch.token_keys, 4),
            is_causal: self.batch.is_causal,
        }
    }

    /// The labelled positions with their labels and dropout keys.
    pub(super) fn targets(&self) -> Targets<'_> {
        Targets {
            positions: self.array(&self.batch.label_positions, 5),
            labels: self.array(&self.batch.labels, 6),
            teacher: &self.batch.teacher,
            keys: self.array(&self.derived.label_keys, 7),
        }
    }
}

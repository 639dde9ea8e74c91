//! A batch as models take it: the host's numbers, what follows from them, and their copies where the model is
//! on a GPU.
//!
//! Of a batch that is trained on, the thread that makes it can work out what follows ([`planner`]), and the
//! copies can be sent before its step ([`send`]); what was not done then is done when a pass wants it.

use std::sync::Arc;

use candle_core::Device;
use candle_core::Result;

use crate::batches::Batch;
use crate::batches::Planner;
use crate::families::ModelConfig;
use crate::layers::Rows;
use crate::models::Targets;
use crate::models::TokenIds;
use crate::ops::cuda::Gpu;
use crate::ops::indices::Indices;
use crate::ops::indices::Uploaded;
use crate::ops::upload::Numbers;
use crate::ops::upload::Plans;
use crate::ops::upload::upload;

/// What a pass over a batch reads.
#[derive(Debug)]
pub(super) struct Inputs<'a> {
    batch: &'a Batch,
    derived: Arc<Derived>,
    on_gpu: Option<Arc<Copies>>,
}

/// Arrays of a batch on a GPU.
const ARRAYS: usize = 8;

/// Copies in the order of [`Derived::arrays`].
type Copies = [Uploaded; ARRAYS];

/// What follows from a batch for a model.
#[derive(Debug)]
struct Derived {
    /// Rows of the position table, the family's offset included, `[T]`.
    position_ids: Vec<u32>,
    /// Dropout keys of the labelled positions, `[M]`.
    label_keys: Vec<u64>,
}

/// A batch as [`planner`] leaves it.
struct Planned {
    derived: Arc<Derived>,
    plans: Plans<ARRAYS>,
}

/// A batch as [`send`] leaves it.
struct Sent {
    derived: Arc<Derived>,
    copies: Arc<Copies>,
}

impl Derived {
    fn of(batch: &Batch, config: &ModelConfig) -> Self {
        let offset = config.position_offset() as u32;
        Self {
            position_ids: batch.position_ids.iter().map(|p| p + offset).collect(),
            label_keys: batch.label_positions.iter().map(|&t| batch.token_keys[t as usize]).collect(),
        }
    }

    /// All arrays, each by the plan that its op wants; with `backward`, what gradients need besides.
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
    fn of(batch: &Batch, config: &ModelConfig) -> Self {
        let derived = Arc::new(Derived::of(batch, config));
        let plans = Plans::of(derived.arrays(batch, config, true));
        Self { derived, plans }
    }

    fn sent(&self, batch: &Batch, config: &ModelConfig, gpu: &Gpu) -> Result<Sent> {
        let copies = Arc::new(upload(gpu, self.derived.arrays(batch, config, true), &self.plans)?);
        Ok(Sent { derived: Arc::clone(&self.derived), copies })
    }
}

/// Plans batches for the training of a model on `device`; `None` where that is no GPU.
pub(super) fn planner(config: &ModelConfig, device: &Device) -> Option<Planner> {
    // A device that there is no code for is refused by the first pass.
    Gpu::of_device(device).ok()??;
    let config = config.clone();
    Some(Arc::new(move |batch: &mut Batch| {
        let planned = Planned::of(batch, &config);
        batch.ahead.set(planned);
    }))
}

/// Begins to copy a batch to the GPU that the model is on, beside what is computed there. Its memory there is
/// free again when the batch is cleared or dropped, on a thread that uses the GPU.
pub(super) fn send(batch: &mut Batch, config: &ModelConfig, device: &Device) -> Result<()> {
    let Some(gpu) = Gpu::of_device(device)? else { return Ok(()) };
    let sent = match batch.ahead.get::<Planned>() {
        Some(planned) => planned.sent(batch, config, &gpu)?,
        None => Planned::of(batch, config).sent(batch, config, &gpu)?,
    };
    batch.ahead.set(sent);
    Ok(())
}

impl<'a> Inputs<'a> {
    /// The inputs that `batch` is for a model on `device`; with `backward`, what gradients need besides.
    pub(super) fn new(
        batch: &'a Batch,
        config: &ModelConfig,
        device: &Device,
        backward: bool,
    ) -> Result<Self> {
        let Some(gpu) = Gpu::of_device(device)? else {
            return Ok(Self { batch, derived: Arc::new(Derived::of(batch, config)), on_gpu: None });
        };
        let of = |Sent { derived, copies }: &Sent| Self {
            batch,
            derived: Arc::clone(derived),
            on_gpu: Some(Arc::clone(copies)),
        };
        if !backward {
            let derived = Derived::of(batch, config);
            let arrays = derived.arrays(batch, config, false);
            let copies = Arc::new(upload(&gpu, arrays, &Plans::of(arrays))?);
            return Ok(of(&Sent { derived: Arc::new(derived), copies }));
        }
        match (batch.ahead.get::<Sent>(), batch.ahead.get::<Planned>()) {
            (Some(sent), _) => Ok(of(sent)),
            (None, Some(planned)) => Ok(of(&planned.sent(batch, config, &gpu)?)),
            (None, None) => Ok(of(&Planned::of(batch, config).sent(batch, config, &gpu)?)),
        }
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
            position_ids: self.at(&self.derived.position_ids, 1),
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
            keys: self.at(&self.derived.label_keys, 7),
        }
    }
}

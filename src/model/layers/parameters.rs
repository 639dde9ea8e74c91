//! All parameters in one flat f32 buffer, ordered by name, with a view for every parameter. The gradients
//! have another buffer (`gradients.rs`).
//!
//! So gradient accumulation, the global norm, clipping, the update and an exchange between processes are each
//! one pass over one buffer. The optimizer's moments are buffers of the same layout, owned by `optim`.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor, bail};

use crate::layers::Init;
use crate::layers::init::fill;
use ops::tensor::with_slice_mut;
use ops::{cuda, moving_average};

/// Every parameter starts at a multiple of this number of elements: 256 bytes in f32, so that wide loads stay
/// aligned.
const ALIGNMENT: usize = 64;

/// Number of values that [`Parameters::exchange`] rounds at once.
const ROUNDED_AT_ONCE: usize = 1 << 22;

/// Index of a parameter in [`Parameters`] and [`Gradients`](super::Gradients).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterId(pub(super) usize);

/// Description of a parameter, independent of its values.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterSpec {
    /// Hugging Face name.
    pub name: String,
    /// Shape.
    pub shape: Vec<usize>,
    /// Initial values.
    pub init: Init,
    /// True if weight decay applies: to all parameters but biases and norms.
    pub decays: bool,
    /// True if matrix products write its gradient, which they can do in bf16.
    pub is_product: bool,
    /// Number of its model in the run, from 0.
    pub model: u8,
    /// The part of the model that it belongs to.
    pub part: Part,
    /// Order of its rows in files: for each row there, its index in the flat buffer. `None` if it is the
    /// same.
    pub file_rows: Option<Arc<[u32]>>,
    /// Range of its elements in the flat buffer.
    pub range: Range<usize>,
}

impl ParameterSpec {
    /// The tensor with its rows in the order of the flat buffer, from a tensor as files contain it.
    fn in_buffer_order(&self, value: &Tensor) -> Result<Tensor> {
        let Some(file_rows) = &self.file_rows else { return Ok(value.clone()) };
        let mut rows = vec![0_u32; file_rows.len()];
        for (row, &index) in (0..).zip(file_rows.iter()) {
            rows[index as usize] = row;
        }
        value.index_select(&Tensor::new(rows, value.device())?, 0)
    }
}

/// A part of a model, from its input to its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Part {
    /// The input embeddings.
    #[default]
    Embeddings,
    /// A layer of the encoder, from 0.
    Layer(usize),
    /// The head on top of the encoder.
    Head,
}

/// The target of a [`ParameterId`]: a tensor, or some of its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Slot {
    /// Index of the tensor in the order of registration.
    spec: usize,
    /// The rows; `None` for all.
    rows: Option<Range<usize>>,
}

/// Collects parameters while a model is built; [`Registry::layout`] then places them.
#[derive(Debug, Default)]
pub struct Registry {
    specs: Vec<ParameterSpec>,
    slots: Vec<Slot>,
    scope: &'static str,
    model: u8,
    part: Part,
}

impl Registry {
    /// Sets the model (its number in the run) and the name prefix `scope` of the parameters registered next.
    /// A run of one model has an empty scope. Parameters that two models share are registered once, by one of
    /// them.
    pub fn begin_model(&mut self, model: u8, scope: &'static str) {
        (self.model, self.scope, self.part) = (model, scope, Part::default());
    }

    /// Sets the part of the parameters registered next.
    pub fn enter(&mut self, part: Part) {
        self.part = part;
    }

    /// Adds a weight matrix or table, to which weight decay applies.
    pub fn weight(&mut self, name: impl Into<String>, shape: &[usize], init: Init) -> ParameterId {
        self.add(&name.into(), shape, init, true)
    }

    /// Adds one weight matrix that several maps share: each has `rows` rows of it, one below the other,
    /// `cols` wide. Layers see each map's rows as a separate parameter; in files and for the optimizer the
    /// matrix is one tensor.
    pub fn weight_of_maps<const N: usize>(
        &mut self,
        name: impl Into<String>,
        rows: usize,
        cols: usize,
        init: Init,
    ) -> [ParameterId; N] {
        let id = self.weight(name, &[N * rows, cols], init);
        self.mark_product(id);
        let whole = self.slots.pop().expect("a slot was just pushed");
        std::array::from_fn(|map| {
            self.slots.push(Slot { rows: Some(map * rows..(map + 1) * rows), ..whole });
            ParameterId(self.slots.len() - 1)
        })
    }

    /// Sets the order of a tensor's rows in files: for each row there, its index in the flat buffer.
    pub fn order_in_files(&mut self, id: ParameterId, rows: Arc<[u32]>) {
        self.specs[self.slots[id.0].spec].file_rows = Some(rows);
    }

    /// Adds a bias or a norm's vector, to which weight decay does not apply.
    pub fn vector(&mut self, name: impl Into<String>, len: usize, init: Init) -> ParameterId {
        self.add(&name.into(), &[len], init, false)
    }

    /// Marks a registered parameter as one whose gradient is written by matrix products.
    pub fn mark_product(&mut self, id: ParameterId) {
        self.specs[self.slots[id.0].spec].is_product = true;
    }

    /// Takes back [`Self::mark_product`] for the parameters of a part of this model that several layers
    /// share: their gradients are long sums, which bf16 would round at every summand.
    pub fn share_part(&mut self, part: Part) {
        let shared = self.specs.iter_mut().filter(|spec| (spec.model, spec.part) == (self.model, part));
        shared.for_each(|spec| spec.is_product = false);
    }

    /// Changes the initial values of a registered weight to zeros.
    pub fn begin_at_zero(&mut self, id: ParameterId) {
        self.specs[self.slots[id.0].spec].init = Init::Zeros;
    }

    fn add(&mut self, name: &str, shape: &[usize], init: Init, decays: bool) -> ParameterId {
        let name = format!("{}{name}", self.scope);
        let model = self.model;
        let part = self.part;
        let shape = shape.to_vec();
        self.specs.push(ParameterSpec {
            name,
            shape,
            init,
            decays,
            is_product: false,
            model,
            part,
            file_rows: None,
            range: 0..0,
        });
        self.slots.push(Slot { spec: self.specs.len() - 1, rows: None });
        ParameterId(self.slots.len() - 1)
    }

    /// Assigns the parameters their places in the flat buffer, ordered by name. Names are unique by
    /// construction of the models.
    pub fn layout(mut self) -> Layout {
        let mut order: Vec<usize> = (0..self.specs.len()).collect();
        order.sort_by(|&a, &b| self.specs[a].name.cmp(&self.specs[b].name));
        let mut start = 0;
        for &index in &order {
            let spec = &mut self.specs[index];
            let len: usize = spec.shape.iter().product();
            spec.range = start..start + len;
            start = (start + len).next_multiple_of(ALIGNMENT);
        }
        Layout { specs: self.specs, slots: self.slots, order, len: start }
    }
}

/// The range of each parameter in the flat buffers.
#[derive(Debug, Clone)]
pub struct Layout {
    specs: Vec<ParameterSpec>,
    slots: Vec<Slot>,
    order: Vec<usize>,
    len: usize,
}

impl Layout {
    /// Elements of a flat buffer (N), including alignment gaps.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no parameter.
    pub fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// Parameters in the order of the buffer, which is the order of their names.
    pub fn specs(&self) -> impl Iterator<Item = &ParameterSpec> {
        self.order.iter().map(|&index| &self.specs[index])
    }

    /// [`Self::specs`], each with the ids by which layers use it: one id, or one for each map that shares the
    /// tensor.
    pub(super) fn specs_with_ids(&self) -> impl Iterator<Item = (&ParameterSpec, Vec<ParameterId>)> {
        let mut ids = vec![Vec::new(); self.specs.len()];
        for (id, slot) in self.slots.iter().enumerate() {
            ids[slot.spec].push(ParameterId(id));
        }
        self.order.iter().map(move |&spec| (&self.specs[spec], std::mem::take(&mut ids[spec])))
    }

    /// Pairs of each parameter's name in the run and in its folder, which are equal for the only model of a
    /// run.
    pub fn own_names(&self) -> Vec<(String, String)> {
        self.specs().map(|spec| (spec.name.clone(), spec.name.clone())).collect()
    }

    /// Number of elements of all parameters, without gaps.
    pub fn num_elements(&self) -> usize {
        self.specs.iter().map(|s| s.range.len()).sum()
    }

    /// The tensors of a flat buffer on the CPU as files contain them, in the order of the parameters' names,
    /// with these names: views, or copies of tensors whose rows have another order in files.
    pub fn named(&self, flat: &Tensor) -> Result<Vec<(String, Tensor)>> {
        let named = self.specs().map(|spec| {
            let whole = view(flat, spec)?;
            let tensor = match &spec.file_rows {
                None => whole,
                Some(rows) => whole.index_select(&Tensor::new(&rows[..], flat.device())?, 0)?,
            };
            Ok((spec.name.clone(), tensor))
        });
        named.collect()
    }

    /// Bytes of the tensors that [`Self::named`] copies.
    pub fn copied_bytes(&self) -> u64 {
        let copied = self.specs.iter().filter(|spec| spec.file_rows.is_some());
        4 * copied.map(|spec| spec.range.len() as u64).sum::<u64>()
    }

    /// Views of a flat buffer, by [`ParameterId`].
    pub(super) fn views(&self, flat: &Tensor) -> Result<Vec<Tensor>> {
        self.views_of(|spec| view(flat, spec))
    }

    /// Views by [`ParameterId`] of the tensors that `whole` returns for each parameter.
    pub(super) fn views_of(&self, whole: impl Fn(&ParameterSpec) -> Result<Tensor>) -> Result<Vec<Tensor>> {
        let views = self.slots.iter().map(|slot| {
            let whole = whole(&self.specs[slot.spec])?;
            slot.rows.as_ref().map_or(Ok(whole.clone()), |rows| whole.narrow(0, rows.start, rows.len()))
        });
        views.collect()
    }
}

/// The view of a whole tensor.
fn view(flat: &Tensor, spec: &ParameterSpec) -> Result<Tensor> {
    flat.narrow(0, spec.range.start, spec.range.len())?.reshape(spec.shape.as_slice())
}

/// The values of all parameters, and their copy in the type in which products are computed.
#[derive(Debug)]
pub struct Parameters {
    layout: Layout,
    flat: Tensor,
    views: Vec<Tensor>,
    shadow: Option<Shadow>,
}

/// A copy of the flat buffer in a half type; code that changes the values rounds them into this copy.
#[derive(Debug)]
struct Shadow {
    flat: Tensor,
    views: Vec<Tensor>,
}

impl Parameters {
    /// Parameters that are all zero, for a model whose values all come from a file: drawing initial values
    /// would take longer than reading them.
    pub fn zeros(layout: Layout, device: &Device) -> Result<Self> {
        let flat = Tensor::zeros(layout.len, DType::F32, device)?;
        Self::with_values(layout, flat)
    }

    /// Creates parameters with their initial values. Each is drawn from a random stream of its own name, so
    /// that a model's head never changes the initial values of its encoder.
    pub fn initialise(layout: Layout, initializer_range: f64, seed: u64, device: &Device) -> Result<Self> {
        Self::initialise_some(layout, initializer_range, seed, device, |_| true)
    }

    /// As [`Self::initialise`], but parameters that are not `drawn` are zero.
    pub fn initialise_some(
        layout: Layout,
        initializer_range: f64,
        seed: u64,
        device: &Device,
        drawn: impl Fn(&ParameterSpec) -> bool,
    ) -> Result<Self> {
        let flat = Tensor::zeros(layout.len, DType::F32, &Device::Cpu)?;
        with_slice_mut(&flat, |values| {
            for spec in layout.specs.iter().filter(|spec| drawn(spec)) {
                let cols = spec.shape.last().copied().unwrap_or(0);
                let values = &mut values[spec.range.clone()];
                fill(values, spec.init, &spec.name, cols, initializer_range, seed);
            }
        })?;
        Self::with_values(layout, flat.to_device(device)?)
    }

    fn with_values(layout: Layout, flat: Tensor) -> Result<Self> {
        let views = layout.views(&flat)?;
        Ok(Self { layout, flat, views, shadow: None })
    }

    /// The same parameters for a model that computes in `dtype`: f32 needs no copy, bf16 and f16 get a
    /// rounded copy.
    pub fn computing_in(mut self, dtype: DType) -> Result<Self> {
        self.shadow = None;
        if dtype != DType::F32 {
            let flat = cuda::rounded(&self.flat, dtype)?;
            self.shadow = Some(Shadow { views: self.layout.views(&flat)?, flat });
        }
        Ok(self)
    }

    /// The number type of activations and products.
    pub fn compute_dtype(&self) -> DType {
        self.shadow.as_ref().map_or(DType::F32, |shadow| shadow.flat.dtype())
    }

    /// A view of one parameter, f32.
    pub fn get(&self, id: ParameterId) -> &Tensor {
        &self.views[id.0]
    }

    /// A view of one parameter in [`Self::compute_dtype`], for products.
    pub fn compute(&self, id: ParameterId) -> &Tensor {
        &self.shadow.as_ref().map_or(&self.views, |shadow| &shadow.views)[id.0]
    }

    /// The whole copy in a half type, `[N]`; `None` if the model computes in f32.
    pub fn shadow(&self) -> Option<&Tensor> {
        self.shadow.as_ref().map(|shadow| &shadow.flat)
    }

    /// The whole buffer, `[N]`.
    pub fn flat(&self) -> &Tensor {
        &self.flat
    }

    /// The layout of the buffers.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// All parameters on the CPU as files contain them, ordered by name ([`Layout::named`]). Values on a GPU
    /// are copied at once, because reading a single view would transfer the whole buffer each time.
    pub fn named(&self) -> Result<Vec<(String, Tensor)>> {
        self.layout.named(&self.flat.to_device(&Device::Cpu)?)
    }

    /// Exchanges all values with those of `flat`, another buffer of this layout on the same device.
    pub fn exchange(&self, flat: &Tensor) -> Result<()> {
        moving_average::exchange(flat, &self.flat)?;
        self.round_all()
    }

    /// Overwrites all values with those of `flat`, another buffer of this layout on any device.
    pub fn set_all(&self, flat: &Tensor) -> Result<()> {
        cuda::overwrite(&self.flat, &flat.to_device(self.flat.device())?)?;
        self.round_all()
    }

    fn round_all(&self) -> Result<()> {
        let len = self.layout.len;
        // In pieces, because rounding makes a copy.
        (0..len)
            .step_by(ROUNDED_AT_ONCE)
            .try_for_each(|start| self.round(start..len.min(start + ROUNDED_AT_ONCE)))
    }

    /// Rounds these values into the copy in a half type, if there is one, as an update does.
    pub fn round(&self, range: Range<usize>) -> Result<()> {
        let Some(shadow) = &self.shadow else { return Ok(()) };
        let values = self.flat.narrow(0, range.start, range.len())?;
        let copy = shadow.flat.narrow(0, range.start, range.len())?;
        cuda::overwrite(&copy, &cuda::rounded(&values, shadow.flat.dtype())?)
    }

    /// Overwrites one parameter with a tensor as files contain it; the shape must be the same.
    pub fn set(&self, name: &str, value: &Tensor) -> Result<()> {
        let Some(spec) = self.layout.specs.iter().find(|spec| spec.name == name) else {
            bail!("parameter `{name}` is not part of this model");
        };
        if spec.shape != value.dims() {
            bail!("tensor `{name}` is {:?}, the model wants {:?}", value.dims(), spec.shape);
        }
        let value = spec.in_buffer_order(&value.to_device(&Device::Cpu)?.contiguous()?)?;
        overwrite(&self.flat, spec, &value)?;
        self.shadow.as_ref().map_or(Ok(()), |shadow| overwrite(&shadow.flat, spec, &value))
    }
}

/// Overwrites one parameter in a flat buffer of any type, on any device.
fn overwrite(flat: &Tensor, spec: &ParameterSpec, value: &Tensor) -> Result<()> {
    cuda::overwrite(&view(flat, spec)?, &value.to_dtype(flat.dtype())?.to_device(flat.device())?)
}

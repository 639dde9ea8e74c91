//! The gradients of all parameters in one flat f32 buffer with the layout of the parameters; or those that
//! matrix products write in a bf16 buffer, and all others in an f32 buffer (`gradient_places.rs`).
//!
//! For a sum whose bits do not depend on the number of processes, the leaves of the sum (groups of
//! micro-batches) are added up in pairs: each leaf accumulates in its own buffer, and there is one buffer for
//! each open level of the tree.
//!
//! An op locks the buffer while it writes. The thread of the backward pass reports final gradients to a
//! listener between two layers, when no op writes: the listener copies them there into what it will send, and
//! no longer needs the buffer while the next layer writes.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use candle_core::{DType, Device, Result, Tensor, bail};
use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::{ParallelSlice, ParallelSliceMut};

use crate::layers::context::Pass;
use crate::layers::{GradientPlaces, Layout, ParameterId, Parameters, Part};
use ops::accumulator::Accumulator;
use ops::parallel::BLOCK_VALUES;
use ops::tensor::{with_slice, with_slice_mut};
use ops::update::GradientPlace;

/// The gradients of all parameters, accumulated since they were last cleared.
///
/// Clearing writes nothing: the first gradient of a parameter overwrites the old value. That saves two passes
/// over a buffer that is too large for any cache.
pub struct Gradients {
    /// The sums that wait for the other half of their pair, followed by the buffer that accumulates now;
    /// allocated when needed.
    buffers: Vec<Buffer>,
    /// Index of the buffer that accumulates.
    current: usize,
    /// Number of complete leaves.
    leaves: usize,
    layout: Layout,
    /// The place of each gradient; `None` if all are in one buffer with the layout of the parameters.
    places: Option<GradientPlaces>,
    /// For each parameter, true if its view contains a sum, false if it contains a value from before the last
    /// clearing.
    begun: Vec<AtomicBool>,
    /// Parts of the buffer that become final together, in the order of the buffer.
    stretches: Vec<Stretch>,
    listener: Option<Listener>,
}

/// A flat buffer, and each parameter's view of its gradient.
struct Buffer {
    flat: Tensor,
    /// The gradients that are not in `flat`, bf16; `None` if all are.
    half: Option<Tensor>,
    views: Vec<Tensor>,
}

impl Buffer {
    fn new(layout: &Layout, device: &Device) -> Result<Self> {
        let flat = Tensor::zeros(layout.len(), DType::F32, device)?;
        Ok(Self { views: layout.views(&flat)?, flat, half: None })
    }

    fn split(layout: &Layout, places: &GradientPlaces, device: &Device) -> Result<Self> {
        let flat = Tensor::zeros(places.single_len(), DType::F32, device)?;
        let half = Tensor::zeros(places.half_len(), DType::BF16, device)?;
        let views = layout.views_of(|spec| {
            let GradientPlace { is_half, start } = places.place_of(spec.range.start);
            let buffer = if is_half { &half } else { &flat };
            buffer.narrow(0, start, spec.range.len())?.reshape(spec.shape.as_slice())
        })?;
        Ok(Self { flat, half: Some(half), views })
    }
}

/// The buffers that contain all gradients.
#[derive(Debug, Clone, Copy)]
pub struct GradientBuffers<'a> {
    /// The gradients in f32.
    pub single: &'a Tensor,
    /// The gradients in bf16; `None` if all are f32, in the layout of the parameters.
    pub half: Option<&'a Tensor>,
}

impl<'a> GradientBuffers<'a> {
    /// The tensors that together contain each gradient once.
    pub fn parts(&self) -> Vec<&'a Tensor> {
        std::iter::once(self.single).chain(self.half).collect()
    }
}

/// A range of the buffer that becomes final at one time.
struct Stretch {
    model: u8,
    part: Part,
    range: Range<usize>,
    /// The parameters in this range.
    parameters: Vec<ParameterId>,
    /// True if its last leaf is already added to the others.
    is_joined: AtomicBool,
}

/// Called with ranges of the flat buffer that are final, and their values.
type Listener = Box<dyn Fn(Range<usize>, &Tensor) -> Result<()> + Send + Sync>;

impl Gradients {
    /// Allocates cleared gradients for every parameter of `parameters`.
    pub fn new(parameters: &Parameters) -> Result<Self> {
        let buffer = Buffer::new(parameters.layout(), parameters.flat().device())?;
        Ok(Self::with_buffer(parameters, buffer, None))
    }

    /// As [`Self::new`], but gradients that matrix products write have the type `weights`, f32 or bf16. Of
    /// bf16 there is one leaf, and no listener.
    pub fn with_weights_in(parameters: &Parameters, weights: DType) -> Result<Self> {
        let places = GradientPlaces::new(parameters.layout());
        if weights == DType::F32 || places.half_len() == 0 {
            return Self::new(parameters);
        }
        if weights != DType::BF16 || parameters.compute_dtype() != weights {
            bail!("gradients in {weights:?} of a model that computes in {:?}", parameters.compute_dtype());
        }
        let buffer = Buffer::split(parameters.layout(), &places, parameters.flat().device())?;
        Ok(Self::with_buffer(parameters, buffer, Some(places)))
    }

    fn with_buffer(parameters: &Parameters, buffer: Buffer, places: Option<GradientPlaces>) -> Self {
        let layout = parameters.layout();
        let begun = buffer.views.iter().map(|_| AtomicBool::new(false)).collect();
        let mut stretches: Vec<Stretch> = Vec::new();
        for (spec, ids) in layout.specs_with_ids() {
            let model = spec.model;
            let part = spec.part;
            let range = spec.range.clone();
            match stretches.last_mut() {
                Some(before) if (before.model, before.part) == (model, part) => {
                    before.range.end = range.end;
                    before.parameters.extend(ids);
                }
                _ => stretches.push(Stretch {
                    model,
                    part,
                    range,
                    parameters: ids,
                    is_joined: AtomicBool::new(false),
                }),
            }
        }
        let layout = layout.clone();
        Self {
            buffers: vec![buffer],
            current: 0,
            leaves: 0,
            layout,
            places,
            begun,
            stretches,
            listener: None,
        }
    }

    /// Registers a listener that is called during the backward pass with every range whose gradients are
    /// final in this step, and its values with all leaves added up. A batch without labels has no backward
    /// pass: ranges that were not reported are final when the step is.
    pub fn tell(&mut self, listener: impl Fn(Range<usize>, &Tensor) -> Result<()> + Send + Sync + 'static) {
        assert!(self.places.is_none(), "gradients that others receive are f32");
        self.listener = Some(Box::new(listener));
    }

    /// Marks the gradients of a part of a model as complete for this micro-batch: the backward pass has left
    /// the part.
    pub fn left(&self, pass: Option<Pass>, part: Part) -> Result<()> {
        let (Some(listener), Some(Pass { model, last_micro_batch: true, .. })) = (&self.listener, pass)
        else {
            return Ok(());
        };
        for stretch in self.stretches.iter().filter(|stretch| (stretch.model, stretch.part) == (model, part))
        {
            // A parameter that no gradient has reached has a gradient of zero.
            stretch.parameters.iter().try_for_each(|&id| self.get(id).map(|_| ()))?;
            self.join_stretch(stretch)?;
            let range = stretch.range.clone();
            listener(range.clone(), &self.buffers[0].flat.narrow(0, range.start, range.len())?)?;
        }
        Ok(())
    }

    /// Adds up the open levels of the tree, within one range.
    fn join_stretch(&self, stretch: &Stretch) -> Result<()> {
        stretch.is_joined.store(true, Ordering::Relaxed);
        let start = stretch.range.start;
        let len = stretch.range.len();
        for level in (0..self.current).rev() {
            let sum = self.buffers[level].flat.narrow(0, start, len)?;
            add(&sum, &self.buffers[level + 1].flat.narrow(0, start, len)?)?;
        }
        Ok(())
    }

    /// Marks all gradients as cleared.
    pub fn clear(&mut self) {
        (self.current, self.leaves) = (0, 0);
        self.begin();
    }

    /// Begins another leaf of the sum. On the CPU only.
    pub fn begin_leaf(&mut self) -> Result<()> {
        if self.places.is_some() {
            bail!("gradients of several micro-batches are added up in f32");
        }
        self.end_leaf()?;
        self.current += 1;
        if self.current == self.buffers.len() {
            self.buffers.push(Buffer::new(&self.layout, self.buffers[0].flat.device())?);
        }
        self.begin();
        Ok(())
    }

    /// Adds up the open levels of the tree: no leaf follows.
    pub fn end_leaves(&mut self) -> Result<()> {
        if self.stretches.iter().any(|stretch| stretch.is_joined.load(Ordering::Relaxed)) {
            // Writes zeros for parameters without a gradient.
            self.flat()?;
            for stretch in &self.stretches {
                if !stretch.is_joined.load(Ordering::Relaxed) {
                    self.join_stretch(stretch)?;
                }
                stretch.is_joined.store(false, Ordering::Relaxed);
            }
            self.current = 0;
            return Ok(());
        }
        if self.leaves > 0 {
            self.end_leaf()?;
        }
        while self.current > 0 {
            self.join()?;
        }
        Ok(())
    }

    fn begin(&mut self) {
        self.begun.iter_mut().for_each(|begun| *begun.get_mut() = false);
    }

    /// Joins the pairs that this leaf completes: as many as the number of leaves has factors of two.
    fn end_leaf(&mut self) -> Result<()> {
        self.flat()?;
        self.leaves += 1;
        (0..self.leaves.trailing_zeros()).try_for_each(|_| self.join())
    }

    /// Adds the newest sum to the one before it.
    fn join(&mut self) -> Result<()> {
        self.current -= 1;
        add(&self.buffers[self.current].flat, &self.buffers[self.current + 1].flat)
    }

    fn buffer(&self) -> &Buffer {
        &self.buffers[self.current]
    }

    /// The accumulator of a parameter's gradient, for an op that either adds to it or overwrites it if it has
    /// not begun.
    pub fn accumulator(&self, id: ParameterId) -> Accumulator<'_> {
        Accumulator { sum: &self.buffer().views[id.0], begun: self.begun[id.0].swap(true, Ordering::Relaxed) }
    }

    /// The view into which a parameter's gradient accumulates, for an op that can only add.
    pub fn get(&self, id: ParameterId) -> Result<&Tensor> {
        self.accumulator(id).begin()
    }

    /// The whole buffer, `[N]`; zeros for parameters without a gradient. An error if some gradients are in
    /// another buffer.
    pub fn flat(&self) -> Result<&Tensor> {
        let GradientBuffers { single, half } = self.buffers()?;
        if half.is_some() {
            bail!("gradients of two types are not in one buffer");
        }
        Ok(single)
    }

    /// All gradients; zeros for parameters without one.
    pub fn buffers(&self) -> Result<GradientBuffers<'_>> {
        (0..self.begun.len()).try_for_each(|index| self.get(ParameterId(index)).map(|_| ()))?;
        let Buffer { flat, half, .. } = self.buffer();
        Ok(GradientBuffers { single: flat, half: half.as_ref() })
    }

    /// The place of each gradient; `None` if all are in one buffer with the layout of the parameters.
    pub fn places(&self) -> Option<&GradientPlaces> {
        self.places.as_ref()
    }
}

/// Adds `more` to `sum`, element by element.
fn add(sum: &Tensor, more: &Tensor) -> Result<()> {
    with_slice(more, |more| {
        with_slice_mut(sum, |sum| {
            let blocks = sum.par_chunks_mut(BLOCK_VALUES).zip(more.par_chunks(BLOCK_VALUES));
            blocks.for_each(|(sum, more)| sum.iter_mut().zip(more).for_each(|(a, b)| *a += b));
        })
    })?
}

impl fmt::Debug for Gradients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gradients").field("flat", &self.buffer().flat).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use half::bf16;

    use super::*;
    use crate::layers::linear::Linear;
    use crate::layers::{Init, Registry};
    use ops::tensor::with_values_mut;

    fn parameters() -> (ParameterId, ParameterId, Parameters) {
        let mut registry = Registry::default();
        let weight = registry.weight("b.weight", &[3, 5], Init::NormalWithZeroRow(1));
        let bias = registry.vector("a.bias", 7, Init::Ones);
        (weight, bias, Parameters::initialise(registry.layout(), 0.02, 1, &Device::Cpu).unwrap())
    }

    #[test]
    fn what_was_cleared_is_overwritten_or_zero() {
        let (weight, bias, parameters) = parameters();
        let mut gradients = Gradients::new(&parameters).unwrap();
        assert!(!gradients.accumulator(weight).begun && gradients.accumulator(weight).begun);
        with_slice_mut(&gradients.buffer().flat, |values| values.fill(f32::NAN)).unwrap();
        gradients.clear();
        let written = gradients.accumulator(weight);
        assert!(!written.begun);
        with_slice_mut(written.sum, |values| values.fill(2.0)).unwrap();
        assert_eq!(gradients.get(bias).unwrap().to_vec1::<f32>().unwrap(), [0.0; 7]);
        let whole = gradients.flat().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!((&whole[..7], &whole[64..79]), (&[0.0; 7][..], &[2.0; 15][..]));
        gradients.clear();
        let whole = gradients.flat().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!((&whole[..7], &whole[64..79]), (&[0.0; 7][..], &[0.0; 15][..]));
    }

    #[test]
    fn gradients_of_products_may_be_in_bf16() {
        let mut registry = Registry::default();
        let table = registry.weight("b.table", &[3, 5], Init::Normal);
        let map = Linear::new(&mut registry, "a", 2, 3);
        let parameters = Parameters::initialise(registry.layout(), 0.02, 1, &Device::Cpu).unwrap();
        assert!(Gradients::with_weights_in(&parameters, DType::BF16).is_err(), "it computes in f32");
        let parameters = parameters.computing_in(DType::BF16).unwrap();
        let mut gradients = Gradients::with_weights_in(&parameters, DType::BF16).unwrap();
        let types = [table, map.weight, map.bias.unwrap()].map(|id| gradients.accumulator(id).sum.dtype());
        assert_eq!(types, [DType::F32, DType::BF16, DType::F32]);
        let half = gradients.accumulator(map.weight).sum;
        with_values_mut::<bf16, _>(half, |values| values.fill(bf16::from_f32(3.0))).unwrap();
        gradients.clear();
        with_values_mut::<bf16, _>(gradients.get(map.weight).unwrap(), |values| {
            assert!(values.iter().all(|value| *value == bf16::ZERO), "cleared");
            values[5] = bf16::ONE;
        })
        .unwrap();
        let GradientBuffers { single, half } = gradients.buffers().unwrap();
        // Each with the gaps that align its parameters.
        assert_eq!((single.elem_count(), half.unwrap().elem_count()), (128, 64));
        let values = half.unwrap().to_dtype(DType::F32).unwrap().to_vec1::<f32>().unwrap();
        assert_eq!((values.iter().sum::<f32>(), values[5]), (1.0, 1.0));
        assert!(gradients.flat().is_err() && gradients.begin_leaf().is_err());
        let all_single = Gradients::with_weights_in(&parameters, DType::F32).unwrap();
        assert!(all_single.places().is_none() && all_single.flat().is_ok());
    }

    /// Seven leaves: the tree ends with a pair and a single leaf.
    #[test]
    fn leaves_are_added_in_pairs_and_pairs_of_pairs() {
        let (weight, bias, parameters) = parameters();
        let mut gradients = Gradients::new(&parameters).unwrap();
        let leaves = [3e7_f32, 1.0, 1.0, 1.0, 3.0, 5.0, 7.0];
        for _ in 0..2 {
            gradients.clear();
            for (number, leaf) in leaves.into_iter().enumerate() {
                if number > 0 {
                    gradients.begin_leaf().unwrap();
                }
                let written = gradients.accumulator(weight);
                assert!(!written.begun);
                with_slice_mut(written.sum, |values| values.fill(leaf)).unwrap();
            }
            gradients.end_leaves().unwrap();
            let sum = gradients.get(weight).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert_eq!(sum, [(((3e7 + 1.0) + 2.0) + ((3.0 + 5.0) + 7.0)); 15]);
            assert_eq!(gradients.get(bias).unwrap().to_vec1::<f32>().unwrap(), [0.0; 7]);
            assert_eq!(gradients.buffers.len(), 3);
        }
    }

    /// Ranges that are reported early have the sum of all leaves, as the other ranges have at the end.
    #[test]
    fn leaves_are_joined_part_by_part_to_the_same_sum() {
        let mut registry = Registry::default();
        registry.begin_model(0, "a.");
        let mut weights = vec![registry.weight("embeddings", &[3], Init::Normal)];
        registry.enter(Part::Layer(0));
        weights.push(registry.weight("layer.weight", &[70], Init::Normal));
        let parameters = Parameters::initialise(registry.layout(), 0.02, 1, &Device::Cpu).unwrap();
        let reported = Arc::new(Mutex::new(Vec::new()));
        for leaves in [1, 2, 7, 8] {
            let sums = [false, true].map(|has_listener| {
                let mut gradients = Gradients::new(&parameters).unwrap();
                if has_listener {
                    let sink = Arc::clone(&reported);
                    gradients.tell(move |_, values| {
                        sink.lock().unwrap().push(values.to_vec1::<f32>()?);
                        Ok(())
                    });
                }
                let last = (0..2).map(|_| {
                    gradients.clear();
                    for leaf in 0..leaves {
                        if leaf > 0 {
                            gradients.begin_leaf().unwrap();
                        }
                        for (number, weight) in weights.iter().enumerate() {
                            let value = 3e7 / (1.0 + leaf as f32) + number as f32;
                            with_slice_mut(gradients.accumulator(*weight).sum, |v| v.fill(value)).unwrap();
                        }
                        let pass = Pass { last_micro_batch: leaf + 1 == leaves, ..Pass::new(1, 1) };
                        gradients.left(Some(pass), Part::Layer(0)).unwrap();
                    }
                    gradients.end_leaves().unwrap();
                    gradients.flat().unwrap().to_vec1::<f32>().unwrap()
                });
                last.last().unwrap()
            });
            assert!(sums[0] == sums[1], "{leaves} leaves");
            let first = sums[0][64].to_bits();
            let layer: Vec<f32> = sums[0].iter().copied().filter(|value| value.to_bits() == first).collect();
            let reported: Vec<Vec<f32>> = reported.lock().unwrap().drain(..).collect();
            assert!(
                reported.len() == 2 && reported.iter().all(|values| *values == layer[..70]),
                "{reported:?}"
            );
        }
    }

    #[test]
    fn the_stretches_of_a_part_are_reported_in_the_last_micro_batch_only() {
        let mut registry = Registry::default();
        let mut weight = ParameterId(0);
        for (model, scope) in [(0, "a."), (1, "b.")] {
            registry.begin_model(model, scope);
            registry.weight("embeddings", &[3], Init::Normal);
            registry.enter(Part::Head);
            registry.vector("classifier", 3, Init::Zeros);
            registry.enter(Part::Layer(0));
            weight = registry.weight("layer.weight", &[70], Init::Normal);
            registry.vector("layer.bias", 5, Init::Zeros);
            registry.enter(Part::Head);
            registry.vector("pooler", 3, Init::Zeros);
        }
        let layout = registry.layout();
        let names: Vec<&str> = layout.specs().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names[..3], ["a.classifier", "a.embeddings", "a.layer.bias"]);
        let parameters = Parameters::initialise(layout, 0.02, 1, &Device::Cpu).unwrap();
        let mut gradients = Gradients::new(&parameters).unwrap();
        let reported = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&reported);
        gradients.tell(move |range, values| {
            sink.lock().unwrap().push((range, values.to_vec1::<f32>()?));
            Ok(())
        });
        let pass = Pass { model: 1, ..Pass::new(1, 1) };
        with_slice_mut(&gradients.buffer().flat, |values| values.fill(7.0)).unwrap();
        gradients.left(Some(Pass { last_micro_batch: false, ..pass }), Part::Head).unwrap();
        gradients.left(None, Part::Head).unwrap();
        assert!(reported.lock().unwrap().is_empty());
        gradients.left(Some(pass), Part::Head).unwrap();
        let weight = gradients.accumulator(weight);
        assert!(!weight.begun);
        gradients.left(Some(pass), Part::Layer(0)).unwrap();
        // The ranges of the second model: its pooler and its classifier are apart, the tensors of its layer
        // are adjacent; and only the weight of the layer has a gradient.
        let (ranges, values): (Vec<_>, Vec<_>) = reported.lock().unwrap().drain(..).unzip();
        assert_eq!(ranges, [384..387, 704..707, 512..646]);
        assert_eq!((&values[0], &values[1]), (&vec![0.0; 3], &vec![0.0; 3]));
        assert_eq!((&values[2][..5], &values[2][64..]), (&[0.0; 5][..], &[7.0; 70][..]));
    }
}

//! The gradients of all parameters in one flat f32 buffer of the parameters' layout.
//!
//! Where a sum is to have the same bits however many processes share it, its leaves are added up in pairs:
//! each accumulates in a buffer of its own, and there is one for each level of the tree that is open.
//!
//! The buffer has one lock, which an op holds while it writes. What is final is told by the thread that runs
//! the backward pass, between two layers, when no op writes: a listener copies it there into what it will
//! send, and needs the buffer no more while the next layer writes.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use candle_core::DType;
use candle_core::Device;
use candle_core::Result;
use candle_core::Tensor;
use rayon::iter::IndexedParallelIterator;
use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSlice;
use rayon::slice::ParallelSliceMut;

use crate::layers::Layout;
use crate::layers::ParameterId;
use crate::layers::Parameters;
use crate::layers::Part;
use crate::layers::context::Pass;
use crate::ops::accumulator::Accumulator;
use crate::ops::parallel::BLOCK_VALUES;
use crate::ops::tensor::with_slice;
use crate::ops::tensor::with_slice_mut;

/// The gradients of all parameters, accumulated since they were last cleared.
///
/// Clearing writes nothing: the first gradient of a parameter takes the place of what stands there. That
/// saves two passes over a buffer that no cache holds.
pub struct Gradients {
    /// The sums that wait for their other half, and behind them what accumulates now; made when they are
    /// needed.
    buffers: Vec<Buffer>,
    /// Which of them accumulates.
    current: usize,
    /// Leaves that are complete.
    leaves: usize,
    layout: Layout,
    /// Whether a view holds a sum, or what was there before the last clearing.
    begun: Vec<AtomicBool>,
    /// In the buffer's order.
    stretches: Vec<Stretch>,
    listener: Option<Listener>,
}

/// The flat buffer, and each parameter's part of it.
struct Buffer {
    flat: Tensor,
    views: Vec<Tensor>,
}

impl Buffer {
    fn new(layout: &Layout, device: &Device) -> Result<Self> {
        let flat = Tensor::zeros(layout.len(), DType::F32, device)?;
        Ok(Self { views: layout.views(&flat)?, flat })
    }
}

/// A stretch of the buffer that becomes final at one time.
struct Stretch {
    model: u8,
    part: Part,
    range: Range<usize>,
    /// What lies in it.
    parameters: Vec<ParameterId>,
    /// Whether the last leaf of it is added to the others already.
    is_joined: AtomicBool,
}

/// Is told of ranges of the flat buffer that are final, with their values.
type Listener = Box<dyn Fn(Range<usize>, &Tensor) -> Result<()> + Send + Sync>;

impl Gradients {
    /// Room for every parameter of `parameters`, cleared.
    pub fn new(parameters: &Parameters) -> Result<Self> {
        let layout = parameters.layout();
        let buffer = Buffer::new(layout, parameters.flat().device())?;
        let begun = buffer.views.iter().map(|_| AtomicBool::new(false)).collect();
        let mut stretches: Vec<Stretch> = Vec::new();
        for (spec, ids) in layout.specs_with_ids() {
            let (model, part, range) = (spec.model, spec.part, spec.range.clone());
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
        Ok(Self { buffers: vec![buffer], current: 0, leaves: 0, layout, begun, stretches, listener: None })
    }

    /// From here on `listener` is told of every range that a step has finished, with its values, all leaves
    /// added up, while the backward pass still runs. A batch without labels has no backward pass: what was not told is final when
    /// the step is.
    pub fn tell(&mut self, listener: impl Fn(Range<usize>, &Tensor) -> Result<()> + Send + Sync + 'static) {
        self.listener = Some(Box::new(listener));
    }

    /// A backward pass has left a part of its model; nothing more is added to its gradients in this
    /// micro-batch.
    pub fn left(&self, pass: Option<Pass>, part: Part) -> Result<()> {
        let (Some(listener), Some(Pass { model, last_micro_batch: true, .. })) = (&self.listener, pass)
        else {
            return Ok(());
        };
        for stretch in self.stretches.iter().filter(|stretch| (stretch.model, stretch.part) == (model, part))
        {
            // A parameter that no gradient has reached has one of zero.
            stretch.parameters.iter().try_for_each(|&id| self.get(id).map(|_| ()))?;
            self.join_stretch(stretch)?;
            let range = stretch.range.clone();
            listener(range.clone(), &self.buffers[0].flat.narrow(0, range.start, range.len())?)?;
        }
        Ok(())
    }

    /// Adds up what is open of the tree, of one stretch.
    fn join_stretch(&self, stretch: &Stretch) -> Result<()> {
        stretch.is_joined.store(true, Ordering::Relaxed);
        let (start, len) = (stretch.range.start, stretch.range.len());
        for level in (0..self.current).rev() {
            let part = |buffer: &Buffer| buffer.flat.narrow(0, start, len);
            add(&part(&self.buffers[level])?, &part(&self.buffers[level + 1])?)?;
        }
        Ok(())
    }

    /// Forgets what was accumulated.
    pub fn clear(&mut self) {
        (self.current, self.leaves) = (0, 0);
        self.begin();
    }

    /// What comes next is another leaf of the sum. On the CPU only.
    pub fn begin_leaf(&mut self) -> Result<()> {
        self.end_leaf()?;
        self.current += 1;
        if self.current == self.buffers.len() {
            self.buffers.push(Buffer::new(&self.layout, self.buffers[0].flat.device())?);
        }
        self.begin();
        Ok(())
    }

    /// No leaf follows: what is open of the tree is added up.
    pub fn end_leaves(&mut self) -> Result<()> {
        if self.stretches.iter().any(|stretch| stretch.is_joined.load(Ordering::Relaxed)) {
            // Zeros where no gradient has come.
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

    /// Joins as many pairs as the leaf completes: as many as the number of leaves has factors of two.
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

    /// Where a parameter's gradient accumulates, for an op that is certain to add to it or to begin it.
    pub fn accumulator(&self, id: ParameterId) -> Accumulator<'_> {
        Accumulator { sum: &self.buffer().views[id.0], begun: self.begun[id.0].swap(true, Ordering::Relaxed) }
    }

    /// The view into which a parameter's gradient accumulates, for an op that can only add.
    pub fn get(&self, id: ParameterId) -> Result<&Tensor> {
        self.accumulator(id).begin()
    }

    /// The whole buffer, `[N]`; zeros where nothing was accumulated.
    pub fn flat(&self) -> Result<&Tensor> {
        (0..self.begun.len()).try_for_each(|index| self.get(ParameterId(index)).map(|_| ()))?;
        Ok(&self.buffer().flat)
    }
}

/// Adds `more` to `sum`.
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
    use std::sync::Arc;
    use std::sync::Mutex;

    use super::*;
    use crate::layers::Init;
    use crate::layers::Registry;

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
        let whole = |gradients: &Gradients| gradients.flat().unwrap().to_vec1::<f32>().unwrap();
        with_slice_mut(&gradients.buffer().flat, |values| values.fill(f32::NAN)).unwrap();
        gradients.clear();
        let written = gradients.accumulator(weight);
        assert!(!written.begun);
        with_slice_mut(written.sum, |values| values.fill(2.0)).unwrap();
        assert_eq!(gradients.get(bias).unwrap().to_vec1::<f32>().unwrap(), [0.0; 7]);
        assert_eq!((&whole(&gradients)[..7], &whole(&gradients)[64..79]), (&[0.0; 7][..], &[2.0; 15][..]));
        gradients.clear();
        assert_eq!((&whole(&gradients)[..7], &whole(&gradients)[64..79]), (&[0.0; 7][..], &[0.0; 15][..]));
    }

    /// Seven leaves, whose tree has a pair and a single one at its end.
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

    /// What is told of early has the sum of all leaves, as what is not told of has at the end.
    #[test]
    fn leaves_are_joined_part_by_part_to_the_same_sum() {
        let mut registry = Registry::default();
        registry.begin_model(0, "a.");
        let mut weights = vec![registry.weight("embeddings", &[3], Init::Normal)];
        registry.enter(Part::Layer(0));
        weights.push(registry.weight("layer.weight", &[70], Init::Normal));
        let parameters = Parameters::initialise(registry.layout(), 0.02, 1, &Device::Cpu).unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        for leaves in [1, 2, 7, 8] {
            let sums = [false, true].map(|is_told| {
                let mut gradients = Gradients::new(&parameters).unwrap();
                if is_told {
                    let sink = Arc::clone(&told);
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
            let of_layer = |value: &f32| value.to_bits() == sums[0][64].to_bits();
            let layer: Vec<f32> = sums[0].iter().copied().filter(of_layer).collect();
            let told: Vec<Vec<f32>> = told.lock().unwrap().drain(..).collect();
            assert!(told.len() == 2 && told.iter().all(|values| *values == layer[..70]), "{told:?}");
        }
    }

    #[test]
    fn the_stretches_of_a_part_are_told_of_in_the_last_micro_batch_only() {
        let (mut registry, mut weight) = (Registry::default(), ParameterId(0));
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
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&told);
        gradients.tell(move |range, values| {
            sink.lock().unwrap().push((range, values.to_vec1::<f32>()?));
            Ok(())
        });
        let pass = Pass { model: 1, ..Pass::new(1, 1) };
        with_slice_mut(&gradients.buffer().flat, |values| values.fill(7.0)).unwrap();
        gradients.left(Some(Pass { last_micro_batch: false, ..pass }), Part::Head).unwrap();
        gradients.left(None, Part::Head).unwrap();
        assert!(told.lock().unwrap().is_empty());
        gradients.left(Some(pass), Part::Head).unwrap();
        let weight = gradients.accumulator(weight);
        assert!(!weight.begun);
        gradients.left(Some(pass), Part::Layer(0)).unwrap();
        // Of the second model: its pooler and its classifier lie apart, the tensors of its layer side by
        // side; and only its weight has a gradient.
        let (ranges, values): (Vec<_>, Vec<_>) = told.lock().unwrap().drain(..).unzip();
        assert_eq!(ranges, [384..387, 704..707, 512..646]);
        assert_eq!((&values[0], &values[1]), (&vec![0.0; 3], &vec![0.0; 3]));
        assert_eq!((&values[2][..5], &values[2][64..]), (&[0.0; 5][..], &[7.0; 70][..]));
    }
}

//! The gradients of all parameters in one flat f32 buffer of the parameters' layout.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use candle_core::Result;
use candle_core::Tensor;

use crate::layers::ParameterId;
use crate::layers::Parameters;
use crate::layers::Part;
use crate::layers::context::Pass;
use crate::layers::parameters::ParameterSpec;
use crate::ops::accumulator::Accumulator;

/// The gradients of all parameters, accumulated since they were last cleared.
///
/// Clearing writes nothing: the first gradient of a parameter takes the place of what stands there. That
/// saves two passes over a buffer that no cache holds.
pub struct Gradients {
    flat: Tensor,
    views: Vec<Tensor>,
    /// Whether a view holds a sum, or what was there before the last clearing.
    begun: Vec<AtomicBool>,
    /// Model, part and range of each stretch of the buffer that becomes final at one time, in the buffer's
    /// order.
    stretches: Vec<(u8, Part, Range<usize>)>,
    listener: Option<Listener>,
}

/// Is told of ranges of the flat buffer that are final.
type Listener = Box<dyn Fn(Range<usize>) + Send + Sync>;

impl Gradients {
    /// Room for every parameter of `parameters`, cleared.
    pub fn new(parameters: &Parameters) -> Result<Self> {
        let layout = parameters.layout();
        let flat = parameters.flat().zeros_like()?;
        let views = layout.views(&flat)?;
        let begun = views.iter().map(|_| AtomicBool::new(false)).collect();
        let mut stretches: Vec<(u8, Part, Range<usize>)> = Vec::new();
        for ParameterSpec { model, part, range, .. } in layout.specs() {
            match stretches.last_mut() {
                Some((same, of, before)) if (*same, *of) == (*model, *part) => before.end = range.end,
                _ => stretches.push((*model, *part, range.clone())),
            }
        }
        Ok(Self { flat, views, begun, stretches, listener: None })
    }

    /// From here on `listener` is told of every range that a step has finished, while its backward pass still
    /// runs. A batch without labels has no backward pass: what was not told is final when the step is.
    pub fn tell(&mut self, listener: impl Fn(Range<usize>) + Send + Sync + 'static) {
        self.listener = Some(Box::new(listener));
    }

    /// A backward pass has left a part of its model; nothing more is added to its gradients in this
    /// micro-batch.
    pub fn left(&self, pass: Option<Pass>, part: Part) {
        let (Some(listener), Some(Pass { model, last_micro_batch: true, .. })) = (&self.listener, pass)
        else {
            return;
        };
        let of_part = self.stretches.iter().filter(|(of, its, _)| (*of, *its) == (model, part));
        of_part.for_each(|(.., range)| listener(range.clone()));
    }

    /// Forgets what was accumulated.
    pub fn clear(&mut self) {
        self.begun.iter_mut().for_each(|begun| *begun.get_mut() = false);
    }

    /// Where a parameter's gradient accumulates, for an op that is certain to add to it or to begin it.
    pub fn accumulator(&self, id: ParameterId) -> Accumulator<'_> {
        Accumulator { sum: &self.views[id.0], begun: self.begun[id.0].swap(true, Ordering::Relaxed) }
    }

    /// The view into which a parameter's gradient accumulates, for an op that can only add.
    pub fn get(&self, id: ParameterId) -> Result<&Tensor> {
        self.accumulator(id).begin()
    }

    /// The whole buffer, `[N]`; zeros where nothing was accumulated.
    pub fn flat(&self) -> Result<&Tensor> {
        (0..self.views.len()).try_for_each(|index| self.get(ParameterId(index)).map(|_| ()))?;
        Ok(&self.flat)
    }
}

impl fmt::Debug for Gradients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gradients").field("flat", &self.flat).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::Mutex;

    use candle_core::Device;

    use super::*;
    use crate::layers::Init;
    use crate::layers::Registry;
    use crate::ops::tensor::with_slice_mut;

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
        with_slice_mut(&gradients.flat, |values| values.fill(f32::NAN)).unwrap();
        gradients.clear();
        let written = gradients.accumulator(weight);
        assert!(!written.begun);
        with_slice_mut(written.sum, |values| values.fill(2.0)).unwrap();
        assert_eq!(gradients.get(bias).unwrap().to_vec1::<f32>().unwrap(), [0.0; 7]);
        assert_eq!((&whole(&gradients)[..7], &whole(&gradients)[64..79]), (&[0.0; 7][..], &[2.0; 15][..]));
        gradients.clear();
        assert_eq!((&whole(&gradients)[..7], &whole(&gradients)[64..79]), (&[0.0; 7][..], &[0.0; 15][..]));
    }

    #[test]
    fn the_stretches_of_a_part_are_told_of_in_the_last_micro_batch_only() {
        let mut registry = Registry::default();
        for (model, scope) in [(0, "a."), (1, "b.")] {
            registry.begin_model(model, scope);
            registry.weight("embeddings", &[3], Init::Normal);
            registry.enter(Part::Head);
            registry.vector("classifier", 3, Init::Zeros);
            registry.enter(Part::Layer(0));
            registry.weight("layer.weight", &[70], Init::Normal);
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
        gradients.tell(move |range| sink.lock().unwrap().push(range));
        let pass = Pass { model: 1, ..Pass::new(1, 1) };
        gradients.left(Some(Pass { last_micro_batch: false, ..pass }), Part::Head);
        gradients.left(None, Part::Head);
        assert!(told.lock().unwrap().is_empty());
        gradients.left(Some(pass), Part::Head);
        gradients.left(Some(pass), Part::Layer(0));
        // Of the second model: its pooler and its classifier lie apart, the tensors of its layer side by
        // side.
        assert_eq!(*told.lock().unwrap(), [384..387, 704..707, 512..646]);
    }
}

//! The optimizer of a run: moments, groups, the number of updates, and one update over the flat buffers.
//!
//! The rules are ops (`ops/adamw`, `ops/lamb`) and have the same state, so that it is kept here, once. Several
//! processes may divide it among them (Rajbhandari et al. 2020, arXiv:1910.02054, stage 1): each updates a part of
//! the parameters, with the moments of that part, and gives it to the others. The bits are the same, since no
//! value depends on where the buffers are cut, and LAMB's tensors are not cut.

use std::collections::BTreeMap;
use std::ops::Range;

use candle_core::DType;
use candle_core::Device;
use candle_core::Result;
use candle_core::Tensor;
use candle_core::bail;

use crate::config::OptimizerType;
use crate::config::TrainingConfig;
use crate::distributed::World;
use crate::layers::Gradients;
use crate::layers::Parameters;
use crate::ops;
use crate::ops::tensor::with_slice;
use crate::ops::update::Buffers;
use crate::ops::update::Clip;
use crate::ops::update::Hyper;
use crate::ops::update::KeptGroups;
use crate::optim::groups;
use crate::optim::shards;

/// Moments in the layout of the parameters, and the number of updates done.
#[derive(Debug)]
pub struct Optimizer {
    rule: OptimizerType,
    /// Of this process's part of the buffers, as is the second one.
    first_moment: Tensor,
    second_moment: Tensor,
    /// The part of each process; one part where this one has all.
    parts: Vec<Range<usize>>,
    world: World,
    /// The moments of all parts, as long as they are being saved.
    gathered: Option<[Tensor; 2]>,
    /// Of this process's part, from its beginning.
    groups: KeptGroups,
    beta1: f64,
    beta2: f64,
    eps: f64,
    bias_correction: bool,
    updates: u64,
}

impl Optimizer {
    /// Zero moments; decay for all parameters but biases and `LayerNorm`.
    pub fn new(parameters: &Parameters, config: &TrainingConfig) -> Result<Self> {
        Self::among(World::ALONE, parameters, config)
    }

    /// The same in one of several processes, which may divide the moments among them.
    pub fn among(world: World, parameters: &Parameters, config: &TrainingConfig) -> Result<Self> {
        let (groups, keeps_groups) = match config.optim {
            OptimizerType::Adamw => (groups::by_neighbours(parameters.layout(), config), false),
            OptimizerType::Lamb => (groups::by_tensor(parameters.layout(), config), true),
        };
        let all = parameters.flat();
        let size = if world.shards_optimizer() { world.size } else { 1 };
        let parts = shards::parts(all.elem_count(), &groups, size, keeps_groups);
        let own = parts[world.rank % size].clone();
        let zeros = || Tensor::zeros(own.len(), DType::F32, all.device());
        Ok(Self {
            rule: config.optim,
            first_moment: zeros()?,
            second_moment: zeros()?,
            groups: KeptGroups::new(shards::within(&groups, &own)),
            parts,
            world,
            gathered: None,
            beta1: config.adam_beta1,
            beta2: config.adam_beta2,
            eps: config.adam_epsilon,
            bias_correction: config.adam_bias_correction,
            updates: 0,
        })
    }

    /// One update of the parameters and of their copy in a half type, with the gradients times
    /// `gradient_multiplier` (the inverse of the loss scale), clipped. Where their norm is not finite it does
    /// nothing, and the caller, once it knows, says so by [`Optimizer::was_skipped`].
    pub fn update(
        &mut self,
        parameters: &Parameters,
        gradients: &Gradients,
        clip: Clip<'_>,
        lr: f64,
        gradient_multiplier: f64,
    ) -> Result<()> {
        self.updates += 1;
        let hyper = Hyper {
            lr,
            beta1: self.beta1,
            beta2: self.beta2,
            eps: self.eps,
            step: self.updates,
            bias_correction: self.bias_correction,
            gradient_multiplier: gradient_multiplier as f32,
        };
        let own = |all: &Tensor| all.narrow(0, self.own().start, self.own().len());
        let shadow = parameters.shadow().map(own).transpose()?;
        let buffers = Buffers {
            parameters: &own(parameters.flat())?,
            gradients: &own(gradients.flat()?)?,
            first_moment: &self.first_moment,
            second_moment: &self.second_moment,
            shadow: shadow.as_ref(),
            clip: Some(clip),
        };
        match self.rule {
            OptimizerType::Adamw => ops::adamw::update(buffers, &self.groups, &hyper),
            OptimizerType::Lamb => ops::lamb::update(buffers, &self.groups, &hyper),
        }
    }

    /// The part of the buffers that this process updates.
    fn own(&self) -> &Range<usize> {
        &self.parts[self.world.rank % self.parts.len()]
    }

    /// Whether other processes have other parts of the moments.
    pub fn is_sharded(&self) -> bool {
        self.parts.len() > 1
    }

    /// After an update: gives this process's part of the parameters to all others, and takes theirs.
    pub fn share(&self, parameters: &Parameters) -> anyhow::Result<()> {
        if !self.is_sharded() {
            return Ok(());
        }
        self.world.share_in_place(parameters.flat(), &self.parts)?;
        let others = self.parts.iter().filter(|part| *part != self.own());
        others.into_iter().try_for_each(|part| parameters.round(part.clone()))?;
        Ok(())
    }

    /// Before a checkpoint, in all processes: the first one has all moments after it, until [`Self::let_go`].
    pub fn gather(&mut self) -> anyhow::Result<()> {
        if !self.is_sharded() {
            return Ok(());
        }
        let gather = |own: &Tensor| {
            let len = self.parts.last().map_or(0, |last| last.end);
            let mut all = vec![0.0; if self.world.is_first() { len } else { 0 }];
            with_slice(&own.to_device(&Device::Cpu)?, |own| {
                let whole = self.world.is_first().then_some(all.as_mut_slice());
                self.world.join_parts(own, &self.parts, whole)
            })??;
            Ok::<_, anyhow::Error>(Tensor::new(all, &Device::Cpu)?)
        };
        let gathered = [gather(&self.first_moment)?, gather(&self.second_moment)?];
        self.gathered = self.world.is_first().then_some(gathered);
        Ok(())
    }

    /// Frees what [`Self::gather`] took.
    pub fn let_go(&mut self) {
        self.gathered = None;
    }

    /// The last update was none: gradients had overflowed. It does not count.
    pub fn was_skipped(&mut self) {
        self.updates -= 1;
    }

    /// Updates done, without those that were skipped.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// The state by name: `exp_avg` and `exp_avg_sq`, flat, in the order of the parameters' names, and
    /// `updates`.
    ///
    /// Those of all processes, which [`Self::gather`] has brought together; an error where it has not.
    pub fn snapshot(&self) -> Result<Vec<(String, Tensor)>> {
        let own = [self.first_moment.clone(), self.second_moment.clone()];
        let [first, second] = match &self.gathered {
            None if self.is_sharded() => bail!("the moments of other processes are not here"),
            None => own,
            Some(gathered) => gathered.clone(),
        };
        Ok(vec![
            (FIRST.into(), first),
            (SECOND.into(), second),
            (UPDATES.into(), Tensor::new(&[self.updates as i64], &Device::Cpu)?),
        ])
    }

    /// Takes a snapshot back. That it is one of the same rule is for the caller to see: the moments look
    /// alike.
    pub fn restore(&mut self, snapshot: &BTreeMap<String, Tensor>) -> Result<()> {
        let tensor = |name: &str, dtype: DType, dims: &[usize]| match snapshot.get(name) {
            None => bail!("tensor `{name}` is missing"),
            Some(t) if t.dtype() != dtype || t.dims() != dims => {
                bail!(
                    "tensor `{name}` is {:?} {:?}, the optimizer wants {dtype:?} {dims:?}",
                    t.dtype(),
                    t.dims()
                )
            }
            Some(t) => Ok(t),
        };
        let (own, device) = (self.own(), self.first_moment.device());
        let dims = &[self.parts.last().map_or(0, |last| last.end)];
        let updates = tensor(UPDATES, DType::I64, &[1])?.to_vec1::<i64>()?[0];
        let Ok(updates) = u64::try_from(updates) else {
            bail!("tensor `{UPDATES}` holds {updates}, a number of updates is not negative")
        };
        let part = |name| {
            let all = tensor(name, DType::F32, dims)?;
            // A part is a copy: a view would keep the rest in memory.
            let part =
                if self.is_sharded() { all.narrow(0, own.start, own.len())?.copy()? } else { all.clone() };
            part.to_device(device)
        };
        let (first, second) = (part(FIRST)?, part(SECOND)?);
        (self.first_moment, self.second_moment, self.updates) = (first, second, updates);
        Ok(())
    }
}

const FIRST: &str = "exp_avg";
const SECOND: &str = "exp_avg_sq";
const UPDATES: &str = "updates";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::parameters::Init;
    use crate::layers::parameters::Registry;
    use crate::ops::norm;
    use crate::ops::tensor::accumulate;

    const RULES: [OptimizerType; 2] = [OptimizerType::Adamw, OptimizerType::Lamb];

    fn parameters(dtype: DType) -> Parameters {
        let mut registry = Registry::default();
        registry.weight("a.weight", &[3, 50], Init::Normal);
        registry.weight("b.weight", &[7, 9], Init::Normal);
        registry.vector("c.bias", 5, Init::Ones);
        registry.vector("d.bias", 70, Init::Zeros);
        Parameters::initialise(registry.layout(), 0.02, 1, &Device::Cpu).unwrap().computing_in(dtype).unwrap()
    }

    fn optimizer(optim: OptimizerType, parameters: &Parameters) -> (Optimizer, Gradients) {
        let config = TrainingConfig { optim, weight_decay: 0.1, ..TrainingConfig::default() };
        (Optimizer::new(parameters, &config).unwrap(), Gradients::new(parameters).unwrap())
    }

    fn step(optimizer: &mut Optimizer, parameters: &Parameters, gradients: &mut Gradients, gradient: f32) {
        gradients.clear();
        let flat = gradients.flat().unwrap();
        accumulate(flat, &vec![gradient; parameters.layout().len()]).unwrap();
        let norm = norm::l2(flat).unwrap();
        optimizer.update(parameters, gradients, Clip { norm: &norm, max_norm: 0.0 }, 1e-3, 1.0).unwrap();
    }

    fn bits(t: &Tensor) -> Vec<u32> {
        t.to_vec1::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
    }

    #[test]
    fn adamw_has_a_group_for_each_decay_and_lamb_one_for_each_tensor() {
        let parameters = parameters(DType::F32);
        let groups = |optim| {
            optimizer(optim, &parameters)
                .0
                .groups
                .iter()
                .map(|g| (g.range.clone(), g.weight_decay > 0.0))
                .collect::<Vec<_>>()
        };
        assert_eq!(groups(OptimizerType::Adamw), [(0..255, true), (256..390, false)]);
        assert_eq!(
            groups(OptimizerType::Lamb),
            [(0..150, true), (192..255, true), (256..261, false), (320..390, false)]
        );
    }

    #[test]
    fn every_parameter_and_its_half_copy_move() {
        for optim in RULES {
            let parameters = parameters(DType::BF16);
            let before: Vec<Tensor> =
                parameters.named().unwrap().iter().map(|(_, t)| t.copy().unwrap()).collect();
            let (mut optimizer, mut gradients) = optimizer(optim, &parameters);
            step(&mut optimizer, &parameters, &mut gradients, 0.5);
            for ((name, after), before) in parameters.named().unwrap().iter().zip(&before) {
                let [after, before] = [after, before].map(|t| bits(&t.flatten_all().unwrap()));
                assert!(after.iter().zip(&before).all(|(a, b)| a != b), "{optim:?} left `{name}`");
            }
            let rounded = parameters.flat().to_dtype(DType::BF16).unwrap().to_dtype(DType::F32).unwrap();
            assert_eq!(bits(&parameters.shadow().unwrap().to_dtype(DType::F32).unwrap()), bits(&rounded));
        }
    }

    #[test]
    fn a_skipped_step_changes_nothing() {
        for optim in RULES {
            let parameters = parameters(DType::F32);
            let (mut optimizer, mut gradients) = optimizer(optim, &parameters);
            step(&mut optimizer, &parameters, &mut gradients, 0.5);
            let state = |o: &Optimizer| [parameters.flat(), &o.first_moment, &o.second_moment].map(bits);
            let before = state(&optimizer);
            step(&mut optimizer, &parameters, &mut gradients, f32::INFINITY);
            optimizer.was_skipped();
            assert!(state(&optimizer) == before && optimizer.updates() == 1);
        }
    }

    #[test]
    fn a_restored_optimizer_goes_on_with_the_same_bits() {
        for optim in RULES {
            let train = |restart_after: Option<u64>| {
                let parameters = parameters(DType::F32);
                let (mut current, mut gradients) = optimizer(optim, &parameters);
                for number in 1..=4 {
                    step(&mut current, &parameters, &mut gradients, 0.5);
                    if restart_after == Some(number) {
                        let snapshot = current.snapshot().unwrap().into_iter().collect();
                        current = optimizer(optim, &parameters).0;
                        current.restore(&snapshot).unwrap();
                    }
                }
                assert_eq!(current.updates(), 4);
                bits(parameters.flat())
            };
            assert!(train(Some(2)) == train(None), "{optim:?}");
        }
    }

    #[test]
    fn a_snapshot_that_does_not_fit_is_refused_and_changes_nothing() {
        let parameters = parameters(DType::F32);
        let (mut optimizer, _) = optimizer(OptimizerType::Adamw, &parameters);
        let whole: BTreeMap<String, Tensor> = optimizer.snapshot().unwrap().into_iter().collect();
        let mut error = |name: &str, tensor: Option<Tensor>| {
            let mut snapshot = whole.clone();
            snapshot.remove(name);
            snapshot.extend(tensor.map(|t| (name.to_string(), t)));
            optimizer.restore(&snapshot).unwrap_err().to_string()
        };
        let short = Tensor::zeros(3, DType::F32, &Device::Cpu).unwrap();
        assert!(error("exp_avg_sq", None).contains("`exp_avg_sq` is missing"));
        assert!(
            error("exp_avg", Some(short)).contains("`exp_avg` is F32 [3], the optimizer wants F32 [448]")
        );
        assert!(error("updates", Some(Tensor::new(&[-1i64], &Device::Cpu).unwrap())).contains("-1"));
    }
}

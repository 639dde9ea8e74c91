//! The optimizer of a run: update rules with their state, the number of updates, and one update over the flat
//! buffers.
//!
//! Several processes may shard the state (Rajbhandari et al. 2020, arXiv:1910.02054, stage 1): each updates a
//! part of the parameters, with the state of that part, and gives it to the others. The bits are the same,
//! since no value depends on where the buffers are cut, and tensors that a rule needs whole are not cut.

use std::collections::BTreeMap;
use std::ops::Range;

use candle_core::{DType, Device, Result, Tensor, bail};

use crate::distributed::World;
use crate::layers::{GradientBuffers, GradientPlaces, Gradients, Parameters};
use crate::optim::rule::{self, RuleBuffers};
use crate::optim::rule_state::RuleState;
use crate::optim::{groups, shards};
use config::TrainingConfig;
use ops::tensor::{require_named, with_slice};
use ops::update::{Clip, Hyper};

/// State in the layout of the parameters, and the number of updates done.
#[derive(Debug)]
pub struct Optimizer {
    /// The rules of the configuration, each with the state of its parameters.
    rules: Vec<RuleState>,
    /// The part of the flat buffers that each process updates; a single part if the state is not sharded.
    parts: Vec<Range<usize>>,
    world: World,
    /// The state of all processes, while it is being saved.
    gathered: Option<Vec<(String, Tensor)>>,
    beta1: f64,
    beta2: f64,
    eps: f64,
    bias_correction: bool,
    updates: u64,
}

impl Optimizer {
    /// An optimizer whose state is zero. All parameters except biases and `LayerNorm` have weight decay.
    pub fn new(parameters: &Parameters, config: &TrainingConfig) -> Result<Self> {
        Self::among(World::ALONE, parameters, config, None)
    }

    /// Same as [`Self::new`], in one of several processes, which may shard the state; or in a single process
    /// whose gradients are at `places` in two buffers.
    pub fn among(
        world: World,
        parameters: &Parameters,
        config: &TrainingConfig,
        places: Option<&GradientPlaces>,
    ) -> Result<Self> {
        let layout = parameters.layout();
        let assignments = rule::assignments(config);
        let groups = groups::of_rules(layout, config, &assignments, places);
        let size = if world.shards_optimizer() { world.size } else { 1 };
        let own = world.rank % size;
        let needs_whole = assignments.iter().map(|assignment| assignment.rule.needs_whole_tensors());
        let whole = needs_whole.zip(&groups).filter(|(needs_whole, _)| *needs_whole);
        let whole = whole.flat_map(|(_, groups)| groups.iter().map(|group| group.range.clone()));
        let parts = shards::parts(layout.len(), &whole.collect::<Vec<_>>(), size);
        let runs = rule::runs(layout, &assignments);
        let device = parameters.flat().device();
        let rules = assignments.into_iter().zip(runs).zip(groups).map(|((assignment, runs), groups)| {
            let state = RuleState::new(assignment.rule, &runs, &groups, layout, &parts, own, device)?;
            Ok(match places {
                None => state,
                Some(places) => state.reading(places),
            })
        });
        Ok(Self {
            rules: rules.collect::<Result<_>>()?,
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

    /// Updates the parameters and their copy in a half type, with the clipped gradients times
    /// `gradient_multiplier` (the inverse of the loss scale). If the norm of the gradients is not finite,
    /// nothing is changed, and the caller reports this, as soon as it knows, with [`Optimizer::was_skipped`].
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
        let shadow = parameters.shadow().map(|all| self.own_part(all)).transpose()?;
        let GradientBuffers { single, half } = gradients.buffers()?;
        let own_gradients = if half.is_some() { single.clone() } else { self.own_part(single)? };
        let buffers = RuleBuffers {
            parameters: &self.own_part(parameters.flat())?,
            gradients: &own_gradients,
            half_gradients: half,
            state: &[],
            shadow: shadow.as_ref(),
            clip,
            shapes: &[],
        };
        self.rules.iter().try_for_each(|rule| rule.update(&buffers, &hyper))
    }

    fn own_part(&self, all: &Tensor) -> Result<Tensor> {
        all.narrow(0, self.own().start, self.own().len())
    }

    /// Range of the buffers that this process updates.
    fn own(&self) -> &Range<usize> {
        &self.parts[self.world.rank % self.parts.len()]
    }

    /// Returns true if other processes have other parts of the state.
    pub fn is_sharded(&self) -> bool {
        self.parts.len() > 1
    }

    /// After an update: gives this process's part of the parameters to all others, and receives theirs.
    pub fn share(&self, parameters: &Parameters) -> anyhow::Result<()> {
        if !self.is_sharded() {
            return Ok(());
        }
        self.world.share_in_place(parameters.flat(), &self.parts)?;
        let others = self.parts.iter().filter(|part| *part != self.own());
        others.into_iter().try_for_each(|part| parameters.round(part.clone()))?;
        Ok(())
    }

    /// Before a checkpoint, in all processes: gathers the whole state on rank 0, until [`Self::let_go`].
    pub fn gather(&mut self) -> anyhow::Result<()> {
        if !self.is_sharded() {
            return Ok(());
        }
        let mut gathered = Vec::new();
        for rule in &self.rules {
            for (name, own) in rule.named() {
                gathered.push((name.to_string(), self.gathered(own, rule.parts(), rule.len())?));
            }
        }
        self.gathered = self.world.is_first().then_some(gathered);
        Ok(())
    }

    /// All parts of a state tensor of `len` values on rank 0; empty in the other processes.
    fn gathered(&self, own: &Tensor, parts: &[Range<usize>], len: usize) -> anyhow::Result<Tensor> {
        let mut all = vec![0.0; if self.world.is_first() { len } else { 0 }];
        with_slice(&own.to_device(&Device::Cpu)?, |own| {
            let whole = self.world.is_first().then_some(all.as_mut_slice());
            self.world.join_parts(own, parts, whole)
        })??;
        Ok(Tensor::new(all, &Device::Cpu)?)
    }

    /// Frees the state that [`Self::gather`] gathered.
    pub fn let_go(&mut self) {
        self.gathered = None;
    }

    /// The last update changed nothing, because gradients had overflowed. It does not count.
    pub fn was_skipped(&mut self) {
        self.updates -= 1;
    }

    /// Number of updates done, without those that were skipped.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Bytes of a checkpoint of these parameters, of their average if they are averaged, and of the state of
    /// all processes.
    pub fn checkpoint_bytes(&self, parameters: &Parameters, are_averaged: bool) -> u64 {
        let state = self.rules.iter().map(|rule| rule.named().count() * rule.len());
        let weights = (1 + usize::from(are_averaged)) * parameters.layout().num_elements();
        4 * (weights + state.sum::<usize>()) as u64
    }

    /// The state by name: the tensors of each rule (`exp_avg` and `exp_avg_sq` for `AdamW`), flat, in the
    /// order of the parameters' names, and `updates`.
    ///
    /// It is the state of all processes, which [`Self::gather`] gathers before; an error if it did not.
    pub fn snapshot(&self) -> Result<Vec<(String, Tensor)>> {
        let mut state = match &self.gathered {
            None if self.is_sharded() => bail!("the optimizer state of other processes is not here"),
            None => self.named(),
            Some(gathered) => gathered.clone(),
        };
        state.push((UPDATES.into(), Tensor::new(&[self.updates as i64], &Device::Cpu)?));
        Ok(state)
    }

    /// This process's part of the state tensors of all rules.
    fn named(&self) -> Vec<(String, Tensor)> {
        let named = self.rules.iter().flat_map(RuleState::named);
        named.map(|(name, tensor)| (name.to_string(), tensor.clone())).collect()
    }

    /// Restores a snapshot. The caller has to make sure that it was made with the same update rules: the
    /// states of some rules have the same form.
    pub fn restore(&mut self, snapshot: &BTreeMap<String, Tensor>) -> Result<()> {
        let updates = require_named(snapshot, UPDATES, DType::I64, &[1])?.to_vec1::<i64>()?[0];
        let Ok(updates) = u64::try_from(updates) else {
            bail!("tensor `{UPDATES}` holds {updates}, a number of updates is not negative")
        };
        let restored = self.rules.iter().map(|rule| {
            let whole =
                rule.named().map(|(name, _)| require_named(snapshot, name, DType::F32, &[rule.len()]));
            rule.own_parts(&whole.collect::<Result<Vec<_>>>()?)
        });
        let restored: Vec<Vec<Tensor>> = restored.collect::<Result<_>>()?;
        self.rules.iter_mut().zip(restored).for_each(|(rule, tensors)| rule.replace(tensors));
        self.updates = updates;
        Ok(())
    }
}

const UPDATES: &str = "updates";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::linear::Linear;
    use crate::layers::{Init, Part, Registry};
    use config::{FrozenLayers, OptimizerType};
    use ops::tensor::accumulate;
    use ops::{cuda, norm};

    const RULES: [OptimizerType; 5] = [
        OptimizerType::Adamw,
        OptimizerType::Lamb,
        OptimizerType::Lion,
        OptimizerType::StableAdamw,
        OptimizerType::Muon,
    ];

    fn parameters(dtype: DType) -> Parameters {
        let mut registry = Registry::default();
        registry.weight("a.weight", &[3, 50], Init::Normal);
        registry.enter(Part::Layer(0));
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
    fn flat_rules_have_a_group_for_each_decay_and_others_one_for_each_tensor() {
        let parameters = parameters(DType::F32);
        for optim in [OptimizerType::Adamw, OptimizerType::Lion] {
            assert_eq!(groups(optim, &parameters), [(0..255, true), (256..390, false)]);
        }
        for optim in [OptimizerType::Lamb, OptimizerType::StableAdamw] {
            assert_eq!(
                groups(optim, &parameters),
                [(0..150, true), (192..255, true), (256..261, false), (320..390, false)]
            );
        }
        // Muon has the matrix of the layer, `AdamW` all others.
        assert_eq!(
            groups(OptimizerType::Muon, &parameters),
            [(0..63, true), (0..150, true), (0..134, false)]
        );
    }

    #[test]
    fn the_forecast_and_checkpoints_have_the_state_tensors_of_the_rule() {
        let parameters = parameters(DType::F32);
        let layout = parameters.layout();
        for (optim, names) in [
            (OptimizerType::Adamw, vec!["exp_avg", "exp_avg_sq"]),
            (OptimizerType::Lamb, vec!["exp_avg", "exp_avg_sq"]),
            (OptimizerType::Lion, vec!["exp_avg"]),
            (OptimizerType::StableAdamw, vec!["exp_avg", "exp_avg_sq"]),
        ] {
            let (optimizer, _) = optimizer(optim, &parameters);
            let snapshot = optimizer.snapshot().unwrap();
            let found: Vec<&str> = snapshot.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(found, [&names[..], &["updates"]].concat());
            assert!(snapshot[..names.len()].iter().all(|(_, tensor)| tensor.elem_count() == layout.len()));
            let config = TrainingConfig { optim, ..TrainingConfig::default() };
            let values = (layout.num_elements() * names.len()) as u64;
            assert_eq!(rule::state_values(layout, &config), values);
            assert_eq!(rule::checkpoint_bytes(layout, &config), 4 * (layout.num_elements() as u64 + values));
        }
        let (optimizer, _) = optimizer(OptimizerType::Muon, &parameters);
        let snapshot = optimizer.snapshot().unwrap();
        let found: Vec<(&str, usize)> =
            snapshot.iter().map(|(name, tensor)| (name.as_str(), tensor.elem_count())).collect();
        let wanted = [("momentum_buffer", 64), ("exp_avg", 384), ("exp_avg_sq", 384), ("updates", 1)];
        assert_eq!(found, wanted, "with the gaps after tensors");
        let config = TrainingConfig { optim: OptimizerType::Muon, ..TrainingConfig::default() };
        assert_eq!(rule::state_values(layout, &config), 63 + 2 * (150 + 5 + 70));
        assert_eq!(rule::temporary_bytes(layout, &config, DType::BF16), (63 + 49) * 6);
        assert!((rule::update_flops(layout, &config) - 5.0 * 2.0 * 49.0 * 25.0).abs() < 1e-9);
    }

    /// Range of each group, and true if it has weight decay.
    fn groups(optim: OptimizerType, parameters: &Parameters) -> Vec<(Range<usize>, bool)> {
        let (optimizer, _) = optimizer(optim, parameters);
        let groups = optimizer.rules.iter().flat_map(RuleState::groups);
        groups.map(|group| (group.range.clone(), group.weight_decay > 0.0)).collect()
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

    /// Gradients in bf16 of two matrices of a layer, one of them shared by two maps, and f32 gradients of all
    /// other parameters: the update is that of the same values in f32.
    #[test]
    fn every_rule_reads_gradients_of_two_types() {
        let all = [FrozenLayers::Layers(0), FrozenLayers::Layers(1)];
        for (optim, frozen_layers) in RULES.into_iter().flat_map(|optim| all.map(|frozen| (optim, frozen))) {
            let [single, half] = [DType::F32, DType::BF16].map(|weights| {
                let mut registry = Registry::default();
                let mut ids = vec![registry.weight("a.weight", &[3, 50], Init::Normal)];
                registry.enter(Part::Layer(0));
                ids.extend(registry.weight_of_maps::<2>("b.weight", 4, 9, Init::Normal));
                let map = Linear::new(&mut registry, "c", 6, 70);
                ids.extend(map.bias.iter().chain([&map.weight]));
                let parameters = Parameters::initialise(registry.layout(), 0.02, 1, &Device::Cpu).unwrap();
                let parameters = parameters.computing_in(DType::BF16).unwrap();
                let gradients = Gradients::with_weights_in(&parameters, weights).unwrap();
                let config =
                    TrainingConfig { optim, weight_decay: 0.1, frozen_layers, ..TrainingConfig::default() };
                let mut optimizer =
                    Optimizer::among(World::ALONE, &parameters, &config, gradients.places()).unwrap();
                for (number, id) in ids.iter().enumerate() {
                    let sum = gradients.accumulator(*id).sum;
                    let values =
                        (0..sum.elem_count()).map(|i| ((i * 7 + number * 5) % 23) as f32 / 32.0 - 0.3);
                    let values =
                        Tensor::from_iter(values, &Device::Cpu).unwrap().reshape(sum.shape()).unwrap();
                    let values = values.to_dtype(DType::BF16).unwrap().to_dtype(sum.dtype()).unwrap();
                    cuda::overwrite(sum, &values).unwrap();
                }
                let parts = gradients.buffers().unwrap().parts();
                assert_eq!(parts.len(), 1 + usize::from(weights == DType::BF16));
                let norm = norm::l2_of_parts(&parts).unwrap();
                let clip = Clip { norm: &norm, max_norm: 1.0 };
                optimizer.update(&parameters, &gradients, clip, 1e-3, 1.0).unwrap();
                let norm = norm.to_vec1::<f64>().unwrap()[0];
                (state(&parameters, &optimizer), norm)
            });
            assert!(single.0 == half.0, "{optim:?} {frozen_layers:?}");
            assert!((single.1 - half.1).abs() < 1e-12 * single.1);
        }
    }

    #[test]
    fn a_skipped_step_changes_nothing() {
        for optim in RULES {
            let parameters = parameters(DType::F32);
            let (mut optimizer, mut gradients) = optimizer(optim, &parameters);
            step(&mut optimizer, &parameters, &mut gradients, 0.5);
            let before = state(&parameters, &optimizer);
            step(&mut optimizer, &parameters, &mut gradients, f32::INFINITY);
            optimizer.was_skipped();
            assert!(state(&parameters, &optimizer) == before && optimizer.updates() == 1);
        }
    }

    fn state(parameters: &Parameters, optimizer: &Optimizer) -> Vec<Vec<u32>> {
        let state = optimizer.named().into_iter().map(|(_, tensor)| tensor);
        state.chain([parameters.flat().clone()]).map(|tensor| bits(&tensor)).collect()
    }

    #[test]
    fn a_restored_optimizer_continues_with_the_same_bits() {
        for optim in RULES {
            assert!(trained(optim, Some(2)) == trained(optim, None), "{optim:?}");
        }
    }

    /// The parameters after four updates, with a new optimizer restored after update `restart_after`.
    fn trained(optim: OptimizerType, restart_after: Option<u64>) -> Vec<u32> {
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
    }

    #[test]
    fn a_snapshot_that_does_not_fit_is_refused_and_changes_nothing() {
        let parameters = parameters(DType::F32);
        let (mut optimizer, _) = optimizer(OptimizerType::Adamw, &parameters);
        let short = Tensor::zeros(3, DType::F32, &Device::Cpu).unwrap();
        let negative = Tensor::new(&[-1i64], &Device::Cpu).unwrap();
        for (name, tensor, message) in [
            ("exp_avg_sq", None, "`exp_avg_sq` is missing"),
            ("exp_avg", Some(short), "`exp_avg` is F32 [3], F32 [448] is wanted"),
            ("updates", Some(negative), "-1"),
        ] {
            let mut snapshot: BTreeMap<String, Tensor> = optimizer.snapshot().unwrap().into_iter().collect();
            snapshot.remove(name);
            snapshot.extend(tensor.map(|t| (name.to_string(), t)));
            let error = optimizer.restore(&snapshot).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}

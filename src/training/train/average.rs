//! The moving average of the weights: `after_update` changes it, `evaluated_weights` are what evaluations see
//! and model folders hold.
//!
//! The model folder of a checkpoint has the average, and [`TRAINED`] next to it the weights that training
//! continues with.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Result, Tensor, bail};

use config::TrainingConfig;
use model::layers::Parameters;
use ops::tensor::require_named;
use ops::{cuda, moving_average};

/// The weights that are trained, in a checkpoint whose model folder has their average.
pub(super) const TRAINED: &str = "trainer/weights.safetensors";

/// All weights in one vector, in the order of the parameters' names, as the moments of the optimizer.
const WEIGHTS: &str = "weights";
/// Number of averagings, under the name that `AveragedModel` of PyTorch gives it.
const AVERAGINGS: &str = "n_averaged";

/// The moving average of the weights of a run, in f32 and in the layout of its parameters.
#[derive(Debug)]
pub struct WeightAverage {
    config: config::WeightAverage,
    /// The average; between two calls of [`Self::exchange`] the weights that are trained.
    flat: Tensor,
    averagings: u64,
}

impl WeightAverage {
    /// An average of no weights yet; `None` for a run that does not average.
    pub fn new(parameters: &Parameters, training: &TrainingConfig) -> Result<Option<Self>> {
        let Some(config) = training.weight_average else { return Ok(None) };
        let all = parameters.flat();
        Ok(Some(Self { config, flat: Tensor::zeros(all.dims(), DType::F32, all.device())?, averagings: 0 }))
    }

    /// Averages the weights after the update of step number `step`, counted from 1, if it is due.
    pub fn after_update(&mut self, parameters: &Parameters, step: u64) -> Result<()> {
        if !self.config.is_due_after(step) {
            return Ok(());
        }
        if self.averagings == 0 {
            cuda::overwrite(&self.flat, parameters.flat())?;
        } else {
            let decay = self.config.decay_after(self.averagings);
            moving_average::update(&self.flat, parameters.flat(), decay)?;
        }
        self.averagings += 1;
        Ok(())
    }

    /// Exchanges the weights with their average: the first call puts the average into the model, the second
    /// one takes it out again.
    pub fn exchange(&self, parameters: &Parameters) -> Result<()> {
        if self.averagings == 0 { Ok(()) } else { parameters.exchange(&self.flat) }
    }

    /// The content of [`TRAINED`], from the weights that are trained.
    pub(super) fn snapshot(&self, trained: Tensor) -> Result<Vec<(String, Tensor)>> {
        let averagings = Tensor::new(&[self.averagings as i64], &Device::Cpu)?;
        Ok(vec![(WEIGHTS.into(), trained), (AVERAGINGS.into(), averagings)])
    }
}

/// The weights that are evaluated and written: the average, or the weights that are trained before the first
/// averaging and in a run without an average.
pub(super) fn evaluated_weights(average: Option<&WeightAverage>, parameters: &Parameters) -> Tensor {
    let average = average.filter(|average| average.averagings > 0);
    average.map_or(parameters.flat(), |average| &average.flat).clone()
}

/// Restores the weights that are trained from the content of [`TRAINED`]. The parameters, which were read
/// from the model folder, become the average, unless the run has none.
pub(super) fn restore(
    saved: &BTreeMap<String, Tensor>,
    parameters: &Parameters,
    average: Option<&mut WeightAverage>,
) -> Result<()> {
    let trained = require_named(saved, WEIGHTS, DType::F32, parameters.flat().dims())?;
    let averagings = require_named(saved, AVERAGINGS, DType::I64, &[1])?.to_vec1::<i64>()?[0];
    let Ok(averagings) = u64::try_from(averagings) else {
        bail!("tensor `{AVERAGINGS}` holds {averagings}, a number of averagings is not negative")
    };
    if let Some(average) = average {
        cuda::overwrite(&average.flat, parameters.flat())?;
        average.averagings = averagings;
    }
    parameters.set_all(trained)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::layers::{Init, Registry};

    fn parameters(dtype: DType) -> Parameters {
        let mut registry = Registry::default();
        registry.weight("a.weight", &[3, 50], Init::Normal);
        registry.vector("b.bias", 7, Init::Ones);
        Parameters::initialise(registry.layout(), 0.02, 1, &Device::Cpu).unwrap().computing_in(dtype).unwrap()
    }

    fn average_of(parameters: &Parameters) -> WeightAverage {
        let training = TrainingConfig { weight_average: Some(CONFIG), ..TrainingConfig::default() };
        WeightAverage::new(parameters, &training).unwrap().unwrap()
    }

    /// Changes every weight, differently after each step, as an update would.
    fn train(parameters: &Parameters, step: u64) {
        parameters.set_all(&parameters.flat().affine(0.9, 0.01 * step as f64).unwrap()).unwrap();
    }

    fn bits(t: &Tensor) -> Vec<u32> {
        let values = t.to_dtype(DType::F32).unwrap().to_vec1::<f32>().unwrap();
        values.into_iter().map(f32::to_bits).collect()
    }

    /// Bits of the weights and of their copy in bf16.
    fn state(parameters: &Parameters) -> [Vec<u32>; 2] {
        [parameters.flat(), parameters.shadow().unwrap()].map(bits)
    }

    const CONFIG: config::WeightAverage =
        config::WeightAverage { decay: 0.8, start_step: 2, every: 2, use_warmup: true };

    #[test]
    fn the_average_is_that_of_the_weights_after_the_steps_that_are_due() {
        for dtype in [DType::F32, DType::BF16] {
            let parameters = parameters(dtype);
            let mut average = average_of(&parameters);
            let mut want: Option<Tensor> = None;
            let mut averagings = 0;
            for step in 1..=9 {
                train(&parameters, step);
                average.after_update(&parameters, step).unwrap();
                if [4, 6, 8].contains(&step) {
                    let weights = parameters.flat().to_dtype(DType::F64).unwrap();
                    let decay = CONFIG.decay_after(averagings);
                    want = Some(match want {
                        None => weights,
                        Some(before) => {
                            ((before * decay).unwrap() + (weights * (1.0 - decay)).unwrap()).unwrap()
                        }
                    });
                    averagings += 1;
                }
                let evaluated = evaluated_weights(Some(&average), &parameters).to_dtype(DType::F64).unwrap();
                let want = want.clone().unwrap_or(parameters.flat().to_dtype(DType::F64).unwrap());
                let difference = (evaluated - want).unwrap().abs().unwrap().max_all().unwrap();
                assert!(difference.to_scalar::<f64>().unwrap() < 1e-7, "step {step}");
            }
        }
    }

    #[test]
    fn an_exchange_puts_the_average_into_the_model_and_another_one_takes_it_out() {
        let parameters = parameters(DType::BF16);
        let mut average = average_of(&parameters);
        train(&parameters, 1);
        let before = state(&parameters);
        average.exchange(&parameters).unwrap();
        assert!(state(&parameters) == before, "nothing is averaged yet");
        for step in [4, 6] {
            train(&parameters, step);
            average.after_update(&parameters, step).unwrap();
        }
        let trained = state(&parameters);
        let averaged = bits(&average.flat);
        average.exchange(&parameters).unwrap();
        assert!(bits(parameters.flat()) == averaged && state(&parameters)[1] != trained[1]);
        average.exchange(&parameters).unwrap();
        assert!(state(&parameters) == trained && bits(&average.flat) == averaged);
    }

    #[test]
    fn a_restored_average_continues_with_the_same_bits() {
        let (whole, cut) = (parameters(DType::F32), parameters(DType::F32));
        let [mut undisturbed, mut restarted] = [&whole, &cut].map(average_of);
        for step in 1..=9 {
            train(&whole, step);
            undisturbed.after_update(&whole, step).unwrap();
            train(&cut, step);
            restarted.after_update(&cut, step).unwrap();
            // Before the first averaging, between two of them, and after one.
            if [3, 5, 6].contains(&step) {
                let saved = restarted.snapshot(cut.flat().copy().unwrap()).unwrap().into_iter().collect();
                let evaluated = evaluated_weights(Some(&restarted), &cut).copy().unwrap();
                restarted = average_of(&cut);
                cut.set_all(&evaluated).unwrap();
                restore(&saved, &cut, Some(&mut restarted)).unwrap();
            }
        }
        assert!(bits(&undisturbed.flat) == bits(&restarted.flat) && bits(whole.flat()) == bits(cut.flat()));
        assert_eq!([undisturbed.averagings, restarted.averagings], [3, 3]);
    }

    #[test]
    fn weights_that_do_not_fit_are_refused() {
        let parameters = parameters(DType::F32);
        let average = average_of(&parameters);
        let saved: BTreeMap<String, Tensor> =
            average.snapshot(parameters.flat().clone()).unwrap().into_iter().collect();
        let short = Tensor::zeros(3, DType::F32, &Device::Cpu).unwrap();
        let negative = Tensor::new(&[-1i64], &Device::Cpu).unwrap();
        for (name, tensor, message) in [
            ("n_averaged", None, "`n_averaged` is missing"),
            ("weights", Some(short), "`weights` is F32 [3], F32 [256] is wanted"),
            ("n_averaged", Some(negative), "-1"),
        ] {
            let mut saved = saved.clone();
            saved.remove(name);
            saved.extend(tensor.map(|t| (name.to_string(), t)));
            let error = restore(&saved, &parameters, None).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}

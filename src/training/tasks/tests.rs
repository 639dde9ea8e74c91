//! Forward and backward passes and updates on the GPU compared with the CPU: the same loss, gradients and
//! parameters, with dropout, in every dtype.

use candle_core::{DType, Device, Tensor};

use crate::tasks::masked_lm::MaskedLm;
use crate::tasks::replaced_token_detection::{ReplacedTokenDetection, blueprint};
use crate::tasks::sentence_pairs::{NextSentence, SentencePairs};
use crate::tasks::{Supervised, Task};
use base::families::{EncoderConfig, Family, ModelConfig};
use base::rng::{Purpose, Stream};
use config::{OptimizerType, RtdConfig, TrainingConfig};
use data::batches::Batch;
use model::distributed::World;
use model::layers::Gradients;
use model::layers::context::Pass;
use model::models::{Blueprint, Model};
use model::optim::Optimizer;
use ops::element::rounding;
use ops::norm;
use ops::testing::{DTYPES, bits, device, on_each_device, relative_error};
use ops::update::Clip;

const VOCABULARY: u64 = 150;

fn config() -> ModelConfig {
    config_of(Family::ROBERTA)
}

fn config_of(family: Family) -> ModelConfig {
    let encoder = EncoderConfig {
        vocab_size: VOCABULARY as usize,
        hidden_size: 64,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        intermediate_size: 136,
        ..EncoderConfig::of(family)
    };
    ModelConfig { family, encoder }
}

/// Two heads of 32 columns and relative positions, the farthest of which share a bucket.
fn deberta() -> ModelConfig {
    let ModelConfig { family, encoder } = config_of(Family::DEBERTA_V2);
    let encoder = EncoderConfig { position_buckets: 16, max_relative_positions: 50, ..encoder };
    ModelConfig { family, encoder }
}

/// As [`deberta`], with the two passes of an enhanced mask decoder instead of the last layer.
fn decoding() -> ModelConfig {
    let ModelConfig { family, encoder } = deberta();
    ModelConfig { family, encoder: EncoderConfig { enhanced_mask_decoder: true, ..encoder } }
}

/// A batch with segments of one token, of a few tokens, and of more than one tile of attention.
fn batch() -> Batch {
    let cu_seqlens = vec![0u32, 1, 18, 90];
    let tokens = cu_seqlens[cu_seqlens.len() - 1];
    let stream = Stream::new(1, Purpose::Test, 0);
    let ids = (0..2 * u64::from(tokens)).map(|index| 5 + stream.below(index, VOCABULARY - 5) as u32);
    let ids: Vec<u32> = ids.collect();
    let label_positions: Vec<u32> = (0..tokens).step_by(6).collect();
    Batch {
        ids: ids[..tokens as usize].to_vec(),
        token_type_ids: vec![0; tokens as usize],
        position_ids: cu_seqlens.windows(2).flat_map(|w| 0..w[1] - w[0]).collect(),
        token_keys: (0..u64::from(tokens)).map(|t| 7 * t + 3).collect(),
        labels: label_positions.iter().map(|&t| ids[(t + tokens) as usize]).collect(),
        label_positions,
        sample_ids: (0..cu_seqlens.len() as u64 - 1).collect(),
        cu_seqlens,
        ..Batch::default()
    }
}

/// A batch in which the first token of each segment has a class as label.
fn labelled_batch() -> Batch {
    let batch = batch();
    let starts = batch.cu_seqlens[..batch.cu_seqlens.len() - 1].to_vec();
    Batch { labels: starts.iter().map(|t| t % 3).collect(), label_positions: starts, ..batch }
}

fn on_cpu(t: &Tensor) -> Tensor {
    t.to_device(&Device::Cpu).unwrap()
}

/// Loss and gradients of one pass, copied to the CPU.
fn gradients(task: &dyn Task, batch: &Batch) -> (f64, Tensor) {
    let gradients = Gradients::new(task.parameters()).unwrap();
    let loss = task.accumulate(batch, Pass::new(3, 2), &[0.125], &gradients).unwrap();
    (loss[0].read().unwrap().sum, on_cpu(gradients.flat().unwrap()))
}

/// The tolerance in f32 covers sums in another order. f16 and bf16 round after every op, and gradients
/// contain the rounding errors of all ops.
fn tolerance(dtype: DType) -> f64 {
    if dtype == DType::F32 { 2e-5 } else { 12.0 * rounding(dtype) }
}

#[track_caller]
fn assert_same(what: &str, dtype: DType, got: &(f64, Tensor), want: &(f64, Tensor)) {
    let loss = (got.0 - want.0).abs() / want.0;
    let gradient = relative_error(&got.1, &want.1);
    assert!(loss <= tolerance(dtype) / 4.0, "{what} {dtype:?}: loss {} is not {}", got.0, want.0);
    assert!(gradient <= tolerance(dtype), "{what} {dtype:?}: gradients differ by {gradient:e}");
}

/// Compares the loss and gradients of `pass` on each device with those on the CPU, which are returned.
#[track_caller]
fn assert_same_on_each_device(
    what: &str,
    dtype: DType,
    pass: impl Fn(&Device) -> (f64, Tensor),
) -> (f64, Tensor) {
    let want = pass(&Device::Cpu);
    on_each_device(|| assert_same(what, dtype, &pass(&device()), &want));
    want
}

#[test]
fn a_pass_of_the_masked_language_model_is_the_same_on_each_device() {
    // Models with separate layers, with one shared layer that adds to its gradients several times, with two
    // kinds of relative positions, and with a mask decoder.
    let configs = [Family::ROBERTA, Family::ALBERT, Family::MPNET].map(config_of);
    let configs: Vec<ModelConfig> = configs.into_iter().chain([deberta(), decoding()]).collect();
    for (dtype, config) in
        DTYPES.into_iter().flat_map(|dtype| configs.iter().map(move |config| (dtype, config)))
    {
        for gradient_checkpointing in [false, true] {
            let what = format!("masked language model of {}", config.family.title);
            let want = assert_same_on_each_device(&what, dtype, |device| {
                let mut model = Model::masked_lm(config, 1, device).unwrap().computing_in(dtype).unwrap();
                model.encoder.gradient_checkpointing = gradient_checkpointing;
                gradients(&MaskedLm { model }, &batch())
            });
            assert!(
                relative_error(&want.1.zeros_like().unwrap(), &want.1) > 0.99,
                "there are gradients to compare"
            );
        }
    }
}

/// On a GPU, a batch planned on another thread and a batch sent before the pass give the same bits as a plain
/// batch.
#[test]
fn a_batch_that_was_made_ready_ahead_gives_the_same_bits() {
    on_each_device(|| {
        let task = MaskedLm { model: Model::masked_lm(&config(), 1, &device()).unwrap() };
        let Some(planner) = task.planner() else { return };
        let mut planned = batch();
        let mut sent = batch();
        std::thread::scope(|scope| scope.spawn(|| planner(&mut planned)).join().unwrap());
        task.send(&mut sent).unwrap();
        let all = [batch(), planned, sent].map(|batch| gradients(&task, &batch));
        let [plain, planned, sent] = all.map(|(loss, gradients)| (loss.to_bits(), bits(&gradients)));
        assert!(plain == planned && plain == sent);
    });
}

#[test]
fn a_pass_of_the_classifier_is_the_same_on_each_device() {
    for (dtype, config) in DTYPES.into_iter().flat_map(|dtype| [(dtype, config()), (dtype, deberta())]) {
        let what = format!("classifier of {}", config.family.title);
        assert_same_on_each_device(&what, dtype, |device| {
            let model = Model::classifier(&config, 3, 1, device).unwrap().computing_in(dtype).unwrap();
            gradients(&Supervised { model }, &labelled_batch())
        });
    }
}

#[test]
fn a_pass_of_the_token_classifier_is_the_same_on_each_device() {
    let batch = batch();
    let batch = Batch { labels: batch.labels.iter().map(|id| id % 5).collect(), ..batch };
    for dtype in DTYPES {
        assert_same_on_each_device("token classifier", dtype, |device| {
            let model =
                Model::token_classifier(&config(), 5, 1, device).unwrap().computing_in(dtype).unwrap();
            gradients(&Supervised { model }, &batch)
        });
    }
}

/// The first token of each segment is the position of a pair; one of these tokens is masked as well.
#[test]
fn a_pass_of_masks_and_pairs_is_the_same_on_each_device() {
    let mut batch = batch();
    batch.pair_positions = batch.cu_seqlens[..batch.cu_seqlens.len() - 1].to_vec();
    batch.pair_labels = vec![1, 0, 1];
    for (config, dtype) in
        [Family::BERT, Family::ALBERT].into_iter().flat_map(|f| DTYPES.map(|dtype| (config_of(f), dtype)))
    {
        assert_same_on_each_device("masks and pairs", dtype, |device| {
            let model = Blueprint::sentence_pairs(&config).unwrap().initialise(1, device).unwrap();
            let task = SentencePairs::<NextSentence>::new(model).computing_in(dtype).unwrap();
            let gradients = Gradients::new(task.parameters()).unwrap();
            let losses = task.accumulate(&batch, Pass::new(3, 2), &[0.125, 0.5], &gradients).unwrap();
            let sum = losses.iter().map(|loss| loss.read().unwrap().sum).sum();
            (sum, on_cpu(gradients.flat().unwrap()))
        });
    }
}

/// With given replacement ids, and with ids drawn by the generator: in f32, no draw is so close that rounding
/// decides it.
#[test]
fn a_pass_of_generator_and_discriminator_is_the_same_on_each_device() {
    let config = config();
    let encoder = EncoderConfig {
        num_attention_heads: 4,
        embedding_size: Some(24),
        initializer_range: 0.2,
        vocab_size: config.encoder.vocab_size,
        hidden_size: config.encoder.hidden_size,
        num_hidden_layers: config.encoder.num_hidden_layers,
        intermediate_size: config.encoder.intermediate_size,
        ..EncoderConfig::of(Family::ELECTRA)
    };
    compare_pair(&ModelConfig { family: Family::ELECTRA, encoder });
    // The word embeddings of both models are added, and the head reads the first token of each segment.
    let deberta = deberta();
    let encoder = EncoderConfig { initializer_range: 0.2, ..deberta.encoder };
    compare_pair(&ModelConfig { encoder, ..deberta });
}

fn compare_pair(model: &ModelConfig) {
    let rtd = RtdConfig::default();
    let batch = batch();
    // Every other given id is the original one.
    let given: Vec<u32> =
        batch.labels.iter().zip(0..).map(|(&id, m)| if m % 2 == 0 { id } else { id - 1 }).collect();
    let given = Tensor::new(given, &Device::Cpu).unwrap();
    for (dtype, given) in DTYPES.map(|dtype| (dtype, Some(&given))).into_iter().chain([(DType::F32, None)]) {
        let what = format!("generator and discriminator of {}", model.family.title);
        assert_same_on_each_device(&what, dtype, |device| {
            let task = pair_task(&rtd, model, dtype, device);
            let gradients = Gradients::new(task.parameters()).unwrap();
            let given = given.map(|ids| ids.to_device(device).unwrap());
            let pass = Pass::new(3, 2);
            let losses =
                task.accumulate_with(&batch, pass, &[0.125, 0.5], &gradients, given.as_ref()).unwrap();
            let sum = losses.iter().map(|loss| loss.read().unwrap().sum).sum();
            (sum, on_cpu(gradients.flat().unwrap()))
        });
    }
    let want = replaced_counts(&pair_task(&rtd, model, DType::F32, &Device::Cpu), &batch);
    assert!(want[0] > 0 && want[0] + want[2] == batch.num_labels(), "{want:?}");
    on_each_device(|| {
        assert_eq!(replaced_counts(&pair_task(&rtd, model, DType::F32, &device()), &batch), want);
    });
}

fn pair_task(rtd: &RtdConfig, model: &ModelConfig, dtype: DType, device: &Device) -> ReplacedTokenDetection {
    let pair = blueprint(rtd, model).unwrap().initialise(1, device).unwrap();
    ReplacedTokenDetection::new(pair, rtd).computing_in(dtype).unwrap()
}

/// The three counts that follow the losses of an evaluation, and the number of replaced tokens that the
/// discriminator finds.
fn replaced_counts(task: &ReplacedTokenDetection, batch: &Batch) -> Vec<usize> {
    let losses = task.evaluate(batch).unwrap();
    losses[3..].iter().map(|loss| loss.count).chain([losses[4].correct]).collect()
}

#[test]
fn updates_are_the_same_on_each_device_and_a_broken_gradient_changes_nothing() {
    let optimizers = [
        OptimizerType::Adamw,
        OptimizerType::Lamb,
        OptimizerType::Lion,
        OptimizerType::StableAdamw,
        OptimizerType::Muon,
    ];
    // The last pair has gradients of weights in bf16.
    let types = DTYPES.map(|dtype| (dtype, DType::F32)).into_iter().chain([(DType::BF16, DType::BF16)]);
    let types: Vec<(DType, DType)> = types.collect();
    for (optim, (dtype, weights)) in
        optimizers.into_iter().flat_map(|optim| types.iter().map(move |types| (optim, *types)))
    {
        let train = |device: &Device| {
            let task = MaskedLm {
                model: Model::masked_lm(&config(), 1, device).unwrap().computing_in(dtype).unwrap(),
            };
            let training = TrainingConfig { optim, weight_decay: 0.01, ..TrainingConfig::default() };
            let parameters = task.parameters();
            let mut gradients = Gradients::with_weights_in(parameters, weights).unwrap();
            let mut optimizer =
                Optimizer::among(World::ALONE, parameters, &training, gradients.places()).unwrap();
            let mut losses = Vec::new();
            for step in 1..=3 {
                // The gradients of the second step overflow, so that step must change nothing.
                gradients.clear();
                let scale = if step == 2 { f32::INFINITY } else { 0.125 };
                let loss = task.accumulate(&batch(), Pass::new(3, step), &[scale], &gradients).unwrap();
                let norm = norm::l2_of_parts(&gradients.buffers().unwrap().parts()).unwrap();
                loss[0].poison(&norm).unwrap();
                optimizer
                    .update(task.parameters(), &gradients, Clip { norm: &norm, max_norm: 1.0 }, 1e-3, 1.0)
                    .unwrap();
                losses.push(loss[0].read().unwrap().sum);
            }
            (losses, on_cpu(task.parameters().flat()), task.parameters().shadow().map(on_cpu))
        };
        let want = train(&Device::Cpu);
        on_each_device(|| {
            let got = train(&device());
            for (got, want) in got.0.iter().zip(&want.0) {
                assert!(
                    (got - want).abs() <= tolerance(dtype) * want,
                    "{optim:?} {dtype:?}: loss {got} is not {want}"
                );
            }
            // The first steps of Adam, and each step of Lion, are signs of gradients: where a gradient is
            // rounding noise, a parameter differs by twice the step. If the signs of all differed in one of
            // the two steps, Lion's error would be 0.05; it is 2e-3 if one in six hundred does.
            let error = relative_error(&got.1, &want.1);
            let limit = match (dtype, optim) {
                (DType::F32, OptimizerType::Lion) => 2e-3,
                (DType::F32, _) => 2e-4,
                _ => 1e-2,
            };
            assert!(error <= limit, "{optim:?} {dtype:?}: parameters differ by {error:e}");
            if let Some(shadow) = &got.2 {
                assert!(
                    bits(shadow) == bits(&got.1.to_dtype(dtype).unwrap()),
                    "the copy follows the parameters"
                );
            }
        });
    }
}

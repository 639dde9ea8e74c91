//! Large blocks of a training step: later steps ask the system for none, and their number is the predicted
//! one.
//!
//! The counters are those of a process, so each test runs alone in a child process of this test program.

use std::process::Command;

use candle_core::{DType, Device};
use mlmtrain::batches::Batch;
use mlmtrain::config::{ComputeType, RtdConfig, TrainingConfig};
use mlmtrain::families::{EncoderConfig, Family, ModelConfig};
use mlmtrain::layers::context::Pass;
use mlmtrain::layers::{Chosen, Context, Rows};
use mlmtrain::machine::Machine;
use mlmtrain::models::memory::{Outline, StepSizes};
use mlmtrain::models::{Blueprint, Model, TokenIds};
use mlmtrain::ops::memory;
use mlmtrain::optim;
use mlmtrain::precision::{Hardware, Policy};
use mlmtrain::tasks::Task;
use mlmtrain::tasks::masked_lm::MaskedLm;
use mlmtrain::tasks::replaced_token_detection::{ReplacedTokenDetection, blueprint};
use mlmtrain::train::run;
use mlmtrain::train::step::Stepper;

/// Says to a process of this program that it runs one test only.
const ALONE: &str = "MLMTRAIN_TEST_ALONE";

/// Runs `test` in a child process that runs nothing else; `name` is its full name.
fn alone(name: &str, test: fn()) {
    if std::env::var_os(ALONE).is_some() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        return pool.install(test);
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed"), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn config(vocab_size: usize, hidden_size: usize) -> ModelConfig {
    config_of(Family::ROBERTA, vocab_size, hidden_size)
}

fn config_of(family: Family, vocab_size: usize, hidden_size: usize) -> ModelConfig {
    let encoder = EncoderConfig {
        vocab_size,
        hidden_size,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        intermediate_size: 4 * hidden_size,
        // So that what rows of relative positions take is of no size that activations have.
        position_buckets: family.defaults.position_buckets * 3 / 4,
        ..EncoderConfig::of(family)
    };
    ModelConfig { family, encoder }
}

/// Segments of 64 tokens, of which `masked` tokens from `first` on, a few apart, are to be found again.
fn batch(tokens: u32, masked: usize, first: u32, vocabulary: u32) -> Batch {
    let label_positions: Vec<u32> = (first..tokens).step_by(6).take(masked).collect();
    assert_eq!(label_positions.len(), masked);
    Batch {
        ids: (0..tokens).map(|t| 5 + (t * 7 + first) % (vocabulary - 5)).collect(),
        token_type_ids: vec![0; tokens as usize],
        position_ids: (0..tokens).map(|t| t % 64).collect(),
        token_keys: (0..u64::from(tokens)).collect(),
        labels: label_positions.iter().map(|t| 5 + t % (vocabulary - 5)).collect(),
        label_positions,
        sample_ids: (0..u64::from(tokens.div_ceil(64))).collect(),
        cu_seqlens: (0..tokens).step_by(64).chain([tokens]).collect(),
        ..Batch::default()
    }
}

fn sizes(batch: &Batch, gradient_checkpointing: bool) -> StepSizes {
    StepSizes {
        tokens: batch.num_tokens() as u64,
        length: batch.max_seqlen() as u64,
        targets: batch.num_labels() as u64,
        compute: DType::F32,
        gradient_checkpointing,
        on_gpu: false,
    }
}

fn stepper(task: &dyn Task) -> Stepper {
    let policy = Policy::plain(ComputeType::F32, &Hardware::cpu()).unwrap();
    let machine = Machine::alone(&Device::Cpu, policy);
    run::stepper(task.parameters(), &TrainingConfig::default(), &machine, 1).unwrap()
}

/// Blocks asked of the system by 20 steps after two steps of warm-up; no two batches have their masks in the
/// same places.
fn blocks_of_twenty_steps() -> usize {
    const VOCABULARY: u32 = 2000;
    let task =
        MaskedLm { model: Model::masked_lm(&config(VOCABULARY as usize, 96), 1, &Device::Cpu).unwrap() };
    let mut stepper = stepper(&task);
    let mut run = |step: u32, masked: usize| {
        stepper.run(&task, &[batch(600, masked, step % 6, VOCABULARY)], u64::from(step), 1e-3).unwrap();
    };
    run(1, 90);
    run(2, 80);
    let before = memory::usage().system_requests;
    for step in 3..23 {
        run(step, 80 + (step as usize * 7) % 11);
    }
    memory::usage().system_requests - before
}

#[test]
fn after_the_warm_up_no_large_block_is_asked_of_the_system() {
    alone("allocation::after_the_warm_up_no_large_block_is_asked_of_the_system", || {
        let without = blocks_of_twenty_steps();
        assert!(without > 20 * 30, "the control: {without} blocks without keeping");
        let keeping = memory::keep_freed_blocks();
        assert_eq!(blocks_of_twenty_steps(), 0);
        let usage = memory::usage();
        assert!(usage.held_bytes > usage.used_bytes + (1 << 20), "{usage:?}");
        drop(keeping);
        assert_eq!(memory::usage().held_bytes, memory::usage().used_bytes, "what was kept went back");
    });
}

/// Relative difference of what was measured from what was predicted.
fn error(measured: usize, predicted: u64) -> f64 {
    (measured as f64 - predicted as f64) / predicted as f64
}

#[test]
fn a_step_takes_the_memory_that_was_predicted() {
    alone("allocation::a_step_takes_the_memory_that_was_predicted", || {
        compare_family(Family::ROBERTA);
        // Norms before blocks, and a first map of twice the width; layers of both kinds.
        compare_family(Family::MODERNBERT);
        // A table of relative positions, and two projections of it in each layer.
        compare_family(Family::DEBERTA_V2);
        // Two passes in the place of its last layer.
        let mut decoding = config_of(Family::DEBERTA_V2, VOCABULARY, 128);
        decoding.encoder.enhanced_mask_decoder = true;
        compare_step_memory(&decoding);
        // One set of parameters, and a map behind the embeddings.
        compare_family(Family::ALBERT);
        // A bias of attention.
        compare_family(Family::MPNET);
        // A norm before the first layer, and a decoder of its own without a transform. Two thirds of this
        // width are 512, which fill a block.
        let mut plain_decoder = config_of(Family::NEOBERT, VOCABULARY, 128);
        plain_decoder.encoder.intermediate_size = 768;
        compare_step_memory(&plain_decoder);
    });
}

/// Bytes of the moments of AdamW.
fn optimizer_bytes(outline: &dyn Outline) -> u64 {
    4 * optim::state_values(outline.layout(), &TrainingConfig::default())
}

/// Words of the models whose memory is measured.
const VOCABULARY: usize = 6144;

/// Sizes of which every large tensor fills its block, so that blocks can be compared with tensors.
fn compare_family(family: Family) {
    compare_step_memory(&config_of(family, VOCABULARY, 128));
}

fn compare_step_memory(config: &ModelConfig) {
    let batch = batch(1024, 128, 3, VOCABULARY as u32);
    for gradient_checkpointing in [false, true] {
        // Room of products on AVX2 stays from the pass before.
        let before = memory::usage().used_bytes;
        let keeping = memory::keep_freed_blocks();
        let mut task = MaskedLm { model: Model::masked_lm(config, 1, &Device::Cpu).unwrap() };
        task.model.encoder.gradient_checkpointing = gradient_checkpointing;
        let sizes = sizes(&batch, gradient_checkpointing);
        let outline = Blueprint::masked_lm(config);
        let predicted = outline.memory(&sizes);
        let state_bytes = predicted.state_bytes + optimizer_bytes(&outline);
        let mut stepper = stepper(&task);
        let start = memory::usage();
        // Blocks are up to an eighth larger than the four buffers in them.
        assert!(
            (0.0..0.125).contains(&error(start.used_bytes - before, state_bytes)),
            "{start:?} {predicted:?}"
        );
        assert_eq!(start.used_bytes, start.held_bytes);

        let rows = Rows {
            cu_seqlens: (&batch.cu_seqlens).into(),
            token_keys: (&batch.token_keys).into(),
            is_causal: false,
        };
        let ctx = Context { parameters: task.parameters(), rows, pass: Some(Pass::new(1, 1)) };
        let position_ids: Vec<u32> =
            batch.position_ids.iter().map(|p| p + config.position_offset() as u32).collect();
        let keys: Vec<u64> =
            batch.label_positions.iter().map(|&position| batch.token_keys[position as usize]).collect();
        let forward = || {
            let (ids, token_type_ids) = ((&batch.ids).into(), (&batch.token_type_ids).into());
            let tokens = TokenIds { ids, position_ids: (&position_ids).into(), token_type_ids };
            let chosen = Some(Chosen { positions: (&batch.label_positions).into(), keys: (&keys).into() });
            task.model.encoder.forward(tokens, chosen, &ctx).unwrap()
        };
        // What a first pass leaves is no part of a forecast: cosines and sines of places, and room of
        // products on AVX2.
        drop(forward());
        let kept = memory::usage().used_bytes - start.used_bytes;
        assert!(kept < 2 << 20, "{kept} bytes stay after a pass");
        let (hidden, saved) = forward();
        let used = memory::usage().used_bytes - start.used_bytes - kept;
        let between = error(used, predicted.activation_bytes);
        assert!(between.abs() < 0.015, "{between}: {:?} {predicted:?}", memory::usage());
        drop((hidden, saved));

        for step in 1..=2 {
            stepper.run(&task, std::slice::from_ref(&batch), step, 1e-3).unwrap();
        }
        let usage = memory::usage();
        let kept = usage.used_bytes - start.used_bytes;
        assert!(kept < 4 << 20, "{kept} bytes stay after two steps");
        let held = usage.held_bytes - start.held_bytes - kept;
        let peak = error(held, predicted.step_bytes());
        assert!(peak.abs() < 0.05, "{peak}: {:?} {predicted:?}", memory::usage());
        drop((task, stepper, keeping));
    }
}

/// Twelve layers must not take more than two: batches of evaluation are often larger than those of training.
#[test]
fn evaluation_keeps_one_layer_at_a_time() {
    alone("allocation::evaluation_keeps_one_layer_at_a_time", || {
        const VOCABULARY: u32 = 6144;
        let batch = batch(1024, 128, 3, VOCABULARY);
        let [two, twelve] = [2, 12].map(|num_hidden_layers| {
            let mut config = config(VOCABULARY as usize, 128);
            config.encoder.num_hidden_layers = num_hidden_layers;
            let keeping = memory::keep_freed_blocks();
            let task = MaskedLm { model: Model::masked_lm(&config, 1, &Device::Cpu).unwrap() };
            let before = memory::usage().held_bytes;
            task.evaluate(&batch).unwrap();
            let sizes = sizes(&batch, false);
            let (measured, predicted) =
                (memory::usage().held_bytes - before, Blueprint::masked_lm(&config).memory(&sizes));
            let error = error(measured, predicted.evaluation_bytes);
            drop((task, keeping));
            assert!(
                error.abs() < 0.2,
                "{num_hidden_layers} layers, {error}: {measured} bytes: {predicted:?}"
            );
            measured
        });
        // Ten layers more would save 90 MiB.
        assert!(twelve < two + (8 << 20), "{two} bytes with two layers, {twelve} with twelve");
    });
}

/// The generator's blocks are kept beside the discriminator's, whose sizes are others.
#[test]
fn a_step_of_two_models_takes_the_memory_that_was_predicted() {
    alone("allocation::a_step_of_two_models_takes_the_memory_that_was_predicted", || {
        const VOCABULARY: u32 = 6144;
        let encoder = EncoderConfig { embedding_size: Some(128), ..config(VOCABULARY as usize, 256).encoder };
        let model = ModelConfig { family: Family::ELECTRA, encoder };
        let (rtd, batch) = (RtdConfig::default(), batch(1024, 128, 3, VOCABULARY));
        let keeping = memory::keep_freed_blocks();
        let outline = blueprint(&rtd, &model).unwrap();
        let sizes = sizes(&batch, false);
        let predicted = outline.memory(&sizes);
        let state_bytes = predicted.state_bytes + optimizer_bytes(&outline);
        let task = ReplacedTokenDetection::new(outline.initialise(1, &Device::Cpu).unwrap(), &rtd);
        let mut stepper = stepper(&task);
        let start = memory::usage();
        assert!((0.0..0.125).contains(&error(start.used_bytes, state_bytes)), "{start:?} {predicted:?}");
        for step in 1..=2 {
            stepper.run(&task, std::slice::from_ref(&batch), step, 1e-3).unwrap();
        }
        let peak = error(memory::usage().held_bytes - start.held_bytes, predicted.step_bytes());
        assert!(peak.abs() < 0.1, "{peak}: {:?} {predicted:?}", memory::usage());
        drop((task, stepper, keeping));
    });
}

//! The number of threads changes no bit of a training step, in whatever type it computes.

use candle_core::{DType, Device, Tensor};
use mlmtrain::batches::Batch;
use mlmtrain::config::{ComputeType, PrecisionConfig, TrainingConfig};
use mlmtrain::distributed::World;
use mlmtrain::families::{EncoderConfig, Family, ModelConfig};
use mlmtrain::layers::Gradients;
use mlmtrain::models::Model;
use mlmtrain::optim::Optimizer;
use mlmtrain::precision::{Hardware, Policy};
use mlmtrain::rng::{Purpose, Stream};
use mlmtrain::tasks::Task;
use mlmtrain::tasks::masked_lm::MaskedLm;
use mlmtrain::train::step::Stepper;

const VOCABULARY: u32 = 3000;

/// Segments of 1 to 200 tokens, 15 % of the tokens masked: enough rows that every op shares its work out.
fn batch() -> Batch {
    let cu_seqlens = vec![0u32, 1, 60, 260, 400, 600];
    let tokens = cu_seqlens[cu_seqlens.len() - 1];
    let stream = Stream::new(1, Purpose::Test, 0);
    let id = |t: u32| 5 + stream.below(u64::from(t), u64::from(VOCABULARY) - 5) as u32;
    let masked: Vec<u32> = (0..tokens).filter(|&t| stream.uniform(1 << 32 | u64::from(t)) < 0.15).collect();
    Batch {
        ids: (0..tokens).map(id).collect(),
        token_type_ids: vec![0; tokens as usize],
        position_ids: cu_seqlens.windows(2).flat_map(|w| 0..w[1] - w[0]).collect(),
        token_keys: (0..u64::from(tokens)).collect(),
        labels: masked.iter().map(|&t| id(t + tokens)).collect(),
        label_positions: masked,
        sample_ids: (0..cu_seqlens.len() as u64 - 1).collect(),
        cu_seqlens,
        ..Batch::default()
    }
}

/// Two steps with dropout and clipping; the parameters as bits. Their copy in a half type must be what they
/// round to.
fn parameters_after_two_steps(family: Family, compute: ComputeType, threads: usize) -> Vec<u32> {
    let encoder = EncoderConfig {
        vocab_size: VOCABULARY as usize,
        hidden_size: 96,
        num_hidden_layers: 2,
        num_attention_heads: 3,
        intermediate_size: 384,
        mlp_dropout: 0.1,
        ..EncoderConfig::of(family)
    };
    let config = ModelConfig { family, encoder };
    let policy = Policy::new(
        &PrecisionConfig { compute: compute.into(), ..PrecisionConfig::default() },
        &Hardware::cpu(),
    )
    .unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        let task = MaskedLm {
            model: Model::masked_lm(&config, 1, &Device::Cpu).unwrap().computing_in(policy.compute).unwrap(),
        };
        let mut stepper = Stepper {
            optimizer: Optimizer::new(task.parameters(), &TrainingConfig::default()).unwrap(),
            gradients: Gradients::new(task.parameters()).unwrap(),
            max_grad_norm: 1.0,
            seed: 1,
            loss_scale: policy.loss_scale(),
            world: World::ALONE,
            sums: None,
        };
        for step in 1..=2 {
            let outcome = stepper.run(&task, &[batch()], step, 1e-3).unwrap();
            assert_eq!(outcome.skipped, None, "{compute:?}: step {step}");
        }
        let values = |t: &Tensor| t.to_dtype(DType::F32).unwrap().to_vec1::<f32>().unwrap();
        if let Some(shadow) = task.parameters().shadow() {
            let rounded = task.parameters().flat().to_dtype(policy.compute).unwrap();
            assert!(
                values(shadow) == values(&rounded),
                "{compute:?}: the copy does not follow the parameters"
            );
        }
        task.parameters().flat().to_vec1::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
    })
}

#[test]
fn one_thread_and_several_train_the_same_bits() {
    let types = [ComputeType::F32, ComputeType::Bf16, ComputeType::F16];
    let cases = [Family::ROBERTA, Family::MODERNBERT, Family::DEBERTA_V2, Family::ALBERT, Family::MPNET]
        .into_iter()
        .flat_map(|f| types.map(|compute| (f, compute)));
    for (family, compute) in cases {
        let one = parameters_after_two_steps(family, compute, 1);
        for threads in [2, 3] {
            assert!(
                parameters_after_two_steps(family, compute, threads) == one,
                "{family:?}, {compute:?}: {threads} threads differ from one"
            );
        }
    }
}

//! Tokens/s of a whole masked-LM training step: forward, backward, clipping, AdamW, dropout 0.1, 15 % of tokens masked.
//!
//! `cargo bench --bench train_step -- small,16,128 base,8,128` times the named shapes (size, rows, length), the same as
//! `size,batch,length` of the PyTorch script beside it (`scripts/peer_pytorch.py`). It prints one line a shape. With `,short`
//! at the end each row holds several documents of 20 to 60 tokens, as rows of packed short texts do.

use std::io::Write;
use std::time::Instant;

use candle_core::Device;
use mlmtrain::batches::Batch;
use mlmtrain::config::EncoderConfig;
use mlmtrain::config::Family;
use mlmtrain::config::ModelConfig;
use mlmtrain::config::TrainingConfig;
use mlmtrain::layers::Gradients;
use mlmtrain::models::Model;
use mlmtrain::models::flops::masked_lm_step;
use mlmtrain::ops::memory;
use mlmtrain::optim::Optimizer;
use mlmtrain::rng::Purpose;
use mlmtrain::rng::Stream;
use mlmtrain::tasks::Task;
use mlmtrain::tasks::mlm::MaskedLm;
use mlmtrain::train::step::Stepper;

const WARM_UP_STEPS: u64 = 2;
const TIMED_STEPS: u64 = 5;

fn encoder(size: &str) -> Option<EncoderConfig> {
    let (vocab_size, hidden_size, num_hidden_layers, num_attention_heads) = match size {
        "tiny" => (8192, 128, 2, 2),
        "small" => (30_522, 256, 12, 4),
        "base" => (50_265, 768, 12, 12),
        "large" => (50_265, 1024, 24, 16),
        _ => return None,
    };
    let intermediate_size = 4 * hidden_size;
    let roberta = EncoderConfig::of(Family::Roberta);
    Some(EncoderConfig { vocab_size, hidden_size, num_hidden_layers, num_attention_heads, intermediate_size, ..roberta })
}

fn batch(vocab_size: usize, rows: usize, length: usize, short: bool) -> Batch {
    let stream = Stream::new(1, Purpose::Test, 0);
    let tokens = rows * length;
    let masked: Vec<u32> = (0..tokens as u32).filter(|&t| stream.uniform(u64::from(t)) < 0.15).collect();
    let id = |t: usize| 5 + stream.below(1 << 32 | t as u64, vocab_size as u64 - 5) as u32;
    Batch {
        ids: (0..tokens).map(id).collect(),
        token_type_ids: vec![0; tokens],
        position_ids: (0..tokens).map(|t| (t % length) as u32).collect(),
        cu_seqlens: segments(rows, length, short),
        token_keys: (0..tokens as u64).collect(),
        labels: masked.iter().map(|&t| id(t as usize)).collect(),
        label_positions: masked,
        sample_ids: (0..rows as u64).collect(),
    }
}

/// One segment a row, or rows cut into segments of 20 to 60 tokens.
fn segments(rows: usize, length: usize, short: bool) -> Vec<u32> {
    let stream = Stream::new(2, Purpose::Test, 0);
    let mut starts = vec![0];
    for row in 1..=rows {
        let end = (row * length) as u32;
        while let Some(&start) = starts.last().filter(|&&start| start < end) {
            let drawn = 20 + stream.below(starts.len() as u64, 41) as u32;
            starts.push(if short { end.min(start + drawn) } else { end });
        }
    }
    starts
}

fn run(case: &str) -> Option<String> {
    let mut parts = case.split(',');
    let (size, rows, length) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let short = parts.next() == Some("short");
    let config = ModelConfig { family: Family::Roberta, encoder: encoder(size)? };
    let task = MaskedLm { model: Model::masked_lm(&config, 1, &Device::Cpu).ok()? };
    let batch = batch(config.encoder.vocab_size, rows, length, short);
    let training = TrainingConfig { weight_decay: 0.01, ..TrainingConfig::default() };
    let mut stepper = Stepper {
        optimizer: Optimizer::new(task.parameters(), &training).ok()?,
        gradients: Gradients::zeros_like(task.parameters()).ok()?,
        max_grad_norm: 1.0,
        seed: 1,
        loss_scale: None,
    };
    let mut seconds = Vec::new();
    for step in 1..=WARM_UP_STEPS + TIMED_STEPS {
        let start = Instant::now();
        stepper.run(&task, std::slice::from_ref(&batch), step, 1e-4).ok()?;
        if step > WARM_UP_STEPS {
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    seconds.sort_by(f64::total_cmp);
    let median = seconds[seconds.len() / 2];
    let tokens = (rows * length) as f64;
    let mean_length = tokens / (batch.cu_seqlens.len() - 1) as f64;
    let flops = masked_lm_step(&config, tokens, mean_length, batch.num_labels() as f64);
    Some(format!("{case:20} {:9.1} ms/step {:9.0} tokens/s {:7.1} GFLOP/s", median * 1e3, tokens / median, flops / median / 1e9))
}

fn main() {
    memory::keep_freed_pages();
    let mut cases: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if cases.is_empty() {
        cases = ["tiny,32,128", "small,16,128"].map(String::from).to_vec();
    }
    let mut out = std::io::stdout();
    for case in cases {
        let line =
            run(&case).unwrap_or_else(|| format!("{case}: not a case, want size,rows,length[,short] with size tiny|small|base|large"));
        // A closed pipe ends the bench; there is nobody left to tell.
        if writeln!(out, "{line}").is_err() {
            return;
        }
    }
}

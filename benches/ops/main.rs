//! Seconds of each op at the shapes of the named models, as GFLOP/s or GB/s and as a share of what this
//! machine was just measured to reach.
//!
//! `cargo bench --bench ops -- [WORD...]` runs the lines that contain every word: `cargo bench --bench ops --
//! base linear f32`. A step of `base` is 1,024 tokens (8 rows of 128), of `large` the same, of `small` 2,048
//! and of `tiny` 4,096; 15 % of them reach the head. Products count two operations a multiply-add and are
//! compared with the peak of multiply-adds in their type; all other ops are compared with the bandwidth of
//! the memory, counting what they must read and write once. Small tensors stay in the caches, so that a share
//! may be above 100 %. An op without code for a type says so.

mod inputs;
mod rows;

use std::fmt::Display;
use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use candle_core::{DType, Result, Tensor};
use mlmtrain::families::{EncoderConfig, MODEL_NAMES, named_model};
use mlmtrain::instructions;
use mlmtrain::ops::matmul::cpu::{instructions_for, is_native};
use mlmtrain::ops::memory::LargeBlocks;
use mlmtrain::ops::{
    adamw, attention, cross_entropy, embedding, gather_rows, lamb, linear, linear_cross_entropy, lion,
    memory, norm, peak, stable_adamw,
};

use inputs::{drawn_ids, dropped, full, row_keys, vector, zeros};

/// Each op runs at least so often and so long; the median counts.
const LEAST_RUNS: usize = 5;
const LEAST_SECONDS: f64 = 0.2;

const LENGTH: usize = 128;
const MASKED_SHARE: f64 = 0.15;
const EPS: f64 = 1e-5;

/// Rows of a step of each named model.
fn rows_of(name: &str) -> usize {
    match name {
        "tiny" => 32,
        "small" => 16,
        _ => 8,
    }
}

/// What an op does at least, to be compared with the machine.
enum Work {
    /// Floating-point operations.
    Flops(f64),
    /// Values read or written in the compute type, and in f32.
    Values(usize, usize),
}

/// What the machine reaches.
struct Peaks {
    flops_per_second: Vec<(DType, f64)>,
    bytes_per_second: f64,
}

/// The inputs of one model in one type, and where lines go.
struct Bench<'a, W> {
    out: W,
    words: &'a [String],
    peaks: &'a Peaks,
    name: &'a str,
    dtype: DType,
    shape: EncoderConfig,
}

/// Whether the reader is still there.
type Going = Option<()>;

impl<W: Write> Bench<'_, W> {
    fn tokens(&self) -> usize {
        rows_of(self.name) * LENGTH
    }

    fn masked(&self) -> usize {
        (self.tokens() as f64 * MASKED_SHARE) as usize
    }

    /// Prints the line of one op, unless it was not asked for. `prepare` makes its inputs, `run` is timed.
    fn line<I>(
        &mut self,
        op: &str,
        work: &Work,
        prepare: impl FnOnce(&Self) -> Result<I>,
        run: impl FnMut(&I) -> Result<()>,
    ) -> Going {
        let start = format!("{:5} {:4} {op:32}", self.name, self.dtype.as_str());
        if !self.words.iter().all(|word| start.contains(word.as_str())) {
            return Some(());
        }
        let timed = prepare(self).and_then(|inputs| median_seconds(&inputs, run));
        let rest = match timed {
            Ok(seconds) => self.figures(work, seconds),
            Err(e) => format!("not supported: {}", first_line(&e)),
        };
        writeln!(self.out, "{start} {rest}").and_then(|()| self.out.flush()).ok()
    }

    fn figures(&self, work: &Work, seconds: f64) -> String {
        let (speed, unit, peak) = match *work {
            Work::Flops(flops) => {
                let peak = self
                    .peaks
                    .flops_per_second
                    .iter()
                    .find(|(dtype, _)| *dtype == self.dtype)
                    .map_or(f64::NAN, |(_, peak)| *peak);
                (flops / seconds, "GFLOP/s", peak)
            }
            Work::Values(compute, full) => {
                let bytes = (compute * self.dtype.size_in_bytes() + full * size_of::<f32>()) as f64;
                (bytes / seconds, "GB/s", self.peaks.bytes_per_second)
            }
        };
        format!("{:>10.3} ms {:>9.1} {unit:7} {:>6.1} %", seconds * 1e3, speed / 1e9, 100.0 * speed / peak)
    }

    /// Normal values in the compute type.
    fn activations(&self, rows: usize, cols: usize) -> Result<Tensor> {
        full(rows, cols)?.to_dtype(self.dtype)
    }

    fn products(&mut self) -> Going {
        let (d, f, v) = (self.shape.hidden_size, self.shape.intermediate_size, self.shape.vocab_size);
        let (tokens, masked) = (self.tokens(), self.masked());
        for (t, o, i) in [(tokens, d, d), (tokens, f, d), (tokens, d, f), (masked, v, d)] {
            let work = Work::Flops(2.0 * (t * o * i) as f64);
            let size = format!("{t}x{o}x{i}");
            let matrices = |bench: &Self| {
                Ok((bench.activations(t, i)?, bench.activations(o, i)?, bench.activations(t, o)?))
            };
            self.line(&format!("linear forward {size}"), &work, matrices, |(x, weight, _)| {
                black_box(linear::forward(x, weight, None)?);
                Ok(())
            })?;
            self.line(&format!("linear input {size}"), &work, matrices, |(_, weight, dy)| {
                black_box(linear::backward_input(dy, weight)?);
                Ok(())
            })?;
            let with_gradient =
                |bench: &Self| Ok((bench.activations(t, i)?, bench.activations(t, o)?, zeros(&[o, i])?));
            self.line(&format!("linear weight {size}"), &work, with_gradient, |(x, dy, gradient)| {
                linear::backward_parameters(dy, x, gradient, None)
            })?;
        }
        Some(())
    }

    fn attention(&mut self) -> Going {
        let (tokens, d, heads) = (self.tokens(), self.shape.hidden_size, self.shape.num_attention_heads);
        let cu_seqlens: Vec<u32> = (0..=tokens / LENGTH).map(|row| (row * LENGTH) as u32).collect();
        let (token_keys, dropout) = (row_keys(tokens), dropped());
        let segments = attention::Segments {
            heads,
            cu_seqlens: (&cu_seqlens).into(),
            token_keys: (&token_keys).into(),
            reach: attention::Reach::ALL,
            dropout: Some(&dropout),
        };
        let product = 2.0 * (tokens * LENGTH * d) as f64;
        let inputs = |bench: &Self| {
            let [q, k, v, dy] = [(); 4].map(|()| bench.activations(tokens, d));
            let (q, k, v, dy) = (q?, k?, v?, dy?);
            let (o, saved) = attention::forward(&q, &k, &v, &segments)?;
            Ok((q, k, v, o, saved, dy))
        };
        self.line("attention forward", &Work::Flops(2.0 * product), inputs, |(q, k, v, ..)| {
            black_box(attention::forward(q, k, v, &segments)?);
            Ok(())
        })?;
        // Scores are computed again, then four products give the three gradients.
        self.line("attention backward", &Work::Flops(5.0 * product), inputs, |(q, k, v, o, saved, dy)| {
            let activations = attention::Activations { q_td: q, k_td: k, v_td: v, o_td: o };
            black_box(attention::backward(dy, activations, saved, &segments)?);
            Ok(())
        })
    }

    fn ends(&mut self) -> Going {
        let (tokens, masked) = (self.tokens(), self.masked());
        let (d, v, positions) =
            (self.shape.hidden_size, self.shape.vocab_size, self.shape.max_position_embeddings);
        let word: Vec<u32> = drawn_ids(tokens, v);
        let position: Vec<u32> = (0..tokens).map(|t| (2 + t % LENGTH) as u32).collect();
        let token_type = vec![0; tokens];
        let ids = embedding::Ids {
            word: (&word).into(),
            position: (&position).into(),
            token_type: (&token_type).into(),
        };
        let tables = |_: &Self| Ok((full(v, d)?, full(positions, d)?, full(1, d)?));
        let dtype = self.dtype;
        self.line(
            "embedding forward",
            &Work::Values(tokens * d, 2 * tokens * d),
            tables,
            |(word_vd, position_pd, type_nd)| {
                let (position_pd, type_nd) = (Some(position_pd), Some(type_nd));
                let tables = embedding::Tables { word_vd, position_pd, type_nd };
                black_box(embedding::forward(ids, &tables, dtype)?);
                Ok(())
            },
        )?;
        let gradients = |bench: &Self| {
            Ok((bench.activations(tokens, d)?, zeros(&[v, d])?, zeros(&[positions, d])?, zeros(&[1, d])?))
        };
        self.line(
            "embedding backward",
            &Work::Values(3 * tokens * d, 4 * tokens * d),
            gradients,
            |(dy, word_vd, position_pd, type_nd)| {
                let (position_pd, type_nd) = (Some(position_pd), Some(type_nd));
                let tables = embedding::Tables { word_vd, position_pd, type_nd };
                embedding::backward(dy, ids, &tables, embedding::Padding::default())
            },
        )?;
        let picked: Vec<u32> = (0..masked).map(|m| (m * tokens / masked) as u32).collect();
        self.line(
            "gather_rows forward",
            &Work::Values(2 * masked * d, 0),
            |bench| bench.activations(tokens, d),
            |x| {
                black_box(gather_rows::forward(x, &picked)?);
                Ok(())
            },
        )?;
        let labels = drawn_ids(masked, v);
        let logits = |bench: &Self| {
            let logits = bench.activations(masked, v)?;
            let log_sum_exp = cross_entropy::forward(&logits, &labels)?.log_sum_exp_m;
            Ok((logits, log_sum_exp))
        };
        self.line("cross_entropy forward", &Work::Values(masked * v, 0), logits, |(logits, _)| {
            black_box(cross_entropy::forward(logits, &labels)?);
            Ok(())
        })?;
        // Written over the logits: from the second run on they are gradients, which takes as long.
        self.line(
            "cross_entropy backward",
            &Work::Values(2 * masked * v, 0),
            logits,
            |(logits, log_sum_exp)| {
                black_box(cross_entropy::backward(logits.clone(), &labels, log_sum_exp, 1.0)?);
                Ok(())
            },
        )
    }

    /// The decoder and its loss: three products of the head, logits and their gradient.
    fn decoder(&mut self) -> Going {
        let (d, v, masked) = (self.shape.hidden_size, self.shape.vocab_size, self.masked());
        let labels = drawn_ids(masked, v);
        let inputs = |bench: &Self| {
            Ok((
                bench.activations(masked, d)?,
                bench.activations(v, d)?,
                vector(v)?,
                zeros(&[v, d])?,
                zeros(&[v])?,
            ))
        };
        let work = Work::Flops(6.0 * (masked * d * v) as f64);
        self.line("linear_cross_entropy", &work, inputs, |(x, weight_vd, bias_v, dweight_vd, dbias_v)| {
            let map = linear_cross_entropy::Map { weight_vd, bias_v };
            let into =
                linear_cross_entropy::MapGradients { dweight_vd: dweight_vd.into(), dbias_v: dbias_v.into() };
            black_box(linear_cross_entropy::forward_backward(x, map, &labels, 1.0, into, None)?);
            Ok(())
        })
    }

    /// Over the word embedding, the largest parameter: buffers are f32 in every compute type, a half type has
    /// a copy besides.
    fn update(&mut self) -> Going {
        let count = self.shape.vocab_size * self.shape.hidden_size;
        self.line(
            "norm",
            &Work::Values(0, count),
            |_| vector(count),
            |gradients| {
                black_box(norm::l2(gradients)?);
                Ok(())
            },
        )?;
        let shadow_dtype = self.dtype;
        let buffers = |_: &Self| {
            let shadow =
                if shadow_dtype == DType::F32 { None } else { Some(vector(count)?.to_dtype(shadow_dtype)?) };
            Ok(([vector(count)?, vector(count)?, zeros(&[count])?, zeros(&[count])?], shadow))
        };
        let groups = [adamw::Group { range: 0..count, weight_decay: 0.01, lr_scale: 1.0 }];
        let hyper = adamw::Hyper {
            lr: 1e-4,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            step: 1,
            bias_correction: true,
            gradient_multiplier: 1.0,
        };
        let shadowed = if shadow_dtype == DType::F32 { 0 } else { count };
        // Buffers that are read or written, without the copy; those of two passes read and write some again.
        for (name, passes) in [("adamw", 8), ("lamb", 10), ("lion", 6), ("stable_adamw", 9)] {
            self.line(
                name,
                &Work::Values(shadowed, passes * count),
                buffers,
                |([parameters, gradients, first_moment, second_moment], shadow)| {
                    let shadow = shadow.as_ref();
                    let state = [first_moment, second_moment];
                    let buffers = adamw::Buffers {
                        parameters,
                        gradients,
                        half_gradients: None,
                        state,
                        shadow,
                        clip: None,
                    };
                    let of_lion = adamw::Buffers {
                        parameters,
                        gradients,
                        half_gradients: None,
                        state: [first_moment],
                        shadow,
                        clip: None,
                    };
                    match name {
                        "lamb" => lamb::update(buffers, &groups, &hyper),
                        "lion" => lion::update(of_lion, &groups, &hyper),
                        "stable_adamw" => stable_adamw::update(buffers, &groups, &hyper),
                        _ => adamw::update(buffers, &groups, &hyper),
                    }
                },
            )?;
        }
        Some(())
    }
}

fn median_seconds<I>(inputs: &I, mut run: impl FnMut(&I) -> Result<()>) -> Result<f64> {
    run(inputs)?;
    let mut seconds = Vec::new();
    while seconds.len() < LEAST_RUNS || seconds.iter().sum::<f64>() < LEAST_SECONDS {
        let start = Instant::now();
        run(inputs)?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[seconds.len() / 2])
}

fn first_line(error: &impl Display) -> String {
    error.to_string().lines().next().unwrap_or_default().to_string()
}

fn run(words: &[String], mut out: impl Write) -> Going {
    let dtypes = [DType::F32, DType::BF16, DType::F16];
    let flops_per_second: Vec<(DType, f64)> =
        dtypes.iter().map(|&dtype| (dtype, peak::flops_per_second(dtype))).collect();
    let peaks = Peaks { flops_per_second, bytes_per_second: peak::bytes_per_second() };
    for (dtype, flops) in &peaks.flops_per_second {
        let how = if is_native(*dtype) { "" } else { ", widened to f32" };
        let by = instructions_for(*dtype).title();
        writeln!(out, "peak {:4} {:.1} GFLOP/s by {by}{how}", dtype.as_str(), flops / 1e9).ok()?;
    }
    writeln!(out, "peak memory {:.1} GB/s", peaks.bytes_per_second / 1e9).ok()?;
    for name in MODEL_NAMES {
        let shape = named_model(name)?.encoder;
        for dtype in dtypes {
            let mut bench = Bench { out: &mut out, words, peaks: &peaks, name, dtype, shape: shape.clone() };
            bench.products()?;
            bench.attention()?;
            bench.rows()?;
            bench.residual_norm()?;
            bench.ends()?;
            bench.decoder()?;
            bench.update()?;
        }
    }
    Some(())
}

/// As in the program: large operands lie in huge pages.
#[global_allocator]
static ALLOCATOR: LargeBlocks = LargeBlocks;

fn main() {
    let _keeping = memory::keep_freed_blocks();
    instructions::choice().expect("MLMTRAIN_CPU is right");
    let words: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    // A closed pipe ends the bench; there is no reader left to tell.
    let _ = run(&words, std::io::stdout());
}

//! Attention on the CPU, f32: one task for each (segment, head), blocks of query rows against all keys of the segment.
//!
//! Scores live in a buffer of `QUERY_BLOCK` rows that a thread uses again; no `[T, T]` matrix is ever in memory.

use candle_core::Result;
use candle_core::Tensor;
use rayon::prelude::*;

use super::Activations;
use super::Saved;
use super::Segments;
use super::rows;
use crate::ops::matmul::cpu::Matrix;
use crate::ops::matmul::cpu::Output;
use crate::ops::matmul::cpu::product;
use crate::ops::tensor::from_vec;
use crate::ops::tensor::with_slices;

/// Query rows handled at once: enough for the matrix kernel, small enough that the scores stay in the L2 cache.
const QUERY_BLOCK: usize = 128;

/// An output that tasks share; each writes only the rows of its segment and the columns of its head.
#[derive(Clone, Copy)]
struct SharedOutput(*mut f32);
// SAFETY: tasks of different (segment, head) touch disjoint elements, see `Task`.
unsafe impl Send for SharedOutput {}
// SAFETY: as above.
unsafe impl Sync for SharedOutput {}

impl SharedOutput {
    fn pointer(self) -> *mut f32 {
        self.0
    }
}

/// One head of one segment.
#[derive(Clone, Copy)]
struct Task {
    start: usize,
    len: usize,
    head: usize,
}

struct Shape {
    hidden: usize,
    heads: usize,
    head_size: usize,
    scale: f32,
}

impl Shape {
    fn of(tensor: &Tensor, heads: usize) -> Result<Self> {
        let hidden = tensor.dim(1)?;
        Ok(Self { hidden, heads, head_size: hidden / heads, scale: 1.0 / ((hidden / heads) as f32).sqrt() })
    }

    /// Offset of a token's slice of a head in a `[T, D]` matrix.
    fn at(&self, task: Task, row: usize) -> usize {
        (task.start + row) * self.hidden + task.head * self.head_size
    }

    /// Rows from `row` on of a head of a segment as a matrix.
    fn window(&self, data: &[f32], task: Task, row: usize) -> Matrix {
        // SAFETY: row `task.start + row` and the head's columns lie inside the `[T, D]` slice (checked by the caller).
        unsafe { Matrix::window(data.as_ptr(), self.at(task, row), self.hidden) }
    }

    fn output(&self, data: SharedOutput, task: Task, row: usize, accumulate: bool) -> Output {
        // SAFETY: as in `window`; the output has the same shape.
        Output { data: unsafe { data.pointer().add(self.at(task, row)) }, row_stride: self.hidden, accumulate }
    }
}

fn tasks(segments: &Segments<'_>) -> Vec<Task> {
    let mut tasks = Vec::new();
    for bounds in segments.cu_seqlens.windows(2) {
        let (start, len) = (bounds[0] as usize, (bounds[1] - bounds[0]) as usize);
        if len > 0 {
            tasks.extend((0..segments.heads).map(|head| Task { start, len, head }));
        }
    }
    tasks
}

/// Buffers of one thread.
#[derive(Default)]
struct Scratch {
    scores: Vec<f32>,
    d_scores: Vec<f32>,
    factors: Vec<f32>,
}

pub(super) fn forward(q: &Tensor, k: &Tensor, v: &Tensor, segments: &Segments<'_>) -> Result<(Tensor, Saved)> {
    let (tokens, hidden) = q.dims2()?;
    let shape = Shape::of(q, segments.heads)?;
    let mut output = vec![0.0f32; tokens * hidden];
    let mut log_sum_exp_th = vec![0.0f32; tokens * segments.heads];
    let (out, lse) = (SharedOutput(output.as_mut_ptr()), SharedOutput(log_sum_exp_th.as_mut_ptr()));
    with_slices([q, k, v], |inputs| {
        tasks(segments).par_iter().for_each_init(Scratch::default, |scratch, &task| {
            forward_task(&shape, task, inputs, segments, scratch, out, lse);
        });
    })?;
    Ok((from_vec(output, (tokens, hidden))?, Saved { log_sum_exp_th }))
}

fn forward_task(
    shape: &Shape,
    task: Task,
    [q, k, v]: [&[f32]; 3],
    segments: &Segments<'_>,
    scratch: &mut Scratch,
    out: SharedOutput,
    lse: SharedOutput,
) {
    let n = task.len;
    for first in (0..n).step_by(QUERY_BLOCK) {
        let block = QUERY_BLOCK.min(n - first);
        score_block(shape, task, first, block, q, k, &mut scratch.scores);
        for row in 0..block {
            let token = task.start + first + row;
            let scores = &mut scratch.scores[row * n..(row + 1) * n];
            let log_sum_exp = rows::softmax(scores);
            // SAFETY: only this task owns (token, head).
            unsafe { *lse.pointer().add(token * shape.heads + task.head) = log_sum_exp };
            if let Some(dropout) = segments.dropout {
                scratch.factors.resize(n, 0.0);
                rows::factors(dropout, dropout_row(segments, token, task.head), &mut scratch.factors);
                rows::multiply(scores, &scratch.factors);
            }
        }
        let probabilities = Matrix::rows(&scratch.scores, n);
        // SAFETY: the windows lie inside `[T, D]`; only this task writes its rows and columns of the output.
        unsafe {
            product(
                (block, shape.head_size, n),
                shape.output(out, task, first, false),
                probabilities,
                shape.window(v, task, 0),
                1.0,
                false,
            );
        }
    }
}

/// `scores[block, n] = c q k^T` for query rows `first..first + block`.
fn score_block(shape: &Shape, task: Task, first: usize, block: usize, q: &[f32], k: &[f32], scores: &mut Vec<f32>) {
    scores.resize(block * task.len, 0.0);
    let out = Output { data: scores.as_mut_ptr(), row_stride: task.len, accumulate: false };
    // SAFETY: the windows lie inside `[T, D]`, the buffer was sized above.
    unsafe {
        let keys = shape.window(k, task, 0).transposed();
        product((block, task.len, shape.head_size), out, shape.window(q, task, first), keys, shape.scale, false);
    }
}

fn dropout_row(segments: &Segments<'_>, token: usize, head: usize) -> u64 {
    segments.token_keys[token] * segments.heads as u64 + head as u64
}

pub(super) fn backward(d_out: &Tensor, activations: Activations<'_>, saved: &Saved, segments: &Segments<'_>) -> Result<[Tensor; 3]> {
    let Activations { q_td: q, k_td: k, v_td: v, o_td: o } = activations;
    let (tokens, hidden) = q.dims2()?;
    let shape = Shape::of(q, segments.heads)?;
    let mut gradients = [(); 3].map(|()| vec![0.0f32; tokens * hidden]);
    let outputs = gradients.each_mut().map(|g| SharedOutput(g.as_mut_ptr()));
    with_slices([q, k, v, o, d_out], |inputs| {
        tasks(segments).par_iter().for_each_init(Scratch::default, |scratch, &task| {
            backward_task(&shape, task, inputs, saved, segments, scratch, outputs);
        });
    })?;
    let [dq, dk, dv] = gradients;
    Ok([from_vec(dq, (tokens, hidden))?, from_vec(dk, (tokens, hidden))?, from_vec(dv, (tokens, hidden))?])
}

fn backward_task(
    shape: &Shape,
    task: Task,
    [q, k, v, o, d_out]: [&[f32]; 5],
    saved: &Saved,
    segments: &Segments<'_>,
    scratch: &mut Scratch,
    [dq, dk, dv]: [SharedOutput; 3],
) {
    let (n, head_size) = (task.len, shape.head_size);
    for first in (0..n).step_by(QUERY_BLOCK) {
        let block = QUERY_BLOCK.min(n - first);
        let accumulate = first > 0;
        score_block(shape, task, first, block, q, k, &mut scratch.scores);
        scratch.d_scores.resize(block * n, 0.0);
        let d_scores = Output { data: scratch.d_scores.as_mut_ptr(), row_stride: n, accumulate: false };
        // SAFETY: the windows lie inside `[T, D]`, the buffer was sized above.
        unsafe {
            product((block, n, head_size), d_scores, shape.window(d_out, task, first), shape.window(v, task, 0).transposed(), 1.0, false);
        };
        for row in 0..block {
            let token = task.start + first + row;
            let at = shape.at(task, first + row);
            let delta = rows::dot(&d_out[at..at + head_size], &o[at..at + head_size]);
            let log_sum_exp = saved.log_sum_exp_th[token * shape.heads + task.head];
            let (p, ds) = (&mut scratch.scores[row * n..(row + 1) * n], &mut scratch.d_scores[row * n..(row + 1) * n]);
            if let Some(dropout) = segments.dropout {
                scratch.factors.resize(n, 0.0);
                rows::factors(dropout, dropout_row(segments, token, task.head), &mut scratch.factors);
                rows::backward_dropped(p, ds, &scratch.factors, log_sum_exp, delta);
            } else {
                rows::backward(p, ds, log_sum_exp, delta);
            }
        }
        let (dropped, ds) = (Matrix::rows(&scratch.scores, n), Matrix::rows(&scratch.d_scores, n));
        // SAFETY: the windows lie inside `[T, D]`; only this task writes its rows and columns of the outputs.
        unsafe {
            product(
                (n, head_size, block),
                shape.output(dv, task, 0, accumulate),
                dropped.transposed(),
                shape.window(d_out, task, first),
                1.0,
                false,
            );
            product((block, head_size, n), shape.output(dq, task, first, false), ds, shape.window(k, task, 0), shape.scale, false);
            product(
                (n, head_size, block),
                shape.output(dk, task, 0, accumulate),
                ds.transposed(),
                shape.window(q, task, first),
                shape.scale,
                false,
            );
        }
    }
}

//! Attention on the CPU: one task per (segment, head), which processes blocks of query rows against all keys
//! of the segment that any of these queries sees.
//!
//! Scores are f32 in a buffer of `QUERY_BLOCK` rows that a thread reuses; probabilities are rounded to the
//! type of the inputs for the products that read them. No `[T, T]` matrix is ever in memory. Biased attention
//! is the same pass with a [`Bias`].

mod bias;

use std::mem::MaybeUninit;
use std::ops::Range;

use candle_core::{Result, Tensor};
use rayon::prelude::*;

use super::rows::Keep;
use super::{Activations, Reach, Saved, Segments, rows};
use crate::element::Element;
use crate::matmul::cpu::{Matrix, Output, product};
use crate::tensor::{from_vec, unwritten, values};

pub(crate) use bias::Bias;

/// Query rows processed at once: enough for the matrix kernel, few enough that the scores stay in the L2
/// cache.
const QUERY_BLOCK: usize = 128;

/// Output that tasks share: each task writes only the rows of its segment and the columns of its head.
#[derive(Clone, Copy)]
pub(crate) struct SharedOutput<T>(*mut T);
// SAFETY: tasks of different (segment, head) access disjoint elements, see `Task`.
unsafe impl<T: Element> Send for SharedOutput<T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for SharedOutput<T> {}

impl<T> SharedOutput<T> {
    pub(crate) fn of(room: &mut [MaybeUninit<T>]) -> Self {
        Self(room.as_mut_ptr().cast())
    }

    pub(crate) fn pointer(&self) -> *mut T {
        self.0
    }
}

/// Task of one head and one segment.
#[derive(Clone, Copy)]
pub(crate) struct Task {
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) head: usize,
    pub(crate) reach: Reach,
}

/// Block of queries and the keys that any of them sees, as rows of their segment.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub(crate) first: usize,
    pub(crate) queries: usize,
    /// First key, rounded down to a multiple of the 8 keys that dropout draws at once.
    first_key: usize,
    pub(crate) keys: usize,
}

impl Task {
    pub(crate) fn blocks(self) -> impl Iterator<Item = Block> {
        (0..self.len).step_by(QUERY_BLOCK).map(move |first| {
            let queries = QUERY_BLOCK.min(self.len - first);
            let first_key = first.saturating_sub(self.reach.before) / 8 * 8;
            let end = (first + queries).saturating_add(self.reach.after).min(self.len);
            Block { first, queries, first_key, keys: end - first_key }
        })
    }

    /// Returns the keys that a query of a block sees, relative to the block's first key.
    pub(crate) fn seen(self, block: Block, row: usize) -> Range<usize> {
        let query = block.first + row;
        let end = query.saturating_add(self.reach.after).saturating_add(1).min(self.len);
        query.saturating_sub(self.reach.before) - block.first_key..end - block.first_key
    }
}

pub(crate) struct Shape {
    pub(crate) hidden: usize,
    pub(crate) heads: usize,
    pub(crate) head_size: usize,
    /// Factor by which scores are multiplied.
    pub(crate) scale: f32,
}

impl Shape {
    pub(crate) fn of(tensor: &Tensor, heads: usize) -> Result<Self> {
        let hidden = tensor.dim(1)?;
        Ok(Self { hidden, heads, head_size: hidden / heads, scale: 1.0 / ((hidden / heads) as f32).sqrt() })
    }

    /// Returns the offset of a token's columns of a head in a `[T, D]` matrix.
    pub(crate) fn at(&self, task: Task, row: usize) -> usize {
        (task.start + row) * self.hidden + task.head * self.head_size
    }

    /// Returns the rows of a segment from `row` on, restricted to the columns of the head, as a matrix.
    pub(crate) fn window<T: Element>(&self, data: &[T], task: Task, row: usize) -> Matrix<T> {
        // SAFETY: row `task.start + row` and the head's columns are inside the `[T, D]` slice (checked by the
        // caller).
        unsafe { Matrix::window(data.as_ptr(), self.at(task, row), self.hidden) }
    }

    pub(crate) fn output<T: Element>(
        &self,
        data: &SharedOutput<T>,
        task: Task,
        row: usize,
    ) -> Output<'static, T> {
        // SAFETY: as in `window`; the output has the same shape.
        Output::rows(unsafe { data.pointer().add(self.at(task, row)) }, self.hidden)
    }
}

pub(crate) fn tasks(segments: &Segments<'_>) -> Vec<Task> {
    let mut tasks = Vec::new();
    for bounds in segments.cu_seqlens.host().windows(2) {
        let start = bounds[0] as usize;
        let len = (bounds[1] - bounds[0]) as usize;
        if len > 0 {
            let reach = segments.reach;
            tasks.extend((0..segments.heads).map(|head| Task { start, len, head, reach }));
        }
    }
    tasks
}

/// Values that all tasks of a pass share.
struct Pass<'a> {
    shape: Shape,
    segments: &'a Segments<'a>,
    bias: Option<Bias<'a>>,
}

impl<'a> Pass<'a> {
    fn new(q: &Tensor, segments: &'a Segments<'a>, bias: Option<Bias<'a>>) -> Result<Self> {
        Ok(Self { shape: Shape::of(q, segments.heads)?, segments, bias })
    }

    /// Computes the scores of a block, `[queries, keys]`.
    fn score<T: Element>(&self, task: Task, block: Block, q: &[T], k: &[T], scores: &mut [f32]) {
        score_block(&self.shape, task, block, q, k, scores);
        if let Some(bias) = &self.bias {
            bias.add(task, block, scores);
        }
    }
}

/// Buffers of one thread: f32 scores and their gradients, and their rounded versions for the next products.
#[derive(Debug)]
pub(crate) struct Scratch<T> {
    pub(crate) scores: Vec<f32>,
    pub(crate) d_scores: Vec<f32>,
    pub(crate) factors: Vec<f32>,
    /// Dot product `do . o` of each row.
    pub(crate) deltas: Vec<f32>,
    pub(crate) probabilities: Vec<T>,
    pub(crate) rounded_d_scores: Vec<T>,
    /// Gradients of keys and values, summed in f32 over the blocks of queries, for segments of several
    /// blocks.
    pub(crate) d_keys: Vec<f32>,
    pub(crate) d_values: Vec<f32>,
    /// Gradients of a [`Bias`] by relative position.
    d_places: Vec<f32>,
}

impl<T> Default for Scratch<T> {
    fn default() -> Self {
        let [scores, d_scores, factors, deltas, d_keys, d_values, d_places] = [const { Vec::new() }; 7];
        let [probabilities, rounded_d_scores] = [const { Vec::new() }; 2];
        Self {
            scores,
            d_scores,
            factors,
            deltas,
            probabilities,
            rounded_d_scores,
            d_keys,
            d_values,
            d_places,
        }
    }
}

/// Returns the first `len` values of a buffer, which grows if necessary; they may contain values of earlier
/// uses.
pub(crate) fn room<T: Element>(buffer: &mut Vec<T>, len: usize) -> &mut [T] {
    if buffer.len() < len {
        buffer.resize(len, T::narrow(0.0));
    }
    &mut buffer[..len]
}

pub(crate) fn forward<T: Element>(
    [q, k, v]: [&Tensor; 3],
    segments: &Segments<'_>,
    bias: Option<Bias<'_>>,
) -> Result<(Tensor, Saved)> {
    let (tokens, hidden) = q.dims2()?;
    let pass = Pass::new(q, segments, bias)?;
    let q = values::<T>(q)?;
    let k = values::<T>(k)?;
    let v = values::<T>(v)?;
    let mut output = Vec::new();
    let mut log_sum_exp_th = Vec::new();
    let out = SharedOutput::of(unwritten(&mut output, tokens * hidden));
    let log_sum_exp = SharedOutput::of(unwritten(&mut log_sum_exp_th, tokens * segments.heads));
    tasks(segments).par_iter().for_each_init(Scratch::default, |scratch, &task| {
        forward_task(&pass, task, [&q, &k, &v], scratch, &out, &log_sum_exp);
    });
    // SAFETY: every token is in a segment, and the tasks of its heads have written its row.
    unsafe {
        output.set_len(tokens * hidden);
        log_sum_exp_th.set_len(tokens * segments.heads);
    }
    Ok((
        from_vec(output, (tokens, hidden))?,
        Saved { log_sum_exp_th: from_vec(log_sum_exp_th, (tokens, segments.heads))?, kept: None },
    ))
}

fn forward_task<T: Element>(
    pass: &Pass<'_>,
    task: Task,
    [q, k, v]: [&[T]; 3],
    scratch: &mut Scratch<T>,
    out: &SharedOutput<T>,
    log_sum_exp: &SharedOutput<f32>,
) {
    let shape = &pass.shape;
    for block in task.blocks() {
        let Block { first, queries, first_key, keys } = block;
        pass.score(task, block, q, k, room(&mut scratch.scores, queries * keys));
        let factors = room(&mut scratch.factors, keys);
        let probabilities = room(&mut scratch.probabilities, queries * keys);
        let rows = scratch.scores.chunks_exact_mut(keys).zip(probabilities.chunks_exact_mut(keys));
        for (row, (scores, probabilities)) in rows.take(queries).enumerate() {
            let token = task.start + first + row;
            let keep = keep(pass.segments, token, task.head, first_key);
            // SAFETY: only this task owns (token, head).
            unsafe {
                *log_sum_exp.pointer().add(token * shape.heads + task.head) =
                    rows::softmax(scores, task.seen(block, row), keep, factors, probabilities);
            };
        }
        let probabilities = Matrix::rows(probabilities, keys);
        let values = shape.window(v, task, first_key);
        let out = shape.output(out, task, first);
        // SAFETY: the windows are inside `[T, D]`, and only this task writes its rows and columns of the
        // output.
        unsafe { product((queries, shape.head_size, keys), out, probabilities, values, 1.0, false) };
    }
}

/// Computes `scores[queries, keys] = c q k^T` of a block.
pub(crate) fn score_block<T: Element>(
    shape: &Shape,
    task: Task,
    block: Block,
    q: &[T],
    k: &[T],
    scores: &mut [f32],
) {
    let Block { first, queries, first_key, keys } = block;
    let size = (queries, keys, shape.head_size);
    let q = shape.window(q, task, first);
    let k = shape.window(k, task, first_key).transposed();
    // SAFETY: the windows are inside `[T, D]`, and `scores` is `[queries, keys]`.
    unsafe { product(size, Output::rows(scores.as_mut_ptr(), keys), q, k, shape.scale, false) };
}

/// Returns the dropout of a token's probabilities in a head, from key `first` of its segment on; `None`
/// without dropout.
pub(crate) fn keep<'a>(segments: &Segments<'a>, token: usize, head: usize, first: usize) -> Option<Keep<'a>> {
    let row_key = segments.token_keys.host()[token] * segments.heads as u64 + head as u64;
    segments.dropout.map(|dropout| Keep { dropout, row_key, first })
}

/// Computes the gradients of queries, keys and values. With a bias, also adds the gradients of the bias table
/// to the given sums, `[tasks, R]`, initially zeros: each of the [`tasks`] adds to its own row.
pub(crate) fn backward<T: Element>(
    d_out: &Tensor,
    activations: Activations<'_>,
    saved: &Saved,
    segments: &Segments<'_>,
    bias: Option<(Bias<'_>, &mut [f32])>,
) -> Result<[Tensor; 3]> {
    let Activations { q_td: q, k_td: k, v_td: v, o_td: o } = activations;
    let (tokens, hidden) = q.dims2()?;
    let tasks = tasks(segments);
    let (bias, sums): (_, Vec<&mut [f32]>) = match bias {
        None => (None, tasks.iter().map(|_| Default::default()).collect()),
        Some((bias, sums)) => (Some(bias), sums.chunks_exact_mut(bias.table_rows).collect()),
    };
    let pass = Pass::new(q, segments, bias)?;
    let inputs = (values::<T>(q)?, values::<T>(k)?, values::<T>(v)?, values::<T>(o)?, values::<T>(d_out)?);
    let log_sum_exp = values::<f32>(&saved.log_sum_exp_th)?;
    let inputs: [&[T]; 5] = [&inputs.0, &inputs.1, &inputs.2, &inputs.3, &inputs.4];
    let len = tokens * hidden;
    let mut gradients = [const { Vec::new() }; 3];
    let outputs = gradients.each_mut().map(|gradient| SharedOutput::of(unwritten(gradient, len)));
    tasks.par_iter().zip(sums).for_each_init(Scratch::default, |scratch, (&task, sums)| {
        backward_task(&pass, task, inputs, &log_sum_exp, scratch, &outputs, sums);
    });
    // SAFETY: every token is in a segment, and the tasks of its heads have written its rows.
    gradients.iter_mut().for_each(|gradient| unsafe { gradient.set_len(len) });
    let [dq, dk, dv] = gradients;
    Ok([from_vec(dq, (tokens, hidden))?, from_vec(dk, (tokens, hidden))?, from_vec(dv, (tokens, hidden))?])
}

fn backward_task<T: Element>(
    pass: &Pass<'_>,
    task: Task,
    [q, k, v, o, d_out]: [&[T]; 5],
    log_sum_exp_th: &[f32],
    scratch: &mut Scratch<T>,
    [dq, dk, dv]: &[SharedOutput<T>; 3],
    bias_sums: &mut [f32],
) {
    let shape = &pass.shape;
    let n = task.len;
    let head_size = shape.head_size;
    let d_places = room(&mut scratch.d_places, if pass.bias.is_some() { 2 * n - 1 } else { 0 });
    d_places.fill(0.0);
    // A single block of queries gives the complete sums; those of several blocks are added in f32 before they
    // are rounded.
    let several = n > QUERY_BLOCK;
    let sums = if several { n * head_size } else { 0 };
    let d_keys = room(&mut scratch.d_keys, sums);
    let d_values = room(&mut scratch.d_values, sums);
    // Number of keys whose sums have been initialised: blocks of queries come in order, and so do the last
    // keys they see.
    let mut reached = 0;
    for block in task.blocks() {
        let Block { first, queries, first_key, keys } = block;
        let area = queries * keys;
        let scores = room(&mut scratch.scores, area);
        let d_scores = room(&mut scratch.d_scores, area);
        pass.score(task, block, q, k, scores);
        let values = shape.window(v, task, first_key).transposed();
        let out = Output::rows(d_scores.as_mut_ptr(), keys);
        let size = (queries, keys, head_size);
        // SAFETY: the windows are inside `[T, D]`, and the buffer was sized above.
        unsafe { product(size, out, shape.window(d_out, task, first), values, 1.0, false) };
        let factors = room(&mut scratch.factors, keys);
        let dropped = room(&mut scratch.probabilities, area);
        let ds = room(&mut scratch.rounded_d_scores, area);
        let deltas = room(&mut scratch.deltas, queries);
        let offset = shape.at(task, first);
        rows::dots(&d_out[offset..], &o[offset..], head_size, shape.hidden, deltas);
        for (row, &delta) in deltas.iter().enumerate() {
            let token = task.start + first + row;
            let range = row * keys..(row + 1) * keys;
            let log_sum_exp = log_sum_exp_th[token * shape.heads + task.head];
            let out = (&mut dropped[range.clone()], &mut ds[range.clone()]);
            let keep = keep(pass.segments, token, task.head, first_key);
            rows::backward(
                &scores[range.clone()],
                &d_scores[range.clone()],
                (log_sum_exp, delta),
                task.seen(block, row),
                keep,
                factors,
                out,
            );
            if pass.bias.is_some() {
                rows::collect(&ds[range], &mut d_places[block.place(row, n)..]);
            }
        }
        let dropped = Matrix::rows(dropped, keys);
        let ds = Matrix::rows(ds, keys);
        let d_out = shape.window(d_out, task, first);
        let query = shape.window(q, task, first);
        // SAFETY: the windows are inside `[T, D]`, only this task writes its rows and columns of the outputs,
        // and the sums were sized above.
        unsafe {
            product(
                (queries, head_size, keys),
                shape.output(dq, task, first),
                ds,
                shape.window(k, task, first_key),
                shape.scale,
                false,
            );
            let size = (keys, head_size, queries);
            if several {
                let end = first_key + keys;
                if reached > 0 {
                    let new = reached * head_size..end.max(reached) * head_size;
                    d_values[new.clone()].fill(0.0);
                    d_keys[new].fill(0.0);
                }
                let sum = |data: &mut [f32]| Output {
                    accumulate: reached > 0,
                    ..Output::rows(data[first_key * head_size..].as_mut_ptr(), head_size)
                };
                product(size, sum(d_values), dropped.transposed(), d_out, 1.0, false);
                product(size, sum(d_keys), ds.transposed(), query, shape.scale, false);
                reached = reached.max(end);
            } else {
                product(size, shape.output(dv, task, 0), dropped.transposed(), d_out, 1.0, false);
                product(size, shape.output(dk, task, 0), ds.transposed(), query, shape.scale, false);
            }
        }
    }
    for (sums, out) in [(d_keys, dk), (d_values, dv)] {
        write_rows(shape, task, sums, out);
    }
    if let Some(bias) = &pass.bias {
        bias.collect(d_places, bias_sums);
    }
}

/// Rounds the sums of a task's rows and writes them to an output.
pub(crate) fn write_rows<T: Element>(shape: &Shape, task: Task, sums: &[f32], out: &SharedOutput<T>) {
    for (row, sums) in sums.chunks_exact(shape.head_size).enumerate() {
        // SAFETY: the row and the head's columns are inside `[T, D]`, and only this task writes them.
        let out = unsafe {
            let first = out.pointer().add(shape.at(task, row)).cast::<MaybeUninit<T>>();
            std::slice::from_raw_parts_mut(first, shape.head_size)
        };
        out.iter_mut().zip(sums).for_each(|(out, sum)| _ = out.write(T::narrow(*sum)));
    }
}

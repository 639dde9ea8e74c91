//! Disentangled attention on the CPU: as attention, with what queries and keys say of positions added to each
//! block of scores.

mod backward;

use candle_core::Result;
use candle_core::Tensor;
use rayon::prelude::*;

use super::Relative;
use super::rows;
use crate::attention;
use crate::attention::Saved;
use crate::attention::Segments;
use crate::attention::cpu::Block;
use crate::attention::cpu::Shape;
use crate::attention::cpu::SharedOutput;
use crate::attention::cpu::Task;
use crate::attention::cpu::keep;
use crate::attention::cpu::room;
use crate::attention::cpu::score_block;
use crate::attention::cpu::tasks;
use crate::attention::rows as attention_rows;
use crate::element::Element;
use crate::matmul::cpu::Matrix;
use crate::matmul::cpu::Output;
use crate::matmul::cpu::product;
use crate::tensor::from_vec;
use crate::tensor::unwritten;
use crate::tensor::values;

pub(super) use backward::backward;

/// What all tasks of a pass read.
struct Inputs<'a, T> {
    shape: Shape,
    q: &'a [T],
    k: &'a [T],
    v: &'a [T],
    /// Keys of positions.
    keys: Option<&'a [T]>,
    /// Queries of positions.
    queries: Option<&'a [T]>,
    /// [`super::Buckets::by_place`] for the longest segment.
    by_place: &'a [u32],
    segments: &'a Segments<'a>,
}

/// The rows of the tables that the distances of a segment reach.
#[derive(Clone, Copy)]
struct Reach<'a> {
    /// The first of them.
    first: usize,
    /// How many.
    count: usize,
    /// For keys from `n - 1` tokens before a query to as many behind it.
    by_place: &'a [u32],
    len: usize,
}

impl<'a> Reach<'a> {
    /// The rows, as the table has them, for each key of a query.
    fn of_query(&self, query: usize) -> &'a [u32] {
        &self.by_place[self.len - 1 - query..][..self.len]
    }
}

/// Buffers of one thread.
struct Scratch<T> {
    /// As attention without positions has them.
    blocks: attention::cpu::Scratch<T>,
    /// The rows of each key of a query, counted from the first that its segment reaches.
    places: Vec<u32>,
    positions: Positions,
    /// Sums of gradients, rounded for products.
    rounded: Vec<T>,
}

/// What a block of queries and the keys of a segment say of positions, and the gradients of that.
#[derive(Default)]
struct Positions {
    by_query: Vec<f32>,
    by_key: Vec<f32>,
    d_by_query: Vec<f32>,
    d_by_key: Vec<f32>,
}

impl<T> Default for Scratch<T> {
    fn default() -> Self {
        let (blocks, positions) = (attention::cpu::Scratch::default(), Positions::default());
        Self { blocks, places: Vec::new(), positions, rounded: Vec::new() }
    }
}

impl<T: Element> Inputs<'_, T> {
    fn reach(&self, task: Task) -> Reach<'_> {
        let (len, middle) = (task.len, self.by_place.len() / 2);
        let by_place = &self.by_place[middle + 1 - len..middle + len];
        // The last place is that of the smallest distance.
        let (first, last) = (by_place[by_place.len() - 1] as usize, by_place[0] as usize);
        Reach { first, count: last + 1 - first, by_place, len }
    }

    /// The rows of a table that a segment reaches, of the task's head.
    fn table(&self, table: &[T], task: Task, reach: Reach<'_>) -> Matrix<T> {
        self.shape.window(table, Task { start: reach.first, ..task }, 0)
    }

    /// `[rows, count]`: what rows of queries or keys, from `row` on, say of each row of a table.
    fn say(
        &self,
        (contents, row, rows): (&[T], usize, usize),
        table: &[T],
        (task, reach): (Task, Reach<'_>),
        said: &mut [f32],
    ) {
        let size = (rows, reach.count, self.shape.head_size);
        let contents = self.shape.window(contents, task, row);
        let table = self.table(table, task, reach).transposed();
        // SAFETY: the windows lie inside `[T, D]` and `[R, D]`, and `said` is `[rows, count]`.
        unsafe {
            product(
                size,
                Output::rows(said.as_mut_ptr(), reach.count),
                contents,
                table,
                self.shape.scale,
                false,
            );
        }
    }

    /// What the keys of a segment say of positions; before its blocks.
    fn say_by_key(&self, task: Task, reach: Reach<'_>, positions: &mut Positions) {
        if let Some(table) = self.queries {
            let said = room(&mut positions.by_key, task.len * reach.count);
            self.say((self.k, 0, task.len), table, (task, reach), said);
        }
    }

    /// The scores of a block, `[queries, keys]`.
    fn score(
        &self,
        (task, block, reach): (Task, Block, Reach<'_>),
        positions: &mut Positions,
        places: &mut Vec<u32>,
        scores: &mut [f32],
    ) {
        let Block { first, queries, keys, .. } = block;
        score_block(&self.shape, task, block, self.q, self.k, scores);
        let said = room(&mut positions.by_query, queries * reach.count);
        if let Some(table) = self.keys {
            self.say((self.q, first, queries), table, (task, reach), said);
        }
        for (row, scores) in scores.chunks_exact_mut(keys).enumerate() {
            place(reach, first + row, places);
            if self.keys.is_some() {
                rows::add_by_query(scores, places, &said[row * reach.count..][..reach.count]);
            }
            if self.queries.is_some() {
                rows::add_by_key(scores, places, &positions.by_key[..task.len * reach.count]);
            }
        }
    }
}

/// The rows of each key of a query, counted from the first that is reached.
fn place(reach: Reach<'_>, query: usize, places: &mut Vec<u32>) {
    places.clear();
    places.extend(reach.of_query(query).iter().map(|row| row - reach.first as u32));
}

/// Runs a pass on the values of its inputs.
fn with_inputs<T: Element, R>(
    [q, k, v]: [&Tensor; 3],
    relative: &Relative<'_>,
    segments: &Segments<'_>,
    pass: impl FnOnce(&Inputs<'_, T>) -> R,
) -> Result<R> {
    let shape = Shape::of(q, segments.heads)?;
    let scale = shape.scale / (relative.terms() as f32).sqrt();
    let (q, k, v) = (values::<T>(q)?, values::<T>(k)?, values::<T>(v)?);
    let keys = relative.keys_rd.map(values::<T>).transpose()?;
    let queries = relative.queries_rd.map(values::<T>).transpose()?;
    let lengths = segments.cu_seqlens.host().windows(2).map(|w| (w[1] - w[0]) as usize);
    let by_place = relative.buckets.by_place(lengths.max().unwrap_or(1).max(1));
    Ok(pass(&Inputs {
        shape: Shape { scale, ..shape },
        q: &q,
        k: &k,
        v: &v,
        keys: keys.as_deref(),
        queries: queries.as_deref(),
        by_place: &by_place,
        segments,
    }))
}

pub(super) fn forward<T: Element>(
    [q, k, v]: [&Tensor; 3],
    relative: &Relative<'_>,
    segments: &Segments<'_>,
) -> Result<(Tensor, Saved)> {
    let ((tokens, hidden), heads) = (q.dims2()?, segments.heads);
    let (mut output, mut log_sum_exp_th) = (Vec::new(), Vec::new());
    let out = SharedOutput::of(unwritten(&mut output, tokens * hidden));
    let log_sum_exp = SharedOutput::of(unwritten(&mut log_sum_exp_th, tokens * heads));
    with_inputs::<T, _>([q, k, v], relative, segments, |inputs| {
        tasks(segments).par_iter().for_each_init(Scratch::default, |scratch, &task| {
            forward_task(inputs, task, scratch, &out, &log_sum_exp);
        });
    })?;
    // SAFETY: every token is in a segment, and the tasks of its heads have written its row.
    unsafe {
        output.set_len(tokens * hidden);
        log_sum_exp_th.set_len(tokens * heads);
    }
    let saved = Saved { log_sum_exp_th: from_vec(log_sum_exp_th, (tokens, heads))?, kept: None };
    Ok((from_vec(output, (tokens, hidden))?, saved))
}

fn forward_task<T: Element>(
    inputs: &Inputs<'_, T>,
    task: Task,
    scratch: &mut Scratch<T>,
    out: &SharedOutput<T>,
    log_sum_exp: &SharedOutput<f32>,
) {
    let (shape, reach) = (&inputs.shape, inputs.reach(task));
    inputs.say_by_key(task, reach, &mut scratch.positions);
    for block in task.blocks() {
        let Block { first, queries, keys, .. } = block;
        let scores = room(&mut scratch.blocks.scores, queries * keys);
        inputs.score((task, block, reach), &mut scratch.positions, &mut scratch.places, scores);
        let (factors, probabilities) = (
            room(&mut scratch.blocks.factors, keys),
            room(&mut scratch.blocks.probabilities, queries * keys),
        );
        let rows = scores.chunks_exact_mut(keys).zip(probabilities.chunks_exact_mut(keys));
        for (row, (scores, probabilities)) in rows.enumerate() {
            let token = task.start + first + row;
            let keep = keep(inputs.segments, token, task.head, 0);
            // SAFETY: only this task owns (token, head).
            unsafe {
                *log_sum_exp.pointer().add(token * shape.heads + task.head) =
                    attention_rows::softmax(scores, 0..keys, keep, factors, probabilities);
            };
        }
        let (values, out) = (shape.window(inputs.v, task, 0), shape.output(out, task, first));
        let probabilities = Matrix::rows(probabilities, keys);
        // SAFETY: the windows lie inside `[T, D]`; only this task writes its rows and columns of the output.
        unsafe { product((queries, shape.head_size, keys), out, probabilities, values, 1.0, false) };
    }
}

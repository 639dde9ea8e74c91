//! Disentangled attention on the CPU: the same as attention, with position scores added to each block of
//! scores.
//!
//! Position scores are the products of queries with the keys of positions, and of keys with the queries of
//! positions.

mod backward;

use std::ops::Range;

use candle_core::{Result, Tensor};
use rayon::prelude::*;

use super::{Relative, rows};
use crate::attention;
use crate::attention::cpu::{Block, Shape, SharedOutput, Task, keep, room, score_block, tasks};
use crate::attention::{Saved, Segments, rows as attention_rows};
use crate::element::Element;
use crate::matmul::cpu::{Matrix, Output, product};
use crate::tensor::{from_vec, unwritten, values};

pub(super) use backward::backward;

/// The inputs that all tasks of a pass read.
struct Inputs<'a, T> {
    shape: Shape,
    q: &'a [T],
    k: &'a [T],
    v: &'a [T],
    /// Table of keys of positions, `[R, D]`.
    keys: Option<&'a [T]>,
    /// Table of queries of positions, `[R, D]`.
    queries: Option<&'a [T]>,
    /// [`super::Buckets::by_place`] for the longest segment.
    by_place: &'a [u32],
    segments: &'a Segments<'a>,
}

/// The rows of the tables that the distances of a segment use.
#[derive(Clone, Copy)]
struct Reach<'a> {
    /// The first of these rows.
    first: usize,
    /// The number of these rows.
    count: usize,
    /// The row of each key position relative to its query, from `len - 1` tokens before the query to
    /// `len - 1` after it.
    by_place: &'a [u32],
    /// Number of tokens of the segment.
    len: usize,
}

impl<'a> Reach<'a> {
    /// The row of the table for each key of a query.
    fn of_query(&self, query: usize) -> &'a [u32] {
        &self.by_place[self.len - 1 - query..][..self.len]
    }
}

/// Buffers of one thread.
struct Scratch<T> {
    /// The buffers that attention without positions has, too.
    blocks: attention::cpu::Scratch<T>,
    /// For each key of a query the row of the tables, counted from the first row that the segment uses.
    places: Vec<u32>,
    positions: Positions,
    /// Gradients of position scores, rounded for products.
    rounded: Vec<T>,
}

/// Position scores and their gradients, with the rows of the tables that a segment uses.
#[derive(Default)]
struct Positions {
    /// Position scores of a block of queries, `[queries, rows]`.
    by_query: Vec<f32>,
    /// Position scores of all keys of the segment, `[keys, rows]`.
    by_key: Vec<f32>,
    d_by_query: Vec<f32>,
    d_by_key: Vec<f32>,
}

impl<T> Default for Scratch<T> {
    fn default() -> Self {
        Self {
            blocks: attention::cpu::Scratch::default(),
            places: Vec::new(),
            positions: Positions::default(),
            rounded: Vec::new(),
        }
    }
}

impl<T: Element> Inputs<'_, T> {
    fn reach(&self, task: Task) -> Reach<'_> {
        let len = task.len;
        let middle = self.by_place.len() / 2;
        let by_place = &self.by_place[middle + 1 - len..middle + len];
        // The rows decrease: the last one is that of the smallest distance.
        let first = by_place[by_place.len() - 1] as usize;
        let last = by_place[0] as usize;
        Reach { first, count: last + 1 - first, by_place, len }
    }

    /// The columns of the task's head in the rows of a table that the segment uses.
    fn table(&self, table: &[T], task: Task, reach: Reach<'_>) -> Matrix<T> {
        self.shape.window(table, Task { start: reach.first, ..task }, 0)
    }

    /// Computes the position scores `[rows, count]` of some rows of queries or keys with the used rows of a
    /// table. `rows` are counted in the segment.
    fn position_scores(
        &self,
        contents: &[T],
        rows: Range<usize>,
        table: &[T],
        task: Task,
        reach: Reach<'_>,
        scores: &mut [f32],
    ) {
        let size = (rows.len(), reach.count, self.shape.head_size);
        let contents = self.shape.window(contents, task, rows.start);
        let table = self.table(table, task, reach).transposed();
        // SAFETY: the windows are inside `[T, D]` and `[R, D]`, and `scores` is `[rows, count]`.
        unsafe {
            product(
                size,
                Output::rows(scores.as_mut_ptr(), reach.count),
                contents,
                table,
                self.shape.scale,
                false,
            );
        }
    }

    /// Computes the position scores of all keys of a segment, which all of its blocks read.
    fn key_position_scores(&self, task: Task, reach: Reach<'_>, positions: &mut Positions) {
        if let Some(table) = self.queries {
            let scores = room(&mut positions.by_key, task.len * reach.count);
            self.position_scores(self.k, 0..task.len, table, task, reach, scores);
        }
    }

    /// Computes the scores of a block, `[queries, keys]`, including position scores.
    fn score(
        &self,
        task: Task,
        block: Block,
        reach: Reach<'_>,
        positions: &mut Positions,
        places: &mut Vec<u32>,
        scores: &mut [f32],
    ) {
        let Block { first, queries, keys, .. } = block;
        score_block(&self.shape, task, block, self.q, self.k, scores);
        let by_query = room(&mut positions.by_query, queries * reach.count);
        if let Some(table) = self.keys {
            self.position_scores(self.q, first..first + queries, table, task, reach, by_query);
        }
        for (row, scores) in scores.chunks_exact_mut(keys).enumerate() {
            place(reach, first + row, places);
            if self.keys.is_some() {
                rows::add_by_query(scores, places, &by_query[row * reach.count..][..reach.count]);
            }
            if self.queries.is_some() {
                rows::add_by_key(scores, places, &positions.by_key[..task.len * reach.count]);
            }
        }
    }
}

/// Writes to `places` the row of the tables for each key of a query, counted from the first used row.
fn place(reach: Reach<'_>, query: usize, places: &mut Vec<u32>) {
    places.clear();
    places.extend(reach.of_query(query).iter().map(|row| row - reach.first as u32));
}

/// Calls `pass` with the values of the input tensors.
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
    let (tokens, hidden) = q.dims2()?;
    let heads = segments.heads;
    let mut output = Vec::new();
    let mut log_sum_exp_th = Vec::new();
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
    let shape = &inputs.shape;
    let reach = inputs.reach(task);
    inputs.key_position_scores(task, reach, &mut scratch.positions);
    for block in task.blocks() {
        let Block { first, queries, keys, .. } = block;
        let scores = room(&mut scratch.blocks.scores, queries * keys);
        inputs.score(task, block, reach, &mut scratch.positions, &mut scratch.places, scores);
        let factors = room(&mut scratch.blocks.factors, keys);
        let probabilities = room(&mut scratch.blocks.probabilities, queries * keys);
        let rows = scores.chunks_exact_mut(keys).zip(probabilities.chunks_exact_mut(keys));
        for (row, (scores, probabilities)) in rows.enumerate() {
            let token = task.start + first + row;
            let keep = keep(inputs.segments, token, task.head, 0);
            // SAFETY: only this task writes the value of (token, head).
            unsafe {
                *log_sum_exp.pointer().add(token * shape.heads + task.head) =
                    attention_rows::softmax(scores, 0..keys, keep, factors, probabilities);
            };
        }
        let values = shape.window(inputs.v, task, 0);
        let out = shape.output(out, task, first);
        let probabilities = Matrix::rows(probabilities, keys);
        // SAFETY: the windows are inside `[T, D]`; only this task writes its rows and columns of the output.
        unsafe { product((queries, shape.head_size, keys), out, probabilities, values, 1.0, false) };
    }
}

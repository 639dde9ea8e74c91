//! The backward pass on the CPU: gradients of queries, keys and values, and of both tables of positions, to
//! which all segments contribute.
//!
//! Segments are grouped only by their place in the batch. A thread processes one group and head at a time,
//! and the sums of the groups are added in order, so that the result is bitwise the same for any number of
//! threads.

use candle_core::{Result, Tensor};
use rayon::prelude::*;

use super::{Inputs, Reach, Scratch, place, with_inputs};
use crate::attention::cpu::{Block, SharedOutput, Task, keep, room, tasks, write_rows};
use crate::attention::{Activations, Saved, Segments, rows as attention_rows};
use crate::disentangled_attention::{InputGradients, Relative, rows};
use crate::element::Element;
use crate::matmul::cpu::{Matrix, Output, Term, product, sum_of_products};
use crate::tensor::{from_vec, unwritten, values};

/// Largest number of groups of segments. Each group needs memory for the gradients of both tables.
pub(in crate::disentangled_attention) const GROUPS: usize = 4;

/// The values that backward reads in addition to the inputs.
struct Outputs<'a, T> {
    o: &'a [T],
    d_out: &'a [T],
    log_sum_exp_th: &'a [f32],
}

pub(in crate::disentangled_attention) fn backward<T: Element>(
    d_out: &Tensor,
    activations: Activations<'_>,
    relative: &Relative<'_>,
    saved: &Saved,
    segments: &Segments<'_>,
) -> Result<InputGradients> {
    let Activations { q_td: q, k_td: k, v_td: v, o_td: o } = activations;
    let (tokens, hidden) = q.dims2()?;
    let heads = segments.heads;
    let (o, d_out) = (values::<T>(o)?, values::<T>(d_out)?);
    let log_sum_exp = values::<f32>(&saved.log_sum_exp_th)?;
    let outputs = Outputs { o: &o, d_out: &d_out, log_sum_exp_th: &log_sum_exp };
    let mut gradients = [const { Vec::new() }; 3];
    let shared = gradients.each_mut().map(|gradient| SharedOutput::of(unwritten(gradient, tokens * hidden)));
    let groups = groups(segments, tokens);
    // For each group and head, the gradients of the rows of both tables, `[2, R, K]`.
    let of_task = 2 * relative.buckets.rows() * (hidden / heads);
    let mut sums = vec![0.0f32; groups.len() * heads * of_task];
    with_inputs::<T, _>([q, k, v], relative, segments, |inputs| {
        sums.par_chunks_mut(of_task).enumerate().for_each_init(Scratch::default, |scratch, (index, sums)| {
            let (of_keys, of_queries) = sums.split_at_mut(of_task / 2);
            for &task in &groups[index / heads] {
                let task = Task { head: index % heads, ..task };
                backward_task(inputs, &outputs, task, scratch, &shared, [&mut *of_keys, &mut *of_queries]);
            }
        });
    })?;
    // SAFETY: every token is in a segment, and the tasks of its heads have written its rows.
    gradients.iter_mut().for_each(|gradient| unsafe { gradient.set_len(tokens * hidden) });
    let [dq, dk, dv] = gradients.map(|gradient| from_vec(gradient, (tokens, hidden)));
    let [dkeys_rd, dqueries_rd] = [(relative.keys_rd, 0), (relative.queries_rd, 1)].map(|(table, kind)| {
        table.map(|table| table_gradient::<T>(&sums, heads, hidden / heads, table.dim(0)?, kind)).transpose()
    });
    Ok(InputGradients { of_contents: [dq?, dk?, dv?], dkeys_rd: dkeys_rd?, dqueries_rd: dqueries_rd? })
}

/// The segments, as tasks of head 0, in groups with about equal numbers of tokens.
fn groups(segments: &Segments<'_>, tokens: usize) -> Vec<Vec<Task>> {
    let mut groups = [const { Vec::new() }; GROUPS];
    for task in tasks(segments).into_iter().filter(|task| task.head == 0) {
        groups[task.start * GROUPS / tokens].push(task);
    }
    groups.into_iter().filter(|group| !group.is_empty()).collect()
}

/// The gradient of table number `kind`, `[R, D]`: the sums of all groups, added in order.
fn table_gradient<T: Element>(
    sums: &[f32],
    heads: usize,
    head_size: usize,
    rows: usize,
    kind: usize,
) -> Result<Tensor> {
    let of_table = rows * head_size;
    let indices = (0..rows * heads * head_size).into_par_iter();
    let values = indices.map(|index| {
        let row = index / (heads * head_size);
        let column = index % (heads * head_size);
        let head = column / head_size;
        let place = (2 * head + kind) * of_table + row * head_size + column % head_size;
        let groups = sums.chunks_exact(2 * heads * of_table);
        T::narrow(groups.fold(0.0, |sum, group| sum + group[place]))
    });
    from_vec(values.collect::<Vec<T>>(), (rows, heads * head_size))
}

fn backward_task<T: Element>(
    inputs: &Inputs<'_, T>,
    outputs: &Outputs<'_, T>,
    task: Task,
    scratch: &mut Scratch<T>,
    [dq, dk, dv]: &[SharedOutput<T>; 3],
    [of_keys, of_queries]: [&mut [f32]; 2],
) {
    let shape = &inputs.shape;
    let reach = inputs.reach(task);
    let n = task.len;
    let sums = n * shape.head_size;
    inputs.key_position_scores(task, reach, &mut scratch.positions);
    if inputs.queries.is_some() {
        room(&mut scratch.positions.d_by_key, n * reach.count).fill(0.0);
    }
    for block in task.blocks() {
        gradients_of_scores(inputs, outputs, task, block, reach, scratch);
        collect(inputs, task, block, reach, scratch);
        let Block { first, queries, keys, .. } = block;
        let ds = Matrix::rows(&scratch.blocks.rounded_d_scores[..queries * keys], keys);
        let dropped = Matrix::rows(&scratch.blocks.probabilities[..queries * keys], keys);
        let (q, d_out) = (shape.window(inputs.q, task, first), shape.window(outputs.d_out, task, first));
        let (d_keys, d_values) =
            (room(&mut scratch.blocks.d_keys, sums), room(&mut scratch.blocks.d_values, sums));
        let of_block = Output { accumulate: first > 0, ..Output::rows(d_keys.as_mut_ptr(), shape.head_size) };
        let size = (keys, shape.head_size, queries);
        let mut terms = vec![Term { a: ds, b: shape.window(inputs.k, task, 0), depth: keys }];
        // SAFETY: the windows are inside `[T, D]` and `[R, D]`; only this task writes its rows and columns of
        // the outputs and its part of the tables' gradients; the buffers have the sizes of the products.
        unsafe {
            product(size, of_block, ds.transposed(), q, shape.scale, false);
            let of_block = Output { data: d_values.as_mut_ptr(), ..of_block };
            product(size, of_block, dropped.transposed(), d_out, 1.0, false);
            if let Some(table) = inputs.keys {
                let d_by_query = Matrix::rows(&scratch.rounded[..queries * reach.count], reach.count);
                terms.push(Term { a: d_by_query, b: inputs.table(table, task, reach), depth: reach.count });
                let size = (reach.count, shape.head_size, queries);
                product(
                    size,
                    of_table(of_keys, shape.head_size, reach),
                    d_by_query.transposed(),
                    q,
                    shape.scale,
                    false,
                );
            }
            let size = (queries, shape.head_size);
            sum_of_products(size, shape.output(dq, task, first), &terms, shape.scale, false);
        }
    }
    let d_keys = &mut scratch.blocks.d_keys[..sums];
    if let Some(table) = inputs.queries {
        let len = n * reach.count;
        let rounded = room(&mut scratch.rounded, len);
        rows::round(&scratch.positions.d_by_key[..len], rounded);
        let d_by_key = Matrix::rows(rounded, reach.count);
        let table = inputs.table(table, task, reach);
        let into = Output::rows(d_keys.as_mut_ptr(), shape.head_size).accumulating();
        let size = (reach.count, shape.head_size, n);
        // SAFETY: as above.
        unsafe {
            product((n, shape.head_size, reach.count), into, d_by_key, table, shape.scale, false);
            let into = of_table(of_queries, shape.head_size, reach);
            product(size, into, d_by_key.transposed(), shape.window(inputs.k, task, 0), shape.scale, false);
        }
    }
    write_rows(shape, task, d_keys, dk);
    write_rows(shape, task, &scratch.blocks.d_values[..sums], dv);
}

/// The gradients of the rows of a table that a segment uses, as an output to add to.
fn of_table(sums: &mut [f32], head_size: usize, reach: Reach<'_>) -> Output<'static, f32> {
    let rows = &mut sums[reach.first * head_size..][..reach.count * head_size];
    Output::rows(rows.as_mut_ptr(), head_size).accumulating()
}

/// Computes the probabilities of a block after dropout, and the gradients of its scores, both rounded.
fn gradients_of_scores<T: Element>(
    inputs: &Inputs<'_, T>,
    outputs: &Outputs<'_, T>,
    task: Task,
    block: Block,
    reach: Reach<'_>,
    scratch: &mut Scratch<T>,
) {
    let Block { first, queries, keys, .. } = block;
    let shape = &inputs.shape;
    let area = queries * keys;
    let (scores, d_dropped) =
        (room(&mut scratch.blocks.scores, area), room(&mut scratch.blocks.d_scores, area));
    inputs.score(task, block, reach, &mut scratch.positions, &mut scratch.places, scores);
    let values = shape.window(inputs.v, task, 0);
    let d_out = shape.window(outputs.d_out, task, first);
    let size = (queries, keys, shape.head_size);
    let out = Output::rows(d_dropped.as_mut_ptr(), keys);
    // SAFETY: the windows are inside `[T, D]`, and the buffer has the size of the product.
    unsafe { product(size, out, d_out, values.transposed(), 1.0, false) };
    let factors = room(&mut scratch.blocks.factors, keys);
    let (dropped, ds) =
        (room(&mut scratch.blocks.probabilities, area), room(&mut scratch.blocks.rounded_d_scores, area));
    let deltas = room(&mut scratch.blocks.deltas, queries);
    let at = shape.at(task, first);
    attention_rows::dots(&outputs.d_out[at..], &outputs.o[at..], shape.head_size, shape.hidden, deltas);
    for (row, &delta) in deltas.iter().enumerate() {
        let token = task.start + first + row;
        let range = row * keys..(row + 1) * keys;
        attention_rows::backward(
            &scores[range.clone()],
            &d_dropped[range.clone()],
            (outputs.log_sum_exp_th[token * shape.heads + task.head], delta),
            0..keys,
            keep(inputs.segments, token, task.head, 0),
            factors,
            (&mut dropped[range.clone()], &mut ds[range]),
        );
    }
}

/// Sums the gradients of a block's scores for each row of the tables. The results are the gradients of the
/// position scores of its queries, which are also rounded, and additions to those of all keys of the segment.
fn collect<T: Element>(
    inputs: &Inputs<'_, T>,
    task: Task,
    block: Block,
    reach: Reach<'_>,
    scratch: &mut Scratch<T>,
) {
    let Block { first, queries, keys, .. } = block;
    let count = reach.count;
    let len = if inputs.keys.is_some() { queries * count } else { 0 };
    let by_query = room(&mut scratch.positions.d_by_query, len);
    by_query.fill(0.0);
    for (row, ds) in scratch.blocks.rounded_d_scores[..queries * keys].chunks_exact(keys).enumerate() {
        place(reach, first + row, &mut scratch.places);
        if inputs.keys.is_some() {
            rows::collect_by_query(ds, &scratch.places, &mut by_query[row * count..][..count]);
        }
        if inputs.queries.is_some() {
            rows::collect_by_key(ds, &scratch.places, &mut scratch.positions.d_by_key[..task.len * count]);
        }
    }
    rows::round(by_query, room(&mut scratch.rounded, len));
}

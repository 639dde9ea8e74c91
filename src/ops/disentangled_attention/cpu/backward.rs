//! Backward: gradients of contents, and of both tables of positions, to which all segments add.
//!
//! Segments fall into groups by their place in the batch alone; a task is a group and a head, and the sums of
//! the groups are added in order, so that no number of threads changes a bit.

use candle_core::Result;
use candle_core::Tensor;
use rayon::prelude::*;

use super::Inputs;
use super::Reach;
use super::Scratch;
use super::place;
use super::with_inputs;
use crate::attention::Activations;
use crate::attention::Saved;
use crate::attention::Segments;
use crate::attention::cpu::Block;
use crate::attention::cpu::SharedOutput;
use crate::attention::cpu::Task;
use crate::attention::cpu::keep;
use crate::attention::cpu::room;
use crate::attention::cpu::tasks;
use crate::attention::cpu::write_rows;
use crate::attention::rows as attention_rows;
use crate::disentangled_attention::InputGradients;
use crate::disentangled_attention::Relative;
use crate::disentangled_attention::rows;
use crate::element::Element;
use crate::matmul::cpu::Matrix;
use crate::matmul::cpu::Output;
use crate::matmul::cpu::Term;
use crate::matmul::cpu::product;
use crate::matmul::cpu::sum_of_products;
use crate::tensor::from_vec;
use crate::tensor::unwritten;
use crate::tensor::values;

/// Groups of segments, at most: each takes room for the gradients of both tables.
pub(in crate::disentangled_attention) const GROUPS: usize = 4;

/// What backward reads besides the inputs.
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
    let ((tokens, hidden), heads) = (q.dims2()?, segments.heads);
    let (o, d_out) = (values::<T>(o)?, values::<T>(d_out)?);
    let log_sum_exp = values::<f32>(&saved.log_sum_exp_th)?;
    let outputs = Outputs { o: &o, d_out: &d_out, log_sum_exp_th: &log_sum_exp };
    let mut gradients = [const { Vec::new() }; 3];
    let shared = gradients.each_mut().map(|gradient| SharedOutput::of(unwritten(gradient, tokens * hidden)));
    let groups = groups(segments, tokens);
    // Of each group and head: gradients of the rows of both tables, `[2, R, K]`.
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
    let table = |kind, like: Option<&Tensor>| {
        let values = |like: &Tensor| table_gradient::<T>(&sums, (heads, hidden / heads), like.dim(0)?, kind);
        like.map(values).transpose()
    };
    Ok(InputGradients {
        of_contents: [dq?, dk?, dv?],
        dkeys_rd: table(0, relative.keys_rd)?,
        dqueries_rd: table(1, relative.queries_rd)?,
    })
}

/// The segments, as tasks of head 0, in groups of about as many tokens.
fn groups(segments: &Segments<'_>, tokens: usize) -> Vec<Vec<Task>> {
    let mut groups = [const { Vec::new() }; GROUPS];
    for task in tasks(segments).into_iter().filter(|task| task.head == 0) {
        groups[task.start * GROUPS / tokens].push(task);
    }
    groups.into_iter().filter(|group| !group.is_empty()).collect()
}

/// The sums of all groups for one of the two tables, `[R, D]`.
fn table_gradient<T: Element>(
    sums: &[f32],
    (heads, head_size): (usize, usize),
    rows: usize,
    kind: usize,
) -> Result<Tensor> {
    let of_table = rows * head_size;
    let at = |head: usize| (2 * head + kind) * of_table;
    let value = |index: usize| {
        let (row, column) = (index / (heads * head_size), index % (heads * head_size));
        let place = at(column / head_size) + row * head_size + column % head_size;
        let groups = sums.chunks_exact(2 * heads * of_table);
        T::narrow(groups.fold(0.0, |sum, group| sum + group[place]))
    };
    let values: Vec<T> = (0..rows * heads * head_size).into_par_iter().map(value).collect();
    from_vec(values, (rows, heads * head_size))
}

fn backward_task<T: Element>(
    inputs: &Inputs<'_, T>,
    outputs: &Outputs<'_, T>,
    task: Task,
    scratch: &mut Scratch<T>,
    [dq, dk, dv]: &[SharedOutput<T>; 3],
    [of_keys, of_queries]: [&mut [f32]; 2],
) {
    let (shape, reach, n) = (&inputs.shape, inputs.reach(task), task.len);
    let sums = n * shape.head_size;
    inputs.say_by_key(task, reach, &mut scratch.positions);
    if inputs.queries.is_some() {
        room(&mut scratch.positions.d_by_key, n * reach.count).fill(0.0);
    }
    for block in task.blocks() {
        gradients_of_scores(inputs, outputs, (task, block, reach), scratch);
        collect(inputs, (task, block, reach), scratch);
        let Block { first, queries, keys, .. } = block;
        let ds = Matrix::rows(&scratch.blocks.rounded_d_scores[..queries * keys], keys);
        let dropped = Matrix::rows(&scratch.blocks.probabilities[..queries * keys], keys);
        let (q, d_out) = (shape.window(inputs.q, task, first), shape.window(outputs.d_out, task, first));
        let (d_keys, d_values) =
            (room(&mut scratch.blocks.d_keys, sums), room(&mut scratch.blocks.d_values, sums));
        let of_block = Output { accumulate: first > 0, ..Output::rows(d_keys.as_mut_ptr(), shape.head_size) };
        let size = (keys, shape.head_size, queries);
        let mut terms = vec![Term { a: ds, b: shape.window(inputs.k, task, 0), depth: keys }];
        // SAFETY: the windows lie inside `[T, D]` and `[R, D]`; only this task writes its rows and columns of
        // the outputs, and its part of the tables' gradients; the buffers have the sizes of the products.
        unsafe {
            product(size, of_block, ds.transposed(), q, shape.scale, false);
            let of_block = Output { data: d_values.as_mut_ptr(), ..of_block };
            product(size, of_block, dropped.transposed(), d_out, 1.0, false);
            if let Some(table) = inputs.keys {
                let said = Matrix::rows(&scratch.rounded[..queries * reach.count], reach.count);
                terms.push(Term { a: said, b: inputs.table(table, task, reach), depth: reach.count });
                let size = (reach.count, shape.head_size, queries);
                product(
                    size,
                    of_table(of_keys, shape.head_size, reach),
                    said.transposed(),
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
        let (said, table) = (Matrix::rows(rounded, reach.count), inputs.table(table, task, reach));
        let into = Output::rows(d_keys.as_mut_ptr(), shape.head_size).accumulating();
        let size = (reach.count, shape.head_size, n);
        // SAFETY: as above.
        unsafe {
            product((n, shape.head_size, reach.count), into, said, table, shape.scale, false);
            let into = of_table(of_queries, shape.head_size, reach);
            product(size, into, said.transposed(), shape.window(inputs.k, task, 0), shape.scale, false);
        }
    }
    write_rows(shape, task, d_keys, dk);
    write_rows(shape, task, &scratch.blocks.d_values[..sums], dv);
}

/// Where the gradients of the rows of a table lie that a segment reaches.
fn of_table(sums: &mut [f32], head_size: usize, reach: Reach<'_>) -> Output<'static, f32> {
    let rows = &mut sums[reach.first * head_size..][..reach.count * head_size];
    Output::rows(rows.as_mut_ptr(), head_size).accumulating()
}

/// The dropped probabilities of a block, and the gradients of its scores, both rounded.
fn gradients_of_scores<T: Element>(
    inputs: &Inputs<'_, T>,
    outputs: &Outputs<'_, T>,
    (task, block, reach): (Task, Block, Reach<'_>),
    scratch: &mut Scratch<T>,
) {
    let (Block { first, queries, keys, .. }, shape) = (block, &inputs.shape);
    let area = queries * keys;
    let (scores, d_dropped) =
        (room(&mut scratch.blocks.scores, area), room(&mut scratch.blocks.d_scores, area));
    inputs.score((task, block, reach), &mut scratch.positions, &mut scratch.places, scores);
    let (values, d_out) = (shape.window(inputs.v, task, 0), shape.window(outputs.d_out, task, first));
    let (size, out) = ((queries, keys, shape.head_size), Output::rows(d_dropped.as_mut_ptr(), keys));
    // SAFETY: the windows lie inside `[T, D]`, the buffer was sized above.
    unsafe { product(size, out, d_out, values.transposed(), 1.0, false) };
    let factors = room(&mut scratch.blocks.factors, keys);
    let (dropped, ds) =
        (room(&mut scratch.blocks.probabilities, area), room(&mut scratch.blocks.rounded_d_scores, area));
    let (deltas, at) = (room(&mut scratch.blocks.deltas, queries), shape.at(task, first));
    attention_rows::dots(&outputs.d_out[at..], &outputs.o[at..], shape.head_size, shape.hidden, deltas);
    for (row, &delta) in deltas.iter().enumerate() {
        let (token, range) = (task.start + first + row, row * keys..(row + 1) * keys);
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

/// Adds the gradients of a block's scores up by the rows of the tables: those of what its queries said,
/// rounded, and of what all keys of the segment say.
fn collect<T: Element>(
    inputs: &Inputs<'_, T>,
    (task, block, reach): (Task, Block, Reach<'_>),
    scratch: &mut Scratch<T>,
) {
    let (Block { first, queries, keys, .. }, count) = (block, reach.count);
    let said = if inputs.keys.is_some() { queries * count } else { 0 };
    let by_query = room(&mut scratch.positions.d_by_query, said);
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
    rows::round(by_query, room(&mut scratch.rounded, said));
}

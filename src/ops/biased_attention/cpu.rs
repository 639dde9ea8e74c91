//! Biased attention on the CPU: expands the table to one bias per distance, runs attention's pass with it,
//! and adds the gradients of the table from all tasks.

use candle_core::{Result, Tensor};

use super::{InputGradients, ROWS, buckets};
use crate::attention::cpu::Bias;
use crate::attention::{Activations, Saved, Segments, cpu};
use crate::element::Element;
use crate::tensor::{from_vec, values};

/// The table expanded to key positions relative to the query, for segments of up to N tokens.
struct ByPlace {
    /// The row of the table for each relative position, `[2 N - 1]`.
    rows: Vec<u32>,
    /// The bias of each relative position, `[H, 2 N - 1]`.
    values: Vec<f32>,
}

impl ByPlace {
    fn new(bias_rh: &Tensor, segments: &Segments<'_>) -> Result<Self> {
        let bias = values::<f32>(bias_rh)?;
        let heads = segments.heads;
        let lengths = segments.cu_seqlens.host().windows(2).map(|w| (w[1] - w[0]) as usize);
        let rows = buckets::by_place(lengths.max().unwrap_or(1).max(1));
        let mut values = Vec::with_capacity(heads * rows.len());
        for head in 0..heads {
            values.extend(rows.iter().map(|&row| bias[row as usize * heads + head]));
        }
        Ok(Self { rows, values })
    }

    fn bias(&self) -> Bias<'_> {
        Bias { values: &self.values, rows: &self.rows, table_rows: ROWS }
    }
}

pub(super) fn forward<T: Element>(
    contents: [&Tensor; 3],
    bias_rh: &Tensor,
    segments: &Segments<'_>,
) -> Result<(Tensor, Saved)> {
    cpu::forward::<T>(contents, segments, Some(ByPlace::new(bias_rh, segments)?.bias()))
}

pub(super) fn backward<T: Element>(
    d_out: &Tensor,
    activations: Activations<'_>,
    bias_rh: &Tensor,
    saved: &Saved,
    segments: &Segments<'_>,
) -> Result<InputGradients> {
    let by_place = ByPlace::new(bias_rh, segments)?;
    let tasks = cpu::tasks(segments);
    let mut sums = vec![0.0f32; tasks.len() * ROWS];
    let with_sums = Some((by_place.bias(), sums.as_mut_slice()));
    let of_contents = cpu::backward::<T>(d_out, activations, saved, segments, with_sums)?;
    let mut dbias = vec![0.0f32; ROWS * segments.heads];
    for (task, sums) in tasks.iter().zip(sums.chunks_exact(ROWS)) {
        let of_head = dbias[task.head..].iter_mut().step_by(segments.heads);
        of_head.zip(sums).for_each(|(dbias, sum)| *dbias += sum);
    }
    Ok(InputGradients { of_contents, dbias_rh: from_vec(dbias, (ROWS, segments.heads))? })
}

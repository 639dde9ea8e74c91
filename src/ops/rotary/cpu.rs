//! Rotary position embedding on the CPU, in place, row by row.

use candle_core::{Result, Tensor};

use crate::element::Element;
use crate::parallel;
use crate::simd::kernel;
use crate::tensor::{values, with_values_mut};

/// Number of pairs that are rotated together, in vector registers.
const LANES: usize = 16;

pub(super) fn rotate<T: Element>(
    x_td: &Tensor,
    cu_seqlens: &[u32],
    table_pk: &Tensor,
    sign: f32,
) -> Result<()> {
    let (cols, head_size) = (x_td.dims2()?.1, table_pk.dims2()?.1);
    let table = values::<f32>(table_pk)?;
    with_values_mut::<T, _>(x_td, |x| {
        parallel::for_rows(x, cols, |rows, x| {
            for (row, x) in rows.zip(x.chunks_exact_mut(cols)) {
                // The last segment that does not begin after this row; empty segments with the same start
                // precede it.
                let segment = cu_seqlens.partition_point(|&start| start as usize <= row) - 1;
                let place = row - cu_seqlens[segment] as usize;
                rotate_row(x, &table[place * head_size..][..head_size], sign);
            }
        });
    })
}

kernel! {
    /// Rotates all heads of a row; `angles` has the cosines of the pairs of a head, then their sines.
    fn rotate_row<T>(row: &mut [T], angles: &[f32], sign: f32) {
        let (cosines, sines) = angles.split_at(angles.len() / 2);
        let (whole_cosines, rest_cosines) = cosines.as_chunks::<LANES>();
        let (whole_sines, rest_sines) = sines.as_chunks::<LANES>();
        for head in row.chunks_exact_mut(angles.len()) {
            let (first, second) = head.split_at_mut(cosines.len());
            let (whole_first, rest_first) = first.as_chunks_mut::<LANES>();
            let (whole_second, rest_second) = second.as_chunks_mut::<LANES>();
            for (chunk, cosines) in whole_cosines.iter().enumerate() {
                rotate_lanes(&mut whole_first[chunk], &mut whole_second[chunk], cosines, &whole_sines[chunk], sign);
            }
            for (lane, &cosine) in rest_cosines.iter().enumerate() {
                let pair = [rest_first[lane].widen(), rest_second[lane].widen()];
                let turned = turn(pair, cosine, sign * rest_sines[lane]);
                [rest_first[lane], rest_second[lane]] = turned.map(T::narrow);
            }
        }
    }
}

#[inline(always)]
fn turn([first, second]: [f32; 2], cosine: f32, sine: f32) -> [f32; 2] {
    [first.mul_add(cosine, -(second * sine)), second.mul_add(cosine, first * sine)]
}

/// Rotates `LANES` pairs. All values are read before any is written, so that the compiler needs no check
/// whether the halves overlap.
#[inline(always)]
fn rotate_lanes<T: Element>(
    first: &mut [T; LANES],
    second: &mut [T; LANES],
    cosines: &[f32; LANES],
    sines: &[f32; LANES],
    sign: f32,
) {
    let mut turned = [[0.0; LANES]; 2];
    for lane in 0..LANES {
        let pair = [first[lane].widen(), second[lane].widen()];
        [turned[0][lane], turned[1][lane]] = turn(pair, cosines[lane], sign * sines[lane]);
    }
    for lane in 0..LANES {
        first[lane] = T::narrow(turned[0][lane]);
    }
    for lane in 0..LANES {
        second[lane] = T::narrow(turned[1][lane]);
    }
}

//! Division of the flat buffers among processes that shard the optimizer's state.

use std::ops::Range;

use ops::update::Group;

/// Parts start at multiples of this number of values, so that all kernels can read and write them at their
/// full width.
const ALIGNED_VALUES: usize = 64;

/// Divides `len` values into consecutive parts of about the same length, one for each of `size` processes. No
/// part begins within one of the `whole` ranges.
pub(super) fn parts(len: usize, whole: &[Range<usize>], size: usize) -> Vec<Range<usize>> {
    let cuts = (0..=size).map(|number| {
        let at = len * number / size;
        let aligned = if number == size { len } else { at / ALIGNED_VALUES * ALIGNED_VALUES };
        let cut = whole.iter().find(|range| range.start < aligned && aligned < range.end);
        let bounds = cut.map(|range| [range.start, range.end.next_multiple_of(ALIGNED_VALUES).min(len)]);
        bounds.map_or(aligned, |bounds| bounds.into_iter().min_by_key(|end| end.abs_diff(at)).unwrap_or(at))
    });
    let cuts: Vec<usize> = cuts.collect();
    cuts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// The groups within `part`, cut at its ends and relative to its start.
pub(super) fn within(groups: &[Group], part: &Range<usize>) -> Vec<Group> {
    let cut = groups.iter().filter_map(|group| {
        let start = group.range.start.max(part.start);
        let end = group.range.end.min(part.end);
        (start < end).then(|| Group { range: start - part.start..end - part.start, ..group.clone() })
    });
    cut.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_and_begin_within_no_whole_range() {
        let whole = [64..200, 256..300, 320..900];
        assert_eq!(parts(1000, &[], 4), [0..192, 192..448, 448..704, 704..1000]);
        assert_eq!(parts(1000, &whole, 4), [0..256, 256..320, 320..960, 960..1000]);
        assert_eq!(parts(1000, &whole[..1], 4), [0..256, 256..448, 448..704, 704..1000]);
        let groups = whole.map(|range| Group { range, weight_decay: 0.0, lr_scale: 1.0 });
        for (part, ranges) in [
            (0..1000, vec![64..200, 256..300, 320..900]),
            (100..260, vec![0..100, 156..160]),
            (200..256, vec![]),
        ] {
            let found = within(&groups, &part).into_iter().map(|group| group.range);
            assert_eq!(found.collect::<Vec<_>>(), ranges, "{part:?}");
        }
    }
}

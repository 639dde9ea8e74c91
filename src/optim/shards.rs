//! Division of the flat buffers among processes that shard the optimizer's state.

use std::ops::Range;

use crate::ops::update::Group;

/// Parts start at multiples of this number of values, so that all kernels can read and write them at their
/// full width.
const ALIGNED_VALUES: usize = 64;

/// Divides `len` values into consecutive parts of about the same length, one for each of `size` processes.
/// With `keeps_groups`, no group is cut.
pub(super) fn parts(len: usize, groups: &[Group], size: usize, keeps_groups: bool) -> Vec<Range<usize>> {
    let cuts = (0..=size).map(|number| {
        let at = len * number / size;
        let aligned = if number == size { len } else { at / ALIGNED_VALUES * ALIGNED_VALUES };
        let starts = groups.iter().map(|group| group.range.start).chain([len]);
        let nearest = starts.min_by_key(|start| start.abs_diff(at)).unwrap_or(at);
        if keeps_groups && 0 < number && number < size { nearest } else { aligned }
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
    fn parts_cover_all_and_keep_groups_whole_where_that_is_wanted() {
        let groups = [64..200, 256..300, 320..900];
        let groups = groups.map(|range| Group { range, weight_decay: 0.0, lr_scale: 1.0 });
        assert_eq!(parts(1000, &groups, 4, false), [0..192, 192..448, 448..704, 704..1000]);
        assert_eq!(parts(1000, &groups, 4, true), [0..256, 256..320, 320..1000, 1000..1000]);
        assert_eq!(parts(1000, &[], 2, true), [0..1000, 1000..1000]);
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

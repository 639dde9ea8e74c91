//! Which part of the flat buffers each process updates, where they divide the optimizer's state among them.

use std::ops::Range;

use crate::ops::update::Group;

/// Parts begin at multiples of so many values, where all kernels can read and write them at their full width.
const ALIGNED_VALUES: usize = 64;

/// Consecutive parts of `len` values about equally long, one for each of `size` processes; where `keeps_groups`,
/// no group is cut.
pub(super) fn parts(len: usize, groups: &[Group], size: usize, keeps_groups: bool) -> Vec<Range<usize>> {
    let cut = |number: usize| {
        let at = len * number / size;
        let aligned = if number == size { len } else { at / ALIGNED_VALUES * ALIGNED_VALUES };
        let starts = groups.iter().map(|group| group.range.start).chain([len]);
        let nearest = starts.min_by_key(|start| start.abs_diff(at)).unwrap_or(at);
        if keeps_groups && 0 < number && number < size { nearest } else { aligned }
    };
    (0..size).map(|number| cut(number)..cut(number + 1)).collect()
}

/// What lies of the groups within `part`, counted from its beginning.
pub(super) fn within(groups: &[Group], part: &Range<usize>) -> Vec<Group> {
    let cut = |group: &Group| {
        let (start, end) = (group.range.start.max(part.start), group.range.end.min(part.end));
        (start < end).then(|| Group { range: start - part.start..end - part.start, ..group.clone() })
    };
    groups.iter().filter_map(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_and_keep_groups_whole_where_that_is_wanted() {
        let group = |range| Group { range, weight_decay: 0.0, lr_scale: 1.0 };
        let groups = [group(64..200), group(256..300), group(320..900)];
        assert_eq!(parts(1000, &groups, 4, false), [0..192, 192..448, 448..704, 704..1000]);
        assert_eq!(parts(1000, &groups, 4, true), [0..256, 256..320, 320..1000, 1000..1000]);
        assert_eq!(parts(1000, &[], 2, true), [0..1000, 1000..1000]);
        let ranges = |part: &Range<usize>| {
            within(&groups, part).into_iter().map(|group| group.range).collect::<Vec<_>>()
        };
        assert_eq!(ranges(&(0..1000)), [64..200, 256..300, 320..900]);
        assert_eq!(ranges(&(100..260)), [0..100, 156..160]);
        assert!(ranges(&(200..256)).is_empty());
    }
}

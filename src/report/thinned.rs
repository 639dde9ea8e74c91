//! A curve of any number of values in little memory. Once there are many, neighbouring values are merged into
//! groups that keep only the lowest and the highest value.

/// Most groups of a curve; each has up to two points.
const MOST_GROUPS: usize = 512;

/// A value of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    /// Number of updates that were done.
    pub(super) step: f64,
    /// Training time in seconds, if it was recorded.
    pub(super) seconds: Option<f64>,
    pub(super) value: f64,
}

/// The lowest and the highest of `points` consecutive values.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Group {
    low: Point,
    high: Point,
    points: usize,
}

/// The values of a tag over a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Thinned {
    groups: Vec<Group>,
    /// Number of values in a full group.
    width: usize,
    last: Option<Point>,
    sum: f64,
    count: usize,
}

impl Thinned {
    /// Adds the next value.
    pub(super) fn push(&mut self, point: Point) {
        self.width = self.width.max(1);
        (self.last, self.sum, self.count) = (Some(point), self.sum + point.value, self.count + 1);
        let alone = Group { low: point, high: point, points: 1 };
        match self.groups.last_mut().filter(|group| group.points < self.width) {
            Some(group) => *group = group.with(&alone),
            None => self.groups.push(alone),
        }
        if self.groups.len() > MOST_GROUPS {
            self.groups = halved(&self.groups);
            self.width *= 2;
        }
    }

    /// The latest value.
    pub(super) fn last(&self) -> Option<f64> {
        self.last.map(|point| point.value)
    }

    /// The step of the latest value.
    pub(super) fn last_step(&self) -> Option<f64> {
        self.last.map(|point| point.step)
    }

    /// The training time of the latest value, in seconds.
    pub(super) fn last_seconds(&self) -> Option<f64> {
        self.last?.seconds
    }

    /// The mean of all values.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    /// Sum of all values.
    pub(super) fn sum(&self) -> f64 {
        self.sum
    }

    /// Number of all values.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The largest value.
    pub(super) fn highest(&self) -> Option<f64> {
        self.groups.iter().map(|group| group.high.value).reduce(f64::max)
    }

    /// Returns at most `most` points (at least 3) in their order, the last value among them.
    pub(super) fn points(&self, most: usize) -> Vec<Point> {
        let mut groups = self.groups.clone();
        while groups.iter().map(Group::size).sum::<usize>() > most.saturating_sub(1).max(2) {
            groups = halved(&groups);
        }
        let mut points: Vec<Point> = groups.iter().flat_map(Group::in_order).collect();
        points.extend(self.last.filter(|last| points.last() != Some(last)));
        points
    }
}

impl Group {
    fn with(&self, next: &Self) -> Self {
        Self {
            low: if next.low.value < self.low.value { next.low } else { self.low },
            high: if next.high.value > self.high.value { next.high } else { self.high },
            points: self.points + next.points,
        }
    }

    fn size(&self) -> usize {
        if self.low == self.high { 1 } else { 2 }
    }

    fn in_order(&self) -> Vec<Point> {
        match (self.low, self.high) {
            (low, high) if low == high => vec![low],
            (low, high) if low.step <= high.step => vec![low, high],
            (low, high) => vec![high, low],
        }
    }
}

fn halved(groups: &[Group]) -> Vec<Group> {
    groups.chunks(2).map(|pair| pair[1..].iter().fold(pair[0], |group, next| group.with(next))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(count: usize, value: impl Fn(usize) -> f64) -> Thinned {
        let mut curve = Thinned::default();
        for step in 1..=count {
            curve.push(Point { step: step as f64, seconds: None, value: value(step) });
        }
        curve
    }

    fn steps_of(points: &[Point]) -> Vec<f64> {
        points.iter().map(|point| point.step).collect()
    }

    #[test]
    fn a_short_curve_is_kept_whole() {
        let curve = curve(400, |step| 1.0 / step as f64);
        let points = curve.points(500);
        assert_eq!(steps_of(&points), (1..=400).map(f64::from).collect::<Vec<_>>());
        assert_eq!((curve.count(), curve.last()), (400, Some(0.0025)));
        assert!(Thinned::default().points(9).is_empty());
    }

    #[test]
    fn a_long_curve_keeps_its_extremes_its_end_and_its_order() {
        let curve = curve(300_000, |step: usize| match step {
            123_456 => 100.0,
            200_001 => -100.0,
            _ => (step as f64 / 1e4).sin(),
        });
        assert!(curve.groups.len() <= MOST_GROUPS);
        for most in [3, 10, 300, 2000] {
            let points = curve.points(most);
            assert!(points.len() <= most.max(4), "{most}: {}", points.len());
            let steps = steps_of(&points);
            assert!(steps.is_sorted() && steps.last() == Some(&300_000.0), "{most}");
            let values: Vec<f64> = points.iter().map(|point| point.value).collect();
            assert!(values.contains(&100.0) && values.contains(&-100.0), "{most}: {values:?}");
        }
        assert_eq!(curve.highest(), Some(100.0));
        assert!(curve.points(300).len() > 150);
    }
}

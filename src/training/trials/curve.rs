//! A learning curve: the score by the share of training examples, as a table and as an SVG picture.

use serde::Serialize;

use crate::trials::means::mean_and_deviation;
use crate::trials::summary::Summary;
use base::pages::chart;
use base::pages::chart::{Chart, Mark};
use base::pages::table::Table;
use base::scores::{mean, sample_std};

/// The style of the picture, a file of its own: colours for light and dark displays.
const STYLE: &str = "\
:root{--paper:#fcfbf9;--muted:#74706a;--line:#e3dfd8;--model:#35618f}\
@media(prefers-color-scheme:dark){:root{--paper:#171716;--muted:#9b968d;--line:#34322f;--model:#7fb0e0}}";

/// One point of the curve: the scores with one share of the training examples.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Share of the training examples.
    pub share: f64,
    /// Number of training examples.
    pub examples: usize,
    /// The score that the sweep ranks by, for each seed that did not diverge.
    pub scores: Vec<f64>,
    /// The score of the floor, a baseline without a neural network, trained on the same examples.
    pub floor: Option<f64>,
}

impl Point {
    /// Position of a score in the plot: the share in percent, and the score as it is displayed.
    fn position(&self, score: f64, factor: f64) -> (f64, f64) {
        (100.0 * self.share, score * factor)
    }
}

/// The points of a learning curve, with the titles of score and floor.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Curve<'a> {
    pub(super) points: Vec<Point>,
    /// Title of the score, and the factor for display (100 for percent).
    pub(super) metric: (&'a str, f64),
    /// Name of the floor, if the task has one.
    pub(super) floor: Option<&'a str>,
}

impl Curve<'_> {
    /// Returns the table of the sweep, with columns for the number of examples and for the floor.
    pub(super) fn table(&self, summary: &Summary<'_>) -> Table {
        let mut table = summary.table();
        table.header[0] = "share".into();
        table.header.insert(1, "examples".into());
        table.header.extend(self.floor.map(|name| format!("{name}: {}", self.metric.0).into()));
        for (row, point) in table.rows.iter_mut().zip(&self.points) {
            row.cells.insert(1, point.examples.to_string().into());
            row.cells.extend(self.floor.map(|_| {
                let floor = point.floor;
                floor.map_or("-".into(), |floor| mean_and_deviation(floor, None, self.metric.1).into())
            }));
        }
        table
    }

    /// Draws the mean over seeds by share on a logarithmic axis, with a band of one standard deviation.
    pub(super) fn svg(&self) -> String {
        let factor = self.metric.1;
        let percent = percent(factor);
        let metric = self.metric.0.trim_end_matches(" %");
        let chart = Chart {
            title: format!("{metric}{percent}, by training examples"),
            x: "share of the training examples, %".to_string(),
            y: String::new(),
            curves: curves(&self.points, factor, "var(--model)"),
            x_is_logarithmic: true,
            ..Chart::default()
        };
        let floor = self.floor.map_or(String::new(), |name| format!(", dashed: {name}"));
        chart.file(STYLE, &format!("line: mean, band: ± 1 deviation, dots: seeds{floor}"))
    }
}

/// The curves of a chart: the means with a band of one standard deviation, a dot for each seed, and the
/// scores of the floor, dashed.
pub fn curves(points: &[Point], factor: f64, color: &str) -> Vec<chart::Curve> {
    let mut means = Vec::new();
    let mut band = Vec::new();
    let mut dots = Vec::new();
    let mut hints = Vec::new();
    for point in points.iter().filter(|point| !point.scores.is_empty()) {
        let mean = mean(&point.scores);
        let std = sample_std(&point.scores) * factor;
        means.push(point.position(mean, factor));
        band.push((mean * factor - std, mean * factor + std));
        for &score in &point.scores {
            let position = point.position(score, factor);
            let score_text = mean_and_deviation(score, None, factor);
            dots.push(position);
            hints.push((position, format!("{} examples: {score_text}{}", point.examples, percent(factor))));
        }
    }
    let floors = points.iter().filter_map(|point| {
        let floor = point.floor.filter(|floor| floor.is_finite())?;
        Some(point.position(floor, factor))
    });
    vec![
        chart::Curve { band, ..chart::Curve::new(means, color, Mark::Line) },
        chart::Curve { hints, ..chart::Curve::new(dots, color, Mark::Points) },
        chart::Curve::new(floors.collect(), "var(--muted)", Mark::Dashes),
    ]
}

/// The unit of a score that is multiplied by `factor`.
fn percent(factor: f64) -> &'static str {
    if factor > 1.0 { " %" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_has_a_dot_for_each_seed_and_rises_to_the_right() {
        let points = vec![
            point(0.01, &[0.4, 0.6], 0.45),
            point(0.1, &[0.7, 0.72], 0.65),
            point(0.5, &[], 0.7),
            point(1.0, &[0.8, 0.82], 0.75),
        ];
        let curve = Curve { points, metric: ("accuracy %", 100.0), floor: Some("words <b>") };
        let svg = curve.svg();
        // Each score has two circles: the dot, and the target that shows the value on hover.
        assert_eq!((svg.matches("<circle").count(), svg.matches("<title>").count()), (12, 6));
        assert!(svg.contains("words &lt;b&gt;") && !svg.contains("NaN"), "{svg}");
        for word in
            [">1<", ">10<", ">100<", ">accuracy %, by training examples<", "<title>1000 examples: 80.00 %<"]
        {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        let nothing = Curve { points: vec![point(1.0, &[], 0.7)], floor: None, ..curve };
        assert!(nothing.svg().starts_with("<svg xmlns=") && nothing.svg().ends_with("</svg>\n"));
    }

    fn point(share: f64, scores: &[f64], floor: f64) -> Point {
        let examples = (1000.0 * share) as usize;
        Point { share, examples, scores: scores.to_vec(), floor: Some(floor) }
    }
}

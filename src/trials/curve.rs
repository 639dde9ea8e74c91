//! A learning curve: what more labelled examples are worth, as a table and as a picture.

use serde::Serialize;

use crate::pages::chart;
use crate::pages::chart::Chart;
use crate::pages::chart::Mark;
use crate::pages::chart::compact;
use crate::scores::mean;
use crate::scores::sample_std;
use crate::trials::summary::Summary;
use crate::trials::table::Table;
use crate::trials::table::mean_and_deviation;

/// Colours of the picture, which stands alone: light and dark.
const STYLE: &str = "\
:root{--paper:#fcfbf9;--muted:#74706a;--line:#e3dfd8;--model:#35618f}\
@media(prefers-color-scheme:dark){:root{--paper:#171716;--muted:#9b968d;--line:#34322f;--model:#7fb0e0}}";

/// What a share of the examples came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Point {
    pub(super) share: f64,
    /// Training examples.
    pub(super) examples: usize,
    /// The score that decides, with each seed that did not diverge.
    pub(super) scores: Vec<f64>,
    /// What is reached without a neural network on the same examples.
    pub(super) floor: Option<f64>,
}

/// A curve with the names of what it shows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Curve<'a> {
    pub(super) points: Vec<Point>,
    /// Title of the score, and what it is multiplied by.
    pub(super) metric: (&'a str, f64),
    /// What the floor is called, where there is one.
    pub(super) floor: Option<&'a str>,
}

impl Curve<'_> {
    /// The table of a sweep over shares, with examples and floor beside them.
    pub(super) fn table(&self, summary: &Summary<'_>) -> Table {
        let mut table = summary.table();
        table.header[0] = "share".to_string();
        table.header.insert(1, "examples".to_string());
        table.header.extend(self.floor.map(|name| format!("{name}: {}", self.metric.0)));
        for (row, point) in table.rows.iter_mut().zip(&self.points) {
            row.insert(1, point.examples.to_string());
            let text = |floor: f64| mean_and_deviation(floor, None, self.metric.1);
            row.extend(self.floor.map(|_| point.floor.map_or("-".to_string(), text)));
        }
        table
    }

    /// The mean over seeds by share, on a logarithmic axis, with a band of one standard deviation.
    pub(super) fn svg(&self) -> String {
        let factor = self.metric.1;
        let trained: Vec<&Point> = self.points.iter().filter(|point| !point.scores.is_empty()).collect();
        let place = |point: &Point, score: f64| (100.0 * point.share, score * factor);
        let hint = |point: &Point, score: f64| {
            let score_text = mean_and_deviation(score, None, factor);
            (place(point, score), format!("{} examples: {score_text}", point.examples))
        };
        let each = || trained.iter().flat_map(|point| point.scores.iter().map(|score| (*point, *score)));
        let means = trained.iter().map(|point| place(point, mean(&point.scores))).collect();
        let band = |point: &&Point| {
            let (mean, std) = (mean(&point.scores) * factor, sample_std(&point.scores) * factor);
            (mean - std, mean + std)
        };
        let measured = |floor: Option<f64>| floor.filter(|floor| floor.is_finite());
        let floors = || self.points.iter().filter_map(|point| Some((point, measured(point.floor)?)));
        let color = "var(--model)";
        let mut curves = vec![
            chart::Curve {
                band: trained.iter().map(band).collect(),
                ..chart::Curve::new(means, color, Mark::Line)
            },
            chart::Curve {
                hints: each().map(|(point, score)| hint(point, score)).collect(),
                ..chart::Curve::new(
                    each().map(|(point, score)| place(point, score)).collect(),
                    color,
                    Mark::Points,
                )
            },
        ];
        if self.floor.is_some() {
            let floors = floors().map(|(point, score)| place(point, score)).collect();
            curves.push(chart::Curve::new(floors, "var(--muted)", Mark::Dashes));
        }
        let percent = if factor > 1.0 { " %" } else { "" };
        let metric = self.metric.0.trim_end_matches(" %");
        let chart = Chart {
            title: format!("{metric}{percent}, by training examples"),
            x: "share of the training examples, %".to_string(),
            y: String::new(),
            curves,
            may_be_logarithmic: false,
            x_is_logarithmic: true,
            x_text: compact,
        };
        chart.file(
            STYLE,
            &self.floor.map_or_else(|| "means over seeds".to_string(), |name| format!("dashed: {name}")),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_has_a_dot_for_each_seed_and_rises_to_the_right() {
        let point = |share: f64, scores: &[f64], floor| Point {
            share,
            examples: (1000.0 * share) as usize,
            scores: scores.to_vec(),
            floor: Some(floor),
        };
        let points = vec![
            point(0.01, &[0.4, 0.6], 0.45),
            point(0.1, &[0.7, 0.72], 0.65),
            point(0.5, &[], 0.7),
            point(1.0, &[0.8, 0.82], 0.75),
        ];
        let curve = Curve { points, metric: ("accuracy %", 100.0), floor: Some("words <b>") };
        let svg = curve.svg();
        // A dot for each, and one that says its value.
        assert_eq!((svg.matches("<circle").count(), svg.matches("<title>").count()), (12, 6));
        assert!(svg.contains("words &lt;b&gt;") && !svg.contains("NaN"), "{svg}");
        for word in
            [">1<", ">10<", ">100<", ">accuracy %, by training examples<", "<title>1000 examples: 80.00<"]
        {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        let nothing = Curve { points: vec![point(1.0, &[], 0.7)], floor: None, ..curve };
        assert!(nothing.svg().starts_with("<svg xmlns=") && nothing.svg().ends_with("</svg>\n"));
    }
}

//! A learning curve: what more labelled examples are worth, as a table and as a picture.
//!
//! The picture is SVG written here: a drawing library puts its colours into every element, so that no dark
//! page can change them, and needs fonts to measure text.

use std::fmt::Write;

use serde::Serialize;

use crate::pages::html::escape;
use crate::scores::mean;
use crate::scores::sample_std;
use crate::trials::plot::Scale;
use crate::trials::summary::Summary;
use crate::trials::table::Table;
use crate::trials::table::mean_and_deviation;

/// Sizes of the picture, in pixels.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 64.0;

const STYLE: &str = "\
svg{--paper:#fcfbf9;--ink:#22211f;--muted:#74706a;--line:#e3dfd8;--model:#35618f;--floor:#8a857c;\
font:13px ui-sans-serif,system-ui,'Segoe UI',Roboto,'Noto Sans',sans-serif}\
@media(prefers-color-scheme:dark){svg{--paper:#171716;--ink:#ebe8e2;--muted:#9b968d;--line:#34322f;\
--model:#7fb0e0;--floor:#a9a49b}}\
.paper{fill:var(--paper)}text{fill:var(--ink)}.muted{fill:var(--muted)}.middle{text-anchor:middle}\
.end{text-anchor:end}.grid{stroke:var(--line)}.model{stroke:var(--model);fill:none;stroke-width:2.5}\
.floor{stroke:var(--floor);fill:none;stroke-width:2;stroke-dasharray:5 4}.band{fill:var(--model);\
fill-opacity:.15}circle{fill:var(--model);fill-opacity:.6}";

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
            let floor = point.floor.unwrap_or(f64::NAN);
            row.extend(self.floor.map(|_| mean_and_deviation(floor, None, self.metric.1)));
        }
        table
    }

    /// The mean over seeds by share, on a logarithmic axis, with a band of one standard deviation.
    pub(super) fn svg(&self) -> String {
        let factor = self.metric.1;
        let means: Vec<f64> = self.points.iter().map(|point| mean(&point.scores) * factor).collect();
        let spread: Vec<f64> = self.points.iter().map(|point| sample_std(&point.scores) * factor).collect();
        let ends = means.iter().zip(&spread).flat_map(|(mean, spread)| [mean - spread, mean + spread]);
        let single = self.points.iter().flat_map(|point| point.scores.iter().chain(&point.floor));
        let values: Vec<f64> = ends.chain(single.map(|score| score * factor)).collect();
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
            <style>{STYLE}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n"
        );
        // Upwards on the page is downwards in its coordinates.
        let Some(scale) = Scale::around(&values, HEIGHT - BOTTOM, TOP) else { return svg + "</svg>\n" };
        self.axes(&mut svg, &scale);
        let x: Vec<f64> = self.points.iter().map(|point| self.x(point)).collect();
        let y = |value: f64| scale.place(value);
        let known: Vec<usize> = (0..means.len()).filter(|&at| means[at].is_finite()).collect();
        let upper = known.iter().map(|&at| (x[at], y(means[at] + spread[at])));
        let lower = known.iter().rev().map(|&at| (x[at], y(means[at] - spread[at])));
        let _ = writeln!(svg, "<path class=\"band\" d=\"{}Z\"/>", path(upper.chain(lower)));
        let _ = writeln!(
            svg,
            "<path class=\"model\" d=\"{}\"/>",
            path(known.iter().map(|&at| (x[at], y(means[at]))))
        );
        for (x, point) in x.iter().zip(&self.points) {
            for score in &point.scores {
                let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3.5\"/>", y(score * factor));
            }
        }
        if self.floor.is_some() {
            let floors = self.points.iter().zip(&x).filter_map(|(p, x)| Some((*x, y(p.floor? * factor))));
            let _ = writeln!(svg, "<path class=\"floor\" d=\"{}\"/>", path(floors));
        }
        svg + "</svg>\n"
    }

    /// Titles, round numbers at the left, shares and examples below.
    fn axes(&self, svg: &mut String, scale: &Scale) {
        let percent = if self.metric.1 > 1.0 { " %" } else { "" };
        let title = escape(self.metric.0.trim_end_matches(" %"));
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"24\">{title}{percent}, by training examples</text>");
        if let Some(name) = self.floor {
            let (from, to, x) = (WIDTH - 300.0, WIDTH - 272.0, WIDTH - 264.0);
            let _ = writeln!(svg, "<path class=\"floor\" d=\"M{from} 20L{to} 20\"/>");
            let _ = writeln!(svg, "<text class=\"muted\" x=\"{x}\" y=\"24\">{}</text>", escape(name));
        }
        for tick in scale.ticks() {
            let (y, end) = (scale.place(tick), WIDTH - RIGHT);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{end}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            );
            let (x, y, label) = (LEFT - 10.0, y + 4.0, scale.label(tick));
            let _ = writeln!(svg, "<text class=\"muted end\" x=\"{x}\" y=\"{y:.1}\">{label}</text>");
        }
        for point in &self.points {
            let (x, share) = (self.x(point), format!("{} %", rounded(100.0 * point.share)));
            let (upper, lower) = (HEIGHT - BOTTOM + 22.0, HEIGHT - BOTTOM + 40.0);
            let _ = writeln!(svg, "<text class=\"middle\" x=\"{x:.1}\" y=\"{upper}\">{share}</text>");
            let examples = point.examples;
            let _ =
                writeln!(svg, "<text class=\"muted middle\" x=\"{x:.1}\" y=\"{lower}\">{examples}</text>");
        }
    }

    /// The place of a share on a logarithmic axis.
    fn x(&self, point: &Point) -> f64 {
        let logarithms = || self.points.iter().map(|point| point.share.ln());
        let (low, high) = (logarithms().fold(0.0, f64::min), logarithms().fold(f64::NEG_INFINITY, f64::max));
        let part = if high > low { (point.share.ln() - low) / (high - low) } else { 0.5 };
        LEFT + 40.0 + part * (WIDTH - RIGHT - LEFT - 80.0)
    }
}

fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let letter = |at: usize| if at == 0 { "M" } else { "L" };
    points
        .enumerate()
        .map(|(at, (x, y))| [letter(at).to_string(), format!("{x:.1} {y:.1}")].concat())
        .collect()
}

/// Three digits at most, without zeros behind the point.
fn rounded(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
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
        assert_eq!(svg.matches("<circle").count(), 6);
        assert!(svg.contains("words &lt;b&gt;") && !svg.contains("NaN"), "{svg}");
        for word in [">1 %<", ">50 %<", ">1000<", ">accuracy %, by training examples<"] {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        let x: Vec<f64> = curve.points.iter().map(|point| curve.x(point)).collect();
        let steps: Vec<f64> = x.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!((steps[0] - (steps[1] + steps[2])).abs() < 1e-9, "a tenth is as far everywhere: {x:?}");
    }
}

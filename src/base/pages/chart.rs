//! Charts as inline SVG for pages: curves, points and bars.
//!
//! `kuva` draws axes, ticks and marks. Their colours are CSS variables of the page, so that a chart follows
//! its light and dark mode. Words around a chart (title, legend) are written by the page.

mod columns;
mod drawing;
mod rows;

use std::fmt::Write;
use std::sync::Arc;

use kuva::plot::{LinePlot, ScatterPlot};
use kuva::render::layout::TickFormat;
use kuva::render::plots::Plot;

use crate::pages::chart::drawing::{INLINE, Size, drawn, layout};
use crate::pages::html::{escape, visible};

pub use columns::{Columns, Portion};
pub use drawing::compact;
pub use rows::{Row, Rows};

/// Size of a chart that is a file of its own.
const FILE: Size = Size { width: 720.0, height: 420.0, text: 13 };

/// Ratio of the largest to the smallest value above which a logarithmic axis is clearer.
pub const WIDE: f64 = 20.0;

/// Most decades of a logarithmic axis that are all labelled; of more, every n-th one is.
const MOST_DECADES: i32 = 5;

/// Marks that show the values of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A line.
    Line,
    /// A thinner line, which others are drawn over.
    Thin,
    /// A line with its points.
    Dots,
    /// A dashed line.
    Dashes,
    /// Points alone.
    Points,
}

/// A curve of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Points as (x, y), all finite, in the order in which they are joined.
    pub points: Vec<(f64, f64)>,
    /// CSS colour, such as `var(--s0)`.
    pub color: String,
    /// Marks that show the points.
    pub mark: Mark,
    /// Tooltips: the position (x, y) and the text of each.
    pub hints: Vec<((f64, f64), String)>,
    /// Lower and upper end of a band around each point; empty if there is no band.
    pub band: Vec<(f64, f64)>,
}

/// A chart of curves over one axis.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Title of the chart, for screen readers.
    pub title: String,
    /// Name and unit of the horizontal axis.
    pub x: String,
    /// Unit of the vertical axis; may be empty.
    pub y: String,
    /// The curves; later ones are drawn over earlier ones.
    pub curves: Vec<Curve>,
    /// Allows a logarithmic vertical axis if the values are far apart.
    pub may_be_logarithmic: bool,
    /// Makes the horizontal axis logarithmic; its values must be above 0.
    pub x_is_logarithmic: bool,
    /// Formats a number on the horizontal axis.
    pub x_text: fn(f64) -> String,
    /// Ends of the horizontal axis; `None` to choose them by the points.
    pub x_range: Option<(f64, f64)>,
    /// Ends of the vertical axis; `None` to choose them by the points.
    pub y_range: Option<(f64, f64)>,
}

impl Default for Chart {
    /// A chart without curves, with linear axes as wide as the points.
    fn default() -> Self {
        Self {
            title: String::new(),
            x: String::new(),
            y: String::new(),
            curves: Vec::new(),
            may_be_logarithmic: false,
            x_is_logarithmic: false,
            x_text: compact,
            x_range: None,
            y_range: None,
        }
    }
}

impl Chart {
    /// The chart as an SVG element of a page; empty if there are no points.
    pub fn svg(&self) -> String {
        self.drawing(INLINE, "").unwrap_or_default()
    }

    /// The chart as an SVG file with its title and a subtitle in small letters. `style` sets the CSS
    /// variables of the colours, including `--paper`.
    pub fn file(&self, style: &str, subtitle: &str) -> String {
        let drawn = self.drawing(FILE, &visible(subtitle)).unwrap_or_else(|| "<svg></svg>".to_string());
        let (open, body) = drawn.split_once('>').expect("every drawing begins with an element");
        let open = open.replacen("<svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"", 1);
        let font = "svg{font-family:ui-sans-serif,system-ui,'Segoe UI',Roboto,'Noto Sans',sans-serif}";
        let paper = "<rect width=\"100%\" height=\"100%\" fill=\"var(--paper)\"/>";
        format!("{open}><style>{style}{font}</style>{paper}{body}\n")
    }

    /// Returns true if a curve after curve `index` has the same points and would hide it.
    fn is_covered(&self, index: usize) -> bool {
        self.curves[index + 1..].iter().any(|later| later.points == self.curves[index].points)
    }

    fn drawing(&self, size: Size, subtitle: &str) -> Option<String> {
        let ends = self.curves.iter().flat_map(|curve| &curve.band).flat_map(|(low, high)| [*low, *high]);
        let values = self.curves.iter().flat_map(|curve| &curve.points).map(|point| point.1);
        let values: Vec<f64> = values.chain(ends).collect();
        let lowest = values.iter().copied().reduce(f64::min)?;
        let highest = values.into_iter().fold(lowest, f64::max);
        let plots: Vec<Plot> = self
            .curves
            .iter()
            .enumerate()
            .flat_map(|(index, curve)| curve.plots(self.is_covered(index)))
            .collect();
        let x_text = self.x_text;
        let mut layout = layout(&plots, size)
            .with_x_label(&self.x)
            .with_y_label(&self.y)
            .with_x_tick_format(TickFormat::Custom(Arc::new(x_text)))
            .with_y_tick_format(TickFormat::Custom(Arc::new(compact)));
        if !subtitle.is_empty() {
            let title = visible(&self.title);
            layout = layout.with_title(title).with_title_size(size.text + 3).with_subtitle(subtitle);
            layout = layout.with_subtitle_size(size.text);
        }
        if self.may_be_logarithmic && lowest > 0.0 && highest / lowest > WIDE {
            let every = decades_per_label(lowest, highest);
            let text =
                move |value: f64| if is_labelled(value, every) { compact(value) } else { String::new() };
            layout = layout.with_log_y().with_y_tick_format(TickFormat::Custom(Arc::new(text)));
        } else if let Some((low, high)) = self.y_range {
            layout = layout.with_y_axis_min(low).with_y_axis_max(high);
        }
        if let Some((low, high)) = self.x_range {
            layout = layout.with_x_axis_min(low).with_x_axis_max(high);
        }
        if self.x_is_logarithmic {
            layout = layout.with_log_x();
        }
        Some(drawn(plots, layout, &self.title))
    }
}

/// Number of decades from one label of a logarithmic axis to the next.
fn decades_per_label(lowest: f64, highest: f64) -> i32 {
    let decades = highest.log10().ceil() - lowest.log10().floor();
    // The cap keeps the conversion to an integer within range.
    (decades.clamp(1.0, 1e3) as i32 + MOST_DECADES - 1) / MOST_DECADES
}

/// Returns true if a tick of a logarithmic axis has a label: every one between powers of ten, and every
/// `every`-th power of ten.
fn is_labelled(value: f64, every: i32) -> bool {
    every == 1 || (value.log10().round() as i32).rem_euclid(every) == 0
}

impl Curve {
    /// A curve without tooltips and without a band.
    pub fn new(points: Vec<(f64, f64)>, color: &str, mark: Mark) -> Self {
        Self { points, color: color.to_string(), mark, hints: Vec::new(), band: Vec::new() }
    }

    /// The plots that draw this curve. With `is_covered`, they are wide enough to be visible under a later
    /// curve.
    fn plots(&self, is_covered: bool) -> Vec<Plot> {
        let mut plots = Vec::new();
        let (width, size) = if is_covered { (5.0, 4.6) } else { (1.6, 2.6) };
        // A line needs at least two points.
        let is_alone = self.points.len() == 1;
        match self.mark {
            Mark::Dashes => plots.push(Plot::Line(self.line(width).with_stroke_width(1.2).with_dashed())),
            Mark::Thin if !is_alone => plots.push(Plot::Line(self.line(width / 1.6))),
            Mark::Line | Mark::Dots if !is_alone => plots.push(Plot::Line(self.line(width))),
            _ => {}
        }
        if matches!(self.mark, Mark::Points | Mark::Dots) || is_alone {
            plots.push(Plot::Scatter(scatter(self.points.clone(), &self.color, size)));
        }
        if !self.hints.is_empty() {
            // These points are invisible; they show their tooltip under the pointer.
            let (places, texts): (Vec<_>, Vec<_>) =
                self.hints.iter().map(|(place, text)| (*place, visible(text))).unzip();
            let hints = scatter(places, "none", 5.0).with_tooltips().with_tooltip_labels(texts);
            plots.push(Plot::Scatter(hints));
        }
        plots
    }

    /// The line through all points, with the band if there is one.
    fn line(&self, width: f64) -> LinePlot {
        let line = LinePlot::new().with_data(self.points.iter().copied());
        let line = line.with_color(self.color.as_str()).with_stroke_width(width);
        if self.band.is_empty() {
            return line;
        }
        line.with_band(self.band.iter().map(|ends| ends.0), self.band.iter().map(|ends| ends.1))
    }
}

fn scatter(points: Vec<(f64, f64)>, color: &str, size: f64) -> ScatterPlot {
    ScatterPlot::new().with_data(points).with_color(color).with_size(size)
}

/// A horizontal bar of parts, as wide as its container. Each part is its CSS class, its tooltip, and its share
/// of the whole (0 to 1).
pub(super) fn bar(parts: &[(String, String, f64)]) -> String {
    let mut svg = "<svg viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" role=\"img\">".to_string();
    let mut before = 0.0;
    for (class, text, share) in parts.iter().filter(|part| part.2 > 0.0) {
        let x = 1000.0 * before;
        let width = 1000.0 * share;
        // The gap between parts would hide a narrow one.
        let class = if *share < 0.005 { format!("{class} thin") } else { class.clone() };
        let text = escape(text);
        // Writing to a string cannot fail.
        let _ = write!(
            svg,
            "<rect class=\"{class}\" x=\"{x:.2}\" width=\"{width:.2}\" height=\"20\"><title>{text}</title></rect>"
        );
        before += share;
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>, mark: Mark) -> Chart {
        let hints = points.iter().map(|point| (*point, format!("<b> {}", point.1))).collect();
        let curve = Curve { hints, ..Curve::new(points, "var(--s0)", mark) };
        Chart {
            title: "loss \"of\" <it>".to_string(),
            x: "step".to_string(),
            y: "nats".to_string(),
            curves: vec![curve],
            may_be_logarithmic: true,
            ..Chart::default()
        }
    }

    #[test]
    fn a_chart_is_a_part_of_a_page() {
        let svg = chart(vec![(0.0, 8.0), (50.0, 6.123_456_789), (100.0, 5.0)], Mark::Dots).svg();
        assert!(svg.starts_with(
            "<svg class=\"chart\" viewBox=\"0 0 360 210\" fill=\"var(--muted)\" role=\"img\" aria-label=\"loss &quot;of"
        ));
        assert!(svg.ends_with("</svg>") && svg.matches("<svg").count() == 1, "{svg}");
        assert!(
            svg.contains("stroke=\"var(--s0)\"") && svg.contains(">nats<") && svg.contains(">step<"),
            "{svg}"
        );
        assert!(svg.contains("<title>&lt;b&gt; 6.123456789</title>"), "a hint has all its digits: {svg}");
        for name in ["<defs", "url(", "id=\"", "<style", "<!--", "http", "<b>"] {
            assert!(!svg.contains(name), "{name}: {svg}");
        }
        assert!(!svg.contains("00000"), "{svg}");
    }

    #[test]
    fn values_far_apart_get_a_logarithmic_axis_if_that_is_allowed() {
        let wide = chart(vec![(0.0, 1000.0), (50.0, 10.0), (100.0, 1.0)], Mark::Line);
        assert!(wide.svg().contains(">100<") && !wide.svg().contains(">400<"), "{}", wide.svg());
        let linear = Chart { may_be_logarithmic: false, ..wide };
        assert!(linear.svg().contains(">400<"), "{}", linear.svg());
    }

    #[test]
    fn many_decades_share_few_labels() {
        let svg = chart(vec![(0.0, 1.0), (50.0, 1e15), (100.0, 1e30)], Mark::Line).svg();
        let labels = (0..=30).filter(|power| svg.contains(&format!(">{}<", compact(10f64.powi(*power)))));
        assert!((4..=7).contains(&labels.count()), "{svg}");
        let [low, high] = [2.0, 5.0].map(|value| decades_per_label(1.0, 10f64.powf(value)));
        assert_eq!((low, high, decades_per_label(1.0, 1e11)), (1, 1, 3));
    }

    #[test]
    fn the_axes_have_the_ends_that_are_set() {
        let points = vec![(10.0, 97.0), (50.0, 99.0)];
        let ends =
            Chart { x_range: Some((0.0, 400.0)), y_range: Some((60.0, 100.0)), ..chart(points, Mark::Line) };
        let svg = ends.svg();
        assert!([">0<", ">400<", ">60<", ">100<"].iter().all(|label| svg.contains(label)), "{svg}");
    }

    #[test]
    fn single_and_equal_values_make_charts_and_no_values_make_none() {
        assert_eq!(chart(vec![], Mark::Dots).svg(), "");
        for points in [vec![(5.0, 0.0)], vec![(0.0, 2.5), (9.0, 2.5)], vec![(0.0, -1.0), (1.0, 1e300)]] {
            let svg = chart(points, Mark::Line).svg();
            assert!(svg.contains("</svg>") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn a_bar_has_a_part_for_each_share() {
        let parts = [("c0", 0.75), ("c1", 0.0), ("c2", 0.25)];
        let svg = bar(&parts.map(|(name, share)| (name.to_string(), format!("{name} it is"), share)));
        assert_eq!(svg.matches("<rect").count(), 2);
        assert!(svg.contains("<rect class=\"c2\" x=\"750.00\" width=\"250.00\""), "{svg}");
        assert!(bar(&[("c0".to_string(), String::new(), 0.004)]).contains("class=\"c0 thin\""));
    }
}

//! A chart of names, each with its values on a strip of its own.
//!
//! It is HTML, not SVG: names and numbers keep their size on a phone, where each name is above its strip.

use std::fmt::Write;

use crate::pages::chart::compact;
use crate::pages::html::{breakable, escape};

/// About the number of ticks of the axis.
const TICKS: f64 = 4.0;

/// A chart with a strip for each name: its values as dots, their mean as a stroke.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// Title of the chart, for screen readers.
    pub title: String,
    /// Name and unit of the values.
    pub x: String,
    /// Rows from top to bottom.
    pub rows: Vec<Row>,
}

/// A row of [`Rows`].
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Label of the row.
    pub name: String,
    /// CSS colour.
    pub color: String,
    /// Values, each with the text of its tooltip.
    pub values: Vec<(f64, String)>,
    /// Mean of the values.
    pub mean: Option<f64>,
}

/// The axis of all strips.
struct Axis {
    low: f64,
    high: f64,
    step: f64,
}

impl Rows {
    /// The chart as HTML; empty if there are no values.
    pub fn html(&self) -> String {
        let values = self.rows.iter().flat_map(|row| &row.values).map(|value| value.0);
        let Some(low) = values.clone().reduce(f64::min) else { return String::new() };
        let axis = Axis::new(low, values.fold(low, f64::max));
        let ticks = axis.ticks();
        let lines: Vec<String> =
            ticks.iter().map(|tick| format!("<s style=\"left:{}\"></s>", axis.place(*tick))).collect();
        let lines = lines.concat();
        let mut html = format!("<figure class=\"strips\" aria-label=\"{}\">\n", escape(&self.title));
        for row in &self.rows {
            let color = &row.color;
            let _ = write!(html, "<div><span>{}</span><p>{lines}", breakable(&row.name));
            for (value, text) in &row.values {
                let place = axis.place(*value);
                let _ = write!(
                    html,
                    "<b style=\"left:{place};background:{color}\" title=\"{}\"></b>",
                    escape(text)
                );
            }
            if let Some(mean) = row.mean {
                let _ = write!(html, "<i style=\"left:{};background:{color}\"></i>", axis.place(mean));
            }
            html.push_str("</p></div>\n");
        }
        let _ = write!(html, "<div><span class=\"muted\">{}</span><p class=\"ticks\">", escape(&self.x));
        for tick in ticks {
            let _ = write!(html, "<small style=\"left:{}\">{}</small>", axis.place(tick), compact(tick));
        }
        html + "</p></div>\n</figure>\n"
    }
}

impl Axis {
    /// An axis from a multiple of its step to another, with all values between them.
    fn new(lowest: f64, highest: f64) -> Self {
        let span = if highest > lowest { highest - lowest } else { lowest.abs().max(1.0) };
        let power = 10f64.powf((span / TICKS).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * power);
        let step = step.into_iter().find(|step| span / step <= TICKS).unwrap_or(span);
        let low = (lowest / step).floor() * step;
        let high = ((highest / step).ceil() * step).max(low + step);
        Self { low, high, step }
    }

    fn ticks(&self) -> Vec<f64> {
        // The step is at least a fifth of the span, so there are few ticks.
        let count = ((self.high - self.low) / self.step).round().min(10.0) as i32;
        (0..=count).map(|index| self.low + f64::from(index) * self.step).collect()
    }

    /// The place of a value, in percent of the width.
    fn place(&self, value: f64) -> String {
        format!("{:.2}%", 100.0 * ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_their_names_dots_and_means() {
        let rows = vec![row("ours & theirs", &[71.0, 72.5]), row("floor", &[])];
        let rows = Rows { title: "accuracy".to_string(), x: "accuracy %".to_string(), rows };
        let html = rows.html();
        assert!(html.contains("ours &amp; theirs") && html.contains("<span>floor</span>"), "{html}");
        assert_eq!((html.matches("<b ").count(), html.matches("<i ").count()), (2, 1), "{html}");
        assert!(html.contains("left:100.00%;background:var(--model)\" title=\"72.50\""), "{html}");
        for tick in ["left:0.00%\">71<", "left:33.33%\">71.5<", "left:100.00%\">72.5<"] {
            assert!(html.contains(tick), "{tick}: {html}");
        }
        assert_eq!(Rows { rows: vec![row("floor", &[])], ..rows }.html(), "");
    }

    #[test]
    fn an_axis_holds_all_values_between_few_ticks() {
        for (low, high) in [(0.0, 0.0), (71.0, 72.5), (-1.0, 1e300), (0.3, 0.300_1), (5.0, 5.0), (0.0, 100.0)]
        {
            let axis = Axis::new(low, high);
            let ticks = axis.ticks();
            assert!(axis.low <= low && high <= axis.high, "{low} {high}");
            assert!((2..=7).contains(&ticks.len()), "{ticks:?}");
        }
    }

    fn row(name: &str, values: &[f64]) -> Row {
        Row {
            name: name.to_string(),
            color: "var(--model)".to_string(),
            values: values.iter().map(|value| (*value, format!("{value:.2}"))).collect(),
            mean: values.first().copied(),
        }
    }
}

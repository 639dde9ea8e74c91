//! A chart of names, each with its values in a row of its own.

use kuva::plot::{LinePlot, ScatterPlot};
use kuva::render::plots::Plot;

use crate::pages::chart::drawing::{INLINE, Size, drawn, layout};
use crate::pages::html::visible;

/// Height of a row of [`Rows`].
const ROW_HEIGHT: f64 = 26.0;

/// Height of the space above and below all rows, together.
const ROWS_MARGIN: f64 = 34.0;

/// A chart with a row for each name: its values as dots, their mean as a stroke.
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

impl Rows {
    /// The chart as SVG; empty if there are no values.
    pub fn svg(&self) -> String {
        if self.rows.iter().all(|row| row.values.is_empty()) {
            return String::new();
        }
        let mut plots = Vec::new();
        for (index, row) in self.rows.iter().rev().enumerate() {
            // Categories are at 1, 2, 3, ... from the bottom up.
            let y = index as f64 + 1.0;
            let places = row.values.iter().map(|(value, _)| (*value, y));
            let texts = row.values.iter().map(|(_, text)| visible(text));
            let dots = ScatterPlot::new().with_data(places).with_color(row.color.as_str()).with_size(4.5);
            plots.push(Plot::Scatter(dots.with_tooltips().with_tooltip_labels(texts)));
            if let Some(mean) = row.mean {
                let stroke = LinePlot::new().with_data([(mean, y - 0.35), (mean, y + 0.35)]);
                plots.push(Plot::Line(stroke.with_color(row.color.as_str()).with_stroke_width(2.5)));
            }
        }
        let height = ROW_HEIGHT * self.rows.len() as f64 + ROWS_MARGIN;
        let names = self.rows.iter().rev().map(|row| visible(&row.name)).collect();
        let size = Size { width: 2.0 * INLINE.width, height, ..INLINE };
        let layout = layout(&plots, size).with_x_label(&self.x).with_y_categories(names);
        drawn(plots, layout, &self.title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_their_names_dots_and_means() {
        let rows = vec![row("ours & theirs", &[71.25, 72.0]), row("floor", &[])];
        let rows = Rows { title: "accuracy".to_string(), x: "accuracy %".to_string(), rows };
        let svg = rows.svg();
        assert!(svg.contains("ours &amp; theirs") && svg.contains(">floor<"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 2, "{svg}");
        assert!(svg.contains("<title>71.25</title>"), "{svg}");
        assert_eq!(Rows { rows: vec![row("floor", &[])], ..rows }.svg(), "");
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

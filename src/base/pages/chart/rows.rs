//! A chart of names, each with values on a line of its own.

use kuva::plot::LinePlot;
use kuva::plot::ScatterPlot;
use kuva::render::plots::Plot;

use crate::pages::chart::drawing::INLINE;
use crate::pages::chart::drawing::drawn;
use crate::pages::chart::drawing::layout;
use crate::pages::html::visible;

/// Height of a row of [`Rows`], and of what is above and below all rows.
const ROW_HEIGHT: f64 = 26.0;
const ROWS_MARGIN: f64 = 34.0;

/// A chart with a line for each name: its values as dots, their mean as a stroke.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// What the chart shows, for those who do not see it.
    pub title: String,
    /// Name and unit of the values.
    pub x: String,
    /// From top to bottom.
    pub rows: Vec<Row>,
}

/// A line of [`Rows`].
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What it is called.
    pub name: String,
    /// A colour of CSS.
    pub color: String,
    /// Its values, each with what is shown where the pointer rests.
    pub values: Vec<(f64, String)>,
    /// Their mean.
    pub mean: Option<f64>,
}

impl Rows {
    /// The chart as SVG; empty without a value.
    pub fn svg(&self) -> String {
        if self.rows.iter().all(|row| row.values.is_empty()) {
            return String::new();
        }
        let mut plots = Vec::new();
        for (index, row) in self.rows.iter().rev().enumerate() {
            // Categories stand at 1, 2, 3, ... from below.
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
        let layout =
            layout(&plots, (2.0 * INLINE.0, height, INLINE.2)).with_x_label(&self.x).with_y_categories(names);
        drawn(plots, layout, &self.title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_their_names_dots_and_means() {
        let row = |name: &str, values: &[f64]| Row {
            name: name.to_string(),
            color: "var(--model)".to_string(),
            values: values.iter().map(|value| (*value, format!("{value:.2}"))).collect(),
            mean: values.first().copied(),
        };
        let rows = vec![row("ours & theirs", &[71.25, 72.0]), row("floor", &[])];
        let rows = Rows { title: "accuracy".to_string(), x: "accuracy %".to_string(), rows };
        let svg = rows.svg();
        assert!(svg.contains("ours &amp; theirs") && svg.contains(">floor<"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 2, "{svg}");
        assert!(svg.contains("<title>71.25</title>"), "{svg}");
        assert_eq!(Rows { rows: vec![row("floor", &[])], ..rows }.svg(), "");
    }
}

//! Column charts, such as histograms.

use std::sync::Arc;

use kuva::plot::BarPlot;
use kuva::render::layout::TickFormat;
use kuva::render::plots::Plot;

use crate::pages::chart::drawing::{INLINE, compact, drawn, layout};
use crate::pages::html::visible;

/// A chart of columns, each a stack of portions.
#[derive(Debug, Clone, PartialEq)]
pub struct Columns {
    /// Title of the chart, for screen readers.
    pub title: String,
    /// Columns from left to right: the label below a column, and its portions from the bottom up.
    pub columns: Vec<(String, Vec<Portion>)>,
}

/// A part of a column.
#[derive(Debug, Clone, PartialEq)]
pub struct Portion {
    /// Height of this part.
    pub value: f64,
    /// CSS colour.
    pub color: String,
    /// Text of the tooltip.
    pub text: String,
}

impl Columns {
    /// The chart as SVG; empty if there are no columns.
    pub fn svg(&self) -> String {
        if self.columns.is_empty() {
            return String::new();
        }
        let mut bars = BarPlot::new().with_stacked().with_width(0.84);
        for (name, parts) in &self.columns {
            bars = bars.with_group(name.as_str(), parts.iter().map(|part| (part.value, part.color.as_str())));
        }
        let texts = self.columns.iter().flat_map(|(_, parts)| parts).map(|part| visible(&part.text));
        let plots = vec![Plot::Bar(bars.with_tooltips().with_tooltip_labels(texts))];
        let heights = self.columns.iter().map(|(_, parts)| parts.iter().map(|part| part.value).sum::<f64>());
        let highest = heights.fold(0.0, f64::max);
        let mut layout = layout(&plots, INLINE).with_y_tick_format(TickFormat::Custom(Arc::new(compact)));
        // Columns count things: an axis of few of them has no halves.
        if highest <= 5.0 {
            layout = layout.with_y_tick_step(1.0);
        }
        drawn(plots, layout, &self.title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_a_part_for_each_portion() {
        let columns = vec![
            ("512".to_string(), vec![portion(7.0), portion(2.5)]),
            (String::new(), vec![portion(90_000.0)]),
        ];
        let svg = Columns { title: "bytes".to_string(), columns }.svg();
        assert_eq!(
            (svg.matches("<rect").count(), svg.matches("&lt;it&gt;</title>").count()),
            (3, 3),
            "{svg}"
        );
        assert!(svg.contains(">512<") && svg.contains(">100k<"), "{svg}");
        let few = vec![("1".to_string(), vec![portion(2.0)])];
        let svg = Columns { title: String::new(), columns: few }.svg();
        assert!(svg.contains(">1<") && svg.contains(">2<") && !svg.contains(".5<"), "{svg}");
        assert_eq!(Columns { title: String::new(), columns: vec![] }.svg(), "");
    }

    fn portion(value: f64) -> Portion {
        Portion { value, color: "var(--s0)".to_string(), text: format!("{value} <it>") }
    }
}

//! A chart of columns, as histograms are.

use std::sync::Arc;

use kuva::plot::BarPlot;
use kuva::render::layout::TickFormat;
use kuva::render::plots::Plot;

use crate::pages::chart::drawing::INLINE;
use crate::pages::chart::drawing::compact;
use crate::pages::chart::drawing::drawn;
use crate::pages::chart::drawing::layout;
use crate::pages::html::visible;

/// A chart of columns, each of parts above each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Columns {
    /// What the chart shows, for those who do not see it.
    pub title: String,
    /// From left to right: what stands below each, and its parts from the bottom up.
    pub columns: Vec<(String, Vec<Portion>)>,
}

/// A part of a column.
#[derive(Debug, Clone, PartialEq)]
pub struct Portion {
    /// Its height.
    pub value: f64,
    /// A colour of CSS.
    pub color: String,
    /// What is shown where the pointer rests.
    pub text: String,
}

impl Columns {
    /// The chart as SVG; empty without a column.
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
        let layout = layout(&plots, INLINE).with_y_tick_format(TickFormat::Custom(Arc::new(compact)));
        drawn(plots, layout, &self.title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_a_part_for_each_portion() {
        let portion =
            |value: f64| Portion { value, color: "var(--s0)".to_string(), text: format!("{value} <it>") };
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
        assert_eq!(Columns { title: String::new(), columns: vec![] }.svg(), "");
    }
}

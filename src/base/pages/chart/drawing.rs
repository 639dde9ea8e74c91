//! Drawing that all charts share: axes, colours, and the conversion of the library's SVG file to an element
//! of a page.

use kuva::backend::svg::SvgBackend;
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use kuva::render::render::render_multiple;
use kuva::render::theme::Theme;

use crate::pages::html::escape;

/// Size of a chart and of its text, in pixels.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) text: u32,
}

/// Size of a chart in a page. Its units are about a pixel on a phone, so that the text keeps its size there.
pub(super) const INLINE: Size = Size { width: 360.0, height: 210.0, text: 12 };

/// Axes, ticks and grid of a chart of this size.
pub(super) fn layout(plots: &[Plot], size: Size) -> Layout {
    let theme = Theme {
        background: "none".to_string(),
        axis_color: "var(--line)".to_string(),
        grid_color: "var(--line)".to_string(),
        tick_color: "var(--line)".to_string(),
        text_color: "var(--muted)".to_string(),
        ..Theme::light()
    };
    Layout::auto_from_plots(plots)
        .with_width(size.width)
        .with_height(size.height)
        .with_theme(theme)
        .with_ticks(5)
        .with_tick_size(size.text)
        .with_label_size(size.text)
        .with_axis_line_width(1.0)
        .with_grid_line_width(1.0)
        .with_tick_width(1.0)
        .with_tick_length(3.0)
        .with_x_label_offset(0.0, -8.0)
}

/// Renders a chart as an SVG element of a page.
pub(super) fn drawn(plots: Vec<Plot>, layout: Layout, title: &str) -> String {
    inlined(&SvgBackend::new().render_scene(&render_multiple(plots, layout)), title)
}

/// Formats a number on an axis in few characters: `0.002`, `15k`, `2.5M`, `1e12`.
pub fn compact(value: f64) -> String {
    let (size, unit) = match value.abs() {
        size if size >= 1e12 => return format!("{value:.0e}"),
        size if size >= 1e9 => (1e9, "G"),
        size if size >= 1e6 => (1e6, "M"),
        size if size >= 1e4 => (1e3, "k"),
        size if size > 0.0 && size < 1e-4 => return format!("{value:.1e}").replace(".0e", "e"),
        _ => (1.0, ""),
    };
    // Two ticks of small numbers must not get the same label.
    let decimals = if value.abs() < 0.01 { 6 } else { 4 };
    let text = format!("{:.decimals$}", value / size);
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Converts the library's SVG file to an element of a page: scaled to its container, with a title, without
/// definitions (their ids would clash with those of other charts) and without digits that make no visible
/// difference.
fn inlined(svg: &str, title: &str) -> String {
    let width = attribute(svg, "width").unwrap_or("0");
    let height = attribute(svg, "height").unwrap_or("0");
    let body = svg.split_once('>').map_or("", |(_, body)| body);
    let body =
        without(&without(&without(body, "<!--", "-->"), "<rect width=\"100%\"", "/>"), "<defs>", "</defs>");
    let body = without(&body, " clip-path=\"", ")\"");
    let title = escape(title);
    let open = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {width} {height}\" fill=\"var(--muted)\" role=\"img\" \
         aria-label=\"{title}\">"
    );
    rounded(&format!("{open}{body}"))
}

/// The value of the first attribute with this name.
fn attribute<'a>(svg: &'a str, name: &str) -> Option<&'a str> {
    let value = svg.split_once(&format!(" {name}=\""))?.1;
    Some(value.split_once('"')?.0)
}

/// Removes all parts of a text that begin with `start`, up to and including `end`.
fn without(text: &str, start: &str, end: &str) -> String {
    let mut pieces = text.split(start);
    let mut kept = pieces.next().unwrap_or_default().to_string();
    for piece in pieces {
        kept.push_str(piece.split_once(end).map_or("", |(_, after)| after));
    }
    kept
}

/// Cuts numbers in attributes to two decimal places: the library writes `53.800000000000004`.
fn rounded(svg: &str) -> String {
    let mut short = String::with_capacity(svg.len());
    let mut in_quotes = false;
    let mut decimals = None;
    for character in svg.chars() {
        in_quotes ^= character == '"';
        decimals = match (character, decimals) {
            ('.', _) if in_quotes => Some(0),
            ('0'..='9', Some(count)) => Some(count + 1),
            _ => None,
        };
        if decimals.is_none_or(|count| count <= 2) {
            short.push(character);
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_axes_are_short() {
        let texts =
            [0.0, 0.002, 3e-5, 7.5e-5, 0.000_85, 5.25, 9000.0, 15_000.0, 2.5e6, -3e9, 1e34].map(compact);
        assert_eq!(
            texts,
            ["0", "0.002", "3e-5", "7.5e-5", "0.00085", "5.25", "9000", "15k", "2.5M", "-3G", "1e34"]
        );
    }
}

//! The frame of an HTML page: one file, light and dark, no script, nothing from the network.
//!
//! Whatever comes from a corpus, a configuration or a name is hostile: it reaches a page through [`escape`]
//! only, and the page's own policy forbids all loading and running besides.

/// What all pages look like; each adds its own.
const STYLE: &str = include_str!("style.css");

/// Loads nothing, runs nothing, whatever a text says.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// What every page begins with, up to its title.
fn head() -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
        <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
        <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
        <meta name=\"color-scheme\" content=\"light dark\">\n"
    )
}

/// Tells by its first bytes a file that [`page`] made.
pub fn is_page(bytes: &[u8]) -> bool {
    bytes.starts_with(head().as_bytes())
}

/// A page with `main` as its content and `style` after the style of all pages. `title` is escaped, the others
/// are HTML and CSS already.
pub fn page(title: &str, style: &str, main: &str) -> String {
    format!(
        "{}<title>{}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n<main>\n{main}</main>\n</body>\n\
        </html>\n",
        head(),
        escape(title)
    )
}

/// A section of a page; nothing without content, which is HTML already.
pub fn section(title: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    format!("<section>\n<h2>{}</h2>\n{content}</section>\n", escape(title))
}

/// Text as HTML and SVG show it, in content and in quoted attributes; control characters as their pictures
/// (U+2400).
pub fn escape(text: &str) -> String {
    htmlize::escape_all_quotes(visible(text)).into_owned()
}

/// Text with its control characters as their pictures, for those who escape it themselves.
pub fn visible(text: &str) -> String {
    let picture = |character: char| match character {
        '\n' | '\t' => character,
        '\u{7f}' => '\u{2421}',
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(character)).unwrap_or(char::REPLACEMENT_CHARACTER),
        '\u{80}'..='\u{9f}' => char::REPLACEMENT_CHARACTER,
        _ => character,
    };
    text.chars().map(picture).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_markup() {
        assert_eq!(
            escape("<script>&\"'\0\x1b[31m\u{9b}ä\n"),
            "&lt;script&gt;&amp;&quot;&apos;\u{2400}\u{241b}[31m\u{fffd}ä\n"
        );
        assert!(page("<b>", "", "").contains("<title>&lt;b&gt;</title>"));
    }

    #[test]
    fn a_section_without_content_is_left_out() {
        assert_eq!(section("Lengths", ""), "");
        assert_eq!(section("A & B", "<p>x</p>\n"), "<section>\n<h2>A &amp; B</h2>\n<p>x</p>\n</section>\n");
    }
}

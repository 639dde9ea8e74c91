//! The frame of an HTML page: a single file for light and dark mode, without scripts, which loads nothing
//! from the network.
//!
//! Text from a corpus, a configuration or a name is untrusted: it reaches a page only through [`escape`]. In
//! addition, the content security policy of the page forbids to load or run anything.

/// Style of all pages; each page adds its own.
const STYLE: &str = include_str!("style.css");

/// Content security policy: the page loads and runs nothing, whatever its text contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Start of every page, up to its title.
fn head() -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
        <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
        <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
        <meta name=\"color-scheme\" content=\"light dark\">\n"
    )
}

/// Returns true if the first bytes of a file show that [`page`] made it.
pub fn is_page(bytes: &[u8]) -> bool {
    bytes.starts_with(head().as_bytes())
}

/// A page with the content `main`, whose `style` follows the style of all pages. `title` is escaped here;
/// `main` and `style` are HTML and CSS already.
pub(super) fn page(title: &str, style: &str, main: &str) -> String {
    format!(
        "{}<title>{}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n<main>\n{main}</main>\n</body>\n\
        </html>\n",
        head(),
        escape(title)
    )
}

/// A section of a page; empty if `content` is empty. `content` is HTML already.
pub(super) fn section(title: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    format!("<section>\n<h2>{}</h2>\n{content}</section>\n", escape(title))
}

/// Escapes text for HTML and SVG, in content and in quoted attributes. Control characters are replaced as by
/// [`visible`].
pub(super) fn escape(text: &str) -> String {
    htmlize::escape_all_quotes(visible(text)).into_owned()
}

/// Escapes a name for HTML and allows line breaks after `_ . / , =`, where words of long names end.
pub(super) fn breakable(name: &str) -> String {
    let mut html = String::with_capacity(name.len());
    // No entity contains one of these marks.
    for character in escape(name).chars() {
        html.push(character);
        if "_./,=".contains(character) {
            html.push_str("<wbr>");
        }
    }
    html
}

/// An element of a page with attributes as of [`attribute`], followed by a line break. `content` is HTML
/// already.
pub(super) fn element(tag: &str, attributes: &str, content: &str) -> String {
    format!("<{tag}{attributes}>{content}</{tag}>\n")
}

/// An attribute of an element; empty without a value. The value is escaped here.
pub(super) fn attribute(name: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!(" {name}=\"{}\"", escape(value)) }
}

/// The last line of a page: the program that made it, and `from` what.
pub(super) fn footer(from: &str) -> String {
    format!(
        "<footer class=\"note\">Made by mlmtrain {} {}.</footer>\n",
        env!("CARGO_PKG_VERSION"),
        escape(from)
    )
}

/// Replaces control characters by their pictures (U+2400 and following), or by U+FFFD if they have none.
/// Callers escape the result themselves.
pub(super) fn visible(text: &str) -> String {
    text.chars().map(picture).collect()
}

fn picture(character: char) -> char {
    match character {
        '\n' | '\t' => character,
        '\u{7f}' => '\u{2421}',
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(character)).unwrap_or(char::REPLACEMENT_CHARACTER),
        '\u{80}'..='\u{9f}' => char::REPLACEMENT_CHARACTER,
        _ => character,
    }
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
    fn long_names_may_break_between_their_words() {
        assert_eq!(breakable("a_b=<1.5>"), "a_<wbr>b=<wbr>&lt;1.<wbr>5&gt;");
    }

    #[test]
    fn a_section_without_content_is_left_out() {
        assert_eq!(section("Lengths", ""), "");
        assert_eq!(section("A & B", "<p>x</p>\n"), "<section>\n<h2>A &amp; B</h2>\n<p>x</p>\n</section>\n");
    }
}

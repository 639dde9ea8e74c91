//! The report as one page: inline SVG and style, no script, nothing from the network.
//!
//! Whatever comes from the corpus or the configuration is hostile: it reaches the page through [`escape`]
//! only, and the page's own policy forbids all loading and running besides.

mod charts;
mod page;
mod tables;

pub(super) use page::page;

/// Text as HTML shows it, in content and in quoted attributes; control characters as their pictures (U+2400).
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + text.len() / 8);
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(character),
            '\u{7f}' => escaped.push('\u{2421}'),
            '\0'..='\x1f' => escaped.extend(char::from_u32(0x2400 + u32::from(character))),
            '\u{80}'..='\u{9f}' => escaped.push(char::REPLACEMENT_CHARACTER),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// The name of a reason, a step or a column as people read it.
fn words(name: &str) -> String {
    escape(&name.replace('_', " "))
}

/// The colour class of reason `index`; all behind the eighth share one.
fn color(index: usize) -> String {
    if index < 8 { format!("c{index}") } else { "rest".to_string() }
}

/// The colour class of source `index`, unlike those of the reasons.
fn source_color(index: usize) -> String {
    if index < 6 { format!("s{index}") } else { "rest".to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_markup() {
        assert_eq!(
            escape("<script>&\"'\0\x1b[31m\u{9b}ä\n"),
            "&lt;script&gt;&amp;&quot;&#39;\u{2400}\u{241b}[31m\u{fffd}ä\n"
        );
    }
}

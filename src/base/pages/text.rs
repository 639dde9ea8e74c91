//! A line of text whose parts may be marked.

use crate::pages::html::{breakable, escape};

/// A line of text, part by part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text(pub Vec<Part>);

/// A part of a line. On a page it is escaped; a terminal and Markdown show its words alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Words without a mark.
    Plain(String),
    /// A name, which may break after `_ . / , =`.
    Name(String),
    /// A name in bold letters.
    Bold(String),
    /// Pale words.
    Muted(String),
    /// Small words on a line of their own.
    Small(String),
    /// Code.
    Code(String),
    /// Words that are pointed at.
    Highlighted(String),
    /// Words of a CSS class, such as a state.
    Classed(&'static str, String),
    /// A link: its address, which is percent-encoded already, and its words.
    Link(String, String),
    /// A square in the colour of a CSS class.
    Dot(String),
    /// A stroke in the colour of a CSS class.
    Stroke(String),
}

impl From<&str> for Text {
    fn from(words: &str) -> Self {
        Self::from(words.to_string())
    }
}

impl From<String> for Text {
    fn from(words: String) -> Self {
        Self(vec![Part::Plain(words)])
    }
}

impl From<&str> for Part {
    fn from(words: &str) -> Self {
        Self::Plain(words.to_string())
    }
}

impl Text {
    /// A name, which may break after `_ . / , =`.
    pub fn name(name: &str) -> Self {
        Self(vec![Part::Name(name.to_string())])
    }

    /// A sentence in which words between backticks are code.
    pub fn with_code(sentence: &str) -> Self {
        let parts = sentence.split('`').map(str::to_string).enumerate();
        Self(
            parts
                .map(|(at, words)| if at % 2 == 1 { Part::Code(words) } else { Part::Plain(words) })
                .collect(),
        )
    }

    /// The same text after the square of a CSS class.
    #[must_use]
    pub fn after_dot(mut self, class: &str) -> Self {
        self.0.insert(0, Part::Dot(class.to_string()));
        self
    }

    /// The same text with one more part.
    #[must_use]
    pub fn with(mut self, part: Part) -> Self {
        self.0.push(part);
        self
    }

    /// The text as HTML.
    pub fn html(&self) -> String {
        self.0.iter().map(Part::html).collect()
    }

    /// The words alone.
    pub fn words(&self) -> String {
        self.0.iter().map(Part::words).collect()
    }

    /// The words alone, escaped so that Markdown shows them as they are.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for character in self.words().chars() {
            if "|*_`<>\\[]".contains(character) {
                text.push('\\');
            }
            text.push(if character.is_control() { ' ' } else { character });
        }
        text
    }
}

impl Part {
    fn html(&self) -> String {
        match self {
            Self::Plain(words) => escape(words),
            Self::Name(name) => breakable(name),
            Self::Bold(name) => format!("<b>{}</b>", breakable(name)),
            Self::Muted(words) => format!("<span class=\"muted\">{}</span>", escape(words)),
            Self::Small(words) => format!("<small>{}</small>", escape(words)),
            Self::Code(words) => format!("<code>{}</code>", breakable(words)),
            Self::Highlighted(words) => format!("<mark>{}</mark>", escape(words)),
            Self::Classed(class, words) => format!("<span class=\"{class}\">{}</span>", escape(words)),
            Self::Link(address, words) => format!("<a href=\"{}\">{}</a>", escape(address), escape(words)),
            Self::Dot(class) => format!("<i class=\"dot {class}\"></i>"),
            Self::Stroke(class) => format!("<i class=\"stroke {class}\"></i>"),
        }
    }

    fn words(&self) -> &str {
        match self {
            Self::Plain(words)
            | Self::Name(words)
            | Self::Bold(words)
            | Self::Muted(words)
            | Self::Small(words)
            | Self::Code(words)
            | Self::Highlighted(words)
            | Self::Classed(_, words)
            | Self::Link(_, words) => words,
            Self::Dot(_) | Self::Stroke(_) => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_outside_are_never_markup() {
        let text = Text::from("<b>").with(Part::Code("x_y".to_string())).with(Part::Bold("a|b".to_string()));
        let text = text.after_dot("c0").with(Part::Link("./a%20b".to_string(), "<here>".to_string()));
        assert_eq!(
            text.html(),
            "<i class=\"dot c0\"></i>&lt;b&gt;<code>x_<wbr>y</code><b>a|b</b><a href=\"./a%20b\">&lt;here&gt;</a>"
        );
        assert_eq!(text.words(), "<b>x_ya|b<here>");
        assert_eq!(text.markdown(), "\\<b\\>x\\_ya\\|b\\<here\\>");
    }

    #[test]
    fn words_between_backticks_are_code() {
        assert_eq!(Text::with_code("a line of `x` bytes").html(), "a line of <code>x</code> bytes");
    }
}

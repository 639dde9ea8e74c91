//! A report: one value, shown as a page, in Markdown or on a terminal.
//!
//! Charts, legends and folded parts are on the page alone.

use crate::pages::chart::{self, Chart, Columns, Rows};
use crate::pages::html;
use crate::pages::html::{attribute, element, escape};
use crate::pages::table::Table;
use crate::pages::text::Text;

/// A report with its sections.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The title.
    pub title: String,
    /// Content between the title and the first section.
    pub beginning: Vec<Block>,
    /// Sections from top to bottom; those without content are left out.
    pub sections: Vec<Section>,
    /// CSS that follows the style of all pages.
    pub style: &'static str,
    /// Source of the report, such as `from what was read`.
    pub source: &'static str,
}

/// A part of a report below a title.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// The title.
    pub title: String,
    /// Content from top to bottom.
    pub blocks: Vec<Block>,
}

/// Content of a section.
#[derive(Debug, Clone)]
pub enum Block {
    /// A sentence on what comes first.
    Lead(Text),
    /// A remark.
    Note(Text),
    /// A title within the section.
    Subtitle(String),
    /// Large figures, each with its label.
    Figures(Vec<(String, String)>),
    /// A table.
    Table(Table),
    /// The names of colours.
    Legend(Vec<Text>),
    /// Charts side by side, in a frame of a CSS class.
    Charts(&'static str, Vec<Figure>),
    /// A chart of names, each with its values on a strip.
    Strips(Rows),
    /// Horizontal bars, in a frame of a CSS class.
    Bars(&'static str, Vec<Bar>),
    /// Blocks side by side.
    Beside(Vec<Vec<Block>>),
    /// Blocks that are folded until a reader opens them.
    Folded {
        /// Line that opens the folded part.
        summary: Text,
        /// True if the part is open at first.
        is_open: bool,
        /// The folded part.
        blocks: Vec<Block>,
    },
    /// A list, in a frame of a CSS class.
    List(&'static str, Vec<Vec<Block>>),
    /// A paragraph of a text from outside.
    Quoted(Text),
    /// Short facts in one line, in a frame of a CSS class.
    Facts(&'static str, Vec<Text>),
    /// A text from outside as it is, with its line breaks.
    Preformatted(String),
}

/// A chart with its caption.
#[derive(Debug, Clone)]
pub struct Figure {
    /// Title of the chart; may be empty.
    pub caption: Text,
    /// The chart.
    pub drawing: Drawing,
    /// A remark below it.
    pub note: Option<Text>,
}

/// A chart.
#[derive(Debug, Clone)]
pub enum Drawing {
    /// Curves over one axis.
    Curves(Chart),
    /// Columns, such as a histogram.
    Columns(Columns),
}

/// A horizontal bar.
#[derive(Debug, Clone)]
pub struct Bar {
    /// Name before the bar.
    pub name: Text,
    /// Parts from left to right: CSS class, tooltip, and share of the whole width (0 to 1).
    pub parts: Vec<(String, String, f64)>,
    /// Text after the bar.
    pub end: Option<Text>,
}

impl Section {
    /// A section of these blocks.
    pub fn new(title: impl Into<String>, blocks: Vec<Block>) -> Self {
        Self { title: title.into(), blocks }
    }
}

impl Report {
    /// Returns the report as a page of a single file.
    pub fn html(&self) -> String {
        let title = element("h1", "", &escape(&self.title));
        let header = element("header", "", &(title + &all_html(&self.beginning)));
        let sections =
            self.sections.iter().map(|section| html::section(&section.title, &all_html(&section.blocks)));
        let main: String =
            std::iter::once(header).chain(sections).chain([html::footer(self.source)]).collect();
        html::page(&self.title, self.style, &main)
    }

    /// Returns the report in GitHub's Markdown.
    pub fn markdown(&self) -> String {
        let mut parts = vec![heading("#", &self.title)];
        for section in &self.sections {
            let content = all_markdown(&section.blocks);
            if !content.is_empty() {
                parts.extend([heading("##", &section.title), content]);
            }
        }
        // Remarks on all sections are read after them.
        parts.extend(Some(all_markdown(&self.beginning)).filter(|remarks| !remarks.is_empty()));
        parts.join("\n")
    }

    /// Returns the report for a terminal: lines without the title.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for section in &self.sections {
            let mut content = Vec::new();
            for block in &section.blocks {
                let shown = block.lines();
                // Tables are apart from each other.
                let is_table = matches!(block, Block::Table(_)) && !shown.is_empty();
                content.extend(shown);
                content.extend(is_table.then(String::new));
            }
            let has_title = !content.is_empty() && !section.title.is_empty();
            lines.extend(has_title.then(|| section.title.clone()));
            lines.extend(content);
        }
        lines.extend(self.beginning.iter().flat_map(Block::lines));
        lines
    }
}

/// A Markdown heading with these marks.
fn heading(marks: &str, title: &str) -> String {
    format!("{marks} {}\n", Text::from(title).markdown())
}

/// The blocks in Markdown; those for pages alone are left out.
fn all_markdown(blocks: &[Block]) -> String {
    blocks.iter().filter_map(Block::markdown).collect::<Vec<String>>().join("\n")
}

fn all_html(blocks: &[Block]) -> String {
    blocks.iter().map(Block::html).collect()
}

/// List items around contents that are HTML already.
fn items(contents: impl Iterator<Item = String>) -> String {
    contents.map(|content| element("li", "", &content)).collect()
}

/// An element of a CSS class around content that is HTML already.
fn classed(tag: &str, class: &str, content: &str) -> String {
    element(tag, &attribute("class", class), content)
}

impl Block {
    /// A note in words.
    pub fn note(words: impl Into<Text>) -> Self {
        Self::Note(words.into())
    }

    fn html(&self) -> String {
        match self {
            Self::Lead(text) => classed("p", "lead", &text.html()),
            Self::Note(text) => classed("p", "note", &text.html()),
            Self::Subtitle(title) => element("h3", "", &escape(title)),
            Self::Figures(figures) if figures.is_empty() => String::new(),
            Self::Figures(figures) => {
                let figures = figures.iter().map(|(figure, label)| {
                    let [label, figure] =
                        [("dt", label), ("dd", figure)].map(|(tag, words)| element(tag, "", &escape(words)));
                    element("div", "", &(label + &figure))
                });
                classed("dl", "figures", &figures.collect::<String>())
            }
            Self::Table(table) if table.rows.is_empty() => String::new(),
            Self::Table(table) => table.html(),
            Self::Legend(names) => classed("ul", "legend", &items(names.iter().map(Text::html))),
            Self::Charts(class, figures) => {
                let drawn: String = figures.iter().map(Figure::html).collect();
                if drawn.is_empty() { drawn } else { classed("div", class, &drawn) }
            }
            Self::Strips(rows) => rows.html(),
            Self::Bars(class, bars) => classed("div", class, &bars.iter().map(Bar::html).collect::<String>()),
            Self::Beside(blocks) => {
                let blocks = blocks.iter().map(|blocks| element("div", "", &all_html(blocks)));
                classed("div", "pair", &blocks.collect::<String>())
            }
            Self::Folded { summary, is_open, blocks } => {
                let open = if *is_open { " open" } else { "" };
                let (summary, content) = (summary.html(), all_html(blocks));
                format!("<details{open}>\n<summary>{summary}</summary>\n{content}</details>\n")
            }
            Self::List(_, contents) if contents.is_empty() => String::new(),
            Self::List(class, contents) => {
                classed("ol", class, &items(contents.iter().map(|blocks| all_html(blocks))))
            }
            Self::Quoted(text) => element("p", " dir=\"auto\"", &text.html()),
            Self::Facts(class, facts) => {
                let facts = facts.iter().map(|fact| element("span", " dir=\"auto\"", &fact.html()));
                classed("p", class, &facts.collect::<String>())
            }
            Self::Preformatted(text) => element("pre", " dir=\"auto\"", &escape(text.trim_end())),
        }
    }

    /// The block in Markdown; `None` if it is for pages alone.
    fn markdown(&self) -> Option<String> {
        match self {
            Self::Lead(text) | Self::Note(text) => Some(format!("{}  \n", text.markdown())),
            Self::Table(table) if !table.rows.is_empty() => Some(table.markdown()),
            _ => None,
        }
    }

    /// The lines of the block for a terminal; none if it is for pages alone.
    fn lines(&self) -> Vec<String> {
        match self {
            Self::Lead(text) | Self::Note(text) => vec![text.words()],
            Self::Table(table) if !table.rows.is_empty() => table.lines(),
            _ => Vec::new(),
        }
    }
}

impl Figure {
    fn html(&self) -> String {
        let drawn = match &self.drawing {
            Drawing::Curves(chart) => chart.svg(),
            Drawing::Columns(columns) => columns.svg(),
        };
        if drawn.is_empty() {
            return drawn;
        }
        let caption = self.caption.html();
        let caption = if caption.is_empty() { caption } else { element("figcaption", "", &caption) };
        let note = self.note.as_ref().map_or(String::new(), |note| classed("p", "note", &note.html()));
        format!("<figure>{caption}{drawn}{note}</figure>\n")
    }
}

impl Bar {
    fn html(&self) -> String {
        let end = self.end.as_ref().map_or(String::new(), |end| format!("<em>{}</em>", end.html()));
        let parts = chart::bar(&self.parts);
        format!("<div class=\"bar\"><span>{}</span>{parts}{end}</div>\n", self.name.html())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let table = Table::new(["model", "score"], vec![["ours_1", "7"].into_iter().collect()]);
        let folded = Block::Folded {
            summary: "1 <more>".into(),
            is_open: true,
            blocks: vec![Block::Preformatted("a: <b>\n".to_string())],
        };
        Report {
            title: "Comparison".to_string(),
            beginning: vec![Block::note("means over seeds.")],
            sections: vec![
                Section::new(
                    "topics",
                    vec![Block::Lead("ours is better.".into()), Block::Table(table), folded],
                ),
                Section::new(
                    "nothing",
                    vec![Block::Table(Table::default()), Block::Charts("charts", Vec::new())],
                ),
            ],
            source: "from predictions",
            ..Report::default()
        }
    }

    #[test]
    fn a_report_has_three_forms() {
        let html = report().html();
        assert!(html.contains("<h2>topics</h2>") && !html.contains("nothing"), "{html}");
        assert!(html.contains(
            "<details open>\n<summary>1 &lt;more&gt;</summary>\n<pre dir=\"auto\">a: &lt;b&gt;</pre>"
        ));
        insta::assert_snapshot!(report().lines().join("\n"), @"
        topics
        ours is better.
        model   score
        ours_1      7

        means over seeds.
        ");
        insta::assert_snapshot!(report().markdown(), @r"
        # Comparison

        ## topics

        ours is better.  

        | model | score |
        | --- | ---: |
        | ours\_1 | 7 |

        means over seeds.
        ");
    }
}

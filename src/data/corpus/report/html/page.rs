//! The page as a whole: its header, its sections in order, and the examples.

use std::fmt::Write;

use crate::corpus::report::explanations::explanation;
use crate::corpus::report::html::{charts, color, tables, words};
use crate::corpus::report::sections::share;
use crate::corpus::report::{Report, Sample};
use base::pages::html;
use base::pages::html::escape;
use base::quantity::{format_bytes, format_count, format_grouped};

const STYLE: &str = include_str!("style.css");

pub(in crate::corpus::report) fn page(report: &Report) -> String {
    let sections = [
        ("Where the documents went", [charts::fate(report), tables::sources(report)].concat()),
        ("Lengths", charts::lengths(report)),
        ("Languages", charts::languages(report)),
        ("Cleaning", tables::changes(report)),
        ("Split and shards", tables::shards(report)),
        ("Tokenizer", tables::tokenizer(report)),
        ("Examples of what was dropped", samples(report)),
    ];
    let sections = sections.map(|(title, content)| html::section(title, &content));
    let footer = html::footer("from what was read");
    html::page("Corpus report", STYLE, &format!("{}{}{footer}", header(report), sections.concat()))
}

/// Returns the header with up to four key figures.
fn header(report: &Report) -> String {
    let dropped = report.read.documents.saturating_sub(report.kept.documents);
    let percent = 100.0 * share(report.kept.documents, report.read.documents);
    let mut figures = vec![
        (
            format_count(report.kept.documents),
            format!("documents kept, {percent:.1} % of {}", format_grouped(report.read.documents)),
        ),
        (format_count(dropped), format!("dropped for {} reasons", report.dropped.len())),
        (format_bytes(report.kept.bytes), format!("of text, from {} read", format_bytes(report.read.bytes))),
    ];
    if let Some(shards) = &report.shards {
        figures.push((
            format_count(shards.tokens),
            format!("tokens, {} on disk", format_bytes(shards.disk_bytes)),
        ));
    }
    let names: Vec<String> = report.sources.iter().map(|source| escape(&source.name)).collect();
    let mut html = format!(
        "<header>\n<h1>Corpus report</h1>\n<p class=\"lead\">{}</p>\n<dl class=\"figures\">\n",
        names.join(", ")
    );
    for (figure, label) in figures {
        let _ = writeln!(html, "<div><dt>{label}</dt><dd>{figure}</dd></div>");
    }
    html.push_str("</dl>\n</header>\n");
    html
}

fn samples(report: &Report) -> String {
    let mut html = String::new();
    for (index, (reason, amount)) in report.reasons().into_iter().enumerate() {
        let Some(samples) = report.samples.0.get(reason) else { continue };
        let name = words(reason);
        let color = color(index);
        let counts = format!("{} of {}", samples.len(), format_grouped(amount.documents));
        let _ = writeln!(
            html,
            "<details>\n<summary><i class=\"dot {color}\"></i><b>{name}</b><span class=\"muted\">{counts}</span></summary>"
        );
        if let Some(sentence) = explanation(reason) {
            let _ = writeln!(html, "<p class=\"note\">{}</p>", with_code(sentence));
        }
        html.push_str("<ol>\n");
        for one in samples {
            html.push_str(&sample(one));
        }
        html.push_str("</ol>\n</details>\n");
    }
    html
}

/// Escapes a sentence; text between backticks is code.
fn with_code(sentence: &str) -> String {
    let mut html = String::new();
    for (index, part) in sentence.split('`').enumerate() {
        let (open, close) = if index % 2 == 1 { ("<code>", "</code>") } else { ("", "") };
        let _ = write!(html, "{open}{}{close}", escape(part));
    }
    html
}

fn sample(sample: &Sample) -> String {
    let detail = if sample.detail.is_empty() {
        String::new()
    } else {
        format!("<span dir=\"auto\">{}</span>", escape(&sample.detail))
    };
    let place = format!("<code>{}:{}</code>", escape(&sample.file), sample.line);
    format!("<li><p>{place}{detail}</p><pre dir=\"auto\">{}</pre></li>\n", escape(sample.excerpt.trim_end()))
}

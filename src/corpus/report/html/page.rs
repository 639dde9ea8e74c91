//! The page from top to bottom.

use std::fmt::Write;

use crate::corpus::report::Report;
use crate::corpus::report::Sample;
use crate::corpus::report::explanations::explanation;
use crate::corpus::report::html::charts;
use crate::corpus::report::html::color;
use crate::corpus::report::html::escape;
use crate::corpus::report::html::tables;
use crate::corpus::report::html::words;
use crate::corpus::report::sections::share;
use crate::quantity::format_bytes;
use crate::quantity::format_count;
use crate::quantity::format_grouped;

const STYLE: &str = include_str!("style.css");

/// Loads nothing, runs nothing, whatever the text of the corpus says.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

pub(in crate::corpus::report) fn page(report: &Report) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
        <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
        <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
        <meta name=\"color-scheme\" content=\"light dark\">\n\
        <title>Corpus report</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    page.push_str(&header(report));
    section(&mut page, "Where the documents went", &[charts::fate(report), tables::sources(report)].concat());
    section(&mut page, "Lengths", &charts::lengths(report));
    section(&mut page, "Languages", &charts::languages(report));
    section(&mut page, "Cleaning", &tables::changes(report));
    section(&mut page, "Split and shards", &tables::shards(report));
    section(&mut page, "Tokenizer", &tables::tokenizer(report));
    section(&mut page, "Examples of what was dropped", &samples(report));
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn section(page: &mut String, title: &str, content: &str) {
    if !content.is_empty() {
        let _ = write!(page, "<section>\n<h2>{title}</h2>\n{content}</section>\n");
    }
}

/// The four figures that people look for first.
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
        let (name, color) = (words(reason), color(index));
        let counts = format!("{} of {}", samples.len(), format_grouped(amount.documents));
        let _ = writeln!(
            html,
            "<details>\n<summary><i class=\"dot {color}\"></i><b>{name}</b><span class=\"muted\">{counts}</span></summary>"
        );
        if let Some(sentence) = explanation(reason) {
            let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(sentence));
        }
        html.push_str("<ol>\n");
        for one in samples {
            html.push_str(&sample(one));
        }
        html.push_str("</ol>\n</details>\n");
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

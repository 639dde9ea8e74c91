//! The page as a whole: its beginning, its sections in order, and the examples.

use crate::corpus::report::explanations::explanation;
use crate::corpus::report::html::{charts, color, tables, words};
use crate::corpus::report::sections::share;
use crate::corpus::report::{Report, Sample};
use base::pages::report;
use base::pages::report::{Block, Section};
use base::pages::text::{Part, Text};
use base::quantity::{format_bytes, format_count, format_grouped};

const STYLE: &str = include_str!("style.css");

pub(in crate::corpus::report) fn page(report: &Report) -> String {
    let sections = [
        ("Where the documents went", vec![charts::fate(report), Block::Table(tables::sources(report))]),
        ("Lengths", charts::lengths(report)),
        ("Languages", charts::languages(report).into_iter().collect()),
        ("Cleaning", vec![Block::Table(tables::changes(report))]),
        ("Split and shards", vec![tables::shards(report)]),
        ("Tokenizer", vec![Block::Table(tables::tokenizer(report))]),
        ("Examples of what was dropped", samples(report)),
    ];
    report::Report {
        title: "Corpus report".to_string(),
        beginning: beginning(report),
        sections: sections.map(|(title, blocks)| Section::new(title, blocks)).to_vec(),
        style: STYLE,
        source: "from what was read",
    }
    .html()
}

/// Returns the names of the sources and up to four key figures.
fn beginning(report: &Report) -> Vec<Block> {
    let dropped = report.read.documents.saturating_sub(report.kept.documents);
    let percent = 100.0 * share(report.kept.documents, report.read.documents);
    let mut figures = vec![
        (
            format_count(report.kept.documents),
            format!("documents kept, {percent:.1} % of {}", format_grouped(report.read.documents)),
        ),
        (format_count(dropped), reason_count(report)),
        (format_bytes(report.kept.bytes), format!("of text, from {} read", format_bytes(report.read.bytes))),
    ];
    if let Some(shards) = &report.shards {
        figures.push((
            format_count(shards.tokens),
            format!("tokens, {} on disk", format_bytes(shards.disk_bytes)),
        ));
    }
    let names: Vec<&str> = report.sources.iter().map(|source| source.name.as_str()).collect();
    vec![Block::Lead(names.join(", ").into()), Block::Figures(figures)]
}

/// The number of reasons, in words.
fn reason_count(report: &Report) -> String {
    match report.dropped.len() {
        1 => "dropped for 1 reason".to_string(),
        count => format!("dropped for {count} reasons"),
    }
}

/// Returns a folded list of examples for each reason.
fn samples(report: &Report) -> Vec<Block> {
    let reasons = report.reasons().into_iter().enumerate();
    let lists = reasons.filter_map(|(index, (reason, amount))| {
        let samples = report.samples.0.get(reason)?;
        let counts = format!("{} of {}", samples.len(), format_grouped(amount.documents));
        let name = Text(vec![Part::Bold(words(reason)), Part::Muted(counts)]);
        let explained = explanation(reason).map(|sentence| Block::Note(Text::with_code(sentence)));
        let list = Block::List("", samples.iter().map(sample).collect());
        Some(Block::Folded {
            summary: name.after_dot(&color(index)),
            is_open: false,
            blocks: explained.into_iter().chain([list]).collect(),
        })
    });
    lists.collect()
}

fn sample(sample: &Sample) -> Vec<Block> {
    let place = Text(vec![Part::Code(format!("{}:{}", sample.file, sample.line))]);
    let detail = (!sample.detail.is_empty()).then(|| Text::from(sample.detail.as_str()));
    let facts = std::iter::once(place).chain(detail).collect();
    vec![Block::Facts("", facts), Block::Preformatted(sample.excerpt.clone())]
}

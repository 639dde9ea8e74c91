//! The sections of the page from top to bottom, and the ones that have no module of their own.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::corpus::report::{Amount, REPORT_HTML, Report};
use crate::fs;
use crate::pages::html;
use crate::pages::html::escape;
use crate::quantity::{format_age, format_bytes, format_count, format_grouped};
use crate::report::facts::MainScore;
use crate::report::run::Run;
use crate::report::state::State;
use crate::report::table::dot;
use crate::report::units::{Unit, compact_count, duration, score_title};
use crate::report::{curves, facts, parts, table, wrong};

const STYLE: &str = include_str!("style.css");

/// Most runs whose state and configuration are shown.
const MOST_CONFIGURATIONS: usize = 10;

/// Returns the HTML page about `runs`, at least one. `folder` is the folder of the page, if it is written to
/// a file: links are relative to it.
pub fn page(runs: &[Run], folder: Option<&Path>) -> String {
    let time = [parts::bars(runs), table::facts(runs, &facts::time(runs))].concat();
    let sections = [
        ("Results", [table::facts(runs, &facts::results(runs)), means(runs)].concat()),
        ("What differs", differences(runs)),
        ("Curves", curves::section(runs)),
        ("What went wrong", wrong::section(runs)),
        ("Corpus", corpora(runs, folder)),
        ("Time and memory", time),
        ("Machine", table::facts(runs, &facts::machine(runs))),
        ("Configuration", configurations(runs)),
        ("What could not be read", gaps(runs)),
    ];
    let sections = sections.map(|(title, content)| html::section(title, &content));
    let title = title(runs);
    html::page(&title, STYLE, &format!("{}{}{}", header(runs, &title), sections.concat(), footer()))
}

fn title(runs: &[Run]) -> String {
    match runs {
        [run] => run.name.clone(),
        several => format!("{} runs", several.len()),
    }
}

/// Returns the header with the names and states of the runs; for a single run also with its main figures.
fn header(runs: &[Run], title: &str) -> String {
    let mut html = format!("<header>\n<h1>{}</h1>\n", escape(title));
    for (index, run) in runs.iter().enumerate().take(MOST_CONFIGURATIONS) {
        let name = if runs.len() > 1 {
            format!("{}<b>{}</b> ", dot(index), escape(&run.name))
        } else {
            String::new()
        };
        let class = if run.state == State::Complete { "done" } else { "open" };
        let task =
            run.key("task").map_or(String::new(), |task| format!("{}, ", escape(&task.replace('_', " "))));
        let age = run.age_seconds.filter(|_| run.state != State::Complete);
        let age = age.map_or(String::new(), |age| format!(" (last record {} ago)", format_age(age)));
        let _ = writeln!(
            html,
            "<p class=\"lead\">{name}{task}<span class=\"state {class}\">{}</span>{age}</p>",
            escape(&facts::state(run))
        );
    }
    if runs.len() > MOST_CONFIGURATIONS {
        let _ = writeln!(html, "<p class=\"lead\">and {} more</p>", runs.len() - MOST_CONFIGURATIONS);
    }
    if let [run] = runs {
        html.push_str(&figures(run));
    }
    html + "</header>\n"
}

/// The main figures of a run: score, time, speed and cost.
fn figures(run: &Run) -> String {
    let mut figures = Vec::new();
    if let Some(MainScore { name, value, baseline }) = facts::main_score(run) {
        let baseline = baseline.map(|baseline| format!(", baseline {}", Unit::Nats.text(baseline)));
        let label = format!("{}{}", score_title(name), baseline.unwrap_or_default());
        figures.push((Unit::from_name(name).text(value), label));
    }
    if let Some(perplexity) = run.score("perplexity") {
        figures.push((Unit::Perplexity.text(perplexity), "perplexity".to_string()));
    }
    figures.extend(facts::training_seconds(run).map(|seconds| (duration(seconds), "training".to_string())));
    figures.extend(facts::throughput(run).map(|speed| (compact_count(speed), "tokens a second".to_string())));
    figures.extend(facts::cost(run).map(|usd| (Unit::Dollars.text(usd), "cost".to_string())));
    let mut html = "<dl class=\"figures\">\n".to_string();
    for (figure, label) in figures {
        let _ = writeln!(html, "<div><dt>{}</dt><dd>{}</dd></div>", escape(&label), escape(&figure));
    }
    html + "</dl>\n"
}

fn means(runs: &[Run]) -> String {
    let rows: Vec<Vec<String>> =
        facts::means(runs).into_iter().map(|(title, text)| vec![title, text]).collect();
    if rows.is_empty() {
        String::new()
    } else {
        table::plain(&["over the seeds", "mean ± deviation"], &rows)
    }
}

fn differences(runs: &[Run]) -> String {
    if runs.len() < 2 {
        return String::new();
    }
    let table = table::facts(runs, &facts::differences(runs));
    let nothing = "<p class=\"note\">The configurations are the same.</p>\n";
    if table.is_empty() && runs.iter().all(|run| !run.keys.is_empty()) { nothing.to_string() } else { table }
}

/// A summary of each prepared corpus. Runs with the same corpus share one.
fn corpora(runs: &[Run], page: Option<&Path>) -> String {
    let mut listed: Vec<PathBuf> = Vec::new();
    let mut html = String::new();
    for (folder, report) in runs.iter().filter_map(|run| run.corpus.as_ref()) {
        let folder = fs::canonical(folder);
        if !listed.contains(&folder) {
            html.push_str(&corpus(&folder, report, page));
            listed.push(folder);
        }
    }
    html
}

/// A summary of the corpus in `folder`, with a link to its whole report.
fn corpus(folder: &Path, report: &Report, page: Option<&Path>) -> String {
    let mut rows: Vec<Vec<String>> =
        report.sources.iter().map(|source| corpus_row(&source.name, source.read, source.kept)).collect();
    if rows.len() > 1 {
        rows.push(corpus_row("all", report.read, report.kept));
    }
    let mut html = table::plain(&["source", "documents read", "left out", "kept", "text"], &rows);
    let mut dropped: Vec<_> = report.dropped.iter().collect();
    dropped.sort_by_key(|(_, amount)| std::cmp::Reverse(amount.documents));
    let mut notes: Vec<String> = Vec::new();
    if !dropped.is_empty() {
        notes.push(format!(
            "Left out because of: {}.",
            dropped
                .iter()
                .map(|(name, amount)| {
                    format!("{} {}", name.replace('_', " "), format_grouped(amount.documents))
                })
                .collect::<Vec<_>>()
                .join(", ")
        ));
    }
    if let Some(shards) = &report.shards {
        notes.push(format!("{} tokens for training and evaluation.", format_count(shards.tokens)));
    }
    let full = folder.join(REPORT_HTML);
    let link = page.and_then(|page| full.strip_prefix(fs::canonical(page)).ok().map(Path::to_path_buf));
    let link = match link.filter(|_| fs::exists(&full)) {
        Some(link) => format!(" <a href=\"{}\">The whole report</a>.", address(&link)),
        None => format!(" The whole report is <code>{}</code>.", escape(&full.display().to_string())),
    };
    let _ = writeln!(html, "<p class=\"note\">{}{link}</p>", escape(&notes.join(" ")));
    html
}

/// The cells of a source of the corpus.
fn corpus_row(name: &str, read: Amount, kept: Amount) -> Vec<String> {
    let counts = [read.documents, read.documents.saturating_sub(kept.documents), kept.documents];
    let [read, dropped, kept_documents] = counts.map(format_grouped);
    vec![name.to_string(), read, dropped, kept_documents, format_bytes(kept.bytes)]
}

/// Returns a relative path as a URL: all bytes except letters, digits and a few marks are percent-encoded.
fn address(path: &Path) -> String {
    let mut address = String::new();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                address.push(char::from(*byte));
            }
            other => {
                let _ = write!(address, "%{other:02X}");
            }
        }
    }
    // Without `./`, a colon in the first part would make the part before it a scheme.
    format!("./{address}")
}

fn configurations(runs: &[Run]) -> String {
    let mut html = String::new();
    for (index, run) in
        runs.iter().enumerate().filter(|(_, run)| !run.yaml.is_empty()).take(MOST_CONFIGURATIONS)
    {
        let name = if runs.len() > 1 {
            format!("{}<b>{}</b>", dot(index), escape(&run.name))
        } else {
            "<b>config.yaml</b>".to_string()
        };
        let place = escape(&run.path.display().to_string());
        let _ = writeln!(
            html,
            "<details>\n<summary>{name}<span class=\"muted\">{place}</span></summary>\n<pre>{}</pre>\n</details>",
            escape(run.yaml.trim_end())
        );
    }
    html
}

fn gaps(runs: &[Run]) -> String {
    let gaps: Vec<&String> = runs.iter().flat_map(|run| &run.gaps).collect();
    if gaps.is_empty() {
        return String::new();
    }
    let items: Vec<String> = gaps.iter().map(|gap| format!("<li>{}</li>\n", escape(gap))).collect();
    format!("<ul class=\"gaps\">\n{}</ul>\n", items.concat())
}

fn footer() -> String {
    format!(
        "<footer class=\"note\">Made by mlmtrain {} from what the runs wrote.</footer>\n",
        env!("CARGO_PKG_VERSION")
    )
}

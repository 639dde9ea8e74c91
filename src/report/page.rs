//! The sections of the page from top to bottom, and the ones that have no module of their own.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::corpus::report::{Amount, REPORT_HTML, Report};
use crate::fs;
use crate::pages::html;
use crate::pages::html::{breakable, escape};
use crate::quantity::{format_age, format_bytes, format_count, format_grouped};
use crate::report::facts::MainScore;
use crate::report::find::is_seed;
use crate::report::run::{Run, unit_of};
use crate::report::state::State;
use crate::report::table::dot;
use crate::report::units::{Unit, compact_count, duration, score_title};
use crate::report::{curves, facts, parts, settings, table, wrong};

const STYLE: &str = include_str!("style.css");

/// Most runs whose state and configuration are shown.
const MOST_CONFIGURATIONS: usize = 10;

/// Most differences that are shown at once; the others are folded.
const MOST_DIFFERENCES: usize = 12;

/// Most means over seeds in the header.
const MOST_MEANS: usize = 4;

/// Returns the HTML page about `runs`, at least one. `name` is the name of the folder that holds several.
/// `folder` is the folder of the page, if it is written to a file: links are relative to it.
pub fn page(runs: &[Run], name: Option<&str>, folder: Option<&Path>) -> String {
    let mut gaps: Vec<String> = runs.iter().flat_map(|run| &run.gaps).cloned().collect();
    let sweep = settings::sweep_of(runs).unwrap_or_else(|e| {
        gaps.push(format!("{e:#}"));
        None
    });
    let tuning = settings::tuning(runs).unwrap_or_else(|e| {
        gaps.push(format!("{e:#}"));
        String::new()
    });
    let time = [parts::bars(runs), table::facts(runs, &facts::time(runs))].concat();
    let sections = [
        ("Settings", sweep.map_or(String::new(), |sweep| settings::section(&sweep, runs))),
        ("Tuning", tuning),
        ("Results", [means(runs), table::facts(runs, &facts::results(runs))].concat()),
        ("What differs", differences(runs)),
        ("What went wrong", wrong::section(runs)),
        ("Curves", curves::section(runs)),
        ("Corpus", corpora(runs, folder)),
        ("Time and memory", time),
        ("Machine", machines(runs)),
        ("Configuration", configurations(runs)),
        ("What could not be read", list(&gaps)),
    ];
    let sections = sections.map(|(title, content)| html::section(title, &content));
    let title = title(runs, name);
    let footer = html::footer("from what the runs wrote");
    html::page(&title, STYLE, &format!("{}{}{footer}", header(runs, &title), sections.concat()))
}

fn title(runs: &[Run], name: Option<&str>) -> String {
    match (runs, name) {
        ([run], _) => run.name.clone(),
        (several, Some(name)) => format!("{name}: {} runs", several.len()),
        (several, None) => format!("{} runs", several.len()),
    }
}

/// Returns the header with the names and states of the runs, and with the main figures of a single run or of
/// several that differ only in their seeds.
fn header(runs: &[Run], title: &str) -> String {
    let mut html = format!("<header>\n<h1>{}</h1>\n", escape(title));
    for (index, run) in runs.iter().enumerate().take(MOST_CONFIGURATIONS) {
        let name = if runs.len() > 1 {
            format!("{}<b>{}</b> ", dot(index), breakable(&run.name))
        } else {
            String::new()
        };
        let class = match run.state {
            State::Complete => "done",
            State::Running => "running",
            State::Diverged | State::Stopped => "open",
        };
        let task =
            run.key("task").map_or(String::new(), |task| format!("{}, ", escape(&task.replace('_', " "))));
        let age = run.age_seconds.filter(|_| run.state != State::Complete && run.step.is_some());
        let age = age.map_or(String::new(), |age| format!(" (last record {} ago)", format_age(age)));
        let _ = writeln!(
            html,
            "<p class=\"lead\">{name}{task}<span class=\"state {class}\">{}</span>{age}{}</p>",
            escape(&facts::state(run)),
            next_step(run)
        );
    }
    if runs.len() > MOST_CONFIGURATIONS {
        let _ = writeln!(html, "<p class=\"lead\">and {} more</p>", runs.len() - MOST_CONFIGURATIONS);
    }
    if let [run] = runs {
        html.push_str(&list_figures(&figures(run)));
    } else {
        html.push_str(&list_figures(&mean_figures(runs)));
    }
    html + "</header>\n"
}

/// The command that helps with a diverged run.
fn next_step(run: &Run) -> String {
    match run.diverged.as_ref().filter(|_| run.state == State::Diverged) {
        Some(folder) => format!(
            "; <code>mlmtrain replay {}</code> repeats the step that diverged",
            breakable(&folder.display().to_string())
        ),
        None => String::new(),
    }
}

/// The main figures of a run: score, time, speed and cost.
fn figures(run: &Run) -> Vec<(String, String)> {
    let mut figures = Vec::new();
    if let Some(MainScore { name, value, baseline }) = facts::main_score(run) {
        let baseline = baseline.map(|baseline| format!(", baseline {}", Unit::Nats.text(baseline)));
        let label = format!("{}{}", score_title(name), baseline.unwrap_or_default());
        figures.push((unit_of(std::slice::from_ref(run), name).text(value), label));
    }
    if let Some(perplexity) = run.score("perplexity") {
        figures.push((Unit::Perplexity.text(perplexity), "perplexity".to_string()));
    }
    figures.extend(facts::training_seconds(run).map(|seconds| (duration(seconds), "training".to_string())));
    figures.extend(facts::throughput(run).map(|speed| (compact_count(speed), "tokens a second".to_string())));
    figures.extend(facts::cost(run).map(|usd| (Unit::Dollars.text(usd), "cost".to_string())));
    figures
}

/// The first means over seeds, the main score before all others.
fn mean_figures(runs: &[Run]) -> Vec<(String, String)> {
    let main = runs.first().and_then(facts::main_score).map(|score| score.name);
    let mut means = facts::means(runs);
    means.sort_by_key(|mean| Some(mean.name.as_str()) != main);
    let figures = means.into_iter().take(MOST_MEANS).map(|mean| {
        let label = format!("{} ± {}, {} seeds", mean.title, mean.deviation, runs.len());
        (mean.value, label)
    });
    figures.collect()
}

/// The list of the main figures and their labels.
fn list_figures(figures: &[(String, String)]) -> String {
    if figures.is_empty() {
        return String::new();
    }
    let mut html = "<dl class=\"figures\">\n".to_string();
    for (figure, label) in figures {
        let _ = writeln!(html, "<div><dt>{}</dt><dd>{}</dd></div>", escape(label), escape(figure));
    }
    html + "</dl>\n"
}

fn means(runs: &[Run]) -> String {
    let rows: Vec<Vec<String>> = facts::means(runs)
        .into_iter()
        .map(|mean| vec![mean.title, format!("{} ± {}", mean.value, mean.deviation)])
        .collect();
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
    let differences = facts::differences(runs);
    if differences.is_empty() && runs.iter().all(|run| !run.keys.is_empty()) {
        let text = if runs.iter().all(|run| is_seed(&run.path)) {
            "Only the seed differs."
        } else {
            "The configurations are the same."
        };
        return format!("<p class=\"note\">{text}</p>\n");
    }
    if differences.len() <= MOST_DIFFERENCES + 2 {
        return table::facts(runs, &differences);
    }
    let (first, others) = differences.split_at(MOST_DIFFERENCES);
    let others = table::hidden(others.len(), &table::facts(runs, others));
    [table::facts(runs, first), others].concat()
}

/// The machines of the runs, in one column if they are all the same.
fn machines(runs: &[Run]) -> String {
    let facts = facts::machine(runs);
    let are_same = facts.iter().all(|fact| fact.cells.windows(2).all(|pair| pair[0] == pair[1]));
    let shown = if are_same { &runs[..1] } else { runs };
    table::facts(shown, &facts::machine(shown))
}

/// A summary of each prepared corpus. Runs with the same corpus share one.
fn corpora(runs: &[Run], page: Option<&Path>) -> String {
    let mut listed: Vec<(PathBuf, &Report, Vec<&str>)> = Vec::new();
    for run in runs {
        let Some((folder, report)) = &run.corpus else { continue };
        let folder = fs::canonical(folder);
        match listed.iter_mut().find(|(known, ..)| *known == folder) {
            Some((.., names)) => names.push(&run.name),
            None => listed.push((folder, report, vec![&run.name])),
        }
    }
    let mut html = String::new();
    for (folder, report, names) in &listed {
        if listed.len() > 1 {
            let _ = writeln!(html, "<h3>{}</h3>", escape(&names.join(", ")));
        }
        html.push_str(&corpus(folder, report, page));
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
            format!("{}<b>{}</b>", dot(index), breakable(&run.name))
        } else {
            "<b>config.yaml</b>".to_string()
        };
        let place = breakable(&run.path.display().to_string());
        let _ = writeln!(
            html,
            "<details>\n<summary>{name}<span class=\"muted\">{place}</span></summary>\n<pre>{}</pre>\n</details>",
            escape(run.yaml.trim_end())
        );
    }
    html
}

fn list(gaps: &[String]) -> String {
    if gaps.is_empty() {
        return String::new();
    }
    let items: Vec<String> = gaps.iter().map(|gap| format!("<li>{}</li>\n", escape(gap))).collect();
    format!("<ul class=\"gaps\">\n{}</ul>\n", items.concat())
}

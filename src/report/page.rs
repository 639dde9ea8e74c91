//! The sections of the page from top to bottom, and the ones that have no module of their own.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::corpus;
use crate::corpus::report::{Amount, REPORT_HTML};
use crate::fs;
use crate::pages::report::{Block, Report, Section};
use crate::pages::table::{Row, Table};
use crate::pages::text::{Part, Text};
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
        Vec::new()
    });
    let mut time = parts::bars(runs);
    time.push(table::facts(runs, &facts::time(runs)));
    let mut results = vec![means(runs), table::facts(runs, &facts::results(runs))];
    results.extend(facts::why_unranked(runs).map(Block::note));
    let gaps = gaps.iter().map(|gap| vec![Block::Quoted(gap.as_str().into())]);
    let sections = [
        ("Settings", sweep.map_or(Vec::new(), |sweep| settings::section(&sweep, runs))),
        ("Tuning", tuning),
        ("Results", results),
        ("What differs", differences(runs)),
        ("What went wrong", wrong::section(runs)),
        ("Curves", curves::section(runs)),
        ("Corpus", corpora(runs, folder)),
        ("Time and memory", time),
        ("Machine", vec![machines(runs)]),
        ("Configuration", configurations(runs)),
        ("What could not be read", vec![Block::List("gaps", gaps.collect())]),
    ];
    Report {
        title: title(runs, name),
        beginning: beginning(runs),
        sections: sections.map(|(title, blocks)| Section::new(title, blocks)).to_vec(),
        style: STYLE,
        source: "from what the runs wrote",
    }
    .html()
}

fn title(runs: &[Run], name: Option<&str>) -> String {
    match (runs, name) {
        ([run], _) => run.name.clone(),
        (several, Some(name)) => format!("{name}: {} runs", several.len()),
        (several, None) => format!("{} runs", several.len()),
    }
}

/// Returns the names and states of the runs, and the main figures of a single run or of several that differ
/// only in their seeds.
fn beginning(runs: &[Run]) -> Vec<Block> {
    let shown = runs.iter().enumerate().take(MOST_CONFIGURATIONS);
    let mut blocks: Vec<Block> =
        shown.map(|(index, run)| Block::Lead(state(run, (runs.len() > 1).then_some(index)))).collect();
    if runs.len() > MOST_CONFIGURATIONS {
        blocks.push(Block::Lead(format!("and {} more", runs.len() - MOST_CONFIGURATIONS).into()));
    }
    blocks.push(Block::Figures(if let [run] = runs { figures(run) } else { mean_figures(runs) }));
    blocks
}

/// The task and the state of a run, after its name if it is run `index` of several.
fn state(run: &Run, index: Option<usize>) -> Text {
    let mut text = Text::default();
    if let Some(index) = index {
        let name = [Part::Dot(dot(index)), Part::Bold(run.name.clone()), Part::Plain(" ".to_string())];
        text.0.extend(name);
    }
    let class = match run.state {
        State::Complete => "state done",
        State::Running => "state running",
        State::Diverged | State::DroppedOut | State::Stopped => "state open",
    };
    text.0.extend(run.key("task").map(|task| Part::Plain(format!("{}, ", task.replace('_', " ")))));
    text.0.push(Part::Classed(class, facts::state(run)));
    let age = run.age_seconds.filter(|_| run.state != State::Complete && run.step.is_some());
    text.0.extend(age.map(|age| Part::Plain(format!(" (last record {} ago)", format_age(age)))));
    // The command that helps with a diverged run.
    if let Some(folder) = run.diverged.as_ref().filter(|_| run.state == State::Diverged) {
        let command = Part::Code(format!("mlmtrain replay {}", folder.display()));
        let why = Part::Plain(" repeats the step that diverged".to_string());
        text.0.extend([Part::Plain("; ".to_string()), command, why]);
    }
    text
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

fn means(runs: &[Run]) -> Block {
    let rows = facts::means(runs)
        .into_iter()
        .map(|mean| [mean.title, format!("{} ± {}", mean.value, mean.deviation)].into_iter().collect());
    Block::Table(Table::new(["over the seeds", "mean ± deviation"], rows.collect()))
}

fn differences(runs: &[Run]) -> Vec<Block> {
    if runs.len() < 2 {
        return Vec::new();
    }
    let differences = facts::differences(runs);
    if differences.is_empty() && runs.iter().all(|run| !run.keys.is_empty()) {
        let text = if runs.iter().all(|run| is_seed(&run.path)) {
            "Only the seed differs."
        } else {
            "The configurations are the same."
        };
        return vec![Block::note(text)];
    }
    if differences.len() <= MOST_DIFFERENCES + 2 {
        return vec![table::facts(runs, &differences)];
    }
    let (first, others) = differences.split_at(MOST_DIFFERENCES);
    vec![table::facts(runs, first), table::hidden(others.len(), table::facts(runs, others))]
}

/// The machines of the runs, in one column if they are all the same.
fn machines(runs: &[Run]) -> Block {
    let facts = facts::machine(runs);
    let are_same = facts.iter().all(|fact| fact.cells.windows(2).all(|pair| pair[0] == pair[1]));
    let shown = if are_same { &runs[..1] } else { runs };
    table::facts(shown, &facts::machine(shown))
}

/// A summary of each prepared corpus. Runs with the same corpus share one.
fn corpora(runs: &[Run], page: Option<&Path>) -> Vec<Block> {
    let mut listed: Vec<(PathBuf, &corpus::report::Report, Vec<&str>)> = Vec::new();
    for run in runs {
        let Some((folder, report)) = &run.corpus else { continue };
        let folder = fs::canonical(folder);
        match listed.iter_mut().find(|(known, ..)| *known == folder) {
            Some((.., names)) => names.push(&run.name),
            None => listed.push((folder, report, vec![&run.name])),
        }
    }
    let mut blocks = Vec::new();
    for (folder, report, names) in &listed {
        if listed.len() > 1 {
            blocks.push(Block::Subtitle(names.join(", ")));
        }
        blocks.extend(corpus(folder, report, page));
    }
    blocks
}

/// A summary of the corpus in `folder`, with a link to its whole report.
fn corpus(folder: &Path, report: &corpus::report::Report, page: Option<&Path>) -> [Block; 2] {
    let mut rows: Vec<Row> =
        report.sources.iter().map(|source| corpus_row(&source.name, source.read, source.kept)).collect();
    if rows.len() > 1 {
        rows.push(corpus_row("all", report.read, report.kept));
    }
    let mut dropped: Vec<_> = report.dropped.iter().collect();
    dropped.sort_by_key(|(_, amount)| std::cmp::Reverse(amount.documents));
    let mut note = Text::default();
    if !dropped.is_empty() {
        let reasons = dropped
            .iter()
            .map(|(name, amount)| format!("{} {}", name.replace('_', " "), format_grouped(amount.documents)));
        let reasons = reasons.collect::<Vec<_>>().join(", ");
        note = note.with(Part::Plain(format!("Left out because of: {reasons}. ")));
    }
    if let Some(shards) = &report.shards {
        let tokens = format_count(shards.tokens);
        note = note.with(Part::Plain(format!("{tokens} tokens for training and evaluation. ")));
    }
    let full = folder.join(REPORT_HTML);
    let link = page.and_then(|page| full.strip_prefix(fs::canonical(page)).ok().map(Path::to_path_buf));
    let note = if let Some(link) = link.filter(|_| fs::exists(&full)) {
        note.with(Part::Link(address(&link), "The whole report".to_string())).with(".".into())
    } else {
        let place = Part::Code(full.display().to_string());
        note.with("The whole report is ".into()).with(place).with(".".into())
    };
    let table = Table::new(["source", "documents read", "left out", "kept", "text"], rows);
    [Block::Table(table), Block::Note(note)]
}

/// The row of a source of the corpus.
fn corpus_row(name: &str, read: Amount, kept: Amount) -> Row {
    let counts = [read.documents, read.documents.saturating_sub(kept.documents), kept.documents];
    let [read, dropped, kept_documents] = counts.map(format_grouped);
    [name.to_string(), read, dropped, kept_documents, format_bytes(kept.bytes)].into_iter().collect()
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

fn configurations(runs: &[Run]) -> Vec<Block> {
    let shown = runs.iter().enumerate().filter(|(_, run)| !run.yaml.is_empty()).take(MOST_CONFIGURATIONS);
    let configurations = shown.map(|(index, run)| {
        let summary = if runs.len() > 1 {
            Text(vec![Part::Dot(dot(index)), Part::Bold(run.name.clone())])
        } else {
            Text(vec![Part::Bold("config.yaml".to_string())])
        };
        Block::Folded {
            summary: summary.with(Part::Muted(run.path.display().to_string())),
            is_open: false,
            blocks: vec![Block::Preformatted(run.yaml.clone())],
        }
    });
    configurations.collect()
}

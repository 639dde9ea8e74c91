//! The mistakes of runs on their evaluation examples: confusion matrix, scores by label, and the worst
//! mistakes.

use std::cmp::Reverse;
use std::fmt::Write;

use crate::pages::chart::{Chart, Curve, Mark};
use crate::pages::columns::shortened;
use crate::pages::html::{breakable, escape};
use crate::quantity::format_grouped;
use crate::report::predictions::{Counts, Predictions};
use crate::report::rows::{Target, Wrong};
use crate::report::run::Run;
use crate::report::table;
use crate::report::table::dot;
use crate::report::units::significant;
use crate::scores::{ClassScore, Confusion};

/// Most runs whose mistakes are shown: more would bury the rest of the page.
const MOST_RUNS: usize = 10;

/// Most labels of a confusion matrix; with more labels only the most frequent confusions are listed.
const MATRIX_LABELS: usize = 16;

/// Most labels of a confusion matrix whose columns have names.
const NAMED_COLUMNS: usize = 5;

/// Most confusions that are listed.
const MOST_CONFUSIONS: usize = 20;

/// Most labels whose scores are listed.
const MOST_LABELS: usize = 100;

/// Characters of a label in a table.
const LABEL_CHARS: usize = 40;

/// Returns a part for each run that has predictions, or an empty text if none has.
pub(super) fn section(runs: &[Run]) -> String {
    let predicted =
        runs.iter().enumerate().filter_map(|(index, run)| Some((index, run, run.predictions.as_ref()?)));
    let predicted: Vec<(usize, &Run, &Predictions)> = predicted.collect();
    let mut html = String::new();
    for (at, (index, run, predictions)) in predicted.iter().take(MOST_RUNS).enumerate() {
        let content = run_content(predictions);
        if runs.len() == 1 {
            let _ = write!(html, "<p class=\"lead\">{}.</p>\n{content}", mistakes(predictions));
            continue;
        }
        let open = if at == 0 { " open" } else { "" };
        let name = format!("{}<b>{}</b>", dot(*index), breakable(&run.name));
        let _ = writeln!(
            html,
            "<details{open}>\n<summary>{name}<span class=\"muted\">{}</span></summary>\n{content}</details>",
            mistakes(predictions)
        );
    }
    if predicted.len() > MOST_RUNS {
        let all = predicted.len();
        let _ = writeln!(html, "<p class=\"note\">Shown: the first {MOST_RUNS} of {all} runs.</p>");
    }
    html
}

/// The number of mistakes as text, such as `7 of 24 examples wrong`.
fn mistakes(predictions: &Predictions) -> String {
    let examples = format_grouped(predictions.examples);
    match predictions.mistaken {
        Some(mistaken) => format!("{} of {examples} examples wrong", format_grouped(mistaken)),
        None => format!("{examples} examples"),
    }
}

/// The tables and charts of one run.
fn run_content(predictions: &Predictions) -> String {
    let mut html = String::new();
    match &predictions.counts {
        Counts::Labels { names, confusion } => {
            html.push_str(&confusions(names, confusion));
            let scores: Vec<(String, ClassScore)> =
                names.iter().cloned().zip(confusion.per_class()).collect();
            html.push_str(&by_label(&scores));
        }
        Counts::Scored(scores) => html.push_str(&by_label(scores)),
        Counts::Numbers(targets) => html.push_str(&scatters(targets)),
    }
    html.push_str(&worst(predictions));
    if predictions.damaged > 0 {
        let damaged = format_grouped(predictions.damaged);
        let _ = writeln!(html, "<p class=\"note\">Lines without a prediction, left out: {damaged}.</p>");
    }
    html
}

/// Returns the confusion matrix, or a list of the most frequent confusions if there are many labels.
fn confusions(names: &[String], confusion: &Confusion) -> String {
    if names.len() > MATRIX_LABELS {
        let mut wrong: Vec<(usize, usize, u64)> = confusion.mistakes().collect();
        wrong.sort_by_key(|(gold, predicted, count)| (Reverse(*count), *gold, *predicted));
        let rows: Vec<Vec<String>> = wrong
            .iter()
            .take(MOST_CONFUSIONS)
            .map(|(gold, predicted, count)| {
                let [gold, predicted] = [*gold, *predicted].map(|id| shortened(&names[id], LABEL_CHARS));
                vec![gold, predicted, format_grouped(*count)]
            })
            .collect();
        let table = table::plain(&["in the data", "predicted", "examples"], &rows);
        let shown = rows.len();
        let all = format_grouped(wrong.len() as u64);
        return format!("{table}<p class=\"note\">The {shown} most frequent of {all} confusions.</p>\n");
    }
    let mut html =
        "<div class=\"scroll\"><table class=\"matrix\">\n<thead><tr><th>in the data ↓ predicted →</th>"
            .to_string();
    // Many names above the columns would make the table too wide, so the columns have numbers.
    let has_numbers = names.len() > NAMED_COLUMNS;
    for (column, name) in names.iter().enumerate() {
        let text =
            if has_numbers { (column + 1).to_string() } else { breakable(&shortened(name, LABEL_CHARS)) };
        let _ = write!(html, "<th scope=\"col\" title=\"{}\">{text}</th>", escape(name));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for (gold, name) in names.iter().enumerate() {
        let all: u64 = (0..names.len()).map(|predicted| confusion.count(gold, predicted)).sum();
        let number = if has_numbers { format!("{} ", gold + 1) } else { String::new() };
        let text = breakable(&shortened(name, LABEL_CHARS));
        let _ = write!(html, "<tr><th scope=\"row\" title=\"{}\">{number}{text}</th>", escape(name));
        for predicted in 0..names.len() {
            let count = confusion.count(gold, predicted);
            let percent = 100.0 * count as f64 / all.max(1) as f64;
            let class = if gold == predicted { "right" } else { "wrong" };
            let text = if count == 0 { "·".to_string() } else { format_grouped(count) };
            let _ = write!(html, "<td class=\"{class}\" style=\"--share:{percent:.0}%\">{text}</td>");
        }
        html.push_str("</tr>\n");
    }
    html + "</tbody>\n</table></div>\n"
}

/// Returns precision, recall, F1 and support of each label, the lowest F1 first; if there are many labels, of
/// those with the lowest F1.
fn by_label(scores: &[(String, ClassScore)]) -> String {
    let mut listed: Vec<&(String, ClassScore)> = scores.iter().collect();
    listed.sort_by(|a, b| a.1.f1.total_cmp(&b.1.f1));
    listed.truncate(MOST_LABELS);
    let rows: Vec<Vec<String>> = listed
        .iter()
        .map(|(name, score)| {
            let [precision, recall, f1] =
                [score.precision, score.recall, score.f1].map(|share| format!("{:.1} %", 100.0 * share));
            vec![shortened(name, LABEL_CHARS), precision, recall, f1, format_grouped(score.support)]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let table = table::folded(&["label", "precision", "recall", "F1", "in the data"], &rows);
    if listed.len() == scores.len() {
        return table;
    }
    let all = format_grouped(scores.len() as u64);
    format!("{table}<p class=\"note\">The {MOST_LABELS} labels with the lowest F1 of {all}.</p>\n")
}

/// Draws a chart for each target.
fn scatters(targets: &[Target]) -> String {
    let charts: Vec<String> = targets.iter().map(scatter).collect();
    format!("<div class=\"charts scatter\">{}</div>\n", charts.concat())
}

/// Draws the predicted numbers of a target against those in the data.
fn scatter(target: &Target) -> String {
    let pairs = &target.pairs;
    let all = pairs.iter().flat_map(|pair| [pair.0, pair.1]);
    let Some(low) = all.clone().reduce(f64::min) else { return String::new() };
    let high = all.fold(low, f64::max);
    let hints = pairs
        .iter()
        .take(200)
        .map(|pair| (*pair, format!("{}: predicted {}", significant(pair.0), significant(pair.1))));
    let same = Curve::new(vec![(low, low), (high, high)], "var(--ink)", Mark::Dashes);
    let dots = Curve { hints: hints.collect(), ..Curve::new(pairs.clone(), "var(--s0)", Mark::Points) };
    let chart = Chart {
        title: "Predicted numbers against those of the data".to_string(),
        x: "in the data".to_string(),
        y: "predicted".to_string(),
        curves: vec![dots, same],
        ..Chart::default()
    };
    let caption = match target.name.as_str() {
        "" => String::new(),
        name => format!("<figcaption>{}</figcaption>", escape(name)),
    };
    format!("<figure>{caption}{}</figure>", chart.svg())
}

/// The list of the worst mistakes.
fn worst(predictions: &Predictions) -> String {
    if predictions.wrong.is_empty() {
        return String::new();
    }
    let is_number = matches!(predictions.counts, Counts::Numbers(_));
    let title = if is_number { "Farthest off" } else { "Most surely wrong" };
    let mut html = format!("<h3>{title}</h3>\n<ol class=\"wrong\">\n");
    for Wrong { text, pair, gold, predicted, score } in &predictions.wrong {
        let [before, about, after] = text.each_ref().map(|part| escape(part));
        let about = if about.is_empty() { about } else { format!("<mark>{about}</mark>") };
        let pair =
            pair.as_ref().map_or(String::new(), |pair| format!("<p dir=\"auto\">{}</p>", escape(pair)));
        let score = if is_number {
            format!("off by {}", significant(*score))
        } else {
            format!("{:.1} % sure", 100.0 * score)
        };
        let _ = writeln!(
            html,
            "<li><p dir=\"auto\">{before}{about}{after}</p>{pair}<p class=\"said\"><span>in the data <b>{}</b></span>\
             <span>predicted <b>{}</b></span><span class=\"muted\">{score}</span></p></li>",
            escape(gold),
            escape(predicted)
        );
    }
    html + "</ol>\n"
}

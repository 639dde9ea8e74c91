//! The mistakes of runs on their evaluation examples: confusion matrix, scores by label, and the worst
//! mistakes.

use std::cmp::Reverse;

use crate::pages::chart::{Chart, Curve, Mark};
use crate::pages::columns::shortened;
use crate::pages::report::{Block, Drawing, Figure};
use crate::pages::table::{Cell, Row, Table};
use crate::pages::text::{Part, Text};
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

/// Returns a part for each run that has predictions.
pub(super) fn section(runs: &[Run]) -> Vec<Block> {
    let predicted =
        runs.iter().enumerate().filter_map(|(index, run)| Some((index, run, run.predictions.as_ref()?)));
    let predicted: Vec<(usize, &Run, &Predictions)> = predicted.collect();
    let mut blocks = Vec::new();
    for (at, (index, run, predictions)) in predicted.iter().take(MOST_RUNS).enumerate() {
        let content = run_content(predictions);
        if runs.len() == 1 {
            blocks.push(Block::Lead(format!("{}.", mistakes(predictions)).into()));
            blocks.extend(content);
            continue;
        }
        let name = Text(vec![Part::Bold(run.name.clone()), Part::Muted(mistakes(predictions))]);
        blocks.push(Block::Folded {
            summary: name.after_dot(&dot(*index)),
            is_open: at == 0,
            blocks: content,
        });
    }
    if predicted.len() > MOST_RUNS {
        let all = predicted.len();
        blocks.push(Block::note(format!("Shown: the first {MOST_RUNS} of {all} runs.")));
    }
    blocks
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
fn run_content(predictions: &Predictions) -> Vec<Block> {
    let mut blocks = Vec::new();
    match &predictions.counts {
        Counts::Labels { names, confusion } => {
            blocks.extend(confusions(names, confusion));
            let scores: Vec<(String, ClassScore)> =
                names.iter().cloned().zip(confusion.per_class()).collect();
            blocks.extend(by_label(&scores));
        }
        Counts::Scored(scores) => blocks.extend(by_label(scores)),
        Counts::Numbers(targets) => blocks.push(scatters(targets)),
    }
    blocks.extend(worst(predictions));
    if predictions.damaged > 0 {
        let damaged = format_grouped(predictions.damaged);
        blocks.push(Block::note(format!("Lines without a prediction, left out: {damaged}.")));
    }
    blocks
}

/// Returns the confusion matrix, or a list of the most frequent confusions if there are many labels.
fn confusions(names: &[String], confusion: &Confusion) -> Vec<Block> {
    if names.len() <= MATRIX_LABELS {
        return vec![Block::Table(matrix(names, confusion))];
    }
    let mut wrong: Vec<(usize, usize, u64)> = confusion.mistakes().collect();
    wrong.sort_by_key(|(gold, predicted, count)| (Reverse(*count), *gold, *predicted));
    let rows: Vec<Row> = wrong
        .iter()
        .take(MOST_CONFUSIONS)
        .map(|(gold, predicted, count)| {
            let [gold, predicted] = [*gold, *predicted].map(|id| shortened(&names[id], LABEL_CHARS));
            [gold, predicted, format_grouped(*count)].into_iter().collect()
        })
        .collect();
    let (shown, all) = (rows.len(), format_grouped(wrong.len() as u64));
    let table = Block::Table(Table::new(["in the data", "predicted", "examples"], rows));
    vec![table, Block::note(format!("The {shown} most frequent of {all} confusions."))]
}

/// Returns the confusion matrix: a row for each label of the data, a column for each predicted one.
fn matrix(names: &[String], confusion: &Confusion) -> Table {
    // Many names above the columns would make the table too wide, so the columns have numbers.
    let has_numbers = names.len() > NAMED_COLUMNS;
    let titles = names.iter().enumerate().map(|(column, name)| {
        let text = if has_numbers {
            Text::from((column + 1).to_string())
        } else {
            Text::name(&shortened(name, LABEL_CHARS))
        };
        Cell { hint: name.clone(), ..Cell::from(text) }
    });
    let header: Vec<Cell> = std::iter::once("in the data ↓ predicted →".into()).chain(titles).collect();
    let rows = names.iter().enumerate().map(|(gold, name)| {
        let all: u64 = (0..names.len()).map(|predicted| confusion.count(gold, predicted)).sum();
        let number = if has_numbers { format!("{} ", gold + 1) } else { String::new() };
        let text = Text::name(&format!("{number}{}", shortened(name, LABEL_CHARS)));
        let title = Cell { hint: name.clone(), ..Cell::from(text) };
        let cells = (0..names.len()).map(|predicted| {
            let count = confusion.count(gold, predicted);
            Cell {
                class: if gold == predicted { "right" } else { "wrong" },
                percent: Some(100.0 * count as f64 / all.max(1) as f64),
                ..Cell::from(if count == 0 { "·".to_string() } else { format_grouped(count) })
            }
        });
        std::iter::once(title).chain(cells).collect()
    });
    Table { class: "matrix", ..Table::new(header, rows.collect()) }
}

/// Returns precision, recall, F1 and support of each label, the lowest F1 first; if there are many labels, of
/// those with the lowest F1.
fn by_label(scores: &[(String, ClassScore)]) -> Vec<Block> {
    let mut listed: Vec<&(String, ClassScore)> = scores.iter().collect();
    listed.sort_by(|a, b| a.1.f1.total_cmp(&b.1.f1));
    listed.truncate(MOST_LABELS);
    let rows: Vec<Row> = listed
        .iter()
        .map(|(name, score)| {
            let [precision, recall, f1] =
                [score.precision, score.recall, score.f1].map(|share| format!("{:.1} %", 100.0 * share));
            let name = shortened(name, LABEL_CHARS);
            [name, precision, recall, f1, format_grouped(score.support)].into_iter().collect()
        })
        .collect();
    let mut blocks = table::folded(&["label", "precision", "recall", "F1", "in the data"], rows);
    if listed.len() < scores.len() {
        let all = format_grouped(scores.len() as u64);
        blocks.push(Block::note(format!("The {MOST_LABELS} labels with the lowest F1 of {all}.")));
    }
    blocks
}

/// Draws a chart for each target.
fn scatters(targets: &[Target]) -> Block {
    Block::Charts("charts scatter", targets.iter().filter_map(scatter).collect())
}

/// Draws the predicted numbers of a target against those in the data.
fn scatter(target: &Target) -> Option<Figure> {
    let pairs = &target.pairs;
    let all = pairs.iter().flat_map(|pair| [pair.0, pair.1]);
    let low = all.clone().reduce(f64::min)?;
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
    Some(Figure { caption: target.name.as_str().into(), drawing: Drawing::Curves(chart), note: None })
}

/// The list of the worst mistakes.
fn worst(predictions: &Predictions) -> Vec<Block> {
    if predictions.wrong.is_empty() {
        return Vec::new();
    }
    let is_number = matches!(predictions.counts, Counts::Numbers(_));
    let title = if is_number { "Farthest off" } else { "Most surely wrong" };
    let mistakes = predictions.wrong.iter().map(|wrong| mistake(wrong, is_number)).collect();
    vec![Block::Subtitle(title.to_string()), Block::List("wrong", mistakes)]
}

fn mistake(wrong: &Wrong, is_number: bool) -> Vec<Block> {
    let Wrong { text: [before, about, after], pair, gold, predicted, score } = wrong;
    let about = (!about.is_empty()).then(|| Part::Highlighted(about.clone()));
    let text = [Part::Plain(before.clone())].into_iter().chain(about).chain([Part::Plain(after.clone())]);
    let score = if is_number {
        format!("off by {}", significant(*score))
    } else {
        format!("{:.1} % sure", 100.0 * score)
    };
    let [gold, predicted] = [("in the data ", gold), ("predicted ", predicted)]
        .map(|(what, label)| Text::from(what).with(Part::Bold(label.clone())));
    let facts = vec![gold, predicted, Text(vec![Part::Muted(score)])];
    let texts = [Text(text.collect())].into_iter().chain(pair.as_deref().map(Text::from));
    texts.map(Block::Quoted).chain([Block::Facts("said", facts)]).collect()
}

//! The report on a comparison: its tables, and a plot of each task.

use crate::trials::comparison::result::{RowKind, TaskResult};
use crate::trials::comparison::tables;
use crate::trials::comparison::tables::{NOTE, SEEDS_NOTE, class_of, number};
use base::pages::chart;
use base::pages::chart::Rows;
use base::pages::report::{Block, Report, Section};
use base::pages::table::{Row, Table};
use base::pages::text::Text;
use base::scores::Metric;
use base::words::joined;

/// Explanation of `more examples` in the column `seeds needed`.
const MORE: &str = "“more examples”: no number of seeds would make the difference clear";

const STYLE: &str = include_str!("style.css");

/// Returns the report on the results of all tasks.
pub(super) fn report(results: &[TaskResult]) -> Report {
    let mut sections = Vec::new();
    if results.len() > 1 {
        sections.push(Section::new("All tasks", vec![Block::Table(overview(results))]));
    }
    for result in results {
        let strips = result.rows.iter().map(|row| Strip {
            name: &row.name,
            kind: row.kind,
            scores: row.scores.clone(),
            mean: row.mean,
        });
        let plot = plot(tables::title(result), result.metric, strips.collect());
        let mut blocks: Vec<Block> =
            verdict(result).map(|sentence| Block::Lead(sentence.into())).into_iter().collect();
        blocks.extend([
            plot,
            Block::Table(tables::scores(result)),
            Block::Table(tables::pairs(&result.pairs, result.metric.factor())),
        ]);
        sections.push(Section::new(tables::title(result), blocks));
    }
    let notes = [format!("{NOTE}."), format!("{SEEDS_NOTE}; {MORE}.")];
    let kinds: Vec<RowKind> = results.iter().flat_map(|result| &result.rows).map(|row| row.kind).collect();
    whole("Comparison of models", notes.into_iter(), &kinds, sections)
}

/// The report on rows of these kinds, with notes on all sections.
pub(super) fn whole(
    title: &str,
    notes: impl Iterator<Item = String>,
    kinds: &[RowKind],
    sections: Vec<Section>,
) -> Report {
    let beginning = notes.map(Block::note).chain([legend(kinds)]).collect();
    let title = title.to_string();
    Report { title, beginning, sections, style: STYLE, source: "from the predictions of all models" }
}

/// The result of a task in a sentence or two: the clear differences between the models that the user named,
/// and the models that are clearly worse than a baseline. `None` if there is nothing of either kind.
fn verdict(result: &TaskResult) -> Option<String> {
    let sentences: Vec<String> =
        [between_models(result), below_baselines(result)].into_iter().flatten().collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// The clear differences between the models that the user named; `None` without two such models.
fn between_models(result: &TaskResult) -> Option<String> {
    let mut of_models = result.pairs.iter().filter(|pair| pair.of_models).peekable();
    of_models.peek()?;
    let clear = of_models.filter_map(|pair| {
        let better = pair.better.as_ref()?;
        let other = if *better == pair.left { &pair.right } else { &pair.left };
        Some(format!("{better} is clearly better than {other}."))
    });
    let clear: Vec<String> = clear.collect();
    Some(if clear.is_empty() {
        "No difference between the models is clear.".to_string()
    } else {
        clear.join(" ")
    })
}

/// The models that are clearly worse than a baseline, in one sentence; `None` without such a model.
fn below_baselines(result: &TaskResult) -> Option<String> {
    // The models that are worse than each baseline, in the order of the rows.
    let mut by_baseline: Vec<(&str, Vec<&str>)> = Vec::new();
    let of_baselines = result.pairs.iter().filter(|pair| !pair.of_models);
    for pair in of_baselines.filter(|pair| pair.better.as_ref() == Some(&pair.right)) {
        match by_baseline.iter_mut().find(|(baseline, _)| *baseline == pair.right) {
            Some((_, models)) => models.push(pair.left.as_str()),
            None => by_baseline.push((pair.right.as_str(), vec![pair.left.as_str()])),
        }
    }
    // Baselines that the same models are worse than share a part of the sentence.
    let mut by_models: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
    for (baseline, models) in by_baseline {
        match by_models.iter_mut().find(|(known, _)| *known == models) {
            Some((_, baselines)) => baselines.push(baseline),
            None => by_models.push((models, vec![baseline])),
        }
    }
    let mut parts = Vec::new();
    for (models, baselines) in &by_models {
        let verb = if models.len() == 1 { "is" } else { "are" };
        parts.push(format!(
            "{} {verb} clearly worse than {}",
            joined(models, "and"),
            joined(baselines, "and")
        ));
    }
    (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
}

/// The legend of these kinds of rows.
fn legend(rows: &[RowKind]) -> Block {
    let kinds = [
        (RowKind::Model, "model"),
        (RowKind::Twin, "same architecture, untrained"),
        (RowKind::Floor, "without a network"),
        (RowKind::Published, "published"),
    ];
    let names = kinds.into_iter().filter(|(kind, _)| rows.contains(kind));
    Block::Legend(names.map(|(kind, text)| Text::from(text).after_dot(class_of(kind))).collect())
}

/// Returns the table of means with a row for each model and floor, and a column for each task; `-` if a task
/// has no such row.
fn overview(results: &[TaskResult]) -> Table {
    let names = results.iter().flat_map(|result| &result.rows).map(|row| row.name.as_str());
    let titles = results.iter().map(|result| format!("{} ({})", result.name, result.metric.title()));
    table_by_task(names, titles, |name| results.iter().map(|result| mean_cell(result, name)).collect())
}

/// Returns a table with a row for each of `names`, which may repeat, and a column for each task.
pub(super) fn table_by_task<'a>(
    names: impl Iterator<Item = &'a str>,
    titles: impl Iterator<Item = String>,
    cells: impl Fn(&str) -> Vec<String>,
) -> Table {
    let mut known: Vec<&str> = Vec::new();
    let mut rows = Vec::new();
    for name in names {
        if !known.contains(&name) {
            known.push(name);
            let cells = cells(name).into_iter().map(Text::from);
            rows.push([Text::name(name)].into_iter().chain(cells).collect::<Row>());
        }
    }
    Table::new(std::iter::once("model".to_string()).chain(titles), rows)
}

/// The mean of the row called `name`, or `-` if this task has no such row.
fn mean_cell(result: &TaskResult, name: &str) -> String {
    let row = result.rows.iter().find(|row| row.name == name);
    row.map_or("-".to_string(), |row| row.mean_text(result.metric.factor()))
}

/// The scores of one row in a plot, as shares.
pub(super) struct Strip<'a> {
    pub(super) name: &'a str,
    pub(super) kind: RowKind,
    /// The score with each seed.
    pub(super) scores: Vec<f64>,
    pub(super) mean: Option<f64>,
}

/// Returns the plot of one task: a strip for each row, with a dot for each seed and a stroke for the mean.
pub(super) fn plot(title: String, metric: Metric, strips: Vec<Strip<'_>>) -> Block {
    let factor = metric.factor();
    let rows = strips
        .into_iter()
        .map(|strip| chart::Row {
            name: strip.name.to_string(),
            color: format!("var(--{})", class_of(strip.kind)),
            values: (strip.scores.iter().filter(|score| score.is_finite()))
                .map(|score| (score * factor, number(*score, factor)))
                .collect(),
            mean: strip.mean.map(|mean| mean * factor),
        })
        .collect();
    let percent = if factor > 1.0 { " %" } else { "" };
    Block::Strips(Rows { title, x: format!("{}{percent}", metric.title()), rows })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::comparison::result::{Pair, Scored};
    use base::scores::{Difference, SeedsNeeded};

    #[test]
    fn a_page_has_a_verdict_a_strip_for_each_row_and_pairs_below_their_model() {
        let rows = vec![
            row("ours_base <1>", RowKind::Model, &[0.75, 0.8]),
            row("theirs", RowKind::Model, &[0.7, 0.72]),
            row("random twin of theirs", RowKind::Twin, &[0.4, f64::NAN]),
            row("TF-IDF", RowKind::Floor, &[0.5]),
        ];
        let pairs = vec![
            pair("ours_base <1>", "theirs", true, 0.01),
            pair("ours_base <1>", "TF-IDF", false, 0.2),
            pair("theirs", "TF-IDF", false, -0.1),
        ];
        let result = TaskResult {
            name: "topics".to_string(),
            metric: Metric::Accuracy,
            examples: 24,
            seeds: vec![1, 2],
            rows,
            pairs,
        };
        let report = report(&[result.clone(), result.clone()]);
        let page = report.html();
        for text in [
            "ours_base &lt;1&gt; is clearly better than theirs.",
            "<i class=\"dot floor\"></i>without a network",
            "scope=\"rowgroup\" colspan=\"6\">ours_<wbr>base &lt;1&gt;</th>",
            "<td>75.00 · 80.00</td>",
            "accuracy %</span>",
            "Made by mlmtrain",
        ] {
            assert!(page.contains(text), "{text}: {page}");
        }
        assert_eq!(page.matches("<th class=\"group\"").count(), 4, "two models in each of two tasks");
        assert!(!page.contains("NaN"), "{page}");
        assert_eq!(report.lines().iter().filter(|line| line.contains("random twin of theirs")).count(), 3);
        assert!(report.markdown().starts_with("# Comparison of models\n\n## All tasks\n\n| model | topics"));
        let unclear = TaskResult { pairs: vec![pair("ours_base <1>", "theirs", true, -0.01)], ..result };
        assert_eq!(verdict(&unclear).unwrap(), "No difference between the models is clear.");
        assert_eq!(verdict(&TaskResult { pairs: Vec::new(), ..unclear }), None);
    }

    #[test]
    fn the_verdict_names_models_that_are_clearly_worse_than_a_baseline() {
        let models = pair("a", "b", true, -0.01);
        let both = result_of(vec![models.clone(), worse("a", "TF-IDF"), worse("b", "TF-IDF")]);
        assert_eq!(
            verdict(&both).unwrap(),
            "No difference between the models is clear. a and b are clearly worse than TF-IDF."
        );
        let several = result_of(vec![
            models,
            worse("a", "twin of a"),
            worse("a", "TF-IDF"),
            worse("a", "dictionary"),
            pair("b", "twin of a", false, 0.2),
            worse("b", "TF-IDF"),
            worse("b", "dictionary"),
        ]);
        assert_eq!(
            verdict(&several).unwrap(),
            "No difference between the models is clear. a is clearly worse than twin of a; a and b are \
             clearly worse than TF-IDF and dictionary."
        );
        let alone = result_of(vec![pair("a", "twin of a", false, 0.2), worse("a", "TF-IDF")]);
        assert_eq!(verdict(&alone).unwrap(), "a is clearly worse than TF-IDF.");
        assert_eq!(verdict(&result_of(vec![pair("a", "TF-IDF", false, -0.1)])), None);
    }

    #[test]
    fn a_clear_difference_needs_no_more_examples_and_a_shared_best_score_is_not_marked() {
        let pairs = vec![pair("a", "b", true, 0.01), pair("a", "TF-IDF", false, -0.1)];
        insta::assert_snapshot!(tables::pairs(&pairs, 1.0).lines().join("\n"), @"
        model  against  difference            interval  clear      p   seeds needed
        a      b           +0.0500  +0.0100 to +0.3000    yes  0.010              -
        a      TF-IDF      +0.0500  -0.1000 to +0.3000     no  0.010  more examples
        ");
        let rows = ["a", "b", "TF-IDF"].map(|name| row(name, RowKind::Model, &[0.5]));
        let mut result = TaskResult { rows: rows.to_vec(), ..result_of(pairs) };
        assert_eq!(result.best(), None);
        assert!(!tables::scores(&result).markdown().contains("**"));
        result.rows[1].mean = Some(0.75);
        assert_eq!(result.best(), Some(1));
    }

    fn row(name: &str, kind: RowKind, scores: &[f64]) -> Scored {
        let mean = scores.first().copied();
        Scored { name: name.to_string(), kind, scores: scores.to_vec(), mean, std: None, diverged: 0 }
    }

    /// A pair whose left model is better by `low` at least; the difference is clear if that is positive.
    /// The result of a task without rows.
    fn result_of(pairs: Vec<Pair>) -> TaskResult {
        TaskResult {
            name: "topics".to_string(),
            metric: Metric::Accuracy,
            examples: 24,
            seeds: vec![1, 2],
            rows: Vec::new(),
            pairs,
        }
    }

    /// A model that is clearly worse than a baseline.
    fn worse(model: &str, baseline: &str) -> Pair {
        Pair { better: Some(baseline.to_string()), ..pair(model, baseline, false, -0.1) }
    }

    fn pair(left: &str, right: &str, of_models: bool, low: f64) -> Pair {
        let difference = Difference {
            difference: 0.05,
            low,
            high: 0.3,
            standard_error: 0.02,
            p_value: 0.01,
            seeds_needed: SeedsNeeded::MoreExamples,
        };
        let better = (low > 0.0).then(|| left.to_string());
        Pair { left: left.to_string(), right: right.to_string(), of_models, difference, better }
    }
}

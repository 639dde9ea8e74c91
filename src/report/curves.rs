//! The charts of the page: which tags of `metrics.jsonl` are drawn, in which order, and with which curves.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::pages::chart::{Chart, Curve, Mark, compact};
use crate::pages::html::escape;
use crate::quantity::format_grouped;
use crate::report::facts::MAIN_SCORES;
use crate::report::run::{ELAPSED, Run};
use crate::report::table::{color, dot};
use crate::report::thinned::{Point, Thinned};
use crate::report::units::{Unit, duration, tag_title};
use crate::tasks::pretraining::corpus::PREDICTED_TOKENS;

/// Most points of all curves of a page together: the page must stay small.
const MOST_POINTS: usize = 40_000;

/// Most points of a page that show their value on hover.
const MOST_HINTS: usize = 4_000;

/// Least and most points of a curve.
const CURVE_POINTS: std::ops::RangeInclusive<usize> = 20..=400;

/// Most points of a curve that show their value on hover.
const CURVE_HINTS: usize = 60;

/// Most charts of scores, and most charts of tags that are not in [`KNOWN`].
const MOST_OTHERS: usize = 24;

/// Tags that are drawn after losses and scores, in this order.
const KNOWN: [&str; 11] = [
    "train/learning_rate",
    "train/grad_norm",
    "perf/tokens_per_second",
    "train/loss_scale",
    "perf/mfu",
    "perf/gpu_peak_memory_bytes",
    "perf/gpu_utilisation",
    "perf/gpu_power_watts",
    "perf/data_wait_share",
    "train/skipped_steps",
    "cost/usd",
];

/// Tags that are not drawn, because tables show them.
const UNDRAWN: [&str; 8] = [
    "epoch",
    "train/epoch",
    "perf/peak_memory_bytes",
    "perf/eval_seconds",
    "perf/probe_seconds",
    "perf/save_seconds",
    "cost/usd_per_million_tokens",
    ELAPSED,
];

/// A chart of one or several tags.
struct Plan {
    title: String,
    tags: Vec<String>,
    /// Name of the score of a model without knowledge, such as the unigram loss, which is drawn as a dashed
    /// line.
    baseline: Option<String>,
    /// True if the x axis is the training time, false if it is the step.
    by_time: bool,
}

/// Returns the HTML of all charts below a legend, or an empty text if there are no records.
pub(super) fn section(runs: &[Run]) -> String {
    let plans = plans(runs);
    let curves = plans.iter().map(|plan| plan.tags.len() * runs.len()).sum::<usize>().max(1);
    let most = (MOST_POINTS / curves).clamp(*CURVE_POINTS.start(), *CURVE_POINTS.end());
    let hints = (MOST_HINTS / curves).min(CURVE_HINTS);
    let charts: Vec<String> = plans.iter().map(|plan| figure(plan, runs, most, hints)).collect();
    if charts.iter().all(String::is_empty) {
        return String::new();
    }
    format!("{}<div class=\"charts\">\n{}</div>\n{}", legend(runs), charts.concat(), note(runs, most))
}

/// The note on how curves were thinned, if any was.
fn note(runs: &[Run], most: usize) -> String {
    let longest = runs.iter().flat_map(|run| run.curves.values()).map(Thinned::count).max();
    match longest.filter(|longest| *longest > most) {
        Some(longest) => format!(
            "<p class=\"note\">Curves of up to {} records are drawn with at most {most} points: of neighbours \
             the lowest and the highest.</p>\n",
            format_grouped(longest as u64)
        ),
        None => String::new(),
    }
}

fn legend(runs: &[Run]) -> String {
    let mut html = "<ul class=\"legend\">\n".to_string();
    if runs.len() == 1 {
        html.push_str(
            "<li><i class=\"stroke s0\"></i>training</li>\n<li><i class=\"stroke s1\"></i>evaluation</li>\n",
        );
    } else {
        for (index, run) in runs.iter().enumerate() {
            let _ = writeln!(html, "<li>{}{}</li>", dot(index), escape(&run.name));
        }
        html.push_str("<li class=\"muted\">pale: training; with points: evaluation</li>\n");
    }
    if runs
        .iter()
        .any(|run| run.score_names().any(|name| name == "unigram_loss" || name.ends_with("baseline_loss")))
    {
        html.push_str("<li><i class=\"stroke dashed\"></i>baseline</li>\n");
    }
    html + "</ul>\n"
}

/// Returns the charts to draw, in the order of the page: losses, scores, known tags, other tags.
fn plans(runs: &[Run]) -> Vec<Plan> {
    let tags: BTreeSet<&str> = runs.iter().flat_map(|run| run.curves.keys()).map(String::as_str).collect();
    let mut plans = losses(runs, &tags);
    let has_types = tags.contains("eval/overall_f1");
    let mut scores: Vec<&str> = tags.iter().copied().filter(|tag| tag.starts_with("eval/")).collect();
    scores.retain(|tag| {
        let name = tag.trim_start_matches("eval/");
        let of_type = ["_precision", "_recall", "_f1", "_number"].iter().any(|end| name.ends_with(end));
        let is_left_out = name.ends_with("loss")
            || name.contains("baseline")
            || name == PREDICTED_TOKENS
            || has_types && of_type && !name.starts_with("overall_");
        let has_several = runs.iter().any(|run| run.curves.get(*tag).is_some_and(|curve| curve.count() > 1));
        !is_left_out && has_several
    });
    scores.sort_by_key(|tag| {
        MAIN_SCORES.iter().position(|name| tag.ends_with(name)).unwrap_or(MAIN_SCORES.len())
    });
    let known = KNOWN.iter().copied().filter(|tag| tags.contains(tag));
    let others = tags.iter().copied().filter(|tag| {
        !tag.starts_with("eval/") && !tag.ends_with("loss") && !KNOWN.contains(tag) && !UNDRAWN.contains(tag)
    });
    plans.extend(scores.into_iter().take(MOST_OTHERS).chain(known).chain(others.take(MOST_OTHERS)).map(
        |tag| Plan { title: tag_title(tag), tags: vec![tag.to_string()], baseline: None, by_time: false },
    ));
    plans
}

/// Returns a chart for each loss, with its training and evaluation curves and its baseline. With several
/// runs, the first loss also has a chart over training time.
fn losses(runs: &[Run], tags: &BTreeSet<&str>) -> Vec<Plan> {
    let mut names: Vec<String> = tags
        .iter()
        .filter_map(|tag| {
            tag.strip_prefix("train/").or_else(|| tag.strip_prefix("eval/")).map(str::to_string)
        })
        .filter(|name| (name == "loss" || name.ends_with("_loss")) && !name.ends_with("baseline_loss"))
        .collect();
    names.retain(|name| name != "unigram_loss");
    names.sort_by_key(|name| (name != "loss", name.clone()));
    names.dedup();
    // The unigram loss is the baseline of the loss on masked tokens, which may be one of several losses.
    let token_loss = ["mlm_loss", "generator_loss"].into_iter().find(|name| names.iter().any(|n| n == name));
    let token_loss = token_loss.unwrap_or("loss");
    let mut plans = Vec::new();
    for name in names {
        let own = format!("{}_baseline_loss", name.trim_end_matches("_loss"));
        let baseline = if name == token_loss { "unigram_loss".to_string() } else { own };
        let tags: Vec<String> = ["train", "eval"]
            .map(|side| format!("{side}/{name}"))
            .into_iter()
            .filter(|tag| tags.contains(tag.as_str()))
            .collect();
        let title = tag_title(&format!("train/{name}"));
        let over_time = plans.is_empty() && runs.len() > 1 && tags.iter().all(|tag| has_times(runs, tag));
        let timed = over_time.then(|| Plan {
            title: format!("{title} over time"),
            tags: tags.clone(),
            baseline: Some(baseline.clone()),
            by_time: true,
        });
        plans.push(Plan { title, tags, baseline: Some(baseline), by_time: false });
        plans.extend(timed);
    }
    plans
}

/// True if every run with this tag recorded the training time of each value.
fn has_times(runs: &[Run], tag: &str) -> bool {
    runs.iter().all(|run| {
        run.curves.get(tag).is_none_or(|curve| curve.points(usize::MAX).iter().all(|p| p.seconds.is_some()))
    })
}

/// Draws one chart with at most `most` points for each curve, of which about `hints` show their value on
/// hover.
fn figure(plan: &Plan, runs: &[Run], most: usize, hints: usize) -> String {
    let unit = plan.tags.first().map_or(Unit::Plain, |tag| Unit::from_name(tag));
    let mut curves = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        for tag in &plan.tags {
            let Some(curve) = run.curves.get(tag) else { continue };
            let points = curve.points(most);
            let is_evaluation = tag.starts_with("eval/");
            let has_both = plan.tags.len() > 1;
            let color = match (runs.len() > 1, is_evaluation) {
                (true, false) if has_both => format!("var(--pale{})", color(index)),
                (true, _) => format!("var(--s{})", color(index)),
                (false, true) => "var(--s1)".to_string(),
                (false, false) => "var(--s0)".to_string(),
            };
            let mark = if is_evaluation && points.len() <= 40 { Mark::Dots } else { Mark::Line };
            let positions: Vec<(f64, f64)> = points.iter().map(|point| position(plan, unit, point)).collect();
            let every = points.len().div_ceil(hints.max(1)).max(1);
            let hints = points
                .iter()
                .zip(&positions)
                .step_by(every)
                .filter(|_| hints > 0)
                .map(|(point, position)| (*position, hint(runs, run, unit, point)))
                .collect();
            curves.push(Curve { hints, ..Curve::new(positions, &color, mark) });
        }
    }
    curves.extend(baseline(plan, runs, unit, &curves));
    let chart = Chart {
        title: plan.title.clone(),
        x: if plan.by_time { "time of training" } else { "step" }.to_string(),
        y: unit.axis().to_string(),
        curves,
        may_be_logarithmic: unit != Unit::Percent
            && !plan.tags.iter().any(|tag| tag == "train/learning_rate"),
        x_is_logarithmic: false,
        x_text: if plan.by_time { duration } else { compact },
    };
    let svg = chart.svg();
    if svg.is_empty() {
        return String::new();
    }
    format!("<figure><figcaption>{}</figcaption>{svg}</figure>\n", escape(&plan.title))
}

/// The position of a point in the chart: step or seconds, and the value in the unit of the axis.
fn position(plan: &Plan, unit: Unit, point: &Point) -> (f64, f64) {
    let x = if plan.by_time { point.seconds.unwrap_or_default() } else { point.step };
    (x, point.value * unit.factor())
}

/// Returns a horizontal line at the baseline, as wide as the curves, from the first run that has the
/// baseline.
fn baseline(plan: &Plan, runs: &[Run], unit: Unit, curves: &[Curve]) -> Option<Curve> {
    let name = plan.baseline.as_ref()?;
    let value = runs.iter().find_map(|run| run.score(name))? * unit.factor();
    let xs = curves.iter().flat_map(|curve| &curve.points).map(|point| point.0);
    let first = xs.clone().reduce(f64::min)?;
    let last = xs.reduce(f64::max)?;
    let text = format!("{}: {}", name.replace('_', " "), unit.text(value));
    let hints = vec![((last, value), text)];
    let line = Curve::new(vec![(first, value), (last, value)], "var(--muted)", Mark::Dashes);
    Some(Curve { hints, ..line })
}

/// The text that a point shows on hover.
fn hint(runs: &[Run], run: &Run, unit: Unit, point: &Point) -> String {
    let name = if runs.len() > 1 { format!("{}, ", run.name) } else { String::new() };
    format!("{name}step {}: {}", format_grouped(point.step as u64), unit.text(point.value))
}

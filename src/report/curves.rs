//! Charts of what runs recorded over their steps: which there are, in which order, and how they are drawn.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::pages::chart::Chart;
use crate::pages::chart::Curve;
use crate::pages::chart::Mark;
use crate::pages::chart::compact;
use crate::pages::html::escape;
use crate::quantity::format_grouped;
use crate::report::facts::MAIN_SCORES;
use crate::report::run::ELAPSED;
use crate::report::run::Run;
use crate::report::table::color;
use crate::report::table::dot;
use crate::report::thinned::Point;
use crate::report::thinned::Thinned;
use crate::report::units::Unit;
use crate::report::units::duration;
use crate::report::units::tag_title;
use crate::tasks::pretraining::corpus::PREDICTED_TOKENS;

/// Points of all curves of a page, and those of them that say their value: a page must stay small.
const MOST_POINTS: usize = 40_000;
const MOST_HINTS: usize = 4_000;

/// Points of a curve, and those that say their value.
const CURVE_POINTS: std::ops::RangeInclusive<usize> = 20..=400;
const CURVE_HINTS: usize = 60;

/// Charts behind those of known tags.
const MOST_OTHERS: usize = 24;

/// What is drawn after losses and scores, in this order.
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

/// What tables have.
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
    /// The tag of a score that knows nothing.
    baseline: Option<String>,
    by_time: bool,
}

/// All charts, below a legend; nothing without records.
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

/// How curves were thinned, where they were.
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
    let has_baseline =
        |run: &Run| run.score_names().any(|name| name == "unigram_loss" || name.ends_with("baseline_loss"));
    if runs.iter().any(has_baseline) {
        html.push_str("<li><i class=\"stroke dashed\"></i>baseline</li>\n");
    }
    html + "</ul>\n"
}

fn plans(runs: &[Run]) -> Vec<Plan> {
    let tags: BTreeSet<&str> = runs.iter().flat_map(|run| run.curves.keys()).map(String::as_str).collect();
    let mut plans = losses(runs, &tags);
    let has_types = tags.contains("eval/overall_f1");
    let is_loss = |tag: &str| tag.ends_with("loss");
    let is_drawn = |tag: &str| {
        let name = tag.trim_start_matches("eval/");
        let of_type = ["_precision", "_recall", "_f1", "_number"].iter().any(|end| name.ends_with(end));
        !(name.contains("baseline")
            || name == PREDICTED_TOKENS
            || has_types && of_type && !name.starts_with("overall_"))
    };
    let is_curve =
        |tag: &str| runs.iter().any(|run| run.curves.get(tag).is_some_and(|curve| curve.count() > 1));
    let mut scores: Vec<&str> = tags.iter().copied().filter(|tag| tag.starts_with("eval/")).collect();
    scores.retain(|tag| !is_loss(tag) && is_drawn(tag) && is_curve(tag));
    scores.sort_by_key(|tag| {
        MAIN_SCORES.iter().position(|name| tag.ends_with(name)).unwrap_or(MAIN_SCORES.len())
    });
    let known = KNOWN.iter().copied().filter(|tag| tags.contains(tag));
    let others = tags.iter().copied().filter(|tag| {
        !tag.starts_with("eval/") && !is_loss(tag) && !KNOWN.contains(tag) && !UNDRAWN.contains(tag)
    });
    let single = |tag: &str| Plan {
        title: tag_title(tag),
        tags: vec![tag.to_string()],
        baseline: None,
        by_time: false,
    };
    plans.extend(
        scores.into_iter().take(MOST_OTHERS).chain(known).chain(others.take(MOST_OTHERS)).map(single),
    );
    plans
}

/// Losses of training and evaluation that belong together, with their baselines; of several runs the first
/// also over time.
fn losses(runs: &[Run], tags: &BTreeSet<&str>) -> Vec<Plan> {
    let name_of =
        |tag: &&str| tag.strip_prefix("train/").or_else(|| tag.strip_prefix("eval/")).map(str::to_string);
    let is_loss =
        |name: &String| (name == "loss" || name.ends_with("_loss")) && !name.ends_with("baseline_loss");
    let mut names: Vec<String> = tags.iter().filter_map(name_of).filter(is_loss).collect();
    names.retain(|name| name != "unigram_loss");
    names.sort_by_key(|name| (name != "loss", name.clone()));
    names.dedup();
    // The unigram loss is that of masked tokens, which may be one loss of several.
    let of_tokens = ["mlm_loss", "generator_loss"].into_iter().find(|name| names.iter().any(|n| n == name));
    let of_tokens = of_tokens.unwrap_or("loss");
    let mut plans = Vec::new();
    for name in names {
        let own = format!("{}_baseline_loss", name.trim_end_matches("_loss"));
        let baseline = if name == of_tokens { "unigram_loss".to_string() } else { own };
        let tags: Vec<String> = ["train", "eval"]
            .map(|side| format!("{side}/{name}"))
            .into_iter()
            .filter(|tag| tags.contains(tag.as_str()))
            .collect();
        let title = tag_title(&format!("train/{name}"));
        let over_time = plans.is_empty() && runs.len() > 1 && tags.iter().all(|tag| has_times(runs, tag));
        let plan = |title: String, by_time| Plan {
            title,
            tags: tags.clone(),
            baseline: Some(baseline.clone()),
            by_time,
        };
        plans.push(plan(title.clone(), false));
        plans.extend(over_time.then(|| plan(format!("{title} over time"), true)));
    }
    plans
}

/// Whether every run that has this tag knows when.
fn has_times(runs: &[Run], tag: &str) -> bool {
    let of = |run: &Run| {
        run.curves.get(tag).is_none_or(|curve| curve.points(usize::MAX).iter().all(|p| p.seconds.is_some()))
    };
    runs.iter().all(of)
}

fn figure(plan: &Plan, runs: &[Run], most: usize, hints: usize) -> String {
    let unit = plan.tags.first().map_or(Unit::Plain, |tag| Unit::of(tag));
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
            let place = |point: &Point| {
                (
                    if plan.by_time { point.seconds.unwrap_or_default() } else { point.step },
                    point.value * unit.factor(),
                )
            };
            let every = points.len().div_ceil(hints.max(1)).max(1);
            let hint = |point: &Point| (place(point), hint(runs, run, unit, point));
            let told = points.iter().step_by(every).filter(|_| hints > 0).map(hint).collect();
            let curve = Curve::new(points.iter().map(place).collect(), &color, mark);
            curves.push(Curve { hints: told, ..curve });
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

/// A line at the score that knows nothing, as wide as the curves; that of the first run which has one.
fn baseline(plan: &Plan, runs: &[Run], unit: Unit, curves: &[Curve]) -> Option<Curve> {
    let name = plan.baseline.as_ref()?;
    let value = runs.iter().find_map(|run| run.score(name))? * unit.factor();
    let places = || curves.iter().flat_map(|curve| &curve.points).map(|point| point.0);
    let (first, last) = (places().reduce(f64::min)?, places().reduce(f64::max)?);
    let text = format!("{}: {}", name.replace('_', " "), unit.text(value));
    let hints = vec![((last, value), text)];
    let line = Curve::new(vec![(first, value), (last, value)], "var(--muted)", Mark::Dashes);
    Some(Curve { hints, ..line })
}

fn hint(runs: &[Run], run: &Run, unit: Unit, point: &Point) -> String {
    let name = if runs.len() > 1 { format!("{}, ", run.name) } else { String::new() };
    format!("{name}step {}: {}", format_grouped(point.step as u64), unit.text(point.value))
}

//! The charts of the page: which tags of `metrics.jsonl` are drawn, in which order, and with which curves.

use std::collections::BTreeSet;

use crate::pages::chart::{Chart, Curve, Mark, WIDE, compact};
use crate::pages::report::{Block, Drawing, Figure};
use crate::pages::text::{Part, Text};
use crate::quantity::format_grouped;
use crate::report::facts::MAIN_SCORES;
use crate::report::run::{ELAPSED, Run, unit_of};
use crate::report::state::State;
use crate::report::table::{COLORS, color, dot};
use crate::report::thinned::{Point, Thinned};
use crate::report::units::{Unit, significant, tag_title};
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

/// A diverged run is drawn up to this multiple of the largest value of the other runs.
const BEYOND_OTHERS: f64 = 10.0;

/// If all runs diverged, they are drawn up to this multiple of their largest first value.
const BEYOND_FIRST: f64 = 1000.0;

/// Least height of an axis in percent: on a smaller one, noise would look like progress.
const LEAST_PERCENT: f64 = 10.0;

/// Share of the time spent waiting for data below which it is not worth a chart.
const LEAST_WAITING: f64 = 0.01;

/// A chart of one or several tags.
struct Plan {
    title: String,
    tags: Vec<String>,
    /// Name of the loss, if the chart is of one: its baselines are drawn as dashed lines.
    loss: Option<String>,
    /// True if the x axis is the training time, false if it is the step.
    by_time: bool,
}

/// Returns all charts below a legend; nothing if there are no records.
pub(super) fn section(runs: &[Run]) -> Vec<Block> {
    let plans = plans(runs);
    let curves = plans.iter().map(|plan| plan.tags.len() * runs.len()).sum::<usize>().max(1);
    let most = (MOST_POINTS / curves).clamp(*CURVE_POINTS.start(), *CURVE_POINTS.end());
    let hints = (MOST_HINTS / curves).min(CURVE_HINTS);
    let charts: Vec<Figure> = plans.iter().filter_map(|plan| figure(plan, runs, most, hints)).collect();
    if charts.is_empty() {
        return Vec::new();
    }
    [legend(runs), Block::Charts("charts", charts)].into_iter().chain(note(runs, most)).collect()
}

/// The note on how curves were thinned, if any was.
fn note(runs: &[Run], most: usize) -> Option<Block> {
    let longest = runs.iter().flat_map(|run| run.curves.values()).map(Thinned::count).max();
    let longest = format_grouped(longest.filter(|longest| *longest > most)? as u64);
    Some(Block::note(format!(
        "Curves of up to {longest} records are drawn with at most {most} points: of neighbours the lowest and \
         the highest."
    )))
}

fn legend(runs: &[Run]) -> Block {
    let mut names: Vec<Text> = if runs.len() == 1 {
        vec![stroke("s0", "training"), stroke("s1", "evaluation")]
    } else {
        let runs = runs.iter().enumerate();
        let marks = Text(vec![Part::Muted("pale: training; with points: evaluation".to_string())]);
        runs.map(|(index, run)| Text::name(&run.name).after_dot(&dot(index))).chain([marks]).collect()
    };
    let has_baseline = runs
        .iter()
        .any(|run| run.score_names().any(|name| name == "unigram_loss" || name.ends_with("baseline_loss")));
    names.extend(has_baseline.then(|| stroke("dashed", "baseline")));
    Block::Legend(names)
}

/// A name after the stroke of its curves.
fn stroke(class: &str, name: &str) -> Text {
    Text(vec![Part::Stroke(class.to_string()), name.into()])
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
        !is_left_out
    });
    scores.sort_by_key(|tag| {
        MAIN_SCORES.iter().position(|name| tag.ends_with(name)).unwrap_or(MAIN_SCORES.len())
    });
    let waits = runs.iter().filter_map(|run| run.curves.get("perf/data_wait_share")?.highest());
    let has_waited = waits.fold(0.0, f64::max) > LEAST_WAITING;
    let known = KNOWN
        .iter()
        .copied()
        .filter(|tag| tags.contains(tag) && (has_waited || *tag != "perf/data_wait_share"));
    let others = tags.iter().copied().filter(|tag| {
        !tag.starts_with("eval/") && !tag.ends_with("loss") && !KNOWN.contains(tag) && !UNDRAWN.contains(tag)
    });
    plans.extend(
        scores.into_iter().take(MOST_OTHERS).chain(known).chain(others.take(MOST_OTHERS)).map(|tag| Plan {
            title: tag_title(tag),
            tags: vec![tag.to_string()],
            loss: None,
            by_time: false,
        }),
    );
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
    let mut plans = Vec::new();
    for name in names {
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
            loss: Some(name.clone()),
            by_time: true,
        });
        plans.push(Plan { title, tags, loss: Some(name), by_time: false });
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
/// hover. A chart without two points of a curve is left out.
fn figure(plan: &Plan, runs: &[Run], most: usize, hints: usize) -> Option<Figure> {
    let unit = plan.tags.first().map_or(Unit::Plain, |tag| unit_of(runs, tag));
    let axis = Axis::new(plan, runs);
    let drawn: Vec<(usize, &Run)> =
        runs.iter().enumerate().filter(|(_, run)| !is_another_loss(plan, runs, run)).collect();
    let highest = highest(plan, &drawn).filter(|highest| leaves_a_curve(plan, &drawn, *highest));
    let mut curves: Vec<Drawn> = Vec::new();
    let mut is_cut = false;
    for (index, run) in &drawn {
        for tag in &plan.tags {
            let Some(curve) = run.curves.get(tag) else { continue };
            let mut points = curve.points(most);
            let all = points.len();
            points.retain(|point| highest.is_none_or(|highest| point.value <= highest));
            is_cut |= points.len() < all;
            let positions: Vec<(f64, f64)> =
                points.iter().map(|point| (axis.position(point), point.value * unit.factor())).collect();
            let every = points.len().div_ceil(hints.max(1)).max(1);
            let hints = points
                .iter()
                .zip(&positions)
                .step_by(every)
                .filter(|_| hints > 0)
                .map(|(point, position)| (*position, hint(runs, run, unit, point)))
                .collect();
            let is_evaluation = tag.starts_with("eval/");
            let look = look(runs, *index, is_evaluation, plan.tags.len() > 1, points.len());
            let curve = Curve { hints, ..Curve::new(positions, &look.color, look.mark) };
            curves.push(Drawn { curve, is_evaluation });
        }
    }
    if curves.iter().all(|drawn| drawn.curve.points.len() < 2) {
        return None;
    }
    let mut caption = Text::from(plan.title.as_str());
    if runs.len() > 1 && is_one_curve(&curves) {
        curves.truncate(1);
        curves[0].curve.color = "var(--ink)".to_string();
        curves[0].curve.mark = Mark::Line;
        caption = caption.with(" ".into()).with(Part::Muted("(the same for all runs)".to_string()));
    }
    let may_be_logarithmic = unit != Unit::Percent
        && !plan.tags.iter().any(|tag| tag == "train/learning_rate")
        && keeps_evaluation_readable(&curves);
    let baselines = baselines(plan, &drawn, unit, &curves);
    let curves: Vec<Curve> = curves.into_iter().map(|drawn| drawn.curve).chain(baselines).collect();
    let chart = Chart {
        title: plan.title.clone(),
        x: axis.title,
        y: unit.axis().to_string(),
        may_be_logarithmic,
        x_text: compact,
        x_range: (axis.end > 0.0).then_some((0.0, axis.end)),
        y_range: (unit == Unit::Percent).then(|| percent_range(&curves)).flatten(),
        curves,
        ..Chart::default()
    };
    let note = highest.filter(|_| is_cut).map(|highest| {
        let highest = significant(highest * unit.factor());
        format!("Values above {highest} of diverged runs are not drawn.").into()
    });
    Some(Figure { caption, drawing: Drawing::Curves(chart), note })
}

/// A curve, and which kind of tag it shows.
struct Drawn {
    curve: Curve,
    is_evaluation: bool,
}

/// The colour and the mark of a curve.
struct Look {
    color: String,
    mark: Mark,
}

/// Returns the look of a curve of run `index` with `points` points; `has_both` is true if the chart shows
/// training and evaluation.
fn look(runs: &[Run], index: usize, is_evaluation: bool, has_both: bool, points: usize) -> Look {
    if runs.len() == 1 {
        let color = if is_evaluation { "var(--s1)" } else { "var(--s0)" };
        let mark = if is_evaluation && points <= 40 { Mark::Dots } else { Mark::Line };
        return Look { color: color.to_string(), mark };
    }
    let is_pale = has_both && !is_evaluation;
    let color = format!("var(--{}{})", if is_pale { "pale" } else { "s" }, color(index));
    let mark = match () {
        // Colours repeat, so the second round of runs is dashed.
        () if index >= COLORS => Mark::Dashes,
        () if is_pale => Mark::Thin,
        () if is_evaluation && points <= 40 => Mark::Dots,
        () => Mark::Line,
    };
    Look { color, mark }
}

/// The horizontal axis of a chart, the same for all charts over the steps of a page.
struct Axis {
    title: String,
    /// The last step or time of all runs, in the unit of the axis.
    end: f64,
    by_time: bool,
    /// Seconds of the unit of a time axis.
    unit_seconds: f64,
}

impl Axis {
    fn new(plan: &Plan, runs: &[Run]) -> Self {
        if !plan.by_time {
            let steps = runs.iter().flat_map(|run| run.curves.values()).filter_map(Thinned::last_step);
            let end = steps.fold(0.0, f64::max);
            return Self { title: "step".to_string(), end, by_time: false, unit_seconds: 1.0 };
        }
        let curves = runs.iter().flat_map(|run| plan.tags.iter().filter_map(|tag| run.curves.get(tag)));
        let seconds = curves.filter_map(Thinned::last_seconds).fold(0.0, f64::max);
        let (unit_seconds, unit) = match seconds {
            _ if seconds < 120.0 => (1.0, "s"),
            _ if seconds < 7200.0 => (60.0, "min"),
            _ if seconds < 2.0 * 86_400.0 => (3600.0, "h"),
            _ => (86_400.0, "days"),
        };
        let title = format!("time of training, {unit}");
        Self { title, end: seconds / unit_seconds, by_time: true, unit_seconds }
    }

    fn position(&self, point: &Point) -> f64 {
        if self.by_time { point.seconds.unwrap_or_default() / self.unit_seconds } else { point.step }
    }
}

/// True if the loss of this run is a sum of several losses and that of another run is not: the two cannot be
/// compared.
fn is_another_loss(plan: &Plan, runs: &[Run], run: &Run) -> bool {
    plan.loss.as_deref() == Some("loss") && run.has_parts() && !runs.iter().all(Run::has_parts)
}

/// The largest value that is drawn if a run diverged: its last values would flatten all other curves.
fn highest(plan: &Plan, runs: &[(usize, &Run)]) -> Option<f64> {
    if runs.iter().all(|(_, run)| run.state != State::Diverged) {
        return None;
    }
    let mut largest: Option<f64> = None;
    let mut largest_first: Option<f64> = None;
    for (_, run) in runs {
        for curve in plan.tags.iter().filter_map(|tag| run.curves.get(tag)) {
            if run.state == State::Diverged {
                let first = curve.points(usize::MAX).first().map(|point| point.value);
                largest_first = largest_first.into_iter().chain(first).reduce(f64::max);
            } else {
                largest = largest.into_iter().chain(curve.highest()).reduce(f64::max);
            }
        }
    }
    let capped = largest.map(|value| BEYOND_OTHERS * value);
    capped.or(largest_first.map(|value| BEYOND_FIRST * value)).filter(|value| *value > 0.0)
}

/// True if a curve has at least two points up to the value `highest`.
fn leaves_a_curve(plan: &Plan, runs: &[(usize, &Run)], highest: f64) -> bool {
    runs.iter()
        .flat_map(|(_, run)| plan.tags.iter().filter_map(|tag| run.curves.get(tag)))
        .any(|curve| curve.points(usize::MAX).iter().filter(|point| point.value <= highest).count() > 1)
}

/// True if there are several curves and all have the same points.
fn is_one_curve(curves: &[Drawn]) -> bool {
    curves.len() > 1 && curves.windows(2).all(|pair| pair[0].curve.points == pair[1].curve.points)
}

/// True if a logarithmic axis does not flatten the evaluation: its values are far apart themselves, or those
/// of the training are far from them.
fn keeps_evaluation_readable(curves: &[Drawn]) -> bool {
    let evaluated = curves.iter().filter(|drawn| drawn.is_evaluation).flat_map(|drawn| &drawn.curve.points);
    let values = evaluated.map(|point| point.1);
    let Some(lowest) = values.clone().reduce(f64::min) else { return true };
    let highest = values.fold(lowest, f64::max);
    let all = curves.iter().flat_map(|drawn| &drawn.curve.points).map(|point| point.1);
    highest > WIDE * lowest || all.fold(highest, f64::max) > WIDE * highest
}

/// Ends of an axis in percent: as wide as the values, at least [`LEAST_PERCENT`], within 0 and 100.
fn percent_range(curves: &[Curve]) -> Option<(f64, f64)> {
    let values = curves.iter().flat_map(|curve| &curve.points).map(|point| point.1);
    let lowest = values.clone().reduce(f64::min)?;
    let highest = values.fold(lowest, f64::max);
    let missing = (LEAST_PERCENT - (highest - lowest)).max(0.0) / 2.0;
    let low = ((lowest - missing) / 5.0).floor() * 5.0;
    let high = ((highest + missing) / 5.0).ceil() * 5.0;
    Some((low.max(0.0).min(lowest), high.min(100.0).max(highest)))
}

/// Returns a horizontal line at each baseline of the runs with a curve, as wide as the curves.
fn baselines(plan: &Plan, runs: &[(usize, &Run)], unit: Unit, curves: &[Drawn]) -> Vec<Curve> {
    let Some(loss) = &plan.loss else { return Vec::new() };
    let xs = curves.iter().flat_map(|drawn| &drawn.curve.points).map(|point| point.0);
    let Some(first) = xs.clone().reduce(f64::min) else { return Vec::new() };
    let last = xs.fold(first, f64::max);
    let mut found: Vec<Baseline> = Vec::new();
    for (_, run) in runs.iter().filter(|(_, run)| plan.tags.iter().any(|tag| run.curves.contains_key(tag))) {
        let name = baseline_name(run, loss);
        let Some(value) = run.score(&name) else { continue };
        match found.iter_mut().find(|known| known.value.to_bits() == value.to_bits()) {
            Some(known) => known.runs.push(run.name.clone()),
            None => found.push(Baseline { name, value, runs: vec![run.name.clone()] }),
        }
    }
    let is_one = found.len() == 1;
    let lines = found.into_iter().map(|Baseline { name, value, runs }| {
        let whose = if is_one { String::new() } else { format!(" of {}", runs.join(", ")) };
        let at = value * unit.factor();
        let hints = vec![((last, at), format!("{}{whose}: {}", name.replace('_', " "), unit.text(value)))];
        let line = Curve::new(vec![(first, at), (last, at)], "var(--muted)", Mark::Dashes);
        Curve { hints, ..line }
    });
    lines.collect()
}

/// The loss of a model without knowledge, and the runs that it was measured for.
struct Baseline {
    name: String,
    value: f64,
    runs: Vec<String>,
}

/// The name of the score that a loss of this run is compared with. The unigram loss is the baseline of the
/// loss on masked tokens, which may be one of several losses.
fn baseline_name(run: &Run, loss: &str) -> String {
    if loss == run.token_loss() {
        return "unigram_loss".to_string();
    }
    format!("{}_baseline_loss", loss.trim_end_matches("_loss"))
}

/// The text that a point shows on hover.
fn hint(runs: &[Run], run: &Run, unit: Unit, point: &Point) -> String {
    let name = if runs.len() > 1 { format!("{}, ", run.name) } else { String::new() };
    format!("{name}step {}: {}", format_grouped(point.step as u64), unit.text(point.value))
}

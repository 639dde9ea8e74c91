//! The parts of the training time of each run, such as steps, evaluation and saving, as a bar.

use std::fmt::Write;

use crate::pages::chart;
use crate::pages::html::escape;
use crate::report::facts::training_seconds;
use crate::report::run::Run;
use crate::report::table::dot;
use crate::report::thinned::Thinned;
use crate::report::units::duration;

/// A part of the training time: CSS class, name, seconds.
type Part = (&'static str, &'static str, f64);

/// Returns a bar for each run with the parts of its time, or an empty text if no run recorded them.
pub(super) fn bars(runs: &[Run]) -> String {
    let parts: Vec<Option<Vec<Part>>> = runs.iter().map(parts).collect();
    if parts.iter().all(Option::is_none) {
        return String::new();
    }
    let mut html = "<div class=\"bars timed\">\n".to_string();
    for (index, (run, parts)) in runs.iter().zip(&parts).enumerate() {
        let Some(parts) = parts else { continue };
        let whole: f64 = parts.iter().map(|part| part.2).sum();
        let name =
            if runs.len() > 1 { format!("{}{}", dot(index), escape(&run.name)) } else { "all".to_string() };
        let bar = chart::bar(
            &parts
                .iter()
                .map(|(class, name, seconds)| {
                    let text = format!("{name}: {}", duration(*seconds));
                    ((*class).to_string(), text, seconds / whole.max(1e-9))
                })
                .collect::<Vec<_>>(),
        );
        let _ =
            writeln!(html, "<div class=\"bar\"><span>{name}</span>{bar}<em>{}</em></div>", duration(whole));
    }
    html.push_str("</div>\n<ul class=\"legend\">\n");
    let first = parts.iter().flatten().next().map(Vec::as_slice).unwrap_or_default();
    for (class, name, seconds) in first {
        let time = if runs.len() == 1 {
            format!(" <span class=\"muted\">{}</span>", duration(*seconds))
        } else {
            String::new()
        };
        let _ = writeln!(html, "<li><i class=\"dot {class}\"></i>{name}{time}</li>");
    }
    html + "</ul>\n"
}

/// Returns the seconds of steps, waiting for data, evaluations, probes and saving; `None` if the run recorded
/// no evaluation, probe or saving.
fn parts(run: &Run) -> Option<Vec<Part>> {
    let [evaluating, saving, probing] = ["perf/eval_seconds", "perf/save_seconds", "perf/probe_seconds"]
        .map(|tag| run.curves.get(tag).map_or(0.0, Thinned::sum));
    if evaluating + saving + probing <= 0.0 {
        return None;
    }
    // The training time ends with the last step, so it does not include an evaluation or probe after that
    // step.
    let [last_eval, last_probe] = ["perf/eval_seconds", "perf/probe_seconds"]
        .map(|tag| seconds_after_last_step(run, tag).unwrap_or(0.0));
    let after = last_eval + last_probe;
    let stepping = (training_seconds(run)? - (evaluating + saving + probing - after)).max(0.0);
    let share = run.results.get("train_data_wait_share").copied();
    let waiting =
        stepping * share.or_else(|| run.latest("perf/data_wait_share")).unwrap_or(0.0).clamp(0.0, 1.0);
    let all = [
        ("kept", "steps", stepping - waiting),
        ("c2", "waiting for data", waiting),
        ("c4", "evaluation", evaluating),
        ("c3", "probes", probing),
        ("c0", "saving", saving),
    ];
    Some(all.into_iter().filter(|part| part.2 > 0.0).collect())
}

/// The latest value of `tag`, if it was recorded after the last step.
fn seconds_after_last_step(run: &Run, tag: &str) -> Option<f64> {
    let curve = run.curves.get(tag)?;
    if curve.last_step()? >= run.step? as f64 { curve.last() } else { None }
}

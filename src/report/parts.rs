//! What the time of runs went into, as far as their records tell.

use std::fmt::Write;

use crate::pages::chart;
use crate::pages::html::escape;
use crate::report::facts::training_seconds;
use crate::report::run::Run;
use crate::report::table::dot;
use crate::report::thinned::Thinned;
use crate::report::units::duration;

/// A part of the time, its class, and its name.
type Part = (&'static str, &'static str, f64);

/// A bar for each run with the parts of its time; nothing where no run recorded them.
pub(super) fn bars(runs: &[Run]) -> String {
    let parts: Vec<Option<Vec<Part>>> = runs.iter().map(parts).collect();
    if parts.iter().all(Option::is_none) {
        return String::new();
    }
    let mut html = "<div class=\"bars timed\">\n".to_string();
    for (index, (run, parts)) in runs.iter().zip(&parts).enumerate() {
        let Some(parts) = parts else { continue };
        let whole: f64 = parts.iter().map(|part| part.2).sum();
        let text = |(class, name, seconds): &Part| {
            let text = format!("{name}: {}", duration(*seconds));
            ((*class).to_string(), text, seconds / whole.max(1e-9))
        };
        let name =
            if runs.len() > 1 { format!("{}{}", dot(index), escape(&run.name)) } else { "all".to_string() };
        let bar = chart::bar(&parts.iter().map(text).collect::<Vec<_>>());
        let _ =
            writeln!(html, "<div class=\"bar\"><span>{name}</span>{bar}<em>{}</em></div>", duration(whole));
    }
    html.push_str("</div>\n<ul class=\"legend\">\n");
    let told = parts.iter().flatten().next().map(Vec::as_slice).unwrap_or_default();
    for (class, name, seconds) in told {
        let time = if runs.len() == 1 {
            format!(" <span class=\"muted\">{}</span>", duration(*seconds))
        } else {
            String::new()
        };
        let _ = writeln!(html, "<li><i class=\"dot {class}\"></i>{name}{time}</li>");
    }
    html + "</ul>\n"
}

/// Steps, waiting, evaluations, probes, saving; `None` where the run recorded no evaluation or saving.
fn parts(run: &Run) -> Option<Vec<Part>> {
    let sum = |tag: &str| run.curves.get(tag).map_or(0.0, Thinned::sum);
    let (evaluating, saving, probing) =
        (sum("perf/eval_seconds"), sum("perf/save_seconds"), sum("perf/probe_seconds"));
    if evaluating + saving + probing <= 0.0 {
        return None;
    }
    // What comes after the last step is no part of the time of training.
    let after = |tag: &str| {
        let curve = run.curves.get(tag)?;
        (curve.last_step()? >= run.step? as f64).then(|| curve.last())?
    };
    let behind = after("perf/eval_seconds").unwrap_or(0.0) + after("perf/probe_seconds").unwrap_or(0.0);
    let stepping = (training_seconds(run)? - (evaluating + saving + probing - behind)).max(0.0);
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

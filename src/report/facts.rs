//! The facts in the tables of the page, a row each: scores, time, cost, machine, and differing configuration
//! keys.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::pages::columns::shortened;
use crate::quantity::{format_bytes, format_grouped};
use crate::report::run::{ELAPSED, Run};
use crate::report::state::State;
use crate::report::table::Fact;
use crate::report::units::{Unit, compact_count, duration, score_title};
use crate::scores::{Better, mean, measured, sample_std};

/// Main scores of tasks, of which a run has at most one. A run without any is judged by its loss.
pub(super) const MAIN_SCORES: [&str; 4] = ["accuracy", "overall_f1", "f1_micro", "pearson"];

/// Characters of a configuration value in a table; a longer one is cut.
const VALUE_CHARS: usize = 60;

/// Keys of folders, which do not count as a difference between runs.
const PLACES: [&str; 2] = ["run.output_dir", "data.prepared_dir"];

/// The score that a run is judged by.
pub(super) struct MainScore {
    /// Name of the score without `eval_`.
    pub(super) name: &'static str,
    pub(super) value: f64,
    /// The same score of a model without knowledge, if it was computed.
    pub(super) baseline: Option<f64>,
}

impl MainScore {
    /// The score `name` of a run; `None` if the run has no such score.
    fn new(run: &Run, name: &'static str, baseline: &str) -> Option<Self> {
        Some(Self { name, value: run.score(name)?, baseline: run.score(baseline) })
    }
}

/// Returns the score that a run is judged by.
pub(super) fn main_score(run: &Run) -> Option<MainScore> {
    // In pretraining the loss comes before the masked accuracy, which is another view of it. The loss of a
    // generator and a discriminator is a sum that says little, so the loss of the discriminator comes first.
    MainScore::new(run, "discriminator_loss", "discriminator_baseline_loss")
        .or_else(|| MainScore::new(run, "mlm_loss", "unigram_loss"))
        .or_else(|| run.score("perplexity").and_then(|_| MainScore::new(run, "loss", "unigram_loss")))
        .or_else(|| MAIN_SCORES.iter().find_map(|name| MainScore::new(run, name, "")))
        .or_else(|| MainScore::new(run, "loss", ""))
}

/// The steps that are done, such as `1,200 of 3,000`.
pub(super) fn steps(run: &Run) -> Option<String> {
    let step = format_grouped(run.step?);
    Some(match run.total_steps {
        Some(total) if Some(total) != run.step => format!("{step} of {}", format_grouped(total)),
        _ => step,
    })
}

/// Returns the table of results: state, steps, and scores, without those by label or type of entity, which
/// have a table of their own.
pub(super) fn results(runs: &[Run]) -> Vec<Fact> {
    let mut found = vec![
        Fact::new("state", runs, |run| (runs.len() > 1).then(|| run.state.name().to_string())),
        Fact::new("steps", runs, steps),
    ];
    let names: BTreeSet<&str> =
        runs.iter().flat_map(Run::score_names).filter(|name| is_listed(runs, name)).collect();
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_by_key(|name| (rank(name), *name));
    for name in names {
        let values: Vec<Option<f64>> = runs.iter().map(|run| run.score(name)).collect();
        let unit = Unit::from_name(name);
        let is_baseline = name.contains("baseline") || name == "unigram_loss";
        let known: Vec<u64> = values.iter().flatten().map(|value| value.to_bits()).collect();
        // If all values are equal, no run is marked as the best.
        let differ = known.windows(2).any(|pair| pair[0] != pair[1]);
        let is_compared = differ && !is_baseline && unit != Unit::Count;
        let best = is_compared.then(|| Better::of(name).best_place(values.iter().copied())).flatten();
        let cells = values.iter().map(|value| value.map(|value| unit.text(value))).collect();
        found.push(Fact { title: title_in(runs, name), cells, best });
    }
    found
}

/// Returns titles and means of the main scores over runs that differ only in their seeds; empty for other
/// runs.
pub(super) fn means(runs: &[Run]) -> Vec<(String, String)> {
    if runs.len() < 2 || differing(runs).iter().any(|key| !matches!(key.as_str(), "run.seed" | "seeds")) {
        return Vec::new();
    }
    MAIN_SCORES
        .iter()
        .chain(&["loss"])
        .filter_map(|name| {
            let values: Vec<f64> = runs.iter().map(|run| run.score(name)).collect::<Option<_>>()?;
            let unit = Unit::from_name(name);
            let std = sample_std(&values);
            let text = measured(mean(&values), |mean| format!("{} ± {}", unit.text(mean), unit.text(std)));
            Some((score_title(name), text))
        })
        .collect()
}

fn title_in(runs: &[Run], name: &str) -> String {
    // If `loss` is a sum of several losses, the unigram loss is the baseline of the loss on masked tokens,
    // not of the sum.
    let is_part =
        runs.iter().any(|run| run.score("generator_loss").is_some() || run.score("mlm_loss").is_some());
    match name {
        "unigram_loss" if is_part => "baseline of masked tokens: unigram loss".to_string(),
        "loss" if is_part => "evaluation loss (weighted sum)".to_string(),
        _ => score_title(name),
    }
}

/// True if a score is in the table of results: not the runtime, and not a score of one type of entity.
fn is_listed(runs: &[Run], name: &str) -> bool {
    let has_types = runs.iter().any(|run| run.score("overall_f1").is_some());
    let of_type = ["_precision", "_recall", "_f1", "_number"].iter().any(|end| name.ends_with(end));
    name != "runtime" && !(has_types && of_type && !name.starts_with("overall_"))
}

/// Sort key of a score: losses first, then main scores, then all others.
fn rank(name: &str) -> usize {
    let first = ["loss", "unigram_loss", "perplexity"].iter().chain(&MAIN_SCORES);
    first.clone().position(|known| *known == name).unwrap_or(first.count())
}

/// Returns the table of time, speed, cost and memory, without rows that no run recorded.
pub(super) fn time(runs: &[Run]) -> Vec<Fact> {
    let mut found = vec![
        Fact::new("training", runs, |run| training_seconds(run).map(duration)),
        Fact::new("tokens", runs, |run| run.result("train_num_input_tokens_seen").map(compact_count)),
        Fact::new("passes over the data", runs, |run| {
            let epochs = run.result("epoch").or_else(|| run.latest("train/epoch"))?;
            Some(format!("{epochs:.2}"))
        }),
        Fact::new("throughput", runs, |run| {
            throughput(run).map(|speed| format!("{} tokens/s", compact_count(speed)))
        }),
        Fact::new("floating-point operations", runs, |run| {
            run.result("total_flos").filter(|flops| *flops > 0.0).map(|flops| format!("{flops:.2e}"))
        }),
        Fact::new("cost", runs, |run| cost(run).map(|usd| Unit::Dollars.text(usd))),
        Fact::new("cost of a million tokens", runs, |run| {
            run.latest("cost/usd_per_million_tokens").map(|usd| format!("${usd:.4}"))
        }),
        Fact::new("memory, peak", runs, |run| highest(run, "perf/peak_memory_bytes")),
        Fact::new("GPU memory, peak", runs, |run| highest(run, "perf/gpu_peak_memory_bytes")),
        Fact::new("skipped steps", runs, |run| {
            run.latest("train/skipped_steps").map(|n| Unit::Count.text(n))
        }),
        Fact::new("went back", runs, |run| {
            run.latest("train/rollbacks").map(|n| format!("{} times", Unit::Count.text(n)))
        }),
    ];
    found.retain(|fact| fact.cells.iter().any(Option::is_some));
    found
}

/// Training time in seconds, summed over all starts of the run.
pub(super) fn training_seconds(run: &Run) -> Option<f64> {
    run.result("train_runtime").or_else(|| run.latest(ELAPSED))
}

/// Tokens per second over the whole run, or the latest recorded speed if the run is not complete.
pub(super) fn throughput(run: &Run) -> Option<f64> {
    run.result("train_tokens_per_second").or_else(|| run.latest("perf/tokens_per_second"))
}

/// Cost in US dollars.
pub(super) fn cost(run: &Run) -> Option<f64> {
    run.latest("cost/usd")
}

/// The largest value of a tag that counts bytes.
fn highest(run: &Run, tag: &str) -> Option<String> {
    Some(format_bytes(run.curves.get(tag)?.highest()? as u64))
}

/// Returns the table of the machines, from the `machine.json` of each run.
pub(super) fn machine(runs: &[Run]) -> Vec<Fact> {
    let rows = [
        ("mlmtrain", "version"),
        ("device", "device"),
        ("computing in", "compute"),
        ("threads", "threads"),
        ("processor", "processor"),
        ("instructions", "instructions"),
        ("cores", "cores"),
        ("memory of the machine", "memory_bytes"),
        ("system", "system"),
    ];
    rows.map(|(title, name)| Fact::new(title, runs, |run| machine_text(run, name))).to_vec()
}

fn machine_text(run: &Run, name: &str) -> Option<String> {
    match run.machine.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        Value::Number(number) if name == "memory_bytes" => Some(format_bytes(number.as_u64()?)),
        other => Some(other.to_string()),
    }
}

/// Returns the configuration keys whose values differ, with the value of each run.
pub(super) fn differences(runs: &[Run]) -> Vec<Fact> {
    let differing = differing(runs);
    differing
        .iter()
        .map(|key| {
            Fact::new(key, runs, |run: &Run| {
                let found = run.keys.iter().find(|(known, _)| known == key);
                found.map(|(_, value)| shortened(value, VALUE_CHARS))
            })
        })
        .collect()
}

/// Returns the differing keys, in the order of the first configuration that has them.
fn differing(runs: &[Run]) -> Vec<String> {
    // A run without a configuration is left out: otherwise every key would differ.
    let configs: Vec<BTreeMap<&str, &str>> = runs
        .iter()
        .filter(|run| !run.keys.is_empty())
        .map(|run| run.keys.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect())
        .collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (key, _) in runs.iter().flat_map(|run| &run.keys) {
        let values: BTreeSet<Option<&&str>> = configs.iter().map(|keys| keys.get(key.as_str())).collect();
        if values.len() > 1 && !PLACES.contains(&key.as_str()) && seen.insert(key) {
            found.push(key.clone());
        }
    }
    found
}

/// The state of a run as a sentence.
pub(super) fn state(run: &Run) -> String {
    let at =
        steps(run).map_or_else(|| "before its first record".to_string(), |steps| format!("at step {steps}"));
    match run.state {
        State::Complete => format!("complete, {} steps", run.step.map_or("no".to_string(), format_grouped)),
        State::Running => format!("running, {at}"),
        State::Diverged => format!("diverged {at}"),
        State::Stopped => format!("interrupted {at}; run the same command to continue"),
    }
}

//! What there is to say of runs in one line each: scores, time, cost, machine, and what differs between them.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

use crate::pages::columns::shortened;
use crate::quantity::format_bytes;
use crate::quantity::format_grouped;
use crate::report::run::ELAPSED;
use crate::report::run::Run;
use crate::report::state::State;
use crate::report::table::Fact;
use crate::report::units::Unit;
use crate::report::units::compact_count;
use crate::report::units::duration;
use crate::report::units::score_title;
use crate::scores::Better;
use crate::scores::mean;
use crate::scores::measured;
use crate::scores::sample_std;

/// Scores that a task is judged by, of which a run has one; of others its loss is all there is.
pub(super) const MAIN_SCORES: [&str; 4] = ["accuracy", "overall_f1", "f1_micro", "pearson"];

/// Characters of a value of a configuration.
const VALUE_CHARS: usize = 60;

/// Where a run's files lie is no difference between runs.
const PLACES: [&str; 2] = ["run.output_dir", "data.prepared_dir"];

/// A score with its name without `eval_`, and that of knowing nothing where there is one.
pub(super) struct MainScore {
    pub(super) name: &'static str,
    pub(super) value: f64,
    pub(super) baseline: Option<f64>,
}

/// The score that a run is judged by.
pub(super) fn main_score(run: &Run) -> Option<MainScore> {
    // Of pretraining the loss comes first: masked accuracy is only another view of it. The loss of two models
    // is a sum that says little.
    let of = |name: &'static str, baseline: &str| {
        Some(MainScore { name, value: run.score(name)?, baseline: run.score(baseline) })
    };
    of("discriminator_loss", "discriminator_baseline_loss")
        .or_else(|| run.score("mlm_loss").and_then(|_| of("mlm_loss", "unigram_loss")))
        .or_else(|| run.score("perplexity").and_then(|_| of("loss", "unigram_loss")))
        .or_else(|| MAIN_SCORES.iter().find_map(|name| of(name, "")))
        .or_else(|| of("loss", ""))
}

/// `step 1,200 of 3,000`.
pub(super) fn steps(run: &Run) -> Option<String> {
    let step = format_grouped(run.step?);
    Some(match run.total_steps {
        Some(total) if Some(total) != run.step => format!("{step} of {}", format_grouped(total)),
        _ => step,
    })
}

/// State, steps, and all scores; those by label or type of entity have their own table.
pub(super) fn results(runs: &[Run]) -> Vec<Fact> {
    let mut found = vec![
        Fact::of("state", runs, |run| (runs.len() > 1).then(|| run.state.name().to_string())),
        Fact::of("steps", runs, steps),
    ];
    let names: BTreeSet<&str> =
        runs.iter().flat_map(Run::score_names).filter(|name| is_told(runs, name)).collect();
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_by_key(|name| (rank(name), *name));
    for name in names {
        let values: Vec<Option<f64>> = runs.iter().map(|run| run.score(name)).collect();
        let unit = Unit::of(name);
        let is_baseline = name.contains("baseline") || name == "unigram_loss";
        let known: Vec<u64> = values.iter().flatten().map(|value| value.to_bits()).collect();
        // Of equals none is the best.
        let differ = known.windows(2).any(|pair| pair[0] != pair[1]);
        let is_compared = differ && !is_baseline && unit != Unit::Count;
        let best = is_compared.then(|| Better::of(name).best_place(values.iter().copied())).flatten();
        let cells = values.iter().map(|value| value.map(|value| unit.text(value))).collect();
        found.push(Fact { title: title_in(runs, name), cells, best });
    }
    found
}

/// Means of the scores over runs that differ in nothing but their seeds; empty for others.
pub(super) fn means(runs: &[Run]) -> Vec<(String, String)> {
    if runs.len() < 2 || differing(runs).iter().any(|key| !matches!(key.as_str(), "run.seed" | "seeds")) {
        return Vec::new();
    }
    let row = |name: &&str| {
        let values: Vec<f64> = runs.iter().map(|run| run.score(name)).collect::<Option<_>>()?;
        let (unit, mean, std) = (Unit::of(name), mean(&values), sample_std(&values));
        let spread = |mean: f64| format!("{} ± {}", unit.text(mean), unit.text(std));
        Some((score_title(name), measured(mean, spread)))
    };
    MAIN_SCORES.iter().chain(&["loss"]).filter_map(row).collect()
}

fn title_in(runs: &[Run], name: &str) -> String {
    // What `loss` is the sum of has the baseline, where there are several terms.
    let is_part =
        runs.iter().any(|run| run.score("generator_loss").is_some() || run.score("mlm_loss").is_some());
    match name {
        "unigram_loss" if is_part => "baseline of masked tokens: unigram loss".to_string(),
        "loss" if is_part => "evaluation loss (weighted sum)".to_string(),
        _ => score_title(name),
    }
}

fn is_told(runs: &[Run], name: &str) -> bool {
    let has_types = runs.iter().any(|run| run.score("overall_f1").is_some());
    let of_type = ["_precision", "_recall", "_f1", "_number"].iter().any(|end| name.ends_with(end));
    name != "runtime" && !(has_types && of_type && !name.starts_with("overall_"))
}

fn rank(name: &str) -> usize {
    let first = ["loss", "unigram_loss", "perplexity"].iter().chain(&MAIN_SCORES);
    first.clone().position(|known| *known == name).unwrap_or(first.count())
}

/// How long, how fast, for how much.
pub(super) fn time(runs: &[Run]) -> Vec<Fact> {
    let result = |run: &Run, name: &str| run.results.get(name).copied();
    let mut found = vec![
        Fact::of("training", runs, |run| training_seconds(run).map(duration)),
        Fact::of("tokens", runs, |run| result(run, "train_num_input_tokens_seen").map(compact_count)),
        Fact::of("passes over the data", runs, |run| {
            let epochs = result(run, "epoch").or_else(|| run.latest("train/epoch"))?;
            Some(format!("{epochs:.2}"))
        }),
        Fact::of("throughput", runs, |run| {
            throughput(run).map(|speed| format!("{} tokens/s", compact_count(speed)))
        }),
        Fact::of("floating-point operations", runs, |run| {
            result(run, "total_flos").filter(|flops| *flops > 0.0).map(|flops| format!("{flops:.2e}"))
        }),
        Fact::of("cost", runs, |run| cost(run).map(|usd| Unit::Dollars.text(usd))),
        Fact::of("cost of a million tokens", runs, |run| {
            run.latest("cost/usd_per_million_tokens").map(|usd| format!("${usd:.4}"))
        }),
        Fact::of("memory, peak", runs, |run| highest(run, "perf/peak_memory_bytes")),
        Fact::of("GPU memory, peak", runs, |run| highest(run, "perf/gpu_peak_memory_bytes")),
        Fact::of("skipped steps", runs, |run| run.latest("train/skipped_steps").map(|n| Unit::Count.text(n))),
        Fact::of("went back", runs, |run| {
            run.latest("train/rollbacks").map(|n| format!("{} times", Unit::Count.text(n)))
        }),
    ];
    found.retain(|fact| fact.cells.iter().any(Option::is_some));
    found
}

/// Seconds of training, all sittings together.
pub(super) fn training_seconds(run: &Run) -> Option<f64> {
    run.results.get("train_runtime").copied().or_else(|| run.latest(ELAPSED))
}

/// Tokens a second over the whole run, or the latest.
pub(super) fn throughput(run: &Run) -> Option<f64> {
    run.results.get("train_tokens_per_second").copied().or_else(|| run.latest("perf/tokens_per_second"))
}

/// Dollars.
pub(super) fn cost(run: &Run) -> Option<f64> {
    run.latest("cost/usd")
}

fn highest(run: &Run, tag: &str) -> Option<String> {
    Some(format_bytes(run.curves.get(tag)?.highest()? as u64))
}

/// What runs were computed on, as they wrote it.
pub(super) fn machine(runs: &[Run]) -> Vec<Fact> {
    let text = |run: &Run, name: &str| match run.machine.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        Value::Number(number) if name == "memory_bytes" => Some(format_bytes(number.as_u64()?)),
        other => Some(other.to_string()),
    };
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
    rows.map(|(title, name)| Fact::of(title, runs, |run| text(run, name))).to_vec()
}

/// The keys whose values differ, with the value of each run.
pub(super) fn differences(runs: &[Run]) -> Vec<Fact> {
    let differing = differing(runs);
    let fact = |key: &String| {
        let value = |run: &Run| {
            let found = run.keys.iter().find(|(known, _)| known == key);
            found.map(|(_, value)| shortened(value, VALUE_CHARS))
        };
        Fact::of(key, runs, value)
    };
    differing.iter().map(fact).collect()
}

/// In the order of the first configuration that has them.
fn differing(runs: &[Run]) -> Vec<String> {
    // A run without a configuration does not differ in each of its keys.
    let told: Vec<BTreeMap<&str, &str>> = runs
        .iter()
        .filter(|run| !run.keys.is_empty())
        .map(|run| run.keys.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect())
        .collect();
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    for (key, _) in runs.iter().flat_map(|run| &run.keys) {
        let values: BTreeSet<Option<&&str>> = told.iter().map(|keys| keys.get(key.as_str())).collect();
        if values.len() > 1 && !PLACES.contains(&key.as_str()) && seen.insert(key) {
            found.push(key.clone());
        }
    }
    found
}

/// What a run is doing, in a sentence.
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

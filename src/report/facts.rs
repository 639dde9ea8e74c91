//! The facts in the tables of the page, a row each: scores, time, cost, machine, and differing configuration
//! keys.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::families::Family;
use crate::pages::columns::shortened;
use crate::quantity::{format_bytes, format_grouped, parse_duration};
use crate::report::run::{ELAPSED, Run, unit_of};
use crate::report::state::State;
use crate::report::table::Fact;
use crate::report::units::{Unit, compact_count, duration, score_title};
use crate::scores::{Better, mean, measured, sample_std};

/// Main scores of tasks, of which a run has at most one. A run without any is judged by its loss.
pub(super) const MAIN_SCORES: [&str; 4] = ["accuracy", "overall_f1", "f1_micro", "pearson"];

/// Characters of a configuration value in a table; a longer one is cut.
const VALUE_CHARS: usize = 60;

/// Keys that do not count as a difference between runs: folders, and the loss that a test expects.
const UNCOMPARED: [&str; 4] =
    ["run.output_dir", "run.upload_to", "data.prepared_dir", "evaluation.loss_band"];

/// Keys of seeds.
const SEEDS: [&str; 2] = ["run.seed", "seeds"];

/// Key of the time limit of a run.
const MAX_TRAIN_TIME: &str = "training.max_train_time";

/// Other keys that can end a run before its last step.
const OTHER_ENDS: [&str; 3] = ["run.budget_usd", "run.deadline", "training.early_stopping_patience"];

/// Title of the family among the differences.
const FAMILY_KEY: &str = "model (family)";

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
        Fact::new("training loss, latest", runs, |run| {
            let loss = run.latest("train/loss").filter(|_| run.state != State::Complete)?;
            Some(unit_of(runs, "loss").text(loss))
        }),
    ];
    let is_mixed = runs.iter().any(Run::has_parts) && !runs.iter().all(Run::has_parts);
    let are_ranked = why_unranked(runs).is_none();
    for name in listed(runs) {
        if name == "loss" && is_mixed {
            // A sum of several losses cannot be compared with a single one, so they have a row each.
            found.push(score_fact(runs, name, score_title(name), are_ranked, |run| !run.has_parts()));
            found.push(score_fact(runs, name, SUM.to_string(), are_ranked, Run::has_parts));
        } else {
            found.push(score_fact(runs, name, title_in(runs, name), are_ranked, |_| true));
        }
    }
    found
}

/// Title of a loss that is the sum of several.
const SUM: &str = "evaluation loss (weighted sum)";

/// Returns the names of the scores in the table of results, in their order.
fn listed(runs: &[Run]) -> Vec<&str> {
    let names: BTreeSet<&str> =
        runs.iter().flat_map(Run::score_names).filter(|name| is_listed(runs, name)).collect();
    let mut names: Vec<&str> = names.into_iter().collect();
    let has_parts = runs.iter().all(Run::has_parts);
    names.sort_by_key(|name| rank(name, has_parts));
    names
}

/// Largest relative difference of two unigram losses of the same tokens: versions may sum in another order.
const SAME_UNIGRAM_LOSS: f64 = 1e-9;

/// Returns a sentence on why no score of these pretraining runs is marked as the best: they are means over
/// tokens, and another tokenizer cuts a text into other tokens. `None` if the runs recorded no such reason.
pub(super) fn why_unranked(runs: &[Run]) -> Option<&'static str> {
    let pretrained = runs.iter().filter(|run| run.tokenizer.is_some() || run.score("unigram_loss").is_some());
    let scored: Vec<&Run> = pretrained.filter(|run| run.score(run.token_loss()).is_some()).collect();
    let tokenizers: BTreeSet<&str> = scored.iter().filter_map(|run| run.tokenizer.as_deref()).collect();
    if tokenizers.len() > 1 {
        return Some("Tokenizers differ: losses per token do not compare.");
    }
    // The unigram loss depends only on the tokens of the validation data.
    let unigram = scored.iter().filter_map(|run| run.score("unigram_loss"));
    let unigram: Vec<f64> = unigram.filter(|loss| loss.is_finite()).collect();
    let first = *unigram.first()?;
    if unigram.iter().all(|loss| (loss - first).abs() <= SAME_UNIGRAM_LOSS * first.abs()) {
        return None;
    }
    Some(if scored.iter().all(|run| run.tokenizer.is_some()) {
        "Validation data differ: losses per token do not compare."
    } else {
        "Tokenizers or validation data differ: losses per token do not compare."
    })
}

/// Returns the row of a score with the runs that it `applies` to. The best one is marked if they can be
/// compared (`are_ranked`): they have the same task, and not all have the same value.
fn score_fact(runs: &[Run], name: &str, title: String, are_ranked: bool, applies: fn(&Run) -> bool) -> Fact {
    let values: Vec<Option<f64>> = runs.iter().map(|run| run.score(name).filter(|_| applies(run))).collect();
    let unit = unit_of(runs, name);
    let tasks: BTreeSet<&str> = runs.iter().filter_map(|run| run.key("task")).collect();
    let known: Vec<u64> = values.iter().flatten().map(|value| value.to_bits()).collect();
    let differ = known.windows(2).any(|pair| pair[0] != pair[1]);
    let is_score = !is_baseline(name) && unit != Unit::Count;
    let is_compared = are_ranked && differ && is_score && tasks.len() <= 1;
    let best = is_compared.then(|| Better::of(name).only_best_place(values.iter().copied())).flatten();
    let cells = values.iter().map(|value| value.map(|value| unit.text(value))).collect();
    Fact { title, cells, best }
}

fn is_baseline(name: &str) -> bool {
    name.contains("baseline") || name == "unigram_loss"
}

/// A score over runs that differ only in their seeds, formatted.
pub(super) struct Mean {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) value: String,
    pub(super) deviation: String,
}

/// Returns the means of the scores over runs that differ only in their seeds; empty for other runs.
pub(super) fn means(runs: &[Run]) -> Vec<Mean> {
    if runs.len() < 2 || differing(runs).iter().any(|key| !SEEDS.contains(&key.as_str())) {
        return Vec::new();
    }
    listed(runs)
        .into_iter()
        .filter(|name| !is_baseline(name) && Unit::from_name(name) != Unit::Count)
        .filter_map(|name| {
            let values: Vec<f64> = runs.iter().map(|run| run.score(name)).collect::<Option<_>>()?;
            let unit = unit_of(runs, name);
            Some(Mean {
                name: name.to_string(),
                title: title_in(runs, name),
                value: measured(mean(&values), |mean| unit.text(mean)),
                deviation: measured(sample_std(&values), |std| unit.deviation(std, mean(&values))),
            })
        })
        .collect()
}

fn title_in(runs: &[Run], name: &str) -> String {
    // If `loss` is a sum of several losses, the unigram loss is the baseline of the loss on masked tokens,
    // not of the sum.
    let is_part = runs.iter().any(Run::has_parts);
    match name {
        "unigram_loss" if is_part => "baseline of masked tokens: unigram loss".to_string(),
        "loss" if is_part => SUM.to_string(),
        "accuracy" if runs.iter().all(|run| run.score("perplexity").is_some()) => {
            "masked accuracy".to_string()
        }
        _ => score_title(name),
    }
}

/// True if a score is in the table of results: not the runtime, and not a score of one type of entity.
fn is_listed(runs: &[Run], name: &str) -> bool {
    let has_types = runs.iter().any(|run| run.score("overall_f1").is_some());
    let of_type = ["_precision", "_recall", "_f1", "_number"].iter().any(|end| name.ends_with(end));
    name != "runtime" && !(has_types && of_type && !name.starts_with("overall_"))
}

/// Sort key of a score: losses first, each before its baseline, then main scores, then all others. A sum of
/// losses comes after its parts.
fn rank(name: &str, has_parts: bool) -> usize {
    let before = ["discriminator_loss", "discriminator_baseline_loss", "mlm_loss", "generator_loss"];
    let middle = if has_parts { ["unigram_loss", "loss"] } else { ["loss", "unigram_loss"] };
    let order: Vec<&str> =
        before.into_iter().chain(middle).chain(["perplexity"]).chain(MAIN_SCORES).collect();
    order.iter().position(|known| *known == name).unwrap_or(order.len())
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

/// Tokens per second over the whole run, or the mean of the recorded speeds if the run is not complete.
pub(super) fn throughput(run: &Run) -> Option<f64> {
    run.result("train_tokens_per_second").or_else(|| run.curves.get("perf/tokens_per_second")?.mean())
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
    let several = has_several_families(runs);
    let settings: Vec<Vec<(String, &str)>> = runs.iter().map(|run| settings(run, several)).collect();
    differing(runs)
        .into_iter()
        .map(|key| {
            let cells = settings.iter().map(|settings| {
                let found = settings.iter().find(|(known, _)| *known == key);
                found.map(|(_, value)| shortened(value, VALUE_CHARS))
            });
            Fact { cells: cells.collect(), title: key, best: None }
        })
        .collect()
}

/// Returns the differing keys, in the order of the first configuration that has them.
fn differing(runs: &[Run]) -> Vec<String> {
    let several = has_several_families(runs);
    // A run without a configuration is left out: otherwise every key would differ.
    let settings: Vec<Vec<(String, &str)>> =
        runs.iter().filter(|run| !run.keys.is_empty()).map(|run| settings(run, several)).collect();
    let configs: Vec<BTreeMap<&str, &str>> = settings
        .iter()
        .map(|settings| settings.iter().map(|(key, value)| (key.as_str(), *value)).collect())
        .collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (key, _) in settings.iter().flatten() {
        let values: BTreeSet<Option<&&str>> = configs.iter().map(|keys| keys.get(key.as_str())).collect();
        if values.len() > 1 && seen.insert(key) {
            found.push(key.clone());
        }
    }
    found
}

/// Returns the keys and values of a run that are compared with those of other runs. A key that is `null` is
/// not set. If the families differ, they are a key of their own, so that the other keys of the model can be
/// compared.
fn settings(run: &Run, several_families: bool) -> Vec<(String, &str)> {
    let mut found = Vec::new();
    for (key, value) in &run.keys {
        if value == "null" || UNCOMPARED.contains(&key.as_str()) {
            continue;
        }
        match family_of(key).filter(|_| several_families) {
            Some(family) => {
                let known = found.iter().any(|(name, _)| name == FAMILY_KEY);
                found.extend((!known).then(|| (FAMILY_KEY.to_string(), family)));
                found.push((key.replacen(&format!("{family}."), "", 1), value.as_str()));
            }
            None => found.push((key.clone(), value.as_str())),
        }
    }
    found
}

/// The family in a key such as `model.roberta.hidden_size`.
fn family_of(key: &str) -> Option<&str> {
    let (family, _) = key.strip_prefix("model.")?.split_once('.')?;
    Family::named(family).map(|_| family)
}

fn has_several_families(runs: &[Run]) -> bool {
    let keys = runs.iter().flat_map(|run| &run.keys);
    keys.filter_map(|(key, _)| family_of(key)).collect::<BTreeSet<&str>>().len() > 1
}

/// The state of a run as a sentence.
pub(super) fn state(run: &Run) -> String {
    let at =
        steps(run).map_or_else(|| "before its first record".to_string(), |steps| format!("at step {steps}"));
    match run.state {
        State::Complete if ended_early(run) => match (stopping_key(run), training_seconds(run), steps(run)) {
            (Some(key), Some(seconds), Some(steps)) => {
                format!("complete: stopped by {key} after {}, {steps} steps done", duration(seconds))
            }
            _ => format!("complete, ended {at}"),
        },
        State::Complete => match run.step {
            Some(1) => "complete, 1 step".to_string(),
            step => format!("complete, {} steps", step.map_or("no".to_string(), format_grouped)),
        },
        State::Running => format!("running, {at}"),
        State::Diverged => format!("diverged {at}"),
        State::DroppedOut => format!("dropped out of the tuning {at}"),
        State::Stopped => format!("stopped {at}; run the same command to continue"),
    }
}

/// The key that ended a complete run before its last step; `None` if several keys may have done so.
fn stopping_key(run: &Run) -> Option<&'static str> {
    if has_used_up_time(run) {
        return Some(MAX_TRAIN_TIME);
    }
    let mut others = OTHER_ENDS.into_iter().filter(|key| run.key(key).is_some());
    match (others.next(), others.next()) {
        (None, _) => run.key(MAX_TRAIN_TIME).map(|_| MAX_TRAIN_TIME),
        (only, None) => only,
        _ => None,
    }
}

/// True if another step or two, at the mean time of a step, would have taken more than `max_train_time`.
fn has_used_up_time(run: &Run) -> bool {
    let limit = run.key(MAX_TRAIN_TIME).and_then(|limit| parse_duration(limit).ok());
    let (Some(limit), Some(seconds), Some(steps)) = (limit, training_seconds(run), run.step) else {
        return false;
    };
    seconds + 2.0 * seconds / steps.max(1) as f64 >= limit.as_secs_f64()
}

/// True if a complete run has fewer steps than planned, for example because of `max_train_time`.
fn ended_early(run: &Run) -> bool {
    run.state == State::Complete && run.step.zip(run.total_steps).is_some_and(|(step, total)| step < total)
}

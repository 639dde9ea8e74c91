//! Checks of the section `training`: batch, length, optimizer, schedule, and intervals of logging, evaluation
//! and checkpoints.

use crate::validate::Findings;
use crate::{BatchSize, BatchSizeRamp, ClassWeights, OptimizerType, SchedulerType, TrainingConfig};
use base::quantity;

pub(super) fn training(training: &TrainingConfig, max_seq_length: usize, findings: &mut Findings) {
    batch(training, max_seq_length, findings);
    duration(training, findings);
    optimizer(training, findings);
    schedule(training, findings);
    cadence(training, findings);
    weights(training, findings);
    average(training, findings);
}

/// Checks the moving average of the weights.
fn average(training: &TrainingConfig, findings: &mut Findings) {
    let Some(average) = training.weight_average else { return };
    let first = average.start_step.saturating_add(average.every);
    if training.max_steps > 0 && first > training.max_steps as u64 {
        let message = format!(
            "`training.weight_average` begins after step {first}, but `training.max_steps` is {}",
            training.max_steps
        );
        findings.add(
            &["training.weight_average.start_step", "training.weight_average", "training.max_steps"],
            message,
            "begin earlier, or remove the average",
        );
    }
}

/// Checks the weights of labels. That all labels have one is checked when the examples are read.
fn weights(training: &TrainingConfig, findings: &mut Findings) {
    let path = "training.class_weights";
    let Some(ClassWeights::ByLabel(weights)) = &training.class_weights else { return };
    if weights.is_empty() {
        findings.add(&[path], format!("`{path}` is empty"), "name each label with its weight");
    }
    if let Some((label, weight)) = weights.iter().find(|(_, weight)| **weight <= 0.0) {
        let at = format!("{path}.{label}");
        let message = format!("`{at}` is {weight}, a weight is above 0");
        findings.add(&[&at, path], message, "take a label that is not to be learnt out of the examples");
    }
}

fn batch(training: &TrainingConfig, max_seq_length: usize, findings: &mut Findings) {
    let sizes = [
        ("training.per_device_train_batch_size", training.per_device_train_batch_size),
        ("training.per_device_eval_batch_size", training.per_device_eval_batch_size.into()),
    ];
    for (path, size) in sizes {
        let BatchSize::Rows(rows) = size else { continue };
        // Token positions of a batch are 32-bit numbers.
        if rows.saturating_mul(max_seq_length) > i32::MAX as usize {
            let message =
                format!("`{path}` {rows} times `data.max_seq_length` {max_seq_length} is over 2^31 tokens");
            findings.add(
                &[path, "data.max_seq_length"],
                message,
                "use more `training.gradient_accumulation_steps` for a larger batch",
            );
        }
    }
    match training.per_device_train_batch_size {
        BatchSize::Auto => found_batch(training, findings),
        BatchSize::Rows(_) if training.train_batch_size.is_some() => {
            let message = "`training.train_batch_size` is given, but `training.per_device_train_batch_size` is not `auto`".to_string();
            let hint = "remove one: without `auto` an update has `per_device_train_batch_size` times `gradient_accumulation_steps` rows";
            findings.add(
                &["training.train_batch_size", "training.per_device_train_batch_size"],
                message,
                hint,
            );
        }
        BatchSize::Rows(_) => {}
    }
}

/// Checks the keys that `per_device_train_batch_size: auto` requires and those that it excludes.
fn found_batch(training: &TrainingConfig, findings: &mut Findings) {
    const AUTO: &str = "training.per_device_train_batch_size";
    if training.train_batch_size.is_none() {
        let message =
            format!("`{AUTO}` is `auto`, but `training.train_batch_size` is missing: an update has no size");
        let hint =
            "give `training.train_batch_size` the rows of an update; it is cut into micro-batches that fit";
        findings.add(&[AUTO], message, hint);
    }
    let steps = training.gradient_accumulation_steps;
    let others = [
        (
            "training.gradient_accumulation_steps",
            steps != 1,
            format!("is {steps}"),
            "remove it: `training.train_batch_size` is kept",
        ),
        (
            "training.phases",
            !training.phases.is_empty(),
            "has other batches".into(),
            "give each phase its `per_device_train_batch_size`",
        ),
        (
            "training.batch_size_ramp",
            training.batch_size_ramp != BatchSizeRamp::default(),
            "counts micro-batches".into(),
            "use one of the two",
        ),
    ];
    for (path, _, says, hint) in others.into_iter().filter(|(_, is_given, ..)| *is_given) {
        let message = format!(
            "`{path}` {says}, but `{AUTO}` is `auto` and finds one number of micro-batches for all updates"
        );
        findings.add(&[path, AUTO], message, hint);
    }
}

fn duration(training: &TrainingConfig, findings: &mut Findings) {
    let steps = training.max_steps;
    let epochs = training.num_train_epochs;
    if steps < -1 {
        let message = format!("`training.max_steps` is {steps}, it must be 0 or above, or -1");
        findings.add(&["training.max_steps"], message, "-1 leaves the length to `training.num_train_epochs`");
    }
    if steps == -1 && epochs <= 0.0 {
        let message = format!(
            "`training.num_train_epochs` is {epochs} and `training.max_steps` is not given: training has no length"
        );
        findings.add(
            &["training.num_train_epochs", "training.max_steps"],
            message,
            "make one of the two positive",
        );
    }
    if let Some(given) = &training.max_train_time {
        time("training.max_train_time", given, "remove it to train without a limit", findings);
    }
}

/// Requires a valid duration longer than zero; `without` is the hint for zero.
pub(super) fn time(path: &str, given: &str, without: &str, findings: &mut Findings) {
    match quantity::parse_duration(given) {
        Err(e) => findings.add(&[path], format!("`{path}`: {}", first_clause(&e)), rest(&e)),
        Ok(time) if time.is_zero() => findings.add(&[path], format!("`{path}` is no time at all"), without),
        Ok(_) => {}
    }
}

/// Returns the text of an error before its colon; the rest is the hint.
fn first_clause(error: &quantity::QuantityError) -> String {
    error.to_string().split(": ").next().unwrap_or_default().to_string()
}

fn rest(error: &quantity::QuantityError) -> String {
    error
        .to_string()
        .split_once(": ")
        .map_or_else(|| "write it like `24h`".to_string(), |(_, rest)| rest.to_string())
}

fn optimizer(training: &TrainingConfig, findings: &mut Findings) {
    if training.optim == OptimizerType::Lamb && training.weight_decay == 0.0 {
        let message =
            "`training.optim` is `lamb`, but with `training.weight_decay` 0 no tensor has a trust ratio: this is Adam".to_string();
        findings.add(
            &["training.optim", "training.weight_decay"],
            message,
            "set `weight_decay: 0.01`, or `optim: adamw`",
        );
    }
}

fn schedule(training: &TrainingConfig, findings: &mut Findings) {
    let kind = training.lr_scheduler_type;
    let warmup = steps_or_share("training.warmup_steps", training.warmup_steps, training.max_steps, findings);
    if training.warmup_steps > 0.0 && kind == SchedulerType::Constant {
        let message =
            "`training.warmup_steps` is given, but the schedule `constant` has no warm-up".to_string();
        let hint = "use `lr_scheduler_type: constant_with_warmup`";
        findings.add(&["training.warmup_steps", "training.lr_scheduler_type"], message, hint);
    }
    if kind != SchedulerType::WarmupStableDecay {
        return;
    }
    let decay =
        steps_or_share("training.lr_decay_steps", training.lr_decay_steps, training.max_steps, findings);
    if let (Some(warmup), Some(decay)) = (warmup, decay)
        && training.max_steps > 0
        && warmup + decay > training.max_steps as f64
    {
        let message = format!(
            "`training.warmup_steps` {} and `training.lr_decay_steps` {} are longer together than `training.max_steps` {}",
            training.warmup_steps, training.lr_decay_steps, training.max_steps
        );
        findings.add(
            &["training.lr_decay_steps", "training.warmup_steps", "training.max_steps"],
            message,
            "shorten one of the two",
        );
    }
}

/// Checks a number of steps, or a share of all steps if it is below 1. Returns the steps if the number is
/// right.
fn steps_or_share(path: &str, value: f64, max_steps: i64, findings: &mut Findings) -> Option<f64> {
    if value < 0.0 {
        findings.add(&[path], format!("`{path}` is {value}, it must be at least 0"), "0 turns it off");
        return None;
    }
    if value >= 1.0 && value.fract() != 0.0 {
        findings.add(
            &[path],
            format!("`{path}` is {value}, neither whole steps nor a share below 1"),
            "write `100` or `0.1`",
        );
        return None;
    }
    let steps = if value < 1.0 { value * max_steps.max(0) as f64 } else { value };
    if max_steps > 0 && steps > max_steps as f64 {
        let message = format!("`{path}` {value} is longer than `training.max_steps` {max_steps}");
        findings.add(&[path, "training.max_steps"], message, "a tenth of the steps is usual: `0.1`");
        return None;
    }
    Some(steps)
}

fn needs_evaluations(key: &str) -> String {
    format!("`training.{key}` needs evaluations during training, but `training.eval_steps` is 0")
}

/// Checks keys that need evaluations.
fn cadence(training: &TrainingConfig, findings: &mut Findings) {
    if training.eval_steps > 0 {
        return;
    }
    if training.load_best_model_at_end {
        let message = needs_evaluations("load_best_model_at_end");
        findings.add(
            &["training.load_best_model_at_end", "training.eval_steps"],
            message,
            "set `eval_steps: 500`",
        );
    }
    if training.early_stopping_patience.is_some() {
        let message = needs_evaluations("early_stopping_patience");
        findings.add(
            &["training.early_stopping_patience", "training.eval_steps"],
            message,
            "set `eval_steps: 500`",
        );
    }
}

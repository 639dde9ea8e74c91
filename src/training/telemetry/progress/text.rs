//! Formats records and quantities as short text for one line.

use crate::telemetry::record::Record;
use base::scores::NOT_MEASURED;

/// Tags that a line shows, in this order, each with its name there. All other tags are in metrics.jsonl only.
const SHOWN: [(&str, &str); 10] = [
    ("train/loss", "loss"),
    ("perf/tokens_per_second", "tokens/s"),
    ("train/learning_rate", "lr"),
    ("train/grad_norm", "grad norm"),
    ("eval/loss", "eval loss"),
    ("eval/perplexity", "perplexity"),
    ("eval/unigram_loss", "unigram loss"),
    ("eval/accuracy", "accuracy"),
    ("eval/f1", "macro F1"),
    ("eval/matthews_correlation", "Matthews"),
];

/// Formats a record as `step 120/1000  epoch 0.24  loss 5.1234  lr 3.0e-4  ...`.
pub(super) fn record_line(record: &Record, total_steps: u64) -> String {
    format!("step {}/{total_steps}  epoch {:.2}  {}", record.step, record.epoch, values_text(record))
}

/// Formats the shown values of a record as `loss 5.1234  tokens/s 9.8k  lr 3.0e-4`. The most important ones
/// come first, since a narrow terminal cuts the end off.
pub(super) fn values_text(record: &Record) -> String {
    let mut parts = Vec::new();
    for (tag, name) in SHOWN {
        if let Some((_, value)) = record.values.iter().find(|(found, _)| found == tag) {
            parts.push(format!("{name} {}", value_text(name, *value)));
        }
    }
    parts.join("  ")
}

fn value_text(name: &str, value: f64) -> String {
    match name {
        _ if value.is_nan() => NOT_MEASURED.to_string(),
        "lr" => format!("{value:.2e}"),
        "grad norm" | "perplexity" => format!("{value:.2}"),
        "tokens/s" => count_text(value),
        _ => format!("{value:.4}"),
    }
}

/// Formats a count as `950`, `12.3k` or `4.56M`.
pub(super) fn count_text(value: f64) -> String {
    match value {
        _ if value < 1e3 => format!("{value:.0}"),
        _ if value < 1e6 => format!("{:.1}k", value / 1e3),
        _ => format!("{:.2}M", value / 1e6),
    }
}

/// Formats a duration as `42s`, `3m20s`, `5h07m` or `2d03h`.
pub(super) fn duration_text(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Estimates the remaining seconds, if further steps take as long as those done; `None` before the first
/// step.
pub(super) fn remaining_seconds(done_steps: u64, steps_to_go: u64, elapsed_seconds: f64) -> Option<f64> {
    (done_steps > 0).then(|| elapsed_seconds / done_steps as f64 * steps_to_go as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_the_most_important_values() {
        let values = [
            ("perf/tokens_per_second", 12_345.0),
            ("train/learning_rate", 3e-4),
            ("train/loss", 5.123_42),
            ("perf/mfu", 0.3),
        ];
        let record = Record {
            step: 120,
            epoch: 0.241,
            values: values.map(|(tag, value)| (tag.to_string(), value)).to_vec(),
        };
        assert_eq!(
            record_line(&record, 1000),
            "step 120/1000  epoch 0.24  loss 5.1234  tokens/s 12.3k  lr 3.00e-4"
        );
    }

    #[test]
    fn quantities_are_short() {
        assert_eq!([950.4, 12_300.0, 4_560_000.0].map(count_text), ["950", "12.3k", "4.56M"]);
        assert_eq!(
            [41.6, 200.0, 18_420.0, 183_600.0, -5.0].map(duration_text),
            ["42s", "3m20s", "5h07m", "2d03h", "0s"]
        );
        assert_eq!(remaining_seconds(0, 10, 5.0), None);
        assert_eq!(remaining_seconds(4, 10, 2.0).map(f64::to_bits), Some(5.0_f64.to_bits()));
    }
}

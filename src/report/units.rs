//! Titles of tags and scores, and the format of their values.

use std::time::Duration;

use crate::pages::chart::compact;
use crate::quantity::{format_amount, format_bytes, format_duration, format_grouped};
use crate::scores::{Metric, NOT_MEASURED};
use crate::tasks::pretraining::corpus::PREDICTED_TOKENS;

/// The unit of a value, which decides its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// A share, shown in percent.
    Percent,
    /// A loss: the negative natural logarithm of a probability.
    Nats,
    Bytes,
    Watts,
    Dollars,
    PerSecond,
    Count,
    /// A perplexity, shown with one decimal.
    Perplexity,
    /// A correlation, between -1 and 1.
    Correlation,
    /// A distance or a squared distance, in the unit of the data.
    Distance,
    /// A number without a unit.
    Plain,
}

impl Unit {
    /// Returns the unit of a tag or score by its name.
    pub(super) fn from_name(name: &str) -> Self {
        const SHARES: [&str; 8] =
            ["accuracy", "precision", "recall", "share", "mfu", "utilisation", "match", "f1"];
        const CORRELATIONS: [&str; 3] = ["correlation", "pearson", "spearmanr"];
        let last = name.rsplit('/').next().unwrap_or(name).trim_end_matches("_tuned");
        match last.rsplit('_').next().unwrap_or(last) {
            "loss" => Self::Nats,
            word if SHARES.contains(&word) || last.split('_').any(|word| word == "f1") => Self::Percent,
            word if CORRELATIONS.contains(&word) => Self::Correlation,
            "mse" | "mae" => Self::Distance,
            "bytes" => Self::Bytes,
            "watts" => Self::Watts,
            "usd" => Self::Dollars,
            _ if last == "perplexity" => Self::Perplexity,
            _ if last == "tokens_per_second" => Self::PerSecond,
            word if ["steps", "rollbacks", "number"].contains(&word) || last == PREDICTED_TOKENS => {
                Self::Count
            }
            _ => Self::Plain,
        }
    }

    /// The label of an axis in this unit.
    pub(super) fn axis(self) -> &'static str {
        match self {
            Self::Percent => "%",
            Self::Nats => "nats",
            Self::Bytes => "GiB",
            Self::Watts => "W",
            Self::Dollars => "USD",
            Self::PerSecond => "tokens/s",
            Self::Count | Self::Perplexity | Self::Correlation | Self::Distance | Self::Plain => "",
        }
    }

    /// The factor from a recorded value to its position on an axis.
    pub(super) fn factor(self) -> f64 {
        match self {
            Self::Percent => 100.0,
            Self::Bytes => 1.0 / (1u64 << 30) as f64,
            _ => 1.0,
        }
    }

    /// Formats a value with its unit.
    pub(super) fn text(self, value: f64) -> String {
        match self {
            _ if value.is_nan() => NOT_MEASURED.to_string(),
            Self::Percent => format!("{:.2} %", 100.0 * value),
            Self::Nats | Self::Correlation if value.abs() < 1e6 => format!("{value:.4}"),
            Self::Nats | Self::Correlation | Self::Distance => significant(value),
            Self::Bytes => format_bytes(value as u64),
            Self::Watts => format!("{value:.0} W"),
            Self::Dollars => format!("${}", format_amount(value)),
            Self::PerSecond => format!("{}/s", compact_count(value)),
            Self::Count => format_grouped(value as u64),
            Self::Perplexity => format!("{value:.1}"),
            Self::Plain if value == 0.0 || (0.1..1e4).contains(&value.abs()) => format!("{value:.4}"),
            Self::Plain if value.abs() >= 1e4 => compact(value),
            Self::Plain => format!("{value:.3e}"),
        }
    }

    /// Formats a standard deviation, with the decimals of its mean.
    pub(super) fn deviation(self, deviation: f64, mean: f64) -> String {
        match self {
            Self::Plain if (0.1..1e4).contains(&mean.abs()) && deviation < 1e4 => format!("{deviation:.4}"),
            _ => self.text(deviation),
        }
    }
}

/// A number with four significant digits, without zeros at its end: `172`, `31.25`, `0.00123`.
pub(super) fn significant(value: f64) -> String {
    let size = value.abs();
    if size >= 1e6 || size > 0.0 && size < 1e-6 {
        return format!("{value:.3e}");
    }
    // The size is within 1e-6 and 1e6, so the conversion is exact.
    let before = if size > 0.0 { size.log10().floor() as i32 } else { 0 };
    let decimals = usize::try_from(3 - before).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    let text = if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_string() } else { text.to_string() }
}

/// A number with three digits and a suffix: `980`, `15.2k`, `2.34M`.
pub(super) fn compact_count(value: f64) -> String {
    match value.abs() {
        size if size < 1e3 => format!("{value:.0}"),
        size if size < 1e6 => format!("{:.1}k", value / 1e3),
        size if size < 1e9 => format!("{:.2}M", value / 1e6),
        size if size < 1e12 => format!("{:.2}G", value / 1e9),
        _ => format!("{value:.2e}"),
    }
}

/// Formats seconds in at most two units: `0.4s`, `7.2s`, `2m24s`, `3h5m`, `4d2h`.
pub(super) fn duration(seconds: f64) -> String {
    if seconds < 10.0 {
        return format!("{:.1}s", seconds.max(0.0));
    }
    let whole = match seconds {
        _ if seconds < 3600.0 => 1.0,
        _ if seconds < 86_400.0 => 60.0,
        _ => 3600.0,
    };
    // The cap keeps the conversion to an integer within range for absurd values.
    let rounded = ((seconds / whole).round() * whole).min(1e12);
    format_duration(Duration::from_secs(rounded as u64))
}

/// The title of a score, with a lower-case first letter.
pub(super) fn score_title(name: &str) -> String {
    if let Some(metric) = Metric::named(name) {
        return metric.title().to_string();
    }
    match name {
        "loss" => "evaluation loss".to_string(),
        "unigram_loss" => "baseline: unigram loss".to_string(),
        "overall_precision" => "entity precision".to_string(),
        "overall_recall" => "entity recall".to_string(),
        "overall_accuracy" => "accuracy of words".to_string(),
        "sampled_equal_share" => "share of sampled tokens equal to the original".to_string(),
        _ => match name.strip_suffix("_tuned") {
            Some(name) => format!("{} (tuned thresholds)", score_title(name)),
            None => name.replace("_baseline_", " baseline ").replace('_', " "),
        },
    }
}

/// The title of the chart of a tag.
pub(super) fn tag_title(tag: &str) -> String {
    let named = match tag {
        "train/grad_norm" => "Gradient norm",
        "train/learning_rate" => "Learning rate",
        "train/loss_scale" => "Loss scale",
        "perf/tokens_per_second" => "Throughput",
        "perf/data_wait_share" => "Time spent waiting for data",
        "perf/mfu" => "Share of the peak (MFU)",
        "perf/gpu_peak_memory_bytes" => "GPU memory, peak",
        "perf/gpu_utilisation" => "GPU utilisation",
        "perf/gpu_power_watts" => "GPU power",
        "cost/usd" => "Cost",
        _ => "",
    };
    if !named.is_empty() {
        return named.to_string();
    }
    let name = tag.strip_prefix("eval/").map(score_title);
    let name = name.unwrap_or_else(|| tag.split_once('/').map_or(tag, |(_, name)| name).replace('_', " "));
    let mut characters = name.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_unit_of_their_name() {
        let texts = [
            ("eval/accuracy", 0.2601),
            ("loss", 4.36),
            ("loss", 1.25e15),
            ("overall_f1", 0.875),
            ("f1_micro_tuned", 0.5),
            ("perplexity", 78.3),
            ("matthews_correlation", 0.068_25),
            ("arousal_pearson", -0.086_78),
            ("exact_match_tuned", 0.57),
            ("valence_mse", 0.001_234),
            ("perf/gpu_peak_memory_bytes", 3e9),
            ("perf/tokens_per_second", 42_700.0),
            ("train/learning_rate", 2e-3),
            ("train/skipped_steps", 1234.0),
        ];
        let texts = texts.map(|(name, value)| Unit::from_name(name).text(value));
        let wanted = [
            "26.01 %", "4.3600", "1.250e15", "87.50 %", "50.00 %", "78.3", "0.0683", "-0.0868", "57.00 %",
            "0.001234", "2.8GiB", "42.7k/s", "2.000e-3", "1,234",
        ];
        assert_eq!(texts, wanted);
    }

    #[test]
    fn a_deviation_has_the_decimals_of_its_mean() {
        let texts =
            [("auroc", 0.009_338, 0.61), ("learning_rate", 1e-4, 2e-3), ("accuracy", 0.009_338, 0.61)]
                .map(|(name, deviation, mean)| Unit::from_name(name).deviation(deviation, mean));
        assert_eq!(texts, ["0.0093", "1.000e-4", "0.93 %"]);
    }

    #[test]
    fn distances_have_four_digits_and_no_zeros_at_the_end() {
        let texts =
            [172.0, -0.511, 31.245_6, 0.001_2, 0.0, -0.0, 123_456.0, 1e9, 3e-9, 100.0].map(significant);
        let wanted = ["172", "-0.511", "31.25", "0.0012", "0", "0", "123456", "1.000e9", "3.000e-9", "100"];
        assert_eq!(texts, wanted);
    }

    #[test]
    fn titles_of_scores_and_tags_are_words() {
        assert_eq!(
            ["loss", "overall_f1", "nsp_baseline_loss", "f1_micro_tuned", "LOC_f1"].map(score_title),
            ["evaluation loss", "entity F1", "nsp baseline loss", "micro F1 (tuned thresholds)", "LOC f1"]
        );
        assert_eq!(
            ["perf/mfu", "eval/accuracy", "data/web_share", "x", ""].map(tag_title),
            ["Share of the peak (MFU)", "Accuracy", "Web share", "X", ""]
        );
    }

    #[test]
    fn durations_have_two_units() {
        let texts = [0.04, 7.25, 59.6, 144.2, 11_130.0, 360_000.0, f64::MAX].map(duration);
        assert_eq!(&texts[..6], ["0.0s", "7.2s", "1m", "2m24s", "3h6m", "4d4h"]);
    }
}

//! Durations (`1h30m`), byte counts (`64MB`, `2GiB`) and large counts (`10B`, `5k`): parsing and formatting.
//!
//! Pure functions, which know neither the clock nor the configuration keys with such values.

use std::time::{Duration, SystemTime};

use chrono::DateTime;

/// An upper bound on the documents or bytes on any disk. Sums of counts within this bound fit into 64 bits.
pub const MOST_ON_A_DISK: u64 = 1 << 50;

/// The reason why a text is not a quantity. The message quotes the text and shows the expected form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a duration.
    #[error("`{0}` is not a duration: write it like `90s`, `4m`, `24h`, `1h30m` or `2d`")]
    Duration(String),
    /// Units of a duration that are not in order from large to small, each at most once.
    #[error(
        "`{0}` has its units out of order: write days, hours, minutes, seconds, each at most once, as in `1h30m`"
    )]
    DurationOrder(String),
    /// Not a moment in time.
    #[error("`{0}` is not a moment: write it like `2026-12-24T18:00:00+02:00`, or with `Z` for UTC")]
    Moment(String),
    /// Not a byte count.
    #[error("`{0}` is not a byte count: write it like `1500`, `64MB` (10^6) or `2GiB` (2^30)")]
    Bytes(String),
    /// Not a count.
    #[error("`{0}` is not a count: write it like `1500`, `5k`, `2.5M` or `10B` (10^9)")]
    Count(String),
    /// More than 64 bits can store.
    #[error("`{0}` is too large")]
    TooLarge(String),
    /// Not a whole number, such as `1.5B` bytes or `0.0001k`.
    #[error("`{0}` is not a whole number")]
    NotWhole(String),
}

/// Units of time with their lengths in seconds, from large to small.
const TIME_UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

/// Units of bytes with their sizes. The binary units come first, so that [`format_bytes`] finds the largest
/// that fits.
const BYTE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Units of counts with their sizes, from large to small.
const COUNT_UNITS: [(&str, u64); 4] =
    [("T", 1_000_000_000_000), ("B", 1_000_000_000), ("M", 1_000_000), ("k", 1_000)];

/// Parses a duration such as `90s`, `4m`, `24h`, `1h30m` or `2d`. Upper case and spaces between the parts are
/// accepted.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    let mut rest = text.trim();
    let mut seconds: u64 = 0;
    let mut smaller_than = u64::MAX;
    if rest.is_empty() {
        return Err(not_a_duration(text));
    }
    while !rest.is_empty() {
        let (digits, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
        let unit = after.chars().next().ok_or_else(|| not_a_duration(text))?;
        let unit_seconds = TIME_UNITS
            .iter()
            .find(|(name, _)| name.starts_with(unit.to_ascii_lowercase()))
            .ok_or_else(|| not_a_duration(text))?
            .1;
        if digits.is_empty() {
            return Err(not_a_duration(text));
        }
        if unit_seconds >= smaller_than {
            return Err(QuantityError::DurationOrder(text.to_string()));
        }
        smaller_than = unit_seconds;
        let part = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit_seconds));
        seconds = part.and_then(|p| seconds.checked_add(p)).ok_or_else(|| too_large(text))?;
        rest = after[unit.len_utf8()..].trim_start();
    }
    Ok(Duration::from_secs(seconds))
}

fn not_a_duration(text: &str) -> QuantityError {
    QuantityError::Duration(text.to_string())
}

fn too_large(text: &str) -> QuantityError {
    QuantityError::TooLarge(text.to_string())
}

/// Parses a moment in the format of RFC 3339, which includes the offset from UTC. Seconds may be left out.
pub fn parse_moment(text: &str) -> Result<SystemTime, QuantityError> {
    let text = text.trim();
    let moment = DateTime::parse_from_rfc3339(text);
    let moment = moment.or_else(|_| DateTime::parse_from_str(text, "%Y-%m-%dT%H:%M%#z"));
    let seconds = moment.map(|moment| moment.timestamp()).ok().and_then(|s| u64::try_from(s).ok());
    let seconds = seconds.ok_or_else(|| QuantityError::Moment(text.to_string()))?;
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// Formats a duration in the form that [`parse_duration`] accepts, rounded down to whole seconds: `1h30m`,
/// `0s`.
pub fn format_duration(duration: Duration) -> String {
    let mut rest = duration.as_secs();
    let mut text = String::new();
    for (unit, seconds) in TIME_UNITS {
        if rest >= seconds {
            text.push_str(&(rest / seconds).to_string());
            text.push_str(unit);
            rest %= seconds;
        }
    }
    if text.is_empty() { "0s".to_string() } else { text }
}

/// Formats an age in a single unit, rounded down: `59s`, `3m`, `47h`, `12d`.
pub fn format_age(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7_199 => format!("{}m", seconds / 60),
        7_200..=172_799 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Units of predicted durations with their lengths in seconds, from small to large.
const SPANS: [(&str, f64); 5] =
    [("second", 1.0), ("minute", 60.0), ("hour", 3_600.0), ("day", 86_400.0), ("year", 31_557_600.0)];

/// Formats a duration that is known to about two significant digits: `42 seconds`, `6.9 days`, `3.9 years`.
pub fn format_span(seconds: f64) -> String {
    // Less than a hundredth of a second counts as zero.
    let seconds = if seconds < 0.01 { 0.0 } else { seconds };
    let (unit, unit_seconds) = SPANS
        .into_iter()
        .rev()
        .find(|(_, size)| two_digits(seconds / size).parse::<f64>().is_ok_and(|number| number >= 1.0))
        .unwrap_or(SPANS[0]);
    let number = two_digits(seconds / unit_seconds);
    let plural = if number == "1" { "" } else { "s" };
    format!("{number} {unit}{plural}")
}

/// Formats an amount of money or energy: a whole number from 10 on, two decimal places below 10, two
/// significant digits below a tenth: `683`, `3.42`, `0.0042`.
pub fn format_amount(amount: f64) -> String {
    match amount.abs() {
        size if size >= 9.995 => format!("{amount:.0}"),
        size if size >= 0.0995 || size == 0.0 => format!("{amount:.2}"),
        _ => two_digits(amount),
    }
}

/// Formats a number with two significant digits, without trailing zeros after the decimal point.
fn two_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value:.0}");
    }
    let places = 1 - value.abs().log10().floor() as i32;
    let scale = 10f64.powi(places);
    let rounded = (value * scale).round() / scale;
    let text = format!("{rounded:.*}", places.clamp(0, 12) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

/// Parses a byte count: a plain number, or one with a decimal (`KB`, `MB`, `GB`, `TB`) or binary (`KiB` ...
/// `TiB`) unit.
///
/// A lone `M` is refused, because it means 10^6 to some readers and 2^20 to others.
pub fn parse_bytes(text: &str) -> Result<u64, QuantityError> {
    let (number, unit) = split_unit(text);
    let factor = match unit {
        "" => Some(1),
        _ => BYTE_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, factor)| *factor),
    };
    scale(text, number, factor.ok_or_else(|| QuantityError::Bytes(text.to_string()))?, QuantityError::Bytes)
}

/// Formats a byte count with a binary unit and at most one decimal place: `512B`, `1.5KiB`, `2GiB`.
pub fn format_bytes(bytes: u64) -> String {
    match BYTE_UNITS[..4].iter().find(|(_, factor)| bytes >= *factor) {
        Some((unit, factor)) => format!("{}{unit}", one_decimal(bytes as f64 / *factor as f64)),
        None => format!("{bytes}B"),
    }
}

/// Parses a count such as `1500`, `1_500`, `5k`, `2.5M`, `10B` (10^9) or `1T`.
pub fn parse_count(text: &str) -> Result<u64, QuantityError> {
    let (number, unit) = split_unit(text);
    let factor = match unit {
        "" => Some(1),
        _ => COUNT_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, factor)| *factor),
    };
    scale(text, number, factor.ok_or_else(|| QuantityError::Count(text.to_string()))?, QuantityError::Count)
}

/// Formats a count with at most one decimal place: `950`, `5k`, `2.5M`, `10B`.
pub fn format_count(count: u64) -> String {
    match COUNT_UNITS.iter().find(|(_, factor)| count >= *factor) {
        Some((unit, factor)) => format!("{}{unit}", one_decimal(count as f64 / *factor as f64)),
        None => count.to_string(),
    }
}

/// Formats a count with all its digits in groups of three: `1,234,567`.
pub fn format_grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn one_decimal(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_string).unwrap_or(text)
}

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// Computes `number * factor` in integer arithmetic, so that `0.1GB` is exactly 100,000,000.
fn scale(
    text: &str,
    number: &str,
    factor: u64,
    wrong: fn(String) -> QuantityError,
) -> Result<u64, QuantityError> {
    let plain = number.replace('_', "");
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let is_number =
        !whole.is_empty() && fraction.chars().all(|c| c.is_ascii_digit()) && !plain.ends_with('.');
    if !is_number {
        return Err(wrong(text.to_string()));
    }
    let fraction = fraction.trim_end_matches('0');
    let unit_parts = 10_u128
        .checked_pow(fraction.len() as u32)
        .ok_or_else(|| QuantityError::NotWhole(text.to_string()))?;
    let digits = format!("{whole}{fraction}").parse::<u128>().map_err(|_| too_large(text))?;
    let scaled = digits.checked_mul(u128::from(factor)).ok_or_else(|| too_large(text))?;
    if scaled % unit_parts != 0 {
        return Err(QuantityError::NotWhole(text.to_string()));
    }
    u64::try_from(scaled / unit_parts).map_err(|_| too_large(text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(text: &str) -> Result<u64, String> {
        parse_duration(text).map(|d| d.as_secs()).map_err(|e| e.to_string())
    }

    #[test]
    fn digits_are_in_groups_of_three() {
        for (count, want) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(format_grouped(count), want);
        }
    }

    #[test]
    fn durations_as_people_write_them() {
        for (text, want) in [
            ("90s", 90),
            ("4m", 240),
            ("24h", 86_400),
            ("1h30m", 5_400),
            ("2d", 172_800),
            (" 1H 5S ", 3_605),
            ("0s", 0),
        ] {
            assert_eq!(seconds(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn wrong_durations_say_what_would_be_right() {
        insta::assert_snapshot!(seconds("soon").expect_err("is wrong"), @"`soon` is not a duration: write it like `90s`, `4m`, `24h`, `1h30m` or `2d`");
        insta::assert_snapshot!(seconds("30m1h").expect_err("is wrong"), @"`30m1h` has its units out of order: write days, hours, minutes, seconds, each at most once, as in `1h30m`");
        insta::assert_snapshot!(seconds("99999999999999999999d").expect_err("is wrong"), @"`99999999999999999999d` is too large");
        for text in ["", "10", "h", "1.5h", "-4m", "4µ", "4m 3"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_and_counts() {
        for (text, want) in [
            ("1500", 1500),
            ("64MB", 64_000_000),
            ("2GiB", 2 << 30),
            ("1.5 KiB", 1536),
            ("0.1gb", 100_000_000),
            ("7B", 7),
        ] {
            assert_eq!(parse_bytes(text), Ok(want), "{text}");
        }
        for (text, want) in [
            ("10B", 10_000_000_000),
            ("5k", 5_000),
            ("2.5M", 2_500_000),
            ("1_500", 1_500),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_count(text), Ok(want), "{text}");
        }
        insta::assert_snapshot!(parse_bytes("64M").expect_err("is wrong"), @"`64M` is not a byte count: write it like `1500`, `64MB` (10^6) or `2GiB` (2^30)");
        insta::assert_snapshot!(parse_count("12 apples").expect_err("is wrong"), @"`12 apples` is not a count: write it like `1500`, `5k`, `2.5M` or `10B` (10^9)");
        insta::assert_snapshot!(parse_count("1.5").expect_err("is wrong"), @"`1.5` is not a whole number");
        insta::assert_snapshot!(parse_bytes("99999999TiB").expect_err("is wrong"), @"`99999999TiB` is too large");
    }

    #[test]
    fn printing() {
        assert_eq!(format_bytes(512), "512B");
        assert_eq!(format_bytes(1536), "1.5KiB");
        assert_eq!(format_bytes(2 << 30), "2GiB");
        assert_eq!(format_count(950), "950");
        assert_eq!(format_count(2_500_000), "2.5M");
        assert_eq!(format_count(10_000_000_000), "10B");
        assert_eq!(format_duration(Duration::from_millis(90_900)), "1m30s");
    }

    proptest! {
        #[test]
        fn a_printed_duration_reads_back(seconds in 0_u64..=u64::MAX / 2) {
            let duration = Duration::from_secs(seconds);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn any_text_is_a_value_or_an_error(text in "\\PC*") {
            let _ = (parse_duration(&text), parse_bytes(&text), parse_count(&text));
        }
    }

    #[test]
    fn predictions_have_the_digits_that_matter() {
        for (seconds, want) in [
            (0.0, "0 seconds"),
            (0.42, "0.42 seconds"),
            (1.0, "1 second"),
            (42.4, "42 seconds"),
            (59.7, "1 minute"),
            (100.0, "1.7 minutes"),
            (3_590.0, "1 hour"),
            (40_000.0, "11 hours"),
            (86_399.0, "1 day"),
            (6.9 * 86_400.0, "6.9 days"),
            (4_920_772.0, "57 days"),
            (157.2 * 86_400.0, "160 days"),
            (1421.0 * 86_400.0, "3.9 years"),
            (1e12, "32000 years"),
        ] {
            assert_eq!(format_span(seconds), want, "{seconds}");
        }
        for (amount, want) in [
            (0.0, "0.00"),
            (0.004_211, "0.0042"),
            (0.08, "0.08"),
            (0.099, "0.099"),
            (0.4, "0.40"),
            (3.417, "3.42"),
            (9.996, "10"),
            (682.9, "683"),
            (123_456.7, "123457"),
        ] {
            assert_eq!(format_amount(amount), want, "{amount}");
        }
    }

    #[test]
    fn an_age_has_one_unit() {
        let texts: Vec<String> = [0, 119, 120, 7_199, 7_200, 172_799, 172_800].map(format_age).into();
        assert_eq!(texts, ["0s", "119s", "2m", "119m", "2h", "47h", "2d"]);
    }
}

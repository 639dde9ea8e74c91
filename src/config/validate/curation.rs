//! Checks of filters: contradicting bounds, languages, and tables that are given but not enabled.

use crate::filters::{language_code, language_codes};
use crate::validate::Findings;
use crate::{DataConfig, FiltersConfig};

pub(super) fn curation(data: &DataConfig, findings: &mut Findings) {
    let filters = &data.filters;
    switches(filters, findings);
    bounds(filters, findings);
    words(filters, findings);
    language(filters, findings);
    perplexity(filters, findings);
}

/// Reports rules that were changed but are not enabled: they would silently have no effect.
fn switches(filters: &FiltersConfig, findings: &mut Findings) {
    use crate::filters as tables;
    let unused = [
        ("markup", !filters.markup.enabled && filters.markup != tables::MarkupFilter::default()),
        ("c4", !filters.c4.enabled && filters.c4 != tables::C4Filter::default()),
        ("gopher", !filters.gopher.enabled && filters.gopher != tables::GopherFilter::default()),
        (
            "repetition",
            !filters.repetition.enabled && filters.repetition != tables::RepetitionFilter::default(),
        ),
    ];
    for (name, is_unused) in unused {
        if is_unused {
            let path = format!("data.filters.{name}");
            let message = format!("`{path}` is given, but `{path}.enabled` is false");
            findings.add(&[&path, "data.filters"], message, "add `enabled: true`, or remove the other keys");
        }
    }
}

fn bounds(filters: &FiltersConfig, findings: &mut Findings) {
    let length = &filters.length;
    let lines = &filters.lines;
    let gopher = &filters.gopher;
    let counted = [
        ("length.min_chars", length.min_chars, "length.max_chars", length.max_chars),
        ("length.min_words", length.min_words, "length.max_words", length.max_words),
        ("lines.min_chars", lines.min_chars, "lines.max_chars", lines.max_chars),
        ("gopher.min_words", gopher.min_words, "gopher.max_words", gopher.max_words),
    ];
    for (low_key, low, high_key, high) in counted {
        ordered(low_key, low.map(|n| n as f64), high_key, high.map(|n| n as f64), findings);
    }
    ordered(
        "gopher.min_mean_word_chars",
        gopher.min_mean_word_chars,
        "gopher.max_mean_word_chars",
        gopher.max_mean_word_chars,
        findings,
    );
    for (index, pattern) in lines.patterns.iter().enumerate() {
        if pattern.trim_matches(['*', ' ']).is_empty() {
            let path = format!("data.filters.lines.patterns.{index}");
            findings.add(
                &[&path, "data.filters.lines.patterns"],
                format!("`{path}` matches every line"),
                "write it like `read more*`",
            );
        }
    }
}

/// Checks that a lower bound is not above its upper bound.
fn ordered(low_key: &str, low: Option<f64>, high_key: &str, high: Option<f64>, findings: &mut Findings) {
    if let (Some(low), Some(high)) = (low, high)
        && low > high
    {
        let low_path = format!("data.filters.{low_key}");
        let high_path = format!("data.filters.{high_key}");
        let message = format!("`{low_path}` {low} is above `{high_path}` {high}");
        findings.add(&[&low_path, &high_path], message, "nothing would be left: swap or remove one of them");
    }
}

fn words(filters: &FiltersConfig, findings: &mut Findings) {
    let words = &filters.words;
    if words.files.is_empty() && (words.max_count.is_some() || words.max_share.is_some()) {
        let message = "`data.filters.words` has a limit, but no `files`".to_string();
        findings.add(
            &["data.filters.words.files", "data.filters.words"],
            message,
            "name a file with one word a line",
        );
    }
    let gopher = &filters.gopher;
    if gopher.enabled
        && gopher.min_stop_words.is_some_and(|n| n > 0)
        && gopher.stop_words.is_empty()
        && gopher.stop_word_files.is_empty()
    {
        let path = "data.filters.gopher.stop_words";
        let message = format!("`{path}` is empty, every document would be left out");
        findings.add(&[path], message, "name a list, such as `[finnish]`, or set `min_stop_words: null`");
    }
}

fn language(filters: &FiltersConfig, findings: &mut Findings) {
    let language = &filters.language;
    for (key, names) in [("expected", &language.expected), ("candidates", &language.candidates)] {
        for (index, name) in names.iter().enumerate().filter(|(_, name)| language_code(name).is_none()) {
            let path = format!("data.filters.language.{key}.{index}");
            let message = format!(
                "`{}` is not a language that can be detected",
                name.chars().take(40).collect::<String>()
            );
            findings.add(&[&path, &format!("data.filters.language.{key}")], message, language_hint(name));
        }
    }
    let candidates: Vec<_> = language.candidates.iter().map(|name| language_code(name)).collect();
    let missing = language.expected.iter().find(|name| !candidates.contains(&language_code(name)));
    if let Some(name) = missing.filter(|name| !candidates.is_empty() && language_code(name).is_some()) {
        let message = format!("`data.filters.language.candidates` lacks `{name}`, which is expected");
        findings.add(&["data.filters.language.candidates"], message, "add it, or nothing would be kept");
    }
}

/// Returns a hint with the languages whose code or name is most similar to `typed`.
fn language_hint(typed: &str) -> String {
    let typed: String = typed.to_lowercase().chars().take(40).collect();
    let mut near: Vec<(f64, &str, &str)> = language_codes()
        .map(|(code, name)| {
            let [by_code, by_name] =
                [code, name].map(|text| strsim::jaro_winkler(&typed, &text.to_lowercase()));
            (by_name.max(by_code), code, name)
        })
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    let names: Vec<String> =
        near.iter().take(3).map(|(_, code, name)| format!("`{code}` ({name})")).collect();
    format!("write an ISO 639 code; near ones are {}", names.join(", "))
}

/// Returns the dotted path of a key of the perplexity filter.
fn perplexity_key(key: &str) -> String {
    format!("data.filters.perplexity.{key}")
}

fn perplexity(filters: &FiltersConfig, findings: &mut Findings) {
    let perplexity = &filters.perplexity;
    match (perplexity.max_perplexity, perplexity.reference_files.is_empty()) {
        (Some(_), true) => {
            let message =
                format!("`{}` is given, but no `reference_files`", perplexity_key("max_perplexity"));
            findings.add(
                &[&perplexity_key("reference_files"), "data.filters.perplexity"],
                message,
                "name files of good text to learn from",
            );
        }
        (None, false) => {
            let message =
                format!("`{}` is given, but no `max_perplexity`", perplexity_key("reference_files"));
            findings.add(
                &[&perplexity_key("max_perplexity"), "data.filters.perplexity"],
                message,
                "`max_perplexity: 30` is a start",
            );
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the messages and hints after one change of the defaults, a line each.
    fn found(change: impl FnOnce(&mut DataConfig)) -> String {
        let mut data = DataConfig::default();
        change(&mut data);
        let mut findings = Findings::default();
        curation(&data, &mut findings);
        let lines =
            findings.0.iter().map(|f| format!("{} ({})", f.message, f.hint.as_deref().unwrap_or_default()));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn defaults_and_enabled_tables_are_accepted() {
        assert_eq!(found(|_| {}), "");
        assert_eq!(
            found(|d| {
                let filters = &mut d.filters;
                (filters.markup.enabled, filters.c4.enabled) = (true, true);
                (filters.gopher.enabled, filters.repetition.enabled) = (true, true);
                filters.gopher.min_words = None;
                filters.language.expected = vec!["fi".to_string(), "swe".to_string()];
            }),
            ""
        );
    }

    #[test]
    fn changed_rules_that_are_not_enabled_are_reported() {
        insta::assert_snapshot!(found(|d| d.filters.gopher.min_words = Some(20)), @"`data.filters.gopher` is given, but `data.filters.gopher.enabled` is false (add `enabled: true`, or remove the other keys)");
        insta::assert_snapshot!(found(|d| d.filters.c4.lorem_ipsum = false), @"`data.filters.c4` is given, but `data.filters.c4.enabled` is false (add `enabled: true`, or remove the other keys)");
    }

    #[test]
    fn contradicting_bounds() {
        insta::assert_snapshot!(found(|d| (d.filters.length.min_words, d.filters.length.max_words) = (Some(9), Some(3))), @"`data.filters.length.min_words` 9 is above `data.filters.length.max_words` 3 (nothing would be left: swap or remove one of them)");
        insta::assert_snapshot!(found(|d| d.filters.lines.patterns = vec!["a*".to_string(), "**".to_string()]), @"`data.filters.lines.patterns.1` matches every line (write it like `read more*`)");
    }

    #[test]
    fn languages() {
        insta::assert_snapshot!(found(|d| d.filters.language.expected = vec!["fin".to_string(), "finnish".to_string()]), @"`finnish` is not a language that can be detected (write an ISO 639 code; near ones are `fin` (Finnish), `eng` (English), `spa` (Spanish))");
        insta::assert_snapshot!(found(|d| d.filters.language.expected = vec!["est".to_string(), "eet".to_string()]), @"`eet` is not a language that can be detected (write an ISO 639 code; near ones are `est` (Estonian), `epo` (Esperanto), `vie` (Vietnamese))");
        assert!(
            found(|d| d.filters.language.expected = vec!["x".repeat(100_000)])
                .starts_with("`xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx` is not a language")
        );
        let message = found(|d| {
            d.filters.language.expected = vec!["fi".to_string()];
            d.filters.language.candidates = vec!["swe".to_string()];
        });
        insta::assert_snapshot!(message, @"`data.filters.language.candidates` lacks `fi`, which is expected (add it, or nothing would be kept)");
    }

    #[test]
    fn lists_and_models() {
        insta::assert_snapshot!(found(|d| d.filters.words.max_count = Some(3)), @"`data.filters.words` has a limit, but no `files` (name a file with one word a line)");
        insta::assert_snapshot!(found(|d| { d.filters.gopher.enabled = true; d.filters.gopher.stop_words.clear() }), @"`data.filters.gopher.stop_words` is empty, every document would be left out (name a list, such as `[finnish]`, or set `min_stop_words: null`)");
        insta::assert_snapshot!(found(|d| d.filters.perplexity.max_perplexity = Some(1.0)), @"`data.filters.perplexity.max_perplexity` is given, but no `reference_files` (name files of good text to learn from)");
        insta::assert_snapshot!(found(|d| d.filters.perplexity.reference_files = vec![String::new()]), @"`data.filters.perplexity.reference_files` is given, but no `max_perplexity` (`max_perplexity: 30` is a start)");
    }
}

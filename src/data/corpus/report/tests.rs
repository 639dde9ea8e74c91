//! Tests with generated corpora: exact counts, merging, round trips, hostile text, reproducible bytes.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::corpus::{Location, Rejection};

const REASONS: [&str; 11] = [
    "near_duplicate",
    "language",
    "too_short",
    "exact_duplicate",
    "repeated_lines",
    "invalid_utf8",
    "symbol_ratio",
    "line_too_long",
    "contaminated",
    "stop_words",
    "bad_words",
];

fn names() -> Vec<String> {
    ["news", "web <b>crawl</b>", "kalevala"].map(str::to_string).to_vec()
}

fn location(file: &str, line: u64) -> Location {
    Location { path: Path::new(file).into(), line }
}

fn reject(tally: &mut Tally, source: usize, reason: &'static str, line: u64, excerpt: &str) {
    let rejection = Rejection { reason, detail: format!("line {line}") };
    tally.rejected(source, excerpt.len() as u64, &rejection, &location("data/a.jsonl", line), excerpt);
}

/// Counts document `number` of a generated corpus: about a third is left out for one of the reasons.
fn count(tally: &mut Tally, number: u64) {
    let source = (number % 7 / 3) as usize;
    let text = "sana ja toinen sana ".repeat(1 + (number * number % 97) as usize);
    tally.read(
        source,
        text.len() as u64 + 5,
        number.is_multiple_of(50),
        u32::from(number.is_multiple_of(40)) * 3,
    );
    tally.changed(source, &[("whitespace", 1), ("html_entities", number % 3)]);
    match REASONS.get((number * 31 % 41) as usize) {
        Some(reason) => reject(
            tally,
            source,
            reason,
            number,
            &format!("{number} <script>alert(\"{number}\")</script> {text}"),
        ),
        None => tally.kept(source, &text, Some(["fin", "eng", "swe"][(number % 11 / 5) as usize])),
    }
}

fn made(numbers: impl Iterator<Item = u64>) -> Tally {
    let mut tally = Tally::new(&names());
    numbers.for_each(|number| count(&mut tally, number));
    tally
}

fn report() -> Report {
    let mut tally = made(0..3000);
    for line in 0..25 {
        tally.read(0, 11, false, 0);
        reject(&mut tally, 0, "near_duplicate", 10_000 + line, "sama teksti");
    }
    let train = Amount { documents: 1400, bytes: 1_200_000 };
    let split = SplitSummary { train, validation: Amount { documents: 14, bytes: 11_000 } };
    let mut report = Report::new(tally, split);
    let rows =
        vec![("news".to_string(), vec![1.71, 4.52, 0.0]), ("kalevala".to_string(), vec![2.1, 3.9, 0.0001])];
    let columns = ["tokens_per_word", "bytes_per_token", "unknown_rate"].map(str::to_string).to_vec();
    report.tokenizer = Some(Fertility { columns, rows });
    let source_tokens = vec![400_000, 123_456, 77_000];
    report.shards =
        Some(ShardsSummary { source_tokens, tokens: 600_456, text_bytes: 2_400_000, disk_bytes: 1_210_000 });
    report
}

#[test]
fn every_count_is_exact() {
    let mut tally = Tally::new(&names());
    tally.read(1, 100, true, 0);
    tally.read(1, 50, false, 4);
    tally.read(1, 30, false, 0);
    tally.changed(1, &[("nfc", 1), ("lines", 7)]);
    tally.changed(1, &[("lines", 2)]);
    tally.kept(1, "kissa äiti\n talo", Some("fin"));
    tally.kept(1, "", None);
    reject(&mut tally, 1, "language", 7, "bonjour");
    let source = &tally.sources[1];
    assert_eq!(source.read, Amount { documents: 3, bytes: 180 });
    assert_eq!((source.cut_documents, source.replaced.documents, source.replaced.count), (1, 1, 4));
    assert_eq!(
        (source.changes["lines"].documents, source.changes["lines"].count, source.changes["nfc"].count),
        (2, 9, 1)
    );
    assert_eq!(source.kept, Amount { documents: 2, bytes: 17 });
    assert_eq!((source.words, source.characters), (3, 16));
    assert_eq!(source.languages["fin"], Amount { documents: 1, bytes: 17 });
    assert_eq!(source.languages["und"], Amount { documents: 1, bytes: 0 });
    assert_eq!(source.lengths_bytes.0, [1, 0, 0, 0, 0, 1], "17 bytes lie in 16..=31");
    assert_eq!(source.lengths_words.0, [1, 0, 1], "3 words lie in 2..=3");
    assert_eq!(source.dropped["language"], Amount { documents: 1, bytes: 7 });
    assert_eq!(tally.samples.0["language"][0].excerpt, "bonjour");
    assert_eq!((&tally.sources[0].read, tally.sources[2].words), (&Amount::default(), 0));
}

#[test]
fn documents_read_are_kept_or_dropped() {
    let report = report();
    for source in &report.sources {
        let dropped: u64 = source.dropped.values().map(|amount| amount.documents).sum();
        assert_eq!(source.read.documents, source.kept.documents + dropped, "{}", source.name);
    }
    assert_eq!(
        report.kept.documents + report.dropped.values().map(|amount| amount.documents).sum::<u64>(),
        3025
    );
}

#[test]
fn counts_of_damaged_parts_saturate() {
    let mut tally = made(0..100);
    let source = &mut tally.sources[0];
    let most = Amount { documents: u64::MAX, bytes: u64::MAX };
    (source.read, source.kept, source.words, source.characters) = (most, most, u64::MAX, u64::MAX);
    (source.cut_documents, source.lengths_words.0) = (u64::MAX, vec![u64::MAX; 65]);
    source.languages.insert("fin".to_string(), most);
    source.languages.insert("eng".to_string(), most);
    source.dropped.insert("too_short".to_string(), most);
    tally.merge(made(0..100));
    assert_eq!(tally.sources[0].read, most);
    assert!(Report::new(tally, SplitSummary::default()).to_html().contains("18,446,744,073,709,551,615"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn parts_merged_in_any_order_equal_one_pass(cuts in prop::collection::vec(0u64..2000, 1..5), backwards: bool) {
        let mut ends = [vec![0, 2000], cuts].concat();
        ends.sort_unstable();
        let mut parts: Vec<Tally> = ends.windows(2).map(|ends| made(ends[0]..ends[1])).collect();
        if backwards {
            parts.reverse();
        }
        let mut merged = Tally::new(&names());
        for part in parts {
            // Through JSON, as parts are stored between two runs.
            let json = serde_json::to_string(&part).unwrap();
            merged.merge(serde_json::from_str(&json).unwrap());
        }
        prop_assert_eq!(merged, made(0..2000));
    }
}

#[test]
fn samples_are_few_short_and_spread_over_the_corpus() {
    let mut tally = Tally::new(&names());
    let excerpt = "ä".repeat(1000);
    (0..10_000).for_each(|line| reject(&mut tally, 0, "too_short", line, &excerpt));
    let samples = &tally.samples.0["too_short"];
    assert_eq!(samples.len(), 20);
    assert!(
        samples.iter().all(|sample| sample.excerpt.chars().count() == 300
            && sample.detail == format!("line {}", sample.line))
    );
    let quarters: std::collections::BTreeSet<u64> = samples.iter().map(|sample| sample.line / 2500).collect();
    assert_eq!(quarters.len(), 4, "each quarter of the corpus has a sample");
}

#[test]
fn the_json_has_its_keys_and_round_trips() {
    let report = report();
    let json = report.to_json().unwrap();
    let back: Report = serde_json::from_str(&json).unwrap();
    assert_eq!(back, report);
    assert_eq!(back.to_json().unwrap(), json);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        ["version", "sources", "read", "dropped", "kept", "split", "tokenizer", "shards", "samples"]
    );
    assert_eq!(value["sources"][0]["name"], "news");
    assert_eq!(
        value["sources"][0]["dropped"]["near_duplicate"]["documents"],
        report.sources[0].dropped["near_duplicate"].documents
    );
}

#[test]
fn the_page_is_whole_and_hostile_text_stays_text() {
    let page = report().to_html();
    assert_eq!(page, report().to_html(), "the same bytes each time");
    assert!(
        !page.contains("<script")
            && !page.contains("<b>crawl")
            && !page.contains("http://")
            && !page.contains("https://")
    );
    assert!(page.contains("&lt;script&gt;alert(&quot;") && page.contains("web &lt;b&gt;crawl&lt;/b&gt;"));
    for tag in ["div", "svg", "details", "ol", "li", "pre", "table", "section", "ul", "figure", "tr", "span"]
    {
        let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "<{tag}>");
    }
    assert_eq!(page.matches("<details>").count(), 11);
    assert!(page.matches("<pre").count() <= 11 * 20);
}

#[test]
fn an_empty_corpus_has_a_report_too() {
    let report = Report::new(Tally::new(&[]), SplitSummary::default());
    assert!(report.to_html().contains("</html>"));
    assert!(!report.to_table().is_empty());
}

#[test]
fn the_table_is_aligned_and_narrow() {
    let mut report = report();
    report.dropped.retain(|reason, _| reason.starts_with('l') || reason.starts_with('n'));
    let lines = report.to_table();
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{}", lines.join("\n"));
    insta::assert_snapshot!(lines.join("\n"), @"
    source             read     bytes  dropped   kept     bytes   share
    news              1,312    1.2MiB      369    943  905.6KiB  71.9 %
    web <b>crawl</b>  1,285    1.2MiB      346    939  899.3KiB  73.1 %
    kalevala            428  408.7KiB      115    313  299.6KiB  73.1 %
    all               3,025    2.8MiB      830  2,195    2.1MiB  72.6 %

    dropped because  documents    bytes  of all  news  web <b>crawl</b>  kalevala
    near_duplicate          99  71.6KiB   3.3 %    56                32        11
    language                74  72.2KiB   2.4 %    32                32        10
    line_too_long           73  73.2KiB   2.4 %    31                31        11

    split         documents    bytes
    train             1,400   1.1MiB
    validation           14  10.7KiB
    tokens          600,456
    shards      0.50 x text   1.2MiB

    tokenizer  tokens per word  bytes per token  unknown rate
    news                 1.710            4.520         0.000
    kalevala             2.100            3.900       0.00010
    ");
}

#[test]
fn long_names_do_not_widen_the_table() {
    let names: Vec<String> = (0..9).map(|n| format!("{n}\u{1b}[31m{}", "pitkä nimi ".repeat(9))).collect();
    let mut tally = Tally::new(&names);
    (0..9).for_each(|source| reject(&mut tally, source, "language", 1, "x"));
    let lines = Report::new(tally, SplitSummary::default()).to_table();
    assert!(
        lines.iter().all(|line| line.chars().count() <= 100 && !line.contains('\u{1b}')),
        "{}",
        lines.join("\n")
    );
}

//! Tests of reading pairs and of the report.

use std::path::Path;

use super::*;

fn read(name: &str, text: &str) -> Result<Vec<Pair>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    read_pairs(&path, None)
        .map_err(|e| format!("{e:#}").replace(&format!("{}/", folder.path().display()), ""))
}

#[test]
fn pairs_are_read_from_each_format_under_both_names() {
    let json = read(
        "a.jsonl",
        "{\"good\": \"Dogs bark.\", \"bad\": \"Dogs barks.\", \"paradigm\": \"agreement\", \"n\": 7}\n\n\
         {\"sentence_good\": \"A\", \"sentence_bad\": \"B\", \"UID\": \"x\", \"field\": \"syntax\"}\n",
    )
    .unwrap();
    assert_eq!([json[0].good.as_str(), json[0].bad.as_str()], ["Dogs bark.", "Dogs barks."]);
    assert_eq!((json[0].paradigm.as_deref(), json[0].field.as_deref()), (Some("agreement"), None));
    assert_eq!(json[0].fields["n"], 7);
    assert_eq!((json[1].paradigm.as_deref(), json[1].field.as_deref()), (Some("x"), Some("syntax")));
    assert!(json[1].place.ends_with("a.jsonl:3"), "{}", json[1].place);
    let table = read("a.tsv", "bad\tgood\nB b\tA a\n").unwrap();
    assert_eq!([table[0].good.as_str(), table[0].bad.as_str()], ["A a", "B b"]);
}

#[test]
fn a_row_without_a_pair_is_named_with_its_line() {
    let text = "{\"good\": \"A\", \"bad\": \"B\"}\n{\"good\": \"A\"}\n";
    let error = read("a.jsonl", text).unwrap_err();
    assert!(error.contains("a.jsonl:2: has no text `bad` or `sentence_bad`"), "{error}");
    let error = read("a.csv", "good,bad\nA, \n").unwrap_err();
    assert!(error.contains("a.csv:2: `bad` is empty"), "{error}");
    assert!(read("a.jsonl", "\n").unwrap_err().contains("has no pairs"));
    assert!(read("a.txt", "A\tB\n").unwrap_err().contains("cannot tell the format"));
    assert!(read_pairs(Path::new("/nowhere.jsonl"), None).is_err());
}

#[test]
fn shares_are_counted_in_all_and_by_name_and_a_tie_is_wrong() {
    let pairs = [pair("a", Some("syntax")), pair("a", Some("syntax")), pair("b", None), pair("b", None)];
    let judged =
        [(-1.0, -2.0), (-2.0, -1.0), (-3.0, -3.0), (-1.0, -9.0)].map(|(good, bad)| Judged { good, bad });
    let scored = report(&pairs, &judged);
    let json = &scored.json;
    assert_eq!(
        (&json["eval_accuracy"], &json["eval_examples"], &json["eval_ties"]),
        (&0.5.into(), &4.into(), &1.into())
    );
    assert_eq!(json["eval_by_paradigm"]["b"]["accuracy"], 0.5);
    assert_eq!(json["eval_by_field"]["syntax"]["pairs"], 2);
    assert_eq!(scored.lines.len(), 5, "{:?}", scored.lines);
    assert!(scored.lines[3].starts_with("overall ") && scored.lines[3].contains(" 50.00 % ( 15.0 to  85.0)"));
}

fn pair(paradigm: &str, field: Option<&str>) -> Pair {
    Pair {
        place: String::new(),
        good: String::new(),
        bad: String::new(),
        paradigm: Some(paradigm.to_string()),
        field: field.map(str::to_string),
        fields: serde_json::Map::new(),
    }
}

//! Tests of the hints of errors.

use super::*;

#[test]
fn a_decimal_comma_gets_a_hint_with_the_point() {
    let error = numbers("a.csv", "text;score\na;2,87\n", &[]).unwrap_err();
    assert!(error.starts_with("a.csv:2: column `score` is `2,87`, a number is wanted"), "{error}");
    assert!(error.ends_with("hint: decimals are written with a point: `2.87`"), "{error}");
    for text in ["good", "1,2,3", "a,b"] {
        let error = numbers("a.csv", &format!("text;score\na;{text}\n"), &[]).unwrap_err();
        assert!(error.ends_with("a number is wanted"), "{error}");
    }
}

#[test]
fn columns_of_0_and_1_are_named_where_one_is_missing_or_is_neither() {
    let names = ["toxic", "threat"].map(str::to_string);
    let several = Columns { several: Some(&names), ..Columns::default() };
    let without = error("a.csv", "text,toxic\na,1\n", several);
    assert!(
        without.starts_with("a.csv:1: has no column `threat`, a label of the model; there are"),
        "{without}"
    );
    let usual = error("a.csv", "text,other\na,1\n", several);
    assert!(usual.contains("has no column `labels`, `label`, `category` or `class`"), "{usual}");
    let unscored = "text,toxic,threat\na,1,0\nb,-1,-1\n";
    let marked = error("a.csv", unscored, several);
    assert!(marked.starts_with("a.csv:3: column `toxic` is `-1`, a 0 or a 1 is wanted"), "{marked}");
    assert!(marked.contains("are left out with `data.on_bad_record: skip`"), "{marked}");
    let (texts, note) = read_skipping("a.csv", unscored, &several).unwrap();
    assert!(texts == "a" && note.starts_with("a.csv: 1 row left out"), "{texts}: {note}");
}

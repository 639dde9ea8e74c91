//! Tests of fields within objects, which are named by paths.

use super::*;

#[test]
fn fields_within_objects_are_read_and_a_field_of_that_name_comes_first() {
    let within = Columns { text: Some("review.text"), label: Some("meta.stars"), ..LABELLED };
    let first = r#"{"review": {"text": "good"}, "meta": {"stars": 5, "score": 0.5, "tags": ["x", "y"]}}"#;
    let second = r#"{"review.text": "own", "review": {"text": "bad"}, "meta": {"stars": 1}}"#;
    let expected = [row(1, "good", "5"), row(2, "own", "1")];
    assert_eq!(read("a.jsonl", format!("{first}\n{second}\n"), within), expected);
    assert_eq!(read("a.json", format!("[{first},\n{second}]"), within), expected);
    let folder = Folder::new();
    let path = folder.file("b.jsonl", first);
    let score = Columns { label: Some("meta.score"), labelled: false, numbers: Some(&[]), ..within };
    assert_eq!(read_examples(&path, &score).expect("a number")[0].numbers, [0.5]);
    let tags = Columns { label: Some("meta.tags"), labelled: false, several: Some(&[]), ..within };
    assert_eq!(read_examples(&path, &tags).expect("labels")[0].labels, ["x", "y"]);
}

#[test]
fn errors_name_the_paths_of_fields_within_objects() {
    let content = r#"{"review": {"text": "good", "lang": "en"}, "label": "pos"}"#;
    let listed = "fields within objects are named by paths: `review.text`, `review.lang`";
    for (text, message, hint) in [
        (None, "has no column `text`, `sentence` or `content`; there are `review`, `label`", listed),
        (Some("text"), "has no column `text`; there are `review`, `label`", listed),
        (Some("review.txt"), "has no column `review.txt`", "did you mean `review.text`?"),
        (Some("review"), "field `review` is an object", listed),
    ] {
        let error = error("a.jsonl", content, Columns { text, ..LABELLED });
        assert!(error.starts_with(&format!("a.jsonl:1: {message}")), "{error}");
        assert!(error.contains(hint), "{error}");
    }
    let within = Columns { text: Some("review.text"), ..LABELLED };
    let rows = format!("{content}\n{}\n", r#"{"review": {"title": "good"}, "label": "pos"}"#);
    let error = error("a.jsonl", rows, within);
    assert!(
        error.starts_with("a.jsonl:2: has no field `review.text`; there are `review`, `label`"),
        "{error}"
    );
    assert!(error.contains("named by paths: `review.title`"), "{error}");
}

#[test]
fn an_object_that_is_null_is_no_typo_of_a_path_into_it() {
    let first = r#"{"review": null, "label": "x"}"#;
    let within = Columns { text: Some("review.text"), ..LABELLED };
    let trained = TrainedColumns::of_texts(Some("review.text"), None);
    for columns in [within, Columns { trained: Some(&trained), ..LABELLED }] {
        let error = error("a.jsonl", first, columns);
        assert!(error.starts_with("a.jsonl:1: has no column `review.text`; there are `review`"), "{error}");
        assert!(error.contains("`review` is no object in this row"), "{error}");
    }
    let error = error("a.csv", "review,label\ngood,x\n", within);
    assert!(error.contains("did you mean `review`?"), "a table has no objects: {error}");
}

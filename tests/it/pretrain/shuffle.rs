//! What is shuffled: rows in a new run, and in one that goes on what it began with.

use std::fs;

use crate::material::corpus;
use crate::workplace::Workplace;

/// One text file, which is one document, in runs of 24 steps.
fn one_book() -> Workplace {
    let place = Workplace::new();
    let config = fs::read_to_string(place.path("config.yaml")).unwrap();
    let config =
        config.replace("document: paragraph", "document: file").replace("max_steps: 40", "max_steps: 24");
    fs::write(place.path("config.yaml"), config).unwrap();
    fs::create_dir(place.path("books")).unwrap();
    for number in 0..6 {
        fs::write(place.path(&format!("books/{number}.txt")), corpus(40 + number)).unwrap();
    }
    place
}

const BOOKS: &str = "data.sources.0.files=[books/*.txt]";

#[test]
fn a_run_keeps_what_it_began_with_and_ends_in_the_same_bytes() {
    let weights = |place: &Workplace| fs::read(place.run_path("final/model.safetensors")).unwrap();
    let (rows, documents) = (one_book(), one_book());
    rows.run(&[BOOKS], &[]).ok();
    documents.run(&[BOOKS, "data.shuffle=documents"], &[]).ok();
    assert!(weights(&rows) != weights(&documents), "the orders differ");
    for (place, shuffle) in [(&rows, "rows"), (&documents, "documents")] {
        let saved = fs::read_to_string(place.run_path("config.yaml")).unwrap();
        assert!(saved.contains(&format!("shuffle: {shuffle}")), "{saved}");
        let straight = weights(place);
        // What came after the first checkpoint is gone; the same command says nothing of what is shuffled.
        for name in ["checkpoint-16", "checkpoint-24", "final"] {
            fs::remove_dir_all(place.run_path(name)).unwrap();
        }
        place.run(&[BOOKS], &[]).ok();
        assert!(weights(place) == straight, "{shuffle}: the bytes of the models differ");
    }
    let other = documents.run(&[BOOKS, "data.shuffle=rows", "training.max_steps=30"], &[]);
    other.refused(2, &["data.shuffle", "was `\"documents\"` when this run began"]);
    documents.run(&[BOOKS, "data.shuffle=lines"], &[]).refused(2, &["data.shuffle"]);
}

#[test]
fn inspected_rows_come_in_the_order_that_trains() {
    let place = one_book();
    place.program(&["prepare", "--config", "config.yaml", "--set", BOOKS], "").ok();
    let inspect = ["shards", "inspect", "run/data", "--rows", "8", "--config", "config.yaml"];
    let by_rows = place.program(&inspect, "").ok().stdout;
    let config = fs::read_to_string(place.path("config.yaml")).unwrap();
    fs::write(place.path("config.yaml"), config.replace("data:\n", "data:\n  shuffle: documents\n")).unwrap();
    let by_documents = place.program(&inspect, "").ok().stdout;
    assert!(by_rows.contains("row 7: ") && by_documents.contains("row 7: "), "{by_rows}");
    assert!(by_rows != by_documents, "{by_rows}");
}

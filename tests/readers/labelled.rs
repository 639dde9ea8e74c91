//! Labelled examples, and texts to label.

use std::path::Path;

use mlmtrain::tasks::labelled::{Columns, InputFile, InputTexts, Tagging, read_examples, read_tagged};
use mlmtrain::tasks::minimal_pairs::read_pairs;

use super::compressed::gzip;
use super::{Input, Outcome};
use crate::material::{examples, tagged};

const TARGET: &str = "labelled";

/// Rows of each file.
const ROWS: usize = 24;

pub(super) fn all(folder: &Path) -> Vec<Input> {
    let csv = examples(ROWS);
    let tsv =
        csv.replace('"', "").replacen(',', "\t", 1).replace("bird,", "bird\t").replace("fish,", "fish\t");
    let rows = csv.lines().skip(1).filter_map(|line| line.split_once(','));
    let line = |(label, text): (&str, &str)| {
        format!("{{\"label\": \"{label}\", \"text\": {text}, \"other\": [1.5, null]}}\n")
    };
    let jsonl: String = rows.map(line).collect();
    let txt = csv.split_once('\n').map_or("", |(_, rows)| rows).to_string();
    let mut inputs = Vec::new();
    for (name, content) in [("rows.csv", &csv), ("rows.tsv", &tsv), ("rows.jsonl", &jsonl)] {
        let rows = input(folder, name, content, examples_of);
        inputs.push(rows.packed(".gz", gzip));
        inputs.push(rows);
    }
    for (name, content) in
        [("texts.csv", &csv), ("texts.tsv", &tsv), ("texts.jsonl", &jsonl), ("texts.txt", &txt)]
    {
        inputs.push(input(folder, name, content, texts_of));
    }
    let conll = tagged(ROWS);
    let object = |sentence: &str| {
        let words = sentence.lines().filter_map(|line| line.split_once('\t'));
        let (words, tags): (Vec<&str>, Vec<&str>) = words.unzip();
        format!("{{\"tokens\": {words:?}, \"tags\": {tags:?}, \"other\": [1.5, null]}}\n")
    };
    let sentences = conll.split("\n\n").filter(|sentence| sentence.contains('\t'));
    let objects = sentences.map(object).collect::<Vec<String>>().concat();
    for (name, content) in [("words.conll", &conll), ("words.jsonl", &objects)] {
        let words = input(folder, name, content, tagged_of);
        inputs.push(words.packed(".gz", gzip));
        inputs.push(words);
        inputs.push(input(folder, &format!("asked-{name}"), content, asked_of));
    }
    let pair = |n: usize| {
        format!("{{\"good\": \"Dogs {n} bark.\", \"bad\": \"Dogs {n} barks.\", \"UID\": \"x\"}}\n")
    };
    let pairs: String = (0..ROWS).map(pair).collect();
    inputs.push(input(folder, "pairs.jsonl", &pairs, pairs_of));
    inputs
}

fn input(folder: &Path, name: &str, content: &str, read: fn(&Path) -> Outcome) -> Input {
    let path = folder.join(name).join(name);
    Input::new(TARGET, name, path, content.as_bytes().to_vec(), read).giving(ROWS as u64)
}

fn examples_of(path: &Path) -> Outcome {
    let columns = Columns { labelled: true, ..Columns::default() };
    Ok(read_examples(path, &columns)?.len() as u64)
}

fn pairs_of(path: &Path) -> Outcome {
    Ok(read_pairs(path, None)?.len() as u64)
}

fn tagged_of(path: &Path) -> Outcome {
    Ok(read_tagged(path, &Tagging::default())?.sentences.len() as u64)
}

/// As `predict` reads words.
fn asked_of(path: &Path) -> Outcome {
    let input = InputFile { path, format: None, columns: Columns::default(), token_column: 1 };
    let mut count = 0;
    for asked in input.asked()? {
        asked?;
        count += 1;
    }
    Ok(count)
}

/// As `predict` reads them: with the other columns of each row, and labels left alone.
fn texts_of(path: &Path) -> Outcome {
    let mut texts = 0;
    for text in InputTexts::open(path, None, &Columns::default())? {
        text?;
        texts += 1;
    }
    Ok(texts)
}

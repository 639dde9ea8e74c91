//! Parquet files instead of others: the same examples end in the same bytes, and errors name the row.

use std::fs;
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use serde_json::json;

use crate::finetune::{rows, workplace};
use crate::material::{examples, tagged};
use crate::workplace::Workplace;

/// A column of a file, as the data sets on Hugging Face's hub have them.
enum Column<'a> {
    Texts(Vec<&'a str>),
    Lists(Vec<Vec<&'a str>>),
    NumberLists(Vec<Vec<i32>>),
}

/// The levels of lists whose items are all there, and the items one after the other.
fn flat<T: Clone>(lists: &[Vec<T>]) -> (Vec<i16>, Vec<i16>, Vec<T>) {
    let slots = |list: &Vec<T>| list.len().max(1);
    let definitions = lists.iter().flat_map(|list| vec![if list.is_empty() { 1 } else { 3 }; slots(list)]);
    let repetitions = lists.iter().flat_map(|list| (0..slots(list)).map(|at| i16::from(at > 0)));
    (definitions.collect(), repetitions.collect(), lists.concat())
}

type Group<'a, 'b> = SerializedRowGroupWriter<'a, &'b mut Vec<u8>>;

fn put<T: DataType>(group: &mut Group<'_, '_>, values: &[T::T], levels: &[i16], repeats: Option<&[i16]>) {
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<T>().write_batch(values, Some(levels), repeats).unwrap();
    column.close().unwrap();
}

fn write(place: &Workplace, name: &str, columns: &[(&str, Column<'_>)]) {
    let field = |(name, column): &(&str, Column<'_>)| {
        let list = |kind: &str| {
            format!("optional group {name} (LIST) {{ repeated group list {{ optional {kind}; }} }}")
        };
        match column {
            Column::Texts(_) => format!("optional binary {name} (UTF8);"),
            Column::Lists(_) => list("binary element (UTF8)"),
            Column::NumberLists(_) => list("int32 element"),
        }
    };
    let fields: Vec<String> = columns.iter().map(field).collect();
    let schema = Arc::new(parse_message_type(&format!("message m {{ {} }}", fields.join(" "))).unwrap());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let text = |text: &&str| ByteArray::from(*text);
    for (_, column) in columns {
        match column {
            Column::Texts(texts) => {
                let values: Vec<ByteArray> = texts.iter().map(text).collect();
                put::<ByteArrayType>(&mut group, &values, &vec![1; values.len()], None);
            }
            Column::Lists(lists) => {
                let (definitions, repetitions, items) = flat(lists);
                let values: Vec<ByteArray> = items.iter().map(text).collect();
                put::<ByteArrayType>(&mut group, &values, &definitions, Some(&repetitions));
            }
            Column::NumberLists(lists) => {
                let (definitions, repetitions, items) = flat(lists);
                put::<Int32Type>(&mut group, &items, &definitions, Some(&repetitions));
            }
        }
    }
    group.close().unwrap();
    writer.close().unwrap();
    fs::write(place.path(name), bytes).unwrap();
}

/// The sentences of a CoNLL file of two columns.
fn sentences(conll: &str) -> Vec<Vec<(&str, &str)>> {
    conll
        .split("\n\n")
        .map(|text| text.lines().filter_map(|line| line.split_once('\t')).collect::<Vec<_>>())
        .filter(|words| !words.is_empty())
        .collect()
}

const TAGS: [&str; 5] = ["O", "B-bird", "I-bird", "B-fish", "I-fish"];

/// `tags` are texts, `ner_tags` numbers.
fn tagged_parquet(place: &Workplace, name: &str, conll: &str, as_numbers: bool) {
    let sentences = sentences(conll);
    let words: Vec<Vec<&str>> = sentences.iter().map(|s| s.iter().map(|(word, _)| *word).collect()).collect();
    let tags: Vec<Vec<&str>> = sentences.iter().map(|s| s.iter().map(|(_, tag)| *tag).collect()).collect();
    let number = |tag: &&str| TAGS.iter().position(|name| name == tag).unwrap() as i32;
    let numbers = tags.iter().map(|tags| tags.iter().map(number).collect()).collect();
    let tags =
        if as_numbers { ("ner_tags", Column::NumberLists(numbers)) } else { ("tags", Column::Lists(tags)) };
    write(place, name, &[("tokens", Column::Lists(words)), tags]);
}

#[test]
fn tagged_words_are_read_with_texts_or_numbers_as_tags() {
    let place = workplace();
    for (name, conll) in [("train", tagged(60)), ("dev", tagged(20))] {
        fs::write(place.path(&format!("{name}.conll")), &conll).unwrap();
        tagged_parquet(&place, &format!("{name}-texts.parquet"), &conll, false);
        tagged_parquet(&place, &format!("{name}-numbers.parquet"), &conll, true);
    }
    let run = |output: &str, files: [&str; 2], labels: &str| {
        let flags = ["finetune", "--task", "token-classify", "--model", "run/final", "--output-dir", output];
        let files = ["--train", files[0], "--eval", files[1], "--set", labels];
        let sets = ["--set", "data.max_seq_length=32", "--set", "training.max_steps=5"];
        place.program(&[&flags[..], &files, &sets].concat(), "")
    };
    let labels = format!("data.labels=[{}]", TAGS.join(", "));
    run("conll", ["train.conll", "dev.conll"], &labels).ok();
    let read = |output: &str, file: &str| fs::read(place.path(output).join(file)).unwrap();
    for kind in ["texts", "numbers"] {
        let files = [&format!("train-{kind}.parquet")[..], &format!("dev-{kind}.parquet")];
        run(kind, files, &labels).ok();
        for file in ["final/model.safetensors", "predictions.jsonl"] {
            assert!(read(kind, file) == read("conll", file), "{kind}: {file}");
        }
    }
    let evaluate = ["evaluate", "--model", "conll/final", "--json", "--data"];
    let scored = |arguments: &[&str]| {
        rows(&place.program(&[&evaluate[..], arguments].concat(), "").ok().stdout).remove(0)
    };
    let names = TAGS.join(",");
    assert_eq!(scored(&["dev-numbers.parquet", "--labels", &names]), scored(&["dev.conll"]));
    // The order of the model's tags is not that of the file.
    place
        .program(&[&evaluate[..], &["dev-numbers.parquet"]].concat(), "")
        .refused(1, &["dev-numbers.parquet:1: field `ner_tags`", "`--labels`"]);
    let predicted = |input: &str| {
        let said = place.program(&["predict", "--model", "conll/final", "--input", input], "").ok();
        rows(&said.stdout).into_iter().map(|row| row["tags"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(predicted("dev-texts.parquet"), predicted("dev.conll"));

    let (files, unnamed) = (["train-numbers.parquet", "dev-numbers.parquet"], "data.labels=[]");
    run("bad", files, unnamed).refused(1, &["train-numbers.parquet:1: field `ner_tags`", "`--labels`"]);
    run("bad", files, "data.labels=[O, B-bird, I-bird]")
        .refused(1, &["train-numbers.parquet:2: item 2 of `ner_tags` is 3", "the numbers 0 to 2"]);
    let short = [
        ("tokens", Column::Lists(vec![vec!["a"], vec!["b", "c"]])),
        ("tags", Column::Lists(vec![vec!["O"]; 2])),
    ];
    write(&place, "short.parquet", &short);
    run("bad", ["short.parquet", "short.parquet"], unnamed)
        .refused(1, &["short.parquet:2: 2 words in `tokens` and 1 tags in `tags`"]);
    fs::write(place.path("short.parquet"), b"PAR1 and no more").unwrap();
    run("bad", ["short.parquet", "short.parquet"], unnamed).refused(1, &["short.parquet: "]);
}

#[test]
fn texts_with_one_label_or_several_are_read() {
    let place = workplace();
    let csv = [("train", examples(40)), ("dev", examples(20))];
    for (name, csv) in &csv {
        let rows: Vec<(&str, &str)> = csv.lines().skip(1).map(|line| line.split_once(',').unwrap()).collect();
        let texts = || Column::Texts(rows.iter().map(|(_, text)| text.trim_matches('"')).collect());
        let labels: Vec<&str> = rows.iter().map(|(label, _)| *label).collect();
        let sets = labels.iter().map(|label| if *label == "bird" { vec![*label] } else { vec![] }).collect();
        write(&place, &format!("{name}.parquet"), &[("text", texts()), ("label", Column::Texts(labels))]);
        write(&place, &format!("{name}-sets.parquet"), &[("text", texts()), ("labels", Column::Lists(sets))]);
    }
    let run = |output: &str, files: [&str; 2], more: &[&str]| {
        let flags = ["finetune", "--task", "classify", "--model", "run/final", "--output-dir", output];
        let files = ["--train", files[0], "--eval", files[1], "--set", "data.max_seq_length=32"];
        place.program(&[&flags[..], &files, &["--set", "training.max_steps=5"], more].concat(), "")
    };
    for (name, csv) in &csv {
        fs::write(place.path(&format!("{name}.csv")), csv).unwrap();
    }
    run("csv", ["train.csv", "dev.csv"], &[]).ok();
    run("parquet", ["train.parquet", "dev.parquet"], &[]).ok();
    let weights = |output: &str| fs::read(place.path(output).join("final/model.safetensors")).unwrap();
    assert!(weights("csv") == weights("parquet"));
    let several = ["--problem-type", "multi_label_classification"];
    run("sets", ["train-sets.parquet", "dev-sets.parquet"], &several).ok();
    let first = &rows(&fs::read_to_string(place.path("sets/predictions.jsonl")).unwrap())[..2];
    assert_eq!((&first[0]["gold"], &first[1]["gold"]), (&json!(["bird"]), &json!([])));
    let said = place.program(&["predict", "--model", "sets/final", "--input", "dev-sets.parquet"], "").ok();
    assert_eq!(rows(&said.stdout)[0]["input_labels"], json!(["bird"]));
}

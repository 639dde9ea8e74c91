//! Tests of reading labelled files: small ones for each special case, and real datasets where they are there.

mod hints;
mod nested;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use parquet::data_type::{ByteArrayType, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::tasks::sequence::LabelSet;
use base::fs::testing::skipped;

const LABELLED: Columns<'static> = Columns {
    text: None,
    text_pair: None,
    label: None,
    labelled: true,
    several: None,
    label_separator: None,
    label_names: &[],
    known_labels: &[],
    numbers: None,
    encoding: None,
    trained: None,
};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).expect("a writable folder");
        path
    }

    /// A message without the path of the folder.
    fn relative(&self, message: &str) -> String {
        message.replace(&format!("{}/", self.0.path().display()), "")
    }
}

fn read(name: &str, content: impl AsRef<[u8]>, columns: Columns<'_>) -> Vec<(u64, String, String)> {
    let folder = Folder::new();
    let examples = read_examples(&folder.file(name, content), &columns).expect("a readable file");
    examples
        .into_iter()
        .map(|example| (example.line, example.text, example.label.unwrap_or_default()))
        .collect()
}

fn error(name: &str, content: impl AsRef<[u8]>, columns: Columns<'_>) -> String {
    let folder = Folder::new();
    let path = folder.file(name, content);
    let error = read_examples(&path, &columns).expect_err("an unreadable file");
    let chain: Vec<String> = error.chain().map(ToString::to_string).collect();
    folder.relative(&chain.join(" because "))
}

fn row(line: u64, text: &str, label: &str) -> (u64, String, String) {
    (line, text.to_string(), label.to_string())
}

#[test]
fn csv_keeps_quoted_newlines_commas_and_quotes_and_counts_lines() {
    let content = "label,text\nWorld,plain\n\nBusiness,\"two\nlines, \"\"quoted\"\"\"\n  Sport ,last";
    let expected =
        [row(2, "plain", "World"), row(4, "two\nlines, \"quoted\"", "Business"), row(6, "last", "Sport")];
    assert_eq!(read("a.csv", content, LABELLED), expected);
}

#[test]
fn rows_that_cannot_be_read_are_left_out_and_counted_where_that_is_wanted() {
    let numbers = Columns { numbers: Some(&[]), ..Columns::default() };
    let several = Columns { several: Some(&[]), ..Columns::default() };
    for (name, content, columns, texts, rows, first) in [
        ("a.csv", "text,label\na,x\nb\n,x\nc,y\n", &LABELLED, "a c", "2 rows", "3: 1 field is here"),
        ("b.csv", "text,label\na,\nb,1\nc,good\n", &numbers, "b", "2 rows", "2: number `label` is empty"),
        (
            "c.jsonl",
            "{\"title\": 1}\n{\"text\": \"a\", \"label\": 2}\n\"b\"\n{\"text\": \"c\", \"label\": 1}\n{\"text\":",
            &LABELLED,
            "a c",
            "3 rows",
            "1: has no column `text`",
        ),
        (
            "d.json",
            "[{\"text\": \"a\", \"label\": null}, {\"text\": \"b\", \"label\": \"x\"}, {\"text\":",
            &LABELLED,
            "b",
            "2 rows",
            "1: label `label` is empty",
        ),
        (
            "e.jsonl",
            "{\"text\": \"a\", \"labels\": [\"x\"]}\n{\"text\": \"b\", \"labels\": null}\n",
            &several,
            "a",
            "1 row",
            "2: the labels `labels` are null",
        ),
    ] {
        let (read, note) = read_skipping(name, content, columns).unwrap();
        assert_eq!(read, texts, "{name}");
        let start = format!("{name}: {rows} left out that cannot be read; the first: {name}:{first}");
        assert!(note.starts_with(&start), "{name}: {note}");
    }
    let (read, note) = read_skipping("f.csv", "text,label\na,x\n", &LABELLED).unwrap();
    assert_eq!((read.as_str(), note.as_str()), ("a", ""));
    for (name, content, words) in [
        ("g.csv", "text,label\n,x\n", "g.csv: has no examples\n  hint: g.csv: 1 row left out"),
        ("h.csv", "text,mark\na,x\n", "h.csv:1: has no column `label`"),
        ("i.csv", "text,label\na,\"x\nb,y\nc,\"z\n", "i.csv:2: a quote opened in this row"),
    ] {
        let error = read_skipping(name, content, &LABELLED).unwrap_err();
        assert!(error.starts_with(words), "{name}: {error}");
    }
}

/// The texts of a file without its bad rows, joined by blanks, and the note about bad rows.
fn read_skipping(name: &str, content: &str, columns: &Columns<'_>) -> Result<(String, String), String> {
    let folder = Folder::new();
    let path = folder.file(name, content);
    let mut bad_rows = BadRows::new(OnBadRecord::Skip, "row");
    let read = read_examples_skipping(&path, columns, &mut bad_rows)
        .map_err(|error| folder.relative(&error.to_string()))?;
    let texts: Vec<String> = read.into_iter().map(|example| example.text).collect();
    let note = bad_rows.note(&path).unwrap_or_default();
    Ok((texts.join(" "), folder.relative(&note)))
}

#[test]
fn csv_with_crlf_and_a_byte_order_mark_reads_the_same() {
    let content = "\u{feff}text,label\r\nplain,1\r\n\r\n\"two\r\nlines\",0\r\nlast,\"1\"\r\n";
    assert_eq!(
        read("a.csv", content, LABELLED),
        [row(2, "plain", "1"), row(4, "two\r\nlines", "0"), row(6, "last", "1")]
    );
}

#[test]
fn tsv_takes_quotes_literally() {
    let content = "label\tsentence\r\n0\t\" an open quote\r\n1\tof \"nothing\" ''\r\n";
    assert_eq!(
        read("a.tsv", content, LABELLED),
        [row(2, "\" an open quote", "0"), row(3, "of \"nothing\" ''", "1")]
    );
}

#[test]
fn numbers_are_read_and_values_that_are_not_numbers_are_reported_with_their_line() {
    let names = ["valence".to_string(), "arousal".to_string()];
    assert_eq!(numbers("a.csv", "text,score\na,1.5\nb, -2e-1 \n", &[]).unwrap(), [[1.5], [-0.2]]);
    assert_eq!(numbers("a.csv", "arousal,text,valence\n1,a,2\n", &names).unwrap(), [[2.0, 1.0]]);
    assert_eq!(numbers("a.jsonl", "{\"text\": \"a\", \"label\": 0.25}\n", &[]).unwrap(), [[0.25]]);
    for (content, words) in [
        ("text,score\na,1\nb,good\n", "a.csv:3: column `score` is `good`, a number is wanted"),
        ("text,score\na,nan\n", "a.csv:2: column `score` is `nan`, a number is wanted"),
        ("text,score\na,1e60\n", "a.csv:2: column `score` is `1e60`, a number is wanted"),
        ("text,score\na,\n", "a.csv:2: number `score` is empty"),
        ("text,points\na,1\n", "a.csv:1: has no column `label`, `score` or `similarity`; there are"),
    ] {
        let error = numbers("a.csv", content, &[]).unwrap_err();
        assert!(error.starts_with(words), "{error}");
    }
    let error = numbers("a.csv", "text,valence\na,1\n", &names).unwrap_err();
    assert!(error.starts_with("a.csv:1: has no column `arousal`"), "{error}");
}

/// The numbers of the rows of a file.
fn numbers(name: &str, content: &str, names: &[String]) -> Result<Vec<Vec<f32>>, String> {
    let folder = Folder::new();
    let columns = Columns { numbers: Some(names), ..Columns::default() };
    match read_examples(&folder.file(name, content), &columns) {
        Ok(examples) => Ok(examples.into_iter().map(|example| example.numbers).collect()),
        Err(e) => Err(folder.relative(&e.to_string())),
    }
}

#[test]
fn jsonl_reads_numbers_as_labels_and_skips_blank_lines() {
    let content = "\u{feff}{\"id\": 1, \"text\": \"a\\nb\", \"label\": 2}\n\n{\"label\": \"x\", \"text\": \"c\", \"extra\": [1]}";
    assert_eq!(read("a.jsonl", content, LABELLED), [row(1, "a\nb", "2"), row(3, "c", "x")]);
}

#[test]
fn pairs_and_named_columns_are_read_and_labels_can_be_left_out() {
    let folder = Folder::new();
    let path = folder.file("a.csv", "premise,hypothesis,gold\nA man runs.,A man moves.,yes\n");
    let columns =
        Columns { text: Some("premise"), text_pair: Some("hypothesis"), label: Some("gold"), ..LABELLED };
    let examples = read_examples(&path, &columns).expect("a pair");
    assert_eq!(examples[0].text_pair.as_deref(), Some("A man moves."));
    assert_eq!(examples[0].label.as_deref(), Some("yes"));
    let unlabelled = Columns { labelled: false, ..columns };
    assert_eq!(read_examples(&path, &unlabelled).expect("a pair")[0].label, None);
}

#[test]
fn columns_of_training_are_read_where_none_are_named() {
    let folder = Folder::new();
    let path = folder.file("a.csv", "premise,hypothesis,text,label\np,h,t,x\n");
    let pairs = TrainedColumns::of_texts(Some("premise"), Some("hypothesis"));
    let trained = Columns { trained: Some(&pairs), ..LABELLED };
    assert_eq!(first_pair(&path, trained), ["p", "h"]);
    assert_eq!(first_pair(&path, Columns { text: Some("text"), ..trained }), ["t", "h"]);
    assert_eq!(first_pair(&path, Columns { text_pair: Some("text"), ..trained }), ["p", "t"]);
    let single = TrainedColumns::of_texts(Some("elsewhere"), None);
    assert_eq!(first_pair(&path, Columns { trained: Some(&single), ..LABELLED }), ["t", ""]);
    let content = "premise,text,label\np,t,x\n";
    insta::assert_snapshot!(error("b.csv", content, trained), @"
    b.csv:1: has no column `hypothesis`, whose texts the model was trained on as second ones; there are `premise`, `text`, `label`
      hint: name it: `--text-pair-column`; with `--text-column` alone single texts are read
    ");
    let alone = Columns { text: Some("text"), ..trained };
    assert_eq!(read("b.csv", content, alone), [row(2, "t", "x")]);
}

/// Both texts of the first example of a file.
fn first_pair(path: &Path, columns: Columns<'_>) -> [String; 2] {
    let example = read_examples(path, &columns).expect("readable").remove(0);
    [example.text, example.text_pair.unwrap_or_default()]
}

#[test]
fn compressed_files_read_as_plain_ones() {
    let content = b"text,label\none,a\ntwo,b\n";
    let expected = [row(2, "one", "a"), row(3, "two", "b")];
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(content).expect("memory");
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(content).expect("memory");
    assert_eq!(read("a.csv.gz", gzip.finish().expect("memory"), LABELLED), expected);
    assert_eq!(read("a.csv.bz2", bzip2.finish().expect("memory"), LABELLED), expected);
    assert_eq!(read("a.csv.zst", zstd::encode_all(&content[..], 3).expect("memory"), LABELLED), expected);
}

#[test]
fn a_cut_off_archive_is_an_error_and_not_a_short_file() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all("text,label\none,a\ntwo,b\n".repeat(1000).as_bytes()).expect("memory");
    let bytes = gzip.finish().expect("memory");
    assert!(error("a.csv.gz", &bytes[..bytes.len() - 12], LABELLED).contains("cannot read `a.csv.gz`"));
}

#[test]
fn a_missing_column_lists_those_that_are_there() {
    let content = "sentence,ministry\nKuka?,oikeus\n";
    insta::assert_snapshot!(error("vkk.csv", content, LABELLED), @"
    vkk.csv:1: has no column `label`, `category` or `class`; there are `sentence`, `ministry`
      hint: name the column: `data.label_column`
    ");
    let mistyped = Columns { label: Some("minstry"), ..LABELLED };
    insta::assert_snapshot!(error("vkk.csv", content, mistyped), @r"
    vkk.csv:1: has no column `minstry`; there are `sentence`, `ministry`
      hint: did you mean `ministry`?
    ");
}

#[test]
fn bad_rows_name_their_line() {
    for (name, content, start) in [
        ("a.csv", "text,label\n\"a\nb\",x\nc,\n", "a.csv:4: label `label` is empty"),
        ("a.csv", "text,label\n   ,x\n", "a.csv:2: text `text` is empty"),
        ("a.csv", "text,label\na,x\nb, c,x\n", "a.csv:3: 3 fields are here, but 2 named in the first line"),
        ("a.csv", "text,label\n\"a,x\nb,x\n", "a.csv:2: a quote in this row is never closed"),
        ("a.csv", "text,label\na,x\nb,\"x", "a.csv:3: a quote in this row is never closed"),
        ("a.csv", "text,label\nb\n", "a.csv:2: 1 field is here, but 2 named in the first line"),
        ("a.csv", "text,text\n", "a.csv:1: column `text` is there twice"),
        ("a.csv", "text,label\n", "a.csv: has no examples"),
        ("a.csv", "", "a.csv:1: is empty, a line with the names of the columns is wanted"),
        (
            "a.jsonl",
            "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\"}\n",
            "a.jsonl:2: has no field `label`; there are `text`",
        ),
        ("a.jsonl", "{\"text\": \"a\", \"label\": null}\n", "a.jsonl:1: label `label` is empty"),
        ("a.jsonl", "{\"text\": [\"a\"], \"label\": 1}\n", "a.jsonl:1: field `text` is a list"),
        (
            "a.jsonl",
            "{\"text\": \"a\", \"label\": 0.5}\n",
            "a.jsonl:1: field `label` is a number with a fraction",
        ),
        ("a.jsonl", "[1, 2]\n", "a.jsonl:1:2: here is `1` where an object or `]` is wanted"),
        (
            "a.jsonl",
            "{\"text\": \"a\", \"label\": 1, \"text\": \"b\"}\n",
            "a.jsonl:1: is not a JSON object on one line: field `text` is there twice",
        ),
        ("a.txt", "text,label\n", "a.txt: cannot tell the format of the file from its name"),
    ] {
        let error = error(name, content, LABELLED);
        assert!(error.starts_with(start), "{content:?} gives {error}");
    }
}

/// Kilobytes that decompress to hundreds of megabytes, and files with one endless line or field.
#[test]
fn bombs_are_refused_by_their_line() {
    let rows = b"a\tb\n".repeat(1 << 20);
    let long = vec![b'x'; 5 << 20];
    let columns: Vec<String> = (0..200_000).map(|n| format!("c{n}")).collect();
    let header = zstd::encode_all(&b"text\tlabel\n"[..], 1).expect("memory");
    let many = [header, zstd::encode_all(&rows[..], 1).expect("memory").repeat(40)].concat();
    let unfolded = error("a.tsv.zst", &many, LABELLED);
    assert!(unfolded.contains(" of this file unfold to 1"), "{} bytes give {unfolded}", many.len());
    for (name, content, start) in [
        (
            "a.tsv",
            [b"text\tlabel\n", &long[..], b"\tb\n"].concat(),
            "a.tsv:2: the row is longer than 4194304 bytes",
        ),
        (
            "a.csv",
            [b"text,label\n\"", &long[..], b"\",b\n"].concat(),
            "a.csv:2: the row is longer than 4194304 bytes",
        ),
        (
            "a.csv",
            [b"text,label\na,b\n\"", &long[..]].concat(),
            "a.csv:3: a quote in this row is never closed",
        ),
        (
            "a.jsonl",
            [b"{\"text\": \"", &long[..], b"\"}\n"].concat(),
            "a.jsonl:1: the line is longer than 4194304 bytes",
        ),
        ("a.csv", columns.join(",").into_bytes(), "a.csv:1: the header "),
        ("a.csv", [&long[..], b"\n"].concat(), "a.csv:1: the header is longer than 1048576 bytes"),
    ] {
        let error = error(name, &content, LABELLED);
        assert!(error.starts_with(start), "{name} of {} bytes gives {error}", content.len());
    }
}

#[test]
fn text_that_is_not_utf8_names_its_line_and_column() {
    let error = error("latin1.csv", b"text,label\nfine,a\nLiving on the C\xf4te,b\n", LABELLED);
    let start = "latin1.csv:3: column `text` is not UTF-8 text\n  hint: name its true encoding";
    assert!(error.starts_with(start) && error.contains("`iconv -f latin1"), "{error}");
}

#[test]
fn the_real_sets_are_read_whole() {
    let data = std::env::var("MLMTRAIN_DATA")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data").to_string());
    let folder = Path::new(&data).join("cls");
    if !folder.is_dir() {
        return skipped(&format!("there are no labelled sets in `{}` (`MLMTRAIN_DATA`)", folder.display()));
    }
    for (name, label, rows, classes) in [
        ("ag_news/train.csv", None, 9000, 4),
        ("sst2/train.tsv", None, 67_349, 2),
        ("sst2/dev.tsv", None, 872, 2),
        ("banking77/train.csv", None, 10_003, 77),
        ("imdb_4k/train.jsonl", None, 4000, 2),
        ("fi_eduskunta_vkk/train.csv.bz2", Some("ministry"), 49_106, 15),
    ] {
        let path = folder.join(name);
        let examples = read_examples(&path, &Columns { label, ..LABELLED }).expect("a real set");
        assert_eq!(examples.len(), rows, "{name}");
        assert_eq!(LabelSet::discover(&path, &examples).expect("labels").len(), classes, "{name}");
        assert!(examples.windows(2).all(|pair| pair[0].line < pair[1].line), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_a_csv_writer_wrote_is_read_back(rows in proptest::collection::vec(("[a-z\",\n\r é]{0,12}x", "[a-c]"), 1..8)) {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(["text", "label"]).expect("memory");
        for (text, label) in &rows {
            writer.write_record([text, label]).expect("memory");
        }
        let found = read("a.csv", writer.into_inner().expect("memory"), LABELLED);
        let mut line = 2;
        for ((text, label), found) in rows.iter().zip(&found) {
            prop_assert_eq!(found, &row(line, text, label));
            line += 1 + text.replace("\r\n", "\n").matches(['\n', '\r']).count() as u64;
        }
        prop_assert_eq!(found.len(), rows.len());
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(prop_oneof![Just(b'"'), Just(b'\n'), Just(b','), Just(b'\r'), any::<u8>()], 0..60)) {
        let folder = Folder::new();
        for (name, header) in [("a.csv", "text,label\n"), ("a.csv", ""), ("a.tsv", "text\tlabel\n"), ("a.jsonl", "{\"text\":\"a\",\"label\":1}\n"), ("a.csv.gz", "")] {
            let path = folder.file(name, [header.as_bytes(), &bytes].concat());
            drop(read_examples(&path, &LABELLED));
        }
    }
}

/// A Parquet file of texts with these label ids and the names of the ids, as `datasets` writes it.
fn parquet_with_class_names(ids: &[i64], names: &[&str]) -> Vec<u8> {
    let schema = "message m { required binary text (UTF8); required int64 label; \
                  required group labels (LIST) { repeated group list { required int64 element; } } }";
    let class = json!({"names": names, "_type": "ClassLabel"});
    let features = json!({"label": class, "labels": {"feature": class, "_type": "List"}});
    let value = json!({"info": {"features": features}}).to_string();
    let metadata = KeyValue { key: "huggingface".to_string(), value: Some(value) };
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![metadata])).build();
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(properties);
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let texts: Vec<_> = ids.iter().map(|id| format!("text {id}").as_str().into()).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&texts, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(ids, None, None).unwrap();
    column.close().unwrap();
    // Each list has the label and the next one, so that `[0, 1]` is not a multi-hot list.
    let pairs: Vec<i64> = ids.iter().flat_map(|id| [*id, (id + 1) % 4]).collect();
    let repeats: Vec<i16> = ids.iter().flat_map(|_| [0, 1]).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&pairs, Some(&vec![1; pairs.len()]), Some(&repeats)).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}

#[test]
fn numbers_of_labels_get_the_names_that_a_parquet_file_gives_them() {
    let names = ["World", "Sports", "Business", "Sci/Tech"];
    let file = parquet_with_class_names(&[3, 0, 1], &names);
    assert_eq!(labels(&file, LABELLED), ["Sci/Tech", "World", "Sports"]);
    // The model's own order differs from that of the file.
    let known = ["Sports", "World", "Sci/Tech"].map(str::to_string);
    assert_eq!(labels(&file, Columns { known_labels: &known, ..LABELLED }), ["Sci/Tech", "World", "Sports"]);
    let numbers = ["0", "1", "2", "3"].map(str::to_string);
    assert_eq!(labels(&file, Columns { known_labels: &numbers, ..LABELLED }), ["3", "0", "1"]);

    let named = [["Sci/Tech", "World"], ["World", "Sports"], ["Sports", "Business"]];
    assert_eq!(label_sets(&file, &[]), named);
    assert_eq!(label_sets(&file, &known[..2]), named, "no list of two marks");
    assert_eq!(label_sets(&file, &numbers), [["3", "0"], ["0", "1"], ["1", "2"]]);

    insta::assert_snapshot!(error("a.parquet", parquet_with_class_names(&[-1], &names), LABELLED), @r"
    a.parquet:1: the label is -1, and there are names for the numbers 0 to 3 only
      hint: name all labels in the order of their numbers; `datasets` writes -1 where a row has none: take it out
    ");
}

#[test]
fn numbers_of_labels_get_the_names_that_are_given() {
    let names = ["negative", "positive"].map(str::to_string);
    let columns = Columns { label_names: &names, ..LABELLED };
    // The model may have its labels in another order, which decides nothing. If it has numbers, they are
    // labels.
    let reversed = ["positive", "negative"].map(str::to_string);
    let numbers = ["0", "1", "positive"].map(str::to_string);
    let named = ["positive", "negative", "positive"];
    for (known_labels, expected) in [(&[][..], named), (&reversed, named), (&numbers, ["1", "0", "positive"])]
    {
        let rows = read("a.csv", "text,label\na,1\nb,0\nc,positive\n", Columns { known_labels, ..columns });
        let labels: Vec<String> = rows.into_iter().map(|(_, _, label)| label).collect();
        assert_eq!(labels, expected);
    }
    insta::assert_snapshot!(error("a.csv", b"text,label\na,2\n", columns), @r"
    a.csv:2: the label is 2, and there are names for the numbers 0 to 1 only
      hint: name all labels in the order of their numbers; `datasets` writes -1 where a row has none: take it out
    ");

    let sets = Columns { labelled: false, several: Some(&names), ..columns };
    let folder = Folder::new();
    let path = folder.file("a.jsonl", r#"{"text": "a", "labels": [1, 0]}"#);
    assert_eq!(read_examples(&path, &sets).unwrap()[0].labels, ["negative"], "marks, no numbers");
}

/// The label of each row of a Parquet file.
fn labels(parquet: &[u8], columns: Columns<'_>) -> Vec<String> {
    read("a.parquet", parquet, columns).into_iter().map(|(_, _, label)| label).collect()
}

/// The labels of each row of a Parquet file whose rows have several.
fn label_sets(parquet: &[u8], names: &[String]) -> Vec<Vec<String>> {
    let folder = Folder::new();
    let columns = Columns { labelled: false, several: Some(names), label_names: names, ..LABELLED };
    let examples = read_examples(&folder.file("a.parquet", parquet), &columns).unwrap();
    examples.into_iter().map(|example| example.labels).collect()
}

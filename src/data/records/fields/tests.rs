//! Tests of the fields against the `csv` crate, and of separators and quotes.

use proptest::prelude::*;

use super::*;
use base::fs;

fn records(text: &str, dialect: Dialect) -> Result<Vec<Vec<Vec<u8>>>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv");
    std::fs::write(&path, text).unwrap();
    let mut fields = Fields::new(fs::open_text(&path).unwrap(), path.into(), dialect)?;
    let mut records = Vec::new();
    let mut record = Vec::new();
    let mut kept = Kept::new(1000);
    loop {
        kept.clear();
        let end = fields.next(Some(&mut kept))?;
        if end == End::File {
            return Ok(records);
        }
        record.push(kept.bytes().to_vec());
        if end == End::Record {
            if let Some(problem) = fields.open_quote() {
                return Err(problem.into());
            }
            let record = std::mem::take(&mut record);
            if record.len() > 1 || !fields.record_is_blank() {
                records.push(record);
            }
        }
    }
}

proptest! {
    #[test]
    fn fields_equal_those_of_the_csv_crate(text in "(\r\n|[,\t\"a\n\r ä]){0,40}", is_csv: bool) {
        let (dialect, delimiter) = if is_csv { (Dialect::Csv(Some(b',')), b',') } else { (Dialect::Tsv, b'\t') };
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false).flexible(true).delimiter(delimiter).quoting(is_csv).from_reader(text.as_bytes());
        let expected: Vec<Vec<Vec<u8>>> =
            reader.byte_records().map(|record| record.unwrap().iter().map(<[u8]>::to_vec).collect()).collect();
        // The crate accepts an unclosed quote at the end of the file.
        if let Ok(found) = records(&text, dialect) {
            prop_assert_eq!(found, expected);
        }
    }
}

#[test]
fn another_separator_leaves_commas_alone() {
    let found = records("a,b;\"c;d\"\n", Dialect::Csv(Some(b';'))).unwrap();
    assert_eq!(found, [vec![b"a,b".to_vec(), b"c;d".to_vec()]]);
}

#[test]
fn the_separator_is_declared_or_guessed_from_the_first_line() {
    let expected = [row(["text", "label"]), row(["a, b", "c"])];
    for text in [
        "text;label\na, b;c\n",
        "text\tlabel\na, b\tc\n",
        "text|label\ra, b|c\r",
        "sep=;\ntext;label\na, b;c\n",
        "\"sep=,\"\r\ntext,label\r\n\"a, b\",c\r\n",
        "\"text\";\"label\"\n\"a, b\";c\n",
    ] {
        assert_eq!(records(text, Dialect::Csv(None)).unwrap(), expected, "{text}");
    }
    assert_eq!(records("\"a;b\",c\n", Dialect::Csv(None)).unwrap()[0], row(["a;b", "c"]));
}

fn row(fields: [&str; 2]) -> Vec<Vec<u8>> {
    fields.map(|field| field.as_bytes().to_vec()).to_vec()
}

#[test]
fn an_open_quote_is_reported_if_text_follows_the_next_quote_on_another_line() {
    let text = "id,text\n1,\"left open\n2,two\n3,\"three\n4,four\n";
    let message = records(text, Dialect::Csv(None)).unwrap_err().to_string();
    assert!(message.contains("a.csv:2: a quote opened in this row ends in line 4,"), "{message}");
    assert_eq!(records("1,\"a\nb\"\n2,\"c\"d\n", Dialect::Csv(None)).unwrap().len(), 2);
}

#[test]
fn a_return_in_quotes_belongs_to_the_field() {
    let found = records("\"a\r\",\"b\r\"\r\n\"\"\r\n\r\nc\r\n", Dialect::Csv(None)).unwrap();
    assert_eq!(found, [vec![b"a\r".to_vec(), b"b\r".to_vec()], vec![Vec::new()], vec![b"c".to_vec()]]);
}

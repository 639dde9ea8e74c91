//! Tests of reading sentences: every form of a good file, and the error for each kind of bad one.

use std::io::Write;
use std::path::Path;

use crate::tasks::labelled::{Sentence, SentenceColumns, TaggedFile, Tagging, read_tagged};
use base::fs::TextEncoding;
use base::fs::testing::skipped;
use config::{OnBadRecord, TagScheme};

fn read(name: &str, content: impl AsRef<[u8]>, tagging: Tagging<'_>) -> Result<TaggedFile, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    read_tagged(&path, &tagging).map_err(|error| {
        let chain: Vec<String> = error.chain().map(ToString::to_string).collect();
        chain.join(" because ").replace(&format!("{}/", folder.path().display()), "")
    })
}

/// Reads words and tags from these columns.
fn columns(token: i64, tag: i64) -> Tagging<'static> {
    Tagging { columns: SentenceColumns { token, tag, ..SentenceColumns::default() }, ..Tagging::default() }
}

fn declared(scheme: TagScheme, strict: bool) -> Tagging<'static> {
    Tagging { scheme, strict, ..Tagging::default() }
}

/// Formats each sentence as a line with `word/tag` for each word.
fn flat(file: &TaggedFile) -> Vec<String> {
    file.sentences.iter().map(tagged_words).collect()
}

fn tagged_words(sentence: &Sentence) -> String {
    let words = sentence.words.iter().zip(&sentence.tags);
    words.map(|(word, tag)| format!("{word}/{tag}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn words_of_an_older_encoding_are_converted() {
    let columns =
        SentenceColumns { encoding: TextEncoding::named("windows-1252"), ..SentenceColumns::default() };
    let tagging = Tagging { columns, ..Tagging::default() };
    for (name, content) in [
        ("a.conll", &b"K\xe4ly\tB-PER\n"[..]),
        ("a.jsonl", b"{\"tokens\": [\"K\xe4ly\"], \"tags\": [\"B-PER\"]}\n"),
    ] {
        assert_eq!(flat(&read(name, content, tagging).unwrap()), ["K\u{e4}ly/B-PER"], "{name}");
    }
}

#[test]
fn columns_of_every_form_give_the_same_sentences() {
    let want = ["Ada/B-PER Lovelace/I-PER sings/O", "in/O London/B-LOC"];
    let forms: [(&str, &str, Tagging<'_>); 10] = [
        ("tabs", "Ada\tB-PER\nLovelace\tI-PER\nsings\tO\n\nin\tO\nLondon\tB-LOC\n", Tagging::default()),
        ("blanks", "Ada B-PER\nLovelace I-PER\nsings O\n\nin O\nLondon B-LOC\n", Tagging::default()),
        (
            "CRLF and a mark",
            "\u{feff}Ada B-PER\r\nLovelace I-PER\r\nsings O\r\n\r\n\
             in O\r\nLondon B-LOC\r\n",
            Tagging::default(),
        ),
        ("no end", "\n\n \nAda B-PER\nLovelace I-PER\nsings O\n\t\n\nin O\nLondon B-LOC", Tagging::default()),
        (
            "four columns, IOB1",
            "-DOCSTART- -X- -X- O\n\nAda NNP I-NP I-PER\nLovelace NNP I-NP I-PER\nsings VB I-VP O\n\n\
             -DOCSTART- -X- -X- O\n\nin IN I-PP O\nLondon NNP I-NP I-LOC\n",
            Tagging::default(),
        ),
        ("the tag first", "B-PER Ada\nI-PER Lovelace\nO sings\n\nO in\nB-LOC London\n", columns(2, 1)),
        (
            "from the end",
            "1 Ada B-PER x\n2 Lovelace I-PER x\n3 sings O x\n\n1 in O x\n2 London B-LOC x\n",
            columns(-3, -2),
        ),
        ("BIOES", "Ada B-PER\nLovelace E-PER\nsings O\n\nin O\nLondon S-LOC\n", Tagging::default()),
        (
            "comments",
            "# id = 1\n#\nAda\tB-PER\nLovelace\tI-PER\n# here as well\nsings\tO\n\n\
             # text = in London\nin\tO\nLondon\tB-LOC\n",
            Tagging::default(),
        ),
        (
            "several blanks",
            "Ada   B-PER\n Lovelace  I-PER\nsings O \n\nin O\nLondon    B-LOC\n",
            Tagging::default(),
        ),
    ];
    for (name, content, tagging) in forms {
        assert_eq!(flat(&read("a.conll", content, tagging).unwrap()), want, "{name}");
    }
    let jsonl = "{\"id\": 1, \"tokens\": [\"Ada\", \"Lovelace\", \"sings\"],\
                 \"tags\": [\"B-PER\", \"I-PER\", \"O\"]}\n\n\
                 {\"ner_tags\": [\"O\", \"B-LOC\"], \"tokens\": [\"in\", \"London\"]}\n";
    assert_eq!(flat(&read("a.jsonl", jsonl, Tagging::default()).unwrap()), want);
    let named = jsonl.replace("tokens", "w").replace("ner_tags", "tags").replace("tags", "t");
    let fields =
        SentenceColumns { token_field: Some("w"), tag_field: Some("t"), ..SentenceColumns::default() };
    let tagging = Tagging { columns: fields, ..Tagging::default() };
    assert_eq!(flat(&read("a.jsonl", named, tagging).unwrap()), want);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(forms[0].1.as_bytes()).unwrap();
    assert_eq!(flat(&read("a.conll.gz", packed.finish().unwrap(), Tagging::default()).unwrap()), want);
}

#[test]
fn lists_within_objects_are_named_by_paths() {
    let jsonl = r#"{"sentence": {"words": ["in", "London"]}, "ner": {"tags": ["O", "B-LOC"]}}"#;
    let columns = SentenceColumns {
        token_field: Some("sentence.words"),
        tag_field: Some("ner.tags"),
        ..SentenceColumns::default()
    };
    let tagging = Tagging { columns, ..Tagging::default() };
    assert_eq!(flat(&read("a.jsonl", jsonl, tagging).unwrap()), ["in/O London/B-LOC"]);
    let error = read("a.jsonl", jsonl, Tagging::default()).unwrap_err();
    assert!(error.contains("has no field `tokens`; there are `sentence`, `ner`"), "{error}");
    assert!(error.contains("named by paths: `sentence.words`, `ner.tags`"), "{error}");
}

#[test]
fn a_number_sign_is_a_word_where_it_has_a_tag() {
    let tabs = "#\tO\n# 1\tO\n#ada\tB-PER\n";
    assert_eq!(flat(&read("a.conll", tabs, Tagging::default()).unwrap()), ["#/O # 1/O #ada/B-PER"]);
    let blanks = "# O\nAda B-PER\n# O\n# B\n# a longer comment O\n#1 O\n";
    assert_eq!(flat(&read("a.conll", blanks, Tagging::default()).unwrap()), ["#/O Ada/B-PER #/O #1/O"]);
}

#[test]
fn schemes_are_guessed_or_declared_and_what_breaks_them_is_counted() {
    let file = read("a.conll", "a I-PER\nb B-PER\nc O\n", Tagging::default()).unwrap();
    assert_eq!((file.scheme, file.is_guessed, file.irregular), (TagScheme::Iob1, true, 0));
    let file = read("a.conll", "a I-PER\nb B-PER\nc O\n", declared(TagScheme::Iob2, false)).unwrap();
    assert_eq!((file.scheme, file.is_guessed, file.irregular), (TagScheme::Iob2, false, 1));
    assert_eq!(flat(&file), ["a/B-PER b/B-PER c/O"]);
    let notes = file.notes(Path::new("a.conll")).join("\n");
    assert!(
        notes.contains("1 tags break IOB2 and were read as conlleval does") && notes.contains(":1: `I-PER`"),
        "{notes}"
    );
}

#[test]
fn sentences_with_a_bad_line_are_left_out_whole_where_that_is_wanted() {
    let skip = Tagging { on_bad_record: OnBadRecord::Skip, ..Tagging::default() };
    for (name, content, sentences, notes) in [
        (
            "a.conll",
            "word\nx O\n\na O\nb B-LOC\n\nc O\nd\ne O\n\n\nf O\n\ng X\nh O\n",
            vec!["a/O b/B-LOC", "f/O"],
            ["3 sentences left out that cannot be read", "a.conll:1: has one column"],
        ),
        (
            "b.conll",
            "a\nb O\n-DOCSTART- O\n\nc O\n",
            vec!["c/O"],
            ["1 sentence left out", "b.conll:1: has one column"],
        ),
        (
            "c.jsonl",
            "{\"tokens\": [\"a\"], \"tags\": []}\n{\"tokens\": [\"b\"], \"tags\": [\"O\"]}\n{\"tokens\"",
            vec!["b/O"],
            ["2 sentences left out", "c.jsonl:1: 1 words in `tokens`"],
        ),
    ] {
        let file = read(name, content, skip).unwrap();
        assert_eq!(flat(&file), sentences, "{name}");
        let note = file.notes(Path::new(name)).pop().unwrap();
        assert!(notes.iter().all(|part| note.contains(part)), "{name}: {note}");
    }
    let error = read("d.conll", "a X\n\nb Y\n", skip).unwrap_err();
    assert!(error.contains("has no sentences") && error.contains("2 sentences left out"), "{error}");
}

/// Name of a file, its content, how it is read, and parts of the expected error.
type Bad = (&'static str, &'static [u8], Tagging<'static>, &'static [&'static str]);

#[test]
fn each_kind_of_bad_columns_is_reported_with_its_line() {
    let usual = Tagging::default();
    assert_errors(&[
        ("a.conll", b"", usual, &["a.conll: has no sentences"]),
        ("a.conll", b"\n \n\t\n", usual, &["a.conll: has no sentences"]),
        ("a.conll", b"# only\n# comments here\n", usual, &["has no sentences"]),
        ("a.conll", b"-DOCSTART- -X- O\n\n", usual, &["has no sentences"]),
        (
            "a.conll",
            b"a O\n\nword\n",
            usual,
            &["a.conll:3: has 1 column, line 1 has 2", "hint: an empty line"],
        ),
        ("a.conll", b"word\n", usual, &["a.conll:1: has one column, a word and its tag are wanted"]),
        ("a.conll", b"a O\nb c O\n", usual, &["a.conll:2: has 3 columns, line 1 has 2"]),
        ("a.conll", b"a\tO\nb O\n", usual, &["a.conll:2: has no tab between its columns, line 1 has tabs"]),
        ("a.conll", b"a O\nb\tO\n", usual, &["a.conll:2: has a tab between its columns, line 1 has blanks"]),
        ("a.conll", b"a\t\nb\tO\n", usual, &["a.conll:1: column -1 is empty", "`tag_column`"]),
        ("a.conll", b"\tO\nb\tO\n", usual, &["a.conll:1: column 1 is empty", "`token_column`"]),
        ("a.conll", b"a O\nb X\n", usual, &["a.conll:2: `X` is neither `O` nor `B-`", "`tag_column`"]),
        ("a.conll", b"a o\n", usual, &["a.conll:1: `o` is neither"]),
        ("a.conll", b"a B\n", usual, &["a.conll:1: `B` is neither"]),
        ("a.conll", b"a B-\n", usual, &["a.conll:1: `B-` is neither"]),
        ("a.conll", b"a PER-B\n", usual, &["a.conll:1: `PER-B` is neither"]),
        ("a.conll", b"a O\nb U-PER\n", usual, &["a.conll:2: `U-PER`", "BILOU's `L-` is `E-` here"]),
        (
            "a.conll",
            b"a O\nm\xe4 O\n",
            usual,
            &["a.conll:2: is not UTF-8 text (byte 2 of the line)", "iconv"],
        ),
        ("a.conll", b"a O\n\xff\xfeb O\n", usual, &["a.conll:2: is not UTF-8 text (byte 1 of the line)"]),
        (
            "a.conll",
            b"a O\n",
            columns(1, 5),
            &["a.conll:1: has 2 columns, and column 5 is wanted", "`tag_column`"],
        ),
        (
            "a.conll",
            b"a O\n",
            columns(-7, -1),
            &["a.conll:1: has 2 columns, and column -7 is wanted", "`token_column`"],
        ),
        (
            "a.conll",
            b"a O\n\nb I-PER\nc B-LOC\n",
            declared(TagScheme::Iob2, true),
            &["a.conll:3: `I-PER` has no `B-PER`", "`strict`"],
        ),
        (
            "a.conll",
            b"a I-PER\nb O\nc B-PER\n",
            declared(TagScheme::Iob1, true),
            &["a.conll:3: `B-PER` parts no two entities"],
        ),
        (
            "a.conll",
            b"a B-PER\nb O\n",
            declared(TagScheme::Bioes, true),
            &["a.conll:1: `B-PER` has no `E-PER` behind it"],
        ),
        (
            "a.conll",
            b"a B-PER\nb I-LOC\n",
            declared(TagScheme::Auto, true),
            &["a.conll:2: `I-LOC` has no `B-LOC`"],
        ),
        (
            "a.conll",
            b"a S-PER\n",
            declared(TagScheme::Iob2, false),
            &["a.conll:1: `S-PER` is a tag of BIOES, and the file is IOB2"],
        ),
    ]);
}

#[test]
fn each_kind_of_bad_objects_is_reported_with_its_line() {
    let usual = Tagging::default();
    assert_errors(&[
        (
            "a.jsonl",
            b"{\"tokens\": [\"a\"], \"tags\": [\"O\", \"O\"]}\n",
            usual,
            &["a.jsonl:1: 1 words in `tokens` and 2 tags in `tags`"],
        ),
        ("a.jsonl", b"{\"tokens\": [], \"tags\": []}\n", usual, &["a.jsonl:1: the sentence has no words"]),
        ("a.jsonl", b"{\"tokens\": [\"a\"]}\n", usual, &["a.jsonl:1: has no field `tags`"]),
        (
            "a.jsonl",
            b"{\"words\": [\"a\"], \"tags\": [\"O\"]}\n",
            usual,
            &["a.jsonl:1: has no field `tokens`; there are", "`text_column`"],
        ),
        (
            "a.jsonl",
            b"{\"tokens\": [\"a\"], \"tags\": [3]}\n",
            usual,
            &["a.jsonl:1: field `tags` is a list with the number", "data.labels"],
        ),
        (
            "a.jsonl",
            b"{\"tokens\": \"a\", \"tags\": [\"O\"]}\n",
            usual,
            &["a.jsonl:1: field `tokens` is a text"],
        ),
        (
            "a.jsonl",
            b"{\"tokens\": [\"a\", null], \"tags\": [\"O\", \"O\"]}\n",
            usual,
            &["whose item 2 is no text"],
        ),
        (
            "a.jsonl",
            b"{\"tokens\": [\"\"], \"tags\": [\"O\"]}\n",
            usual,
            &["a.jsonl:1: word 1 of `tokens` is empty"],
        ),
        ("a.jsonl", b"{\"tokens\": [\"a\"], \"tags\": [\"B-\"]}\n", usual, &["a.jsonl:1: `B-` is neither"]),
        ("a.jsonl", b"a O\n", usual, &["a.jsonl:1: is not a JSON object on one line"]),
        ("a.csv", b"a,O\n", usual, &["a.csv: tagged words are not read from `.csv`", "`.conll`"]),
        ("a.parquet", b"PAR1", usual, &["a.parquet: is too short for a Parquet file"]),
    ]);
}

fn assert_errors(bad: &[Bad]) {
    for &(name, content, tagging, words) in bad {
        let shown = String::from_utf8_lossy(content).into_owned();
        let error = read(name, content, tagging).map(|file| flat(&file)).expect_err(&shown);
        for word in words {
            assert!(error.contains(word), "`{word}` is not in the error for {shown:?}: {error}");
        }
    }
}

#[test]
fn long_lines_and_long_sentences_are_read_or_refused_by_name() {
    let sentence = "word O\n".repeat(10_000);
    assert_eq!(read("a.conll", &sentence, Tagging::default()).unwrap().num_words(), 10_000);
    let line = format!("a O\n{} O\n", "x".repeat(1 << 20));
    let error = read("a.conll", line, Tagging::default()).unwrap_err();
    assert!(error.contains("a.conll:2: the line is longer than 1048576 bytes"), "{error}");
}

#[test]
fn the_real_sets_are_read_whole() {
    let data = std::env::var("MLMTRAIN_DATA")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data").to_string());
    let root = Path::new(&data).join("ner");
    if !root.is_dir() {
        return skipped(&format!("there are no tagged sets in `{}` (`MLMTRAIN_DATA`)", root.display()));
    }
    let sets = [
        ("turku_fi/train.tsv", 12_217, 9_380),
        ("turku_fi/dev.tsv", 1_364, 1_063),
        ("wnut17_en/train.conll", 3_394, 1_975),
        ("wnut17_en/dev.conll", 1_009, 836),
        ("wikiann_en/train.conll", 20_000, 27_931),
    ];
    for (name, sentences, entities) in sets {
        let file = read_tagged(&root.join(name), &Tagging { strict: true, ..Tagging::default() }).unwrap();
        let begins = file.sentences.iter().flat_map(|s| &s.tags).filter(|tag| tag.starts_with("B-")).count();
        assert_eq!(
            (file.scheme, file.sentences.len(), begins),
            (TagScheme::Iob2, sentences, entities),
            "{name}"
        );
    }
}

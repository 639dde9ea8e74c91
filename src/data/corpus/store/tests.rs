//! Tests of parts: written, read back, cut and damaged.

use std::path::PathBuf;

use super::*;

fn document(number: u64) -> StoredDocument {
    let language = ["fin", "eng"].get(number as usize % 3).copied();
    StoredDocument::new(format!("Käki kukkui {number} kertaa. 😀"), number as usize % 2, language, 0, number)
}

fn write(folder: &Path, part: usize, numbers: std::ops::Range<u64>) {
    let mut writer = PartWriter::new().unwrap();
    let items = numbers.end - numbers.start;
    numbers.for_each(|number| writer.push(&document(number)).unwrap());
    writer.finish(&PartPaths::new(folder, part), items, vec![PathBuf::from("a.txt")], ()).unwrap();
}

#[test]
fn parts_round_trip_in_order_up_to_a_missing_one() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 0, 0..10);
    write(folder.path(), 1, 10..12);
    write(folder.path(), 3, 20..30);
    let parts = whole_parts(folder.path(), |()| {}).unwrap();
    let mut read = Vec::new();
    for (paths, entry) in &parts {
        read.extend(PartReader::open(paths, entry).unwrap().map(Result::unwrap));
    }
    assert_eq!(read, (0..12).map(document).collect::<Vec<_>>());
    assert_eq!(parts[0].1.text_bytes, (0..10).map(|n| document(n).text.len() as u64).sum::<u64>());
    assert_eq!(document(1).language(), Some("eng"));
    assert!(!is_complete(folder.path()));
    set_complete(folder.path(), 2, &[Some("1f".to_string()), None]).unwrap();
    assert_eq!(content_hashes(folder.path()).unwrap(), [Some("1f".to_string()), None]);
    assert!(is_complete(folder.path()));
}

#[test]
fn damage_is_an_error_that_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 0, 0..200);
    let paths = PartPaths::new(folder.path(), 0);
    let whole = std::fs::read(&paths.documents).unwrap();
    std::fs::write(&paths.documents, &whole[..whole.len() - 1]).unwrap();
    let message = whole_parts(folder.path(), |()| {}).unwrap_err().to_string();
    assert!(message.contains("part-00000.zst: has "), "{message}");
    for place in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[place] ^= 0x10;
        std::fs::write(&paths.documents, &bytes).unwrap();
        let parts = whole_parts(folder.path(), |()| {}).unwrap();
        let read: Result<Vec<_>> = PartReader::open(&parts[0].0, &parts[0].1).and_then(Iterator::collect);
        match read {
            Err(e) => assert!(format!("{e:#}").contains("part-00000.zst"), "{e:#}"),
            // Some bits of a frame's header have no meaning.
            Ok(documents) => assert_eq!(documents, (0..200).map(document).collect::<Vec<_>>()),
        }
    }
}

#[test]
fn an_entry_with_impossible_counts_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 0, 0..3);
    let path = PartPaths::new(folder.path(), 0).entry;
    let whole = std::fs::read_to_string(&path).unwrap();
    for name in ["items", "documents", "text_bytes"] {
        let start = whole.find(&format!("\"{name}\":")).unwrap() + name.len() + 3;
        let end = start + whole[start..].find(',').unwrap();
        std::fs::write(&path, [&whole[..start], "18446744073709551615", &whole[end..]].concat()).unwrap();
        let message = whole_parts(folder.path(), |()| {}).unwrap_err().to_string();
        assert!(message.contains(&format!("is broken: `{name}` is 18446744073709551615")), "{message}");
    }
}

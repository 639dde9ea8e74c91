//! Writes the cleaned text of a corpus as JSONL, a file for each source, for other programs and for models
//! with another tokenizer.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;
use zstd::stream::write::Encoder;

use crate::corpus::{KeptDocuments, Side, Split, StoredDocument};
use crate::prepare::meter::Meter;
use base::fs;
use base::fs::StagedFile;

const ZSTD_LEVEL: i32 = 3;

/// Compressed bytes that are collected before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// Writes the kept documents into `folder`, in order: one JSON object a line, with `text`, `split` (`train`
/// or `validation`) and, if languages are identified, `language`. The name of a file is the number and the
/// name of its source.
pub(super) fn write(
    kept: &KeptDocuments,
    split: Split,
    sources: &[String],
    folder: &Path,
    meter: &mut Meter<'_>,
) -> Result<()> {
    fs::remove_leftovers(folder)?;
    let mut files: Vec<Option<TextFile>> = sources.iter().map(|_| None).collect();
    for document in kept.from_index(split, 0) {
        let (_, side, document) = document?;
        let index = document.source;
        let file = match &mut files[index] {
            Some(file) => file,
            none => none.insert(TextFile::create(&path_of(folder, index, &sources[index]))?),
        };
        file.push(side, &document)?;
        meter.add(document.text.len() as u64);
    }
    files.into_iter().flatten().try_for_each(TextFile::publish)
}

/// Path of the file of a source. All characters of the name but letters and digits become `-`.
fn path_of(folder: &Path, index: usize, name: &str) -> PathBuf {
    let name = name.replace(|c: char| !c.is_alphanumeric(), "-");
    folder.join(format!("{index}-{name}.jsonl.zst"))
}

/// A file that is not complete yet.
struct TextFile {
    encoder: Encoder<'static, Vec<u8>>,
    file: StagedFile,
}

impl TextFile {
    fn create(path: &Path) -> Result<Self> {
        let mut encoder = Encoder::new(Vec::new(), ZSTD_LEVEL).context("cannot start to compress text")?;
        encoder.include_checksum(true).context("cannot start to compress text")?;
        Ok(Self { encoder, file: StagedFile::create(path)? })
    }

    fn push(&mut self, side: Side, document: &StoredDocument) -> Result<()> {
        let split = match side {
            Side::Train => "train",
            Side::Validation => "validation",
        };
        let mut object = json!({"text": document.text, "split": split});
        if let Some(language) = document.language() {
            object["language"] = language.into();
        }
        writeln!(self.encoder, "{object}").context("cannot compress text")?;
        if self.encoder.get_ref().len() >= BUFFER_BYTES {
            self.file.write(&std::mem::take(self.encoder.get_mut()))?;
        }
        Ok(())
    }

    fn publish(mut self) -> Result<()> {
        let rest = self.encoder.finish().context("cannot compress text")?;
        self.file.write(&rest)?;
        self.file.publish(b"")
    }
}

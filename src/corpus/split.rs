//! Which documents are for validation: a function of their text alone, so that added sources never move one.

use anyhow::Result;

use crate::corpus::Corpus;
use crate::corpus::Item;
use crate::error::Problem;
use crate::rng::Purpose;
use crate::rng::Stream;
use crate::rng::hash_name;

/// A side of the split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// For training.
    Train,
    /// For evaluation.
    Validation,
}

/// Decides the side of each document.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Split {
    /// Documents whose key is below this are for validation.
    threshold: f64,
}

impl Split {
    /// The side of a document with this text. The seed of the run does not matter.
    pub fn side(&self, text: &str) -> Side {
        if key(text) < self.threshold { Side::Validation } else { Side::Train }
    }
}

/// What one pass over the corpus finds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scan {
    /// Documents.
    pub documents: u64,
    /// UTF-8 bytes of their text.
    pub bytes: u64,
    /// Bytes of text on the training side.
    pub train_bytes: u64,
    /// The split.
    pub split: Split,
}

impl Scan {
    /// Reads the whole corpus once.
    ///
    /// When `validation_fraction` of a small corpus would leave a side without a document, the one document whose key is
    /// nearest to that side goes there. `progress` gets bytes of files read.
    pub fn of(corpus: &Corpus, validation_fraction: f64, mut progress: impl FnMut(u64)) -> Result<Self> {
        let (mut tally, mut count, mut bytes) = (Tally::new(validation_fraction), 0, 0);
        let mut documents = corpus.documents();
        while let Some(document) = documents.next() {
            let Item::Document(document) = document? else { continue };
            let text = document.text;
            count += 1;
            bytes += text.len() as u64;
            tally.add(key(&text), text.len() as u64);
            progress(documents.position_bytes());
        }
        let (split, train_bytes) = tally.finish()?;
        Ok(Self { documents: count, bytes, train_bytes, split })
    }
}

/// Uniform in [0, 1), from the text alone.
fn key(text: &str) -> f64 {
    Stream::new(0, Purpose::Split, hash_name(text)).uniform(0)
}

struct Tally {
    threshold: f64,
    documents: u64,
    train_bytes: u64,
    validation_bytes: u64,
    /// Smallest and largest key and the bytes of the documents that have it.
    lowest: (f64, u64),
    highest: (f64, u64),
}

impl Tally {
    fn new(threshold: f64) -> Self {
        Self { threshold, documents: 0, train_bytes: 0, validation_bytes: 0, lowest: (2.0, 0), highest: (-1.0, 0) }
    }

    fn add(&mut self, key: f64, bytes: u64) {
        self.documents += 1;
        *if key < self.threshold { &mut self.validation_bytes } else { &mut self.train_bytes } += bytes;
        for (extreme, beyond) in [(&mut self.lowest, f64::lt as fn(&f64, &f64) -> bool), (&mut self.highest, f64::gt)] {
            if beyond(&key, &extreme.0) {
                *extreme = (key, bytes);
            } else if key.total_cmp(&extreme.0).is_eq() {
                extreme.1 += bytes;
            }
        }
    }

    fn finish(self) -> Result<(Split, u64)> {
        let place = "data.sources";
        if self.documents == 0 {
            return Err(Problem::new("hold no text: every document is empty").at(place).into());
        }
        if self.threshold <= 0.0 || (self.train_bytes > 0 && self.validation_bytes > 0) {
            return Ok((Split { threshold: self.threshold }, self.train_bytes));
        }
        if self.lowest.0.total_cmp(&self.highest.0).is_eq() {
            return Err(Problem::new("hold one document (or copies of one), but training and validation need one each")
                .at(place)
                .hint("split the text into more documents with `document: paragraph` or `document: line`, or add text")
                .into());
        }
        Ok(if self.validation_bytes == 0 {
            (Split { threshold: self.lowest.0.next_up() }, self.train_bytes - self.lowest.1)
        } else {
            (Split { threshold: self.highest.0 }, self.highest.1)
        })
    }
}

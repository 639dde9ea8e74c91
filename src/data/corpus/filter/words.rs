//! Rejects documents with words or phrases of given lists, or with too many of them.

use std::path::Path;

use anyhow::Result;

use crate::corpus::Rejection;
use crate::corpus::filter::{Filter, Folded, Page, Reasons, above, reject, share};
use base::error::Problem;
use base::fs;
use config::WordsFilter;

pub(super) const REASONS: Reasons =
    &[("listed_words", "More words of the lists of `words.files` than allowed.")];

const LIST_CAP_BYTES: u64 = 16 << 20;

/// Longest phrase, in words; a longer one is rather a text.
const LONGEST_PHRASE: usize = 16;

pub(super) struct Words {
    /// Hashes of phrases by their number of words, each sorted; shortest first.
    phrases: Vec<(usize, Vec<u64>)>,
    max_count: Option<u64>,
    max_share: Option<f64>,
}

impl Words {
    pub(super) fn new(config: &WordsFilter) -> Result<Self> {
        let mut phrases: Vec<(usize, Vec<u64>)> = Vec::new();
        for file in &config.files {
            for phrase in read_list(Path::new(file))? {
                let folded = Folded::new(&phrase);
                let length = folded.len();
                if length > LONGEST_PHRASE {
                    let message =
                        format!("`{phrase}` has {length} words, a phrase can have {LONGEST_PHRASE}");
                    return Err(Problem::usage(message)
                        .at(file)
                        .hint("write one word or phrase a line")
                        .into());
                }
                let Some(hash) = folded.sequences(length).next() else { continue };
                match phrases.iter_mut().find(|(known, _)| *known == length) {
                    Some((_, hashes)) => hashes.push(hash),
                    None => phrases.push((length, vec![hash])),
                }
            }
        }
        phrases.sort_by_key(|(length, _)| *length);
        for (_, hashes) in &mut phrases {
            hashes.sort_unstable();
        }
        let max_count =
            if config.max_share.is_none() { config.max_count.or(Some(0)) } else { config.max_count };
        Ok(Self { phrases, max_count, max_share: config.max_share })
    }
}

impl Filter for Words {
    fn check(&self, page: &Page) -> Option<Rejection> {
        let folded = page.folded();
        let mut count = 0;
        let mut words = 0;
        for (length, hashes) in self.phrases.iter().filter(|(length, _)| *length > 0) {
            let places = folded.sequences(*length).filter(|hash| hashes.binary_search(hash).is_ok()).count();
            count += places as u64;
            words += (places * length) as u64;
        }
        if let Some(most) = self.max_count
            && count > most
        {
            return reject(
                "listed_words",
                format!("{count} listed words or phrases, at most {most} are allowed"),
            );
        }
        above("listed_words", share(words, folded.len() as u64), self.max_share, "of the words are listed")
    }
}

/// Reads the entries of a list, one per line; blank lines and lines that begin with `#` are skipped.
pub(super) fn read_list(path: &Path) -> Result<Vec<String>> {
    let text = fs::read_text_stream_capped(path, LIST_CAP_BYTES)?;
    let entries: Vec<String> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_string)
        .collect();
    if entries.is_empty() {
        return Err(Problem::usage("holds no word")
            .at(path.display())
            .hint("write one word or phrase a line")
            .into());
    }
    Ok(entries)
}

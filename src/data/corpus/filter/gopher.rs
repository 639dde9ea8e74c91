//! The quality rules of Gopher (Rae et al. 2021, arXiv 2112.11446, appendix A.1.1).
//!
//! The stop words of the paper are English; there are built-in lists for other languages too.

use std::path::Path;

use anyhow::Result;

use crate::corpus::Rejection;
use crate::corpus::filter::length::outside;
use crate::corpus::filter::words::read_list;
use crate::corpus::filter::{Filter, Folded, Page, Reasons, above, below, reject, share};
use config::{GopherFilter, StopWords};

pub(super) const REASONS: Reasons = &[
    ("gopher_few_words", "Fewer words than `gopher.min_words`."),
    ("gopher_many_words", "More words than `gopher.max_words`."),
    ("gopher_word_length", "A mean length of words outside the bounds of `gopher`."),
    ("gopher_symbols", "More `#` or ellipses for each word than `gopher.max_symbols_per_word`."),
    ("gopher_bullets", "A larger share of lines with a bullet than `gopher.max_bullet_lines`."),
    ("gopher_ellipses", "A larger share of lines that end in an ellipsis than `gopher.max_ellipsis_lines`."),
    (
        "gopher_words_without_letters",
        "A smaller share of words with a letter than `gopher.min_alphabetic_words`.",
    ),
    ("gopher_stop_words", "Fewer different stop words than `gopher.min_stop_words`."),
];

const BULLETS: [char; 9] = ['•', '‣', '●', '○', '▪', '■', '◦', '*', '-'];

pub(super) struct Gopher {
    limits: GopherFilter,
    /// Hashes of the stop words, sorted.
    stop_words: Vec<u64>,
}

impl Gopher {
    pub(super) fn new(limits: &GopherFilter) -> Result<Self> {
        let built_in =
            limits.stop_words.iter().flat_map(|list| built_in(*list).split(' ')).map(str::to_string);
        let mut words: Vec<String> = built_in.collect();
        for file in &limits.stop_word_files {
            words.extend(read_list(Path::new(file))?);
        }
        let mut stop_words: Vec<u64> =
            words.iter().filter_map(|word| Folded::new(word).hashes.first().copied()).collect();
        stop_words.sort_unstable();
        stop_words.dedup();
        Ok(Self { limits: limits.clone(), stop_words })
    }

    fn word_length(&self, page: &Page) -> Option<Rejection> {
        let least = self.limits.min_mean_word_chars;
        let most = self.limits.max_mean_word_chars;
        let mean = share(page.words().total_chars, page.words().len() as u64);
        let wanted = match (least, most) {
            (Some(least), _) if mean < least => format!("at least {least} are wanted"),
            (_, Some(most)) if mean > most => format!("at most {most} are allowed"),
            _ => return None,
        };
        reject("gopher_word_length", format!("{mean:.2} characters a word, {wanted}"))
    }

    fn symbols(&self, page: &Page) -> Option<Rejection> {
        let most = self.limits.max_symbols_per_word?;
        let words = page.words().len() as u64;
        let hashes = page.text.bytes().filter(|&byte| byte == b'#').count() as u64;
        let ellipses = (page.text.matches("...").count() + page.text.matches('…').count()) as u64;
        for (count, what) in [(hashes, "`#`"), (ellipses, "ellipses")] {
            let ratio = share(count, words);
            if ratio > most {
                return reject(
                    "gopher_symbols",
                    format!("{ratio:.2} {what} a word, at most {most} are allowed"),
                );
            }
        }
        None
    }

    fn stop_words(&self, page: &Page) -> Option<Rejection> {
        let least = self.limits.min_stop_words.filter(|least| *least > 0)? as usize;
        let mut found: Vec<u64> = Vec::with_capacity(least.min(self.stop_words.len()));
        for hash in &page.folded().hashes {
            if self.stop_words.binary_search(hash).is_ok() && !found.contains(hash) {
                found.push(*hash);
                if found.len() >= least {
                    return None;
                }
            }
        }
        reject(
            "gopher_stop_words",
            format!("{} different stop words, at least {least} are wanted", found.len()),
        )
    }
}

impl Filter for Gopher {
    fn check(&self, page: &Page) -> Option<Rejection> {
        let limits = &self.limits;
        let words = page.words();
        let count = words.len() as u64;
        outside("gopher_few_words", "gopher_many_words", count, limits.min_words, limits.max_words, "words")
            .or_else(|| self.word_length(page))
            .or_else(|| self.symbols(page))
            .or_else(|| {
                let bullets = share_of_lines(page, |line| line.starts_with(BULLETS));
                above("gopher_bullets", bullets, limits.max_bullet_lines, "of the lines begin with a bullet")
            })
            .or_else(|| {
                let ellipses = share_of_lines(page, |line| line.ends_with("...") || line.ends_with('…'));
                above(
                    "gopher_ellipses",
                    ellipses,
                    limits.max_ellipsis_lines,
                    "of the lines end in an ellipsis",
                )
            })
            .or_else(|| {
                let alphabetic = share(words.alphabetic, count);
                below(
                    "gopher_words_without_letters",
                    alphabetic,
                    limits.min_alphabetic_words,
                    "of the words have a letter",
                )
            })
            .or_else(|| self.stop_words(page))
    }
}

fn share_of_lines(page: &Page, is_counted: fn(&str) -> bool) -> f64 {
    let lines = page.lines();
    share(lines.iter().filter(|line| is_counted(line)).count() as u64, lines.len() as u64)
}

/// Returns a list of stop words, separated by spaces. The English list is the paper's; the others are
/// frequent function words that are rare in other languages.
fn built_in(list: StopWords) -> &'static str {
    match list {
        StopWords::English => "the be to of and that have with",
        StopWords::Finnish => "ja on ei että oli se hän mutta ovat kun myös joka niin tai kuin sen ole jos",
        StopWords::Swedish => "och att det som en på är av för med till den har inte",
        StopWords::German => "der die und das ist nicht ein eine zu den von mit sich auf",
    }
}

//! Filters by the shares of letters, digits, symbols and upper case among the characters other than white
//! space.

use crate::corpus::Rejection;
use crate::corpus::filter::{Filter, Page, Reasons, above, below, share};
use config::CharactersFilter;

pub(super) const REASONS: Reasons = &[
    ("few_letters", "A smaller share of letters than `characters.min_alphabetic`."),
    ("many_digits", "A larger share of digits than `characters.max_digits`."),
    ("many_symbols", "A larger share of symbols and punctuation than `characters.max_symbols`."),
    ("many_capitals", "A larger share of upper case among letters than `characters.max_uppercase`."),
];

pub(super) struct Characters {
    limits: CharactersFilter,
}

impl Characters {
    pub(super) fn new(limits: &CharactersFilter) -> Self {
        Self { limits: limits.clone() }
    }
}

impl Filter for Characters {
    fn check(&self, page: &Page) -> Option<Rejection> {
        let limits = &self.limits;
        if *limits == CharactersFilter::default() {
            return None;
        }
        let counts = page.counts();
        let visible = counts.visible();
        below("few_letters", share(counts.letters, visible), limits.min_alphabetic, "letters")
            .or_else(|| above("many_digits", share(counts.digits, visible), limits.max_digits, "digits"))
            .or_else(|| {
                above("many_symbols", share(counts.symbols(), visible), limits.max_symbols, "symbols")
            })
            .or_else(|| {
                above(
                    "many_capitals",
                    share(counts.capitals, counts.letters),
                    limits.max_uppercase,
                    "of the letters are capitals",
                )
            })
    }
}

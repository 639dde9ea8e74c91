//! Identifies the language of a document with the crate `whatlang` (trigrams and alphabets, about 70
//! languages).

use std::borrow::Cow;

use whatlang::{Detector, Lang};

use crate::corpus::Rejection;
use crate::corpus::filter::{Page, Reasons};
use config::{LanguageFilter, language_code};

pub(super) const REASONS: Reasons = &[("language", "In another language than those of `language.expected`.")];

/// Bytes from the beginning and from the middle of a long document by which its language is identified, since
/// the time of detection grows with the length.
const WINDOW_BYTES: usize = 512;

pub(in crate::corpus) struct Languages {
    detector: Detector,
    expected: Vec<&'static str>,
    min_confidence: f64,
    min_letters: u64,
}

/// Language of a document, and the verdict on it.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::corpus) struct Found {
    /// ISO 639-3 code; `None` if the text is too short or in no known language.
    pub(in crate::corpus) language: Option<&'static str>,
    /// Reason for leaving the document out.
    pub(in crate::corpus) rejection: Option<Rejection>,
}

impl Languages {
    /// Returns the filter; `None` if no key of the configuration asks for the language.
    pub(in crate::corpus) fn new(config: &LanguageFilter) -> Option<Self> {
        let candidates: Vec<Lang> = config
            .candidates
            .iter()
            .filter_map(|name| language_code(name))
            .filter_map(Lang::from_code)
            .collect();
        (config.detect || !config.expected.is_empty()).then(|| Self {
            detector: if candidates.is_empty() {
                Detector::new()
            } else {
                Detector::with_allowlist(candidates)
            },
            expected: config.expected.iter().filter_map(|name| language_code(name)).collect(),
            min_confidence: config.min_confidence,
            min_letters: config.min_letters,
        })
    }

    /// Identifies the language of a page; rejects the page if it is not an expected one.
    pub(in crate::corpus) fn check(&self, page: &Page) -> Found {
        if page.counts().letters < self.min_letters {
            return Found { language: None, rejection: None };
        }
        let found = self.detector.detect(&sample(page.text));
        let language = found.as_ref().map(|info| info.lang().code());
        if self.expected.is_empty() || found.as_ref().is_some_and(|info| self.is_expected(info)) {
            return Found { language, rejection: None };
        }
        let detail = match &found {
            Some(info) => format!(
                "`{}` with confidence {:.2}, wanted {}",
                info.lang().code(),
                info.confidence(),
                self.wanted()
            ),
            None => format!("no known language, wanted {}", self.wanted()),
        };
        Found { language, rejection: Some(Rejection { reason: "language", detail }) }
    }

    fn is_expected(&self, info: &whatlang::Info) -> bool {
        self.expected.contains(&info.lang().code()) && info.confidence() >= self.min_confidence
    }

    fn wanted(&self) -> String {
        let names: Vec<String> = self.expected.iter().map(|code| format!("`{code}`")).collect();
        let least = if self.min_confidence > 0.0 {
            format!(" with at least {}", self.min_confidence)
        } else {
            String::new()
        };
        format!("{}{least}", names.join(" or "))
    }
}

/// Returns the beginning and the middle of a long text; a short text as it is.
fn sample(text: &str) -> Cow<'_, str> {
    if text.len() <= 2 * WINDOW_BYTES {
        return Cow::Borrowed(text);
    }
    let second = &text[boundary(text, text.len() / 2)..];
    Cow::Owned(format!(
        "{}\n{}",
        &text[..boundary(text, WINDOW_BYTES)],
        &second[..boundary(second, WINDOW_BYTES)]
    ))
}

/// Returns the last character boundary at or before `at`.
fn boundary(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

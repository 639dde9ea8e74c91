//! Sentences that explain the reasons: those of reading and duplicates are here, those of cleaning and
//! filters are next to their code.

use crate::corpus::dedup::{EXACT_DUPLICATE, NEAR_DUPLICATE};
use crate::corpus::{BAD_RECORD, reasons};

const OTHERS: [(&str, &str); 8] = [
    ("empty", "Nothing but white space."),
    ("line_too_long", "A line, object or field of more bytes than `max_line_bytes`."),
    ("invalid_utf8", "Bytes that are not UTF-8, in a source that says `invalid_utf8: skip`."),
    (BAD_RECORD, "A record that cannot be read, in a source that says `on_bad_record: skip`."),
    (
        "passed_over",
        "A member of an archive that is hidden, a link or of another extension, or a record of a web archive that has no text.",
    ),
    ("outside_doc_tag", "Text outside of `<doc ...>` and `</doc>`."),
    (EXACT_DUPLICATE, "The same text came before, whatever the white space."),
    (
        NEAR_DUPLICATE,
        "Nearly the same text came before: at least `deduplication.near_threshold` of the runs of words are shared.",
    ),
];

/// Returns the sentence about a reason; `None` if this version of the program does not know the reason.
pub(super) fn explanation(reason: &str) -> Option<&'static str> {
    OTHERS.into_iter().chain(reasons()).find(|(name, _)| *name == reason).map(|(_, sentence)| sentence)
}

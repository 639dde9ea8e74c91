//! Characters that end a sentence, in any script: the property `Sentence_Terminal` of Unicode 16.

/// Ranges outside of ASCII, ascending, both ends included (PropList.txt).
const RANGES: [(char, char); 85] = [
    ('\u{589}', '\u{589}'),
    ('\u{61d}', '\u{61f}'),
    ('\u{6d4}', '\u{6d4}'),
    ('\u{700}', '\u{702}'),
    ('\u{7f9}', '\u{7f9}'),
    ('\u{837}', '\u{837}'),
    ('\u{839}', '\u{839}'),
    ('\u{83d}', '\u{83e}'),
    ('\u{964}', '\u{965}'),
    ('\u{104a}', '\u{104b}'),
    ('\u{1362}', '\u{1362}'),
    ('\u{1367}', '\u{1368}'),
    ('\u{166e}', '\u{166e}'),
    ('\u{1735}', '\u{1736}'),
    ('\u{17d4}', '\u{17d5}'),
    ('\u{1803}', '\u{1803}'),
    ('\u{1809}', '\u{1809}'),
    ('\u{1944}', '\u{1945}'),
    ('\u{1aa8}', '\u{1aab}'),
    ('\u{1b4e}', '\u{1b4f}'),
    ('\u{1b5a}', '\u{1b5b}'),
    ('\u{1b5e}', '\u{1b5f}'),
    ('\u{1b7d}', '\u{1b7f}'),
    ('\u{1c3b}', '\u{1c3c}'),
    ('\u{1c7e}', '\u{1c7f}'),
    ('\u{2024}', '\u{2024}'),
    ('\u{203c}', '\u{203d}'),
    ('\u{2047}', '\u{2049}'),
    ('\u{2cf9}', '\u{2cfb}'),
    ('\u{2e2e}', '\u{2e2e}'),
    ('\u{2e3c}', '\u{2e3c}'),
    ('\u{2e53}', '\u{2e54}'),
    ('\u{3002}', '\u{3002}'),
    ('\u{a4ff}', '\u{a4ff}'),
    ('\u{a60e}', '\u{a60f}'),
    ('\u{a6f3}', '\u{a6f3}'),
    ('\u{a6f7}', '\u{a6f7}'),
    ('\u{a876}', '\u{a877}'),
    ('\u{a8ce}', '\u{a8cf}'),
    ('\u{a92f}', '\u{a92f}'),
    ('\u{a9c8}', '\u{a9c9}'),
    ('\u{aa5d}', '\u{aa5f}'),
    ('\u{aaf0}', '\u{aaf1}'),
    ('\u{abeb}', '\u{abeb}'),
    ('\u{fe12}', '\u{fe12}'),
    ('\u{fe15}', '\u{fe16}'),
    ('\u{fe52}', '\u{fe52}'),
    ('\u{fe56}', '\u{fe57}'),
    ('\u{ff01}', '\u{ff01}'),
    ('\u{ff0e}', '\u{ff0e}'),
    ('\u{ff1f}', '\u{ff1f}'),
    ('\u{ff61}', '\u{ff61}'),
    ('\u{10a56}', '\u{10a57}'),
    ('\u{10f55}', '\u{10f59}'),
    ('\u{10f86}', '\u{10f89}'),
    ('\u{11047}', '\u{11048}'),
    ('\u{110be}', '\u{110c1}'),
    ('\u{11141}', '\u{11143}'),
    ('\u{111c5}', '\u{111c6}'),
    ('\u{111cd}', '\u{111cd}'),
    ('\u{111de}', '\u{111df}'),
    ('\u{11238}', '\u{11239}'),
    ('\u{1123b}', '\u{1123c}'),
    ('\u{112a9}', '\u{112a9}'),
    ('\u{113d4}', '\u{113d5}'),
    ('\u{1144b}', '\u{1144c}'),
    ('\u{115c2}', '\u{115c3}'),
    ('\u{115c9}', '\u{115d7}'),
    ('\u{11641}', '\u{11642}'),
    ('\u{1173c}', '\u{1173e}'),
    ('\u{11944}', '\u{11944}'),
    ('\u{11946}', '\u{11946}'),
    ('\u{11a42}', '\u{11a43}'),
    ('\u{11a9b}', '\u{11a9c}'),
    ('\u{11c41}', '\u{11c42}'),
    ('\u{11ef7}', '\u{11ef8}'),
    ('\u{11f43}', '\u{11f44}'),
    ('\u{16a6e}', '\u{16a6f}'),
    ('\u{16af5}', '\u{16af5}'),
    ('\u{16b37}', '\u{16b38}'),
    ('\u{16b44}', '\u{16b44}'),
    ('\u{16d6e}', '\u{16d6f}'),
    ('\u{16e98}', '\u{16e98}'),
    ('\u{1bc9f}', '\u{1bc9f}'),
    ('\u{1da88}', '\u{1da88}'),
];

/// Returns true if a character ends a sentence, such as `.`, the Urdu `۔`, the Burmese `။` or the Amharic
/// `።`.
pub(super) fn ends_sentence(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, '.' | '!' | '?');
    }
    let place = RANGES.partition_point(|&(_, last)| last < c);
    RANGES.get(place).is_some_and(|&(first, _)| first <= c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marks_of_many_scripts_end_sentences_and_letters_and_commas_do_not() {
        // English, Urdu, Arabic, Armenian, Hindi, Burmese, Amharic, Khmer, Chinese, Japanese (half width),
        // Mongolian.
        for mark in
            ['.', '!', '?', '۔', '؟', '։', '।', '။', '።', '។', '。', '｡', '！', '\u{1803}', '\u{1367}']
        {
            assert!(ends_sentence(mark), "{mark}");
        }
        for other in [',', ';', ':', '،', '፣', '၏', 'a', 'ж', '字', '…', '\u{10ffff}', '·'] {
            assert!(!ends_sentence(other), "{other}");
        }
        assert!(RANGES.windows(2).all(|pair| pair[0].0 <= pair[0].1 && pair[0].1 < pair[1].0));
    }
}

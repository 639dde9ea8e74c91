//! The merges of a byte-level BPE, applied to one word without building strings: equivalent to the model of
//! the `tokenizers` crate for the usual settings, and used only for those.

use serde_json::Value;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use crate::tokenizer::gpt2::Gpt2;
use crate::tokenizer::hash::FastMap;

/// Longer words are passed to the crate, whose priority queue is not quadratic in the length.
const WORD_BYTES_MAX: usize = 96;

const NO_RANK: u32 = u32::MAX;

/// Byte-level BPE after GPT-2's splitting into words.
pub(super) struct ByteBpe {
    gpt2: Gpt2,
    byte_ids: [u32; 256],
    /// Rank and resulting id of each merge.
    merges: FastMap<(u32, u32), (u32, u32)>,
}

impl ByteBpe {
    /// The model of a tokenizer.json; `None` if any of its settings is unusual.
    pub(super) fn new(model: &Value) -> Option<Self> {
        let usual = ["dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"]
            .map(|key| &model[key])
            .iter()
            .all(|value| matches!(value, Value::Null | Value::Bool(false)) || value.as_str() == Some(""));
        if model["type"].as_str() != Some("BPE") || !usual {
            return None;
        }
        let vocab = model["vocab"].as_object()?;
        let mut ids: Vec<u64> = vocab.values().map(Value::as_u64).collect::<Option<_>>()?;
        ids.sort_unstable();
        if ids.windows(2).any(|two| two[0] == two[1]) {
            return None;
        }
        let mut byte_ids = [0; 256];
        for (byte, character) in byte_characters().into_iter().enumerate() {
            byte_ids[byte] = id_of(vocab, character.encode_utf8(&mut [0; 4]))?;
        }
        let mut merges = FastMap::default();
        for (rank, merge) in (0..NO_RANK).zip(model["merges"].as_array()?) {
            let (left, right) = match merge {
                Value::String(both) => both.split_once(' ')?,
                both => (both.get(0)?.as_str()?, both.get(1)?.as_str()?),
            };
            let pair = (id_of(vocab, left)?, id_of(vocab, right)?);
            let merged = id_of(vocab, &format!("{left}{right}"))?;
            if merges.insert(pair, (rank, merged)).is_some() {
                return None;
            }
        }
        Some(Self { gpt2: Gpt2::new()?, byte_ids, merges })
    }

    /// Splits `text` into words by [`Gpt2::words`]; false if a word is too long or GPT-2's rules cannot be
    /// applied.
    pub(super) fn words<'a>(&self, text: &'a str, words: &mut Vec<&'a str>) -> bool {
        words.clear();
        self.gpt2.words(text, |word| words.push(word))
            && words.iter().all(|word| word.len() <= WORD_BYTES_MAX)
    }

    /// Appends the ids of one word: the pair with the lowest rank is merged first; among equal ranks, the
    /// leftmost pair.
    pub(super) fn append_word(&self, word: &str, ids: &mut Vec<u32>) {
        let mut symbols = [0; WORD_BYTES_MAX];
        let mut ranks = [(NO_RANK, 0); WORD_BYTES_MAX];
        let mut len = word.len();
        for (symbol, byte) in symbols.iter_mut().zip(word.bytes()) {
            *symbol = self.byte_ids[usize::from(byte)];
        }
        for place in 1..len {
            ranks[place - 1] = self.rank(symbols[place - 1], symbols[place]);
        }
        while len > 1 {
            let pairs = &ranks[..len - 1];
            let mut place = 0;
            let mut best = pairs[0];
            for (candidate, &pair) in pairs.iter().enumerate() {
                if pair.0 < best.0 {
                    place = candidate;
                    best = pair;
                }
            }
            if best.0 == NO_RANK {
                break;
            }
            symbols[place] = best.1;
            symbols.copy_within(place + 2..len, place + 1);
            ranks.copy_within(place + 1..len, place);
            len -= 1;
            if place > 0 {
                ranks[place - 1] = self.rank(symbols[place - 1], symbols[place]);
            }
            if place + 1 < len {
                ranks[place] = self.rank(symbols[place], symbols[place + 1]);
            }
        }
        ids.extend_from_slice(&symbols[..len]);
    }

    fn rank(&self, left: u32, right: u32) -> (u32, u32) {
        self.merges.get(&(left, right)).copied().unwrap_or((NO_RANK, 0))
    }
}

/// The id of a token in the vocabulary of a tokenizer.json.
fn id_of(vocab: &serde_json::Map<String, Value>, token: &str) -> Option<u32> {
    u32::try_from(vocab.get(token)?.as_u64()?).ok()
}

/// The character that represents each byte: printable bytes represent themselves, the others are numbered
/// from U+0100 on (GPT-2's `bytes_to_unicode`).
pub(in crate::tokenizer) fn byte_characters() -> [char; 256] {
    let mut itself: Vec<char> = ByteLevel::alphabet().into_iter().filter(|c| (*c as u32) < 256).collect();
    itself.sort_unstable();
    let mut next = '\u{100}'..;
    std::array::from_fn(|byte| {
        let own = char::from(byte as u8);
        if itself.binary_search(&own).is_ok() { own } else { next.next().unwrap_or(own) }
    })
}

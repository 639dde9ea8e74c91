//! The special tokens around one text and around a pair, and the token types, as determined by a tokenizer's
//! own post-processor.

use serde_json::{Value, json};
use tokenizers::{Encoding, Token};

use base::error::Problem;
use base::quietly::quietly;

/// Most special tokens in sequence.
const ROW_MAX: usize = 4;

/// Placeholders for the first and the second text in a call of the post-processor.
const TEXTS: [u32; 2] = [u32::MAX - 1, u32::MAX];

/// A special token and its token type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Placed {
    id: u32,
    token_type: u32,
}

/// Consecutive special tokens before, between or after texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpecialRow {
    tokens: [Placed; ROW_MAX],
    len: u32,
}

impl SpecialRow {
    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if there is no token.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends the tokens and their types.
    pub fn push(&self, ids: &mut Vec<u32>, types: &mut Vec<u32>) {
        ids.extend(self.ids());
        types.extend(self.tokens[..self.len()].iter().map(|token| token.token_type));
    }

    /// The ids of the tokens.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.tokens[..self.len()].iter().map(|token| token.id)
    }

    fn add(&mut self, id: u32, token_type: u32) -> Option<()> {
        *self.tokens.get_mut(self.len as usize)? = Placed { id, token_type };
        self.len += 1;
        Some(())
    }
}

/// The special tokens around one text or a pair of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Frame {
    /// Tokens before the first text.
    pub before: SpecialRow,
    /// Tokens between the texts of a pair.
    pub between: SpecialRow,
    /// Tokens after the last text.
    pub after: SpecialRow,
    /// Token types of the first and of the second text.
    pub text_types: [u32; 2],
}

impl Frame {
    /// A frame of a token before a text and a token after it.
    pub fn from_tokens(before: u32, after: u32) -> Self {
        let mut frame = Self::default();
        frame.before.add(before, 0);
        frame.after.add(after, 0);
        frame
    }

    /// Number of special tokens.
    pub fn special_tokens(&self) -> usize {
        self.before.len() + self.between.len() + self.after.len()
    }

    /// `text` between the special tokens of a single text.
    pub fn around(&self, text: &[u32]) -> Vec<u32> {
        self.before.ids().chain(text.iter().copied()).chain(self.after.ids()).collect()
    }

    fn with_types_up_to(mut self, most: u32) -> Self {
        for row in [&mut self.before, &mut self.between, &mut self.after] {
            row.tokens.iter_mut().for_each(|token| token.token_type = token.token_type.min(most));
        }
        Self { text_types: self.text_types.map(|token_type| token_type.min(most)), ..self }
    }

    /// Calls the post-processor of `inner` with one or two texts of one token each.
    fn new(inner: &tokenizers::Tokenizer, texts: usize, place: &str) -> Result<Self, Problem> {
        let second = (texts == 2).then(|| placeholder(1));
        let encoding = quietly(|| inner.post_process(placeholder(0), second, true)).map_err(|message| {
            Problem::new(format!("its `post_processor` cannot be used: {message}")).at(place)
        })?;
        Self::parse(&encoding, texts).ok_or_else(|| {
            let what = ["a text", "a pair of texts"][texts - 1];
            Problem::new(format!(
                "its `post_processor` does not put up to {ROW_MAX} special tokens around each of {what} once"
            ))
            .at(place)
            .hint("write the template of the model's own tokenizer there")
        })
    }

    /// Reads a frame from ids and types of texts of one token each.
    fn parse(encoding: &Encoding, texts: usize) -> Option<Self> {
        let mut frame = Self::default();
        let mut seen = 0;
        for (&id, &token_type) in encoding.get_ids().iter().zip(encoding.get_type_ids()) {
            if TEXTS.contains(&id) {
                (seen < texts && id == TEXTS[seen]).then_some(())?;
                frame.text_types[seen] = token_type;
                seen += 1;
                continue;
            }
            let row = match seen {
                0 => &mut frame.before,
                1 if texts == 2 => &mut frame.between,
                _ => &mut frame.after,
            };
            row.add(id, token_type)?;
        }
        (seen == texts).then_some(frame)
    }
}

/// A special token in a `TemplateProcessing`.
pub(super) fn template_token(name: &str, token_type: u32) -> Value {
    json!({"SpecialToken": {"id": name, "type_id": token_type}})
}

/// A text in a `TemplateProcessing`.
pub(super) fn template_text(name: &str, token_type: u32) -> Value {
    json!({"Sequence": {"id": name, "type_id": token_type}})
}

/// An entry in the table of special tokens of a `TemplateProcessing`.
pub(super) fn template_entry(name: &str, id: Option<u32>) -> Value {
    json!({"id": name, "ids": [id], "tokens": [name]})
}

/// The encoding of the placeholder of a text.
fn placeholder(text: usize) -> Encoding {
    let token = Token::new(TEXTS[text], "x".to_string(), (0, 1));
    Encoding::from_tokens(vec![token], text as u32)
}

/// The frames of a tokenizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Framing {
    /// The frame of one text.
    pub single: Frame,
    /// The frame of a pair of texts.
    pub pair: Frame,
}

impl Framing {
    /// Determines the frames by calling the post-processor of `inner`; an error if it does more than put a
    /// few special tokens around each text once.
    pub(super) fn new(inner: &tokenizers::Tokenizer, place: &str) -> Result<Self, Problem> {
        Ok(Self { single: Frame::new(inner, 1, place)?, pair: Frame::new(inner, 2, place)? })
    }

    /// The same frames with token types below `types`; if `types` is 1 or 0, all token types are 0.
    #[must_use]
    pub fn with_types_below(self, types: u32) -> Self {
        let most = types.saturating_sub(1);
        Self { single: self.single.with_types_up_to(most), pair: self.pair.with_types_up_to(most) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "the callers write the value in place")]
    fn framing(post_processor: Value) -> Result<Framing, Problem> {
        let json = json!({"version": "1.0", "added_tokens": [], "post_processor": post_processor,
            "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}});
        Framing::new(&tokenizers::Tokenizer::from_bytes(json.to_string()).unwrap(), "here")
    }

    fn pair_of(framing: &Framing) -> (Vec<u32>, Vec<u32>) {
        let mut ids = Vec::new();
        let mut types = Vec::new();
        framing.pair.before.push(&mut ids, &mut types);
        ids.push(7);
        types.push(framing.pair.text_types[0]);
        framing.pair.between.push(&mut ids, &mut types);
        ids.push(8);
        types.push(framing.pair.text_types[1]);
        framing.pair.after.push(&mut ids, &mut types);
        (ids, types)
    }

    #[test]
    fn each_kind_of_post_processor_has_its_frames() {
        let roberta = json!({"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": true, "add_prefix_space": false});
        let roberta = framing(roberta).unwrap();
        assert_eq!(roberta.single.around(&[7]), [0, 7, 2]);
        assert_eq!(pair_of(&roberta), (vec![0, 7, 2, 2, 8, 2], vec![0; 6]));
        let bert =
            framing(json!({"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]})).unwrap();
        assert_eq!(pair_of(&bert), (vec![2, 7, 3, 8, 3], vec![0, 0, 0, 1, 1]));
        assert_eq!(pair_of(&bert.with_types_below(1)).1, [0; 5]);
        let none = framing(Value::Null).unwrap();
        assert_eq!(none.single.around(&[7]), [7]);
        assert_eq!(pair_of(&none), (vec![7, 8], vec![0, 1]));
        let both = json!({"type": "Sequence", "processors": [
            {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
            {"type": "TemplateProcessing",
             "single": [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 2}}],
             "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "x", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
             "special_tokens": {"x": {"id": "x", "ids": [5, 6], "tokens": ["a", "b"]}}}]});
        let both = framing(both).unwrap();
        assert_eq!((both.single.around(&[7]), both.single.text_types[0]), (vec![5, 6, 7], 2));
        assert_eq!(pair_of(&both), (vec![7, 5, 6, 8], vec![0, 1, 1, 1]));
    }

    #[test]
    fn a_template_that_repeats_a_text_is_refused() {
        let twice = json!({"type": "TemplateProcessing", "special_tokens": {},
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}]});
        let error = framing(twice).unwrap_err().to_string();
        assert!(error.contains("`post_processor`") && error.contains("a text once"), "{error}");
    }
}

//! Prints rows as the model sees them: packed and masked, with marks around masked tokens.

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;

use crate::batches::{Cursor, Frame, Masking, Order, Packer, Row};
use crate::commands::terminal::{Output, printable};
use crate::rng::{Purpose, Stream};
use crate::shards::ShardSet;
use crate::tokenizer::Tokenizer;

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// The effect of masking on a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Not chosen for prediction.
    Plain,
    /// A special token at the start or end of a segment.
    Special,
    /// Chosen for prediction, and replaced by the mask token.
    Masked,
    /// Chosen for prediction, and replaced by a random token.
    Random,
    /// Chosen for prediction, and left unchanged.
    Kept,
}

/// The source of rows, and the settings for masking and printing them.
pub(super) struct Rows<'a> {
    pub(super) set: Arc<ShardSet>,
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) order: Order,
    pub(super) frame: Frame,
    pub(super) masking: Masking,
    /// Seed of the masks.
    pub(super) seed: u64,
    pub(super) in_color: bool,
}

impl Rows<'_> {
    /// Writes the first `count` rows of the first epoch, or all if there are fewer.
    pub(super) fn print<W: Write>(&mut self, count: usize, output: &mut Output<W>) -> Result<()> {
        let mut packer =
            Packer::new(Arc::clone(&self.set), self.order.clone(), self.frame, Cursor::default())?;
        output.line("")?;
        output.line(&self.legend())?;
        for number in 0..count {
            let Some(mut row) = packer.next_row_of_epoch()? else { break };
            let original = row.ids.clone();
            let mut chosen = vec![false; row.ids.len()];
            self.masking.apply(
                Stream::new(self.seed, Purpose::Mask, row.sample_id),
                &mut row.ids,
                |place, _| {
                    chosen[place as usize] = true;
                },
            );
            for line in self.row_lines(number, &row, &original, &chosen)? {
                output.line(&line)?;
            }
        }
        Ok(())
    }

    fn legend(&self) -> String {
        let rows = format!("rows of at most {} tokens", self.frame.max_seq_length);
        if self.in_color {
            let masked = format!("{GREEN}masked{RESET} {DIM}original{RESET}");
            format!(
                "{rows}: {masked}, {RED}random{RESET} {DIM}original{RESET}, {YELLOW}predicted as it is{RESET}"
            )
        } else {
            format!("{rows}: tokens to predict are [original→what the model sees]")
        }
    }

    /// Returns a line of counts for a row, and a line for each segment. `original` are the ids before
    /// masking, `chosen` is true for the tokens to predict.
    fn row_lines(&self, number: usize, row: &Row, original: &[u32], chosen: &[bool]) -> Result<Vec<String>> {
        let mask = self.tokenizer.special().mask()?;
        let fates: Vec<Fate> =
            (0..row.ids.len()).map(|at| self.fate(original[at], row.ids[at], chosen[at], mask)).collect();
        let [masked, random, kept] = [Fate::Masked, Fate::Random, Fate::Kept]
            .map(|fate| fates.iter().filter(|one| **one == fate).count());
        let predicted = masked + random + kept;
        let tokens = row.ids.len();
        let segments = row.segment_ends.len();
        let plural = if segments == 1 { "" } else { "s" };
        let mut lines = vec![
            String::new(),
            format!(
                "row {number}: {tokens} tokens in {segments} segment{plural}, {predicted} to predict ({masked} masked, {random} random, {kept} kept)"
            ),
        ];
        let mut start = 0;
        for end in row.segment_ends.iter().map(|end| *end as usize) {
            lines.push(format!(
                "  {}",
                self.segment(&original[start..end], &row.ids[start..end], &fates[start..end])?
            ));
            start = end;
        }
        Ok(lines)
    }

    fn fate(&self, original: u32, seen: u32, is_chosen: bool, mask: u32) -> Fate {
        match (is_chosen, seen) {
            (true, seen) if seen == mask => Fate::Masked,
            (true, seen) if seen == original => Fate::Kept,
            (true, _) => Fate::Random,
            (false, _) if self.tokenizer.special_ids().binary_search(&original).is_ok() => Fate::Special,
            (false, _) => Fate::Plain,
        }
    }

    /// Returns the text of one segment. Consecutive plain tokens are decoded together, every other token on
    /// its own.
    fn segment(&self, original: &[u32], seen: &[u32], fates: &[Fate]) -> Result<String> {
        let mut text = String::new();
        let mut at = 0;
        while at < seen.len() {
            let run = if fates[at] == Fate::Plain {
                fates[at..].iter().take_while(|fate| **fate == Fate::Plain).count()
            } else {
                1
            };
            let before = if at > 0 && fates[at - 1] != Fate::Special { Some(original[at - 1]) } else { None };
            let was = piece(self.tokenizer, before, &original[at..at + run])?;
            let is = if original[at] == seen[at] {
                was.clone()
            } else {
                piece(self.tokenizer, None, &seen[at..=at])?
            };
            text.push_str(&self.marked(fates[at], &was, &is));
            at += run;
        }
        Ok(text)
    }

    fn marked(&self, fate: Fate, was: &str, is: &str) -> String {
        // The space before a word is not part of the marked text.
        let space = if was.starts_with(' ') { " " } else { "" };
        let was_word = was.trim_start_matches(' ');
        let is_word = is.trim_start_matches(' ');
        match (fate, self.in_color) {
            (Fate::Plain, _) | (Fate::Special, false) => was.to_string(),
            (Fate::Special, true) => format!("{DIM}{was}{RESET}"),
            (Fate::Kept, true) => format!("{space}{YELLOW}{was_word}{RESET}"),
            (Fate::Masked, true) => format!("{space}{GREEN}{is_word}{RESET} {DIM}{was_word}{RESET}"),
            (Fate::Random, true) => format!("{space}{RED}{is_word}{RESET} {DIM}{was_word}{RESET}"),
            (Fate::Kept | Fate::Masked | Fate::Random, false) => format!("{space}[{was_word}→{is_word}]"),
        }
    }
}

/// Returns the text of `ids` after the token `before`. The text that a decoder puts between two tokens
/// depends on both.
fn piece(tokenizer: &Tokenizer, before: Option<u32>, ids: &[u32]) -> Result<String> {
    let alone = decode(tokenizer, ids)?;
    let Some(before) = before else { return Ok(printable(&alone)) };
    let prefix = decode(tokenizer, &[before])?;
    let both = decode(tokenizer, &[&[before], ids].concat())?;
    // If two tokens share the bytes of a character, the text of the first alone is not a prefix of the text
    // of both.
    Ok(printable(both.strip_prefix(&prefix).unwrap_or(&alone)))
}

/// Returns the text of `ids`, with special tokens spelled out.
pub(super) fn decode(tokenizer: &Tokenizer, ids: &[u32]) -> Result<String> {
    tokenizer.decode(ids, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{MlmConfig, TokenizerConfig};
    use crate::families::Family;
    use crate::tokenizer::{Trainer, TrainerOptions};

    fn tokenizer() -> Tokenizer {
        let config = TokenizerConfig { vocab_size: 300, ..TokenizerConfig::default() };
        let mut trainer = Trainer::new(TrainerOptions::new(&config, Family::ROBERTA, 512)).unwrap();
        trainer.add(&["the fox and the hen and the bear"; 4]).unwrap();
        trainer.finish(|_| {}).unwrap().tokenizer
    }

    fn rows(tokenizer: &Tokenizer, in_color: bool) -> Rows<'_> {
        let set = Arc::new(ShardSet::in_memory(&[], tokenizer.vocab_size()));
        Rows {
            set,
            tokenizer,
            order: Order::Shuffled { seed: 1 },
            frame: Frame::new(tokenizer, 16).unwrap(),
            masking: Masking::new(&MlmConfig::default(), tokenizer).unwrap(),
            seed: 1,
            in_color,
        }
    }

    /// The lines of `<s> the fox and the hen\n</s>` with a mask, a random replacement and a token that was
    /// kept.
    fn shown(in_color: bool) -> String {
        let tokenizer = tokenizer();
        let [begin, end, mask, the] =
            ["<s>", "</s>", "<mask>", "Ġthe"].map(|token| tokenizer.id(token).unwrap());
        let mut original = vec![begin];
        original.extend(tokenizer.encode("the fox and the hen\n\u{1b}[2J").unwrap());
        original.push(end);
        let [masked, random, kept] = ["Ġfox", "Ġand", "Ġhen"].map(|token| {
            let id = tokenizer.id(token).unwrap();
            original.iter().position(|other| *other == id).unwrap()
        });
        let mut ids = original.clone();
        ids[masked] = mask;
        ids[random] = the;
        let chosen: Vec<bool> = (0..ids.len()).map(|at| [masked, random, kept].contains(&at)).collect();
        let row = Row { sample_id: 0, segment_ends: vec![ids.len() as u32], ids };
        rows(&tokenizer, in_color).row_lines(0, &row, &original, &chosen).unwrap()[1..].join("\n")
    }

    #[test]
    fn masks_are_in_brackets_and_control_characters_are_escaped() {
        let shown = shown(false);
        assert!(shown.contains("in 1 segment, 3 to predict (1 masked, 1 random, 1 kept)"), "{shown}");
        assert!(shown.ends_with("\n  <s>the [fox→<mask>] [and→the] the [hen→hen]⏎\\u{1b}[2J</s>"), "{shown}");
    }

    #[test]
    fn masks_are_green_red_and_yellow() {
        let expected = "\n  {d}<s>{r}the {g}<mask>{r} {d}fox{r} {red}the{r} {d}and{r} the {y}hen{r}⏎\\u{1b}[2J{d}</s>{r}";
        let codes = [("{d}", DIM), ("{r}", RESET), ("{g}", GREEN), ("{red}", RED), ("{y}", YELLOW)];
        let expected = codes.iter().fold(expected.to_string(), |text, (name, code)| text.replace(name, code));
        assert!(shown(true).ends_with(&expected), "{}", shown(true).escape_debug());
    }
}

//! Sentences of words as the examples of a task, which predicts something for each word.
//!
//! `windows.rs` splits long sentences and adds special tokens, `words.rs` splits texts into words. Neither
//! knows the model.

pub mod windows;
pub mod words;

use std::ops::AddAssign;

use anyhow::Result;
use serde_json::Value;

use crate::tasks::finetuning_task::{Input, Place, PlanWords};
use crate::tasks::labelled::input::Asked;
use crate::tasks::labelled::{InputFile, InputText, Sentence};
use crate::tasks::planned::Lengths;
use crate::tasks::run::TargetShare;
use crate::tasks::sentences::windows::{Window, WindowCollator, windows};
use crate::tasks::sentences::words::words_of;
use crate::tasks::start;
use crate::tasks::trained::Scored;
use base::error::Problem;
use base::families::{HeadKind, ModelConfig};
use base::fs;
use config::FinetuneConfig;
use data::batches::Batch;
use data::tokenizer::Tokenizer;
use model::interop::PretrainedFolder;
use model::models::{Blueprint, Objective, TokenClassificationHead};

/// Most bytes of a `config.json`.
const CONFIG_CAP_BYTES: u64 = 1 << 20;

/// The prediction for a word.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Predicted {
    /// Id of the label with the highest probability, the first one of equals.
    pub label: u32,
    /// Probability of that label.
    pub score: f32,
}

impl Predicted {
    /// Prediction for a word for which the tokenizer returns no tokens, so that the model never sees it.
    const UNSEEN: Self = Self { label: u32::MAX, score: f32::NAN };

    /// The label with the highest probability, the first one of equals.
    fn best(probabilities: &[f32]) -> Self {
        let start = Self { label: 0, score: probabilities.first().copied().unwrap_or(0.0) };
        probabilities.iter().zip(0..).fold(start, |best, (&score, label)| {
            if score > best.score { Self { label, score } } else { best }
        })
    }

    /// True if the model has seen the word.
    pub(super) fn is_seen(self) -> bool {
        self.label != Self::UNSEEN.label
    }
}

/// Counts of unusual sentences and words.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unusual {
    /// Number of sentences with several windows.
    pub long_sentences: u64,
    /// Number of sentences with one window.
    pub short_sentences: u64,
    /// Number of words that are longer than a window; only their first tokens are seen.
    pub cut_words: u64,
    /// Number of words for which the tokenizer returns no tokens, such as a lone joiner: transformers'
    /// run_ner.py gives them no label.
    pub unseen_words: u64,
    /// Length in tokens of the longest sentence, including special tokens.
    pub longest: u64,
}

impl AddAssign for Unusual {
    fn add_assign(&mut self, other: Self) {
        self.long_sentences += other.long_sentences;
        self.short_sentences += other.short_sentences;
        self.cut_words += other.cut_words;
        self.unseen_words += other.unseen_words;
        self.longest = self.longest.max(other.longest);
    }
}

/// Examples that are sentences of words; each word is predicted.
pub struct Words;

impl Input for Words {
    type Row = Sentence;
    type Encoded = Window;
    type Collator = WindowCollator;
    type Unusual = Unusual;
    type Answer = Vec<Predicted>;
    type Question = Asked;
    type Head = TokenClassificationHead;

    const WORDS: PlanWords = PlanWords { labels: "types", longest: "longest sentence", too_long: "windows" };
    // Most words are a single token, so nearly all tokens have a label.
    const REACH_HEAD: TargetShare = TargetShare::OfTokens(1.0);

    /// The head has one objective: one class for each word.
    fn blueprint(
        config: &ModelConfig,
        outputs: usize,
        _: Objective,
    ) -> candle_core::Result<Blueprint<TokenClassificationHead>> {
        Blueprint::token_classifier(config, outputs)
    }

    fn framing(
        folder: &PretrainedFolder,
        max_seq_length: usize,
        config: Option<&FinetuneConfig>,
    ) -> Result<(Tokenizer, WindowCollator)> {
        let mut tokenizer = start::tokenizer_of(folder)?;
        // In text, words follow blanks, and pretraining saw them so. A trained tagger keeps the way in which
        // it was trained.
        let is_new = config.is_some() && folder.head != HeadKind::TokenClassification;
        if is_new || had_blanks(folder, &tokenizer)? {
            tokenizer = tokenizer.for_words()?;
        }
        let longest = folder.config.max_sequence_length();
        let types =
            if tokenizer.gives_token_types() { folder.config.encoder.type_vocab_size as u32 } else { 0 };
        let frame = tokenizer.framing().with_types_below(types).single;
        let least = frame.special_tokens() + 1;
        if !(least..=longest).contains(&max_seq_length) {
            let message = format!("is {max_seq_length}, the model takes {least} to {longest} tokens");
            return Err(Problem::usage(message)
                .at("data.max_seq_length")
                .hint(format!("set it to {longest} or less: longer sentences are read in windows"))
                .into());
        }
        Ok((tokenizer, WindowCollator { frame, max_seq_length }))
    }

    fn cut_at(collator: WindowCollator, length: usize) -> WindowCollator {
        let least = collator.frame.special_tokens() + 1;
        let is_possible = (least..collator.max_seq_length).contains(&length);
        if is_possible { WindowCollator { max_seq_length: length, ..collator } } else { collator }
    }

    fn encode(
        tokenizer: &Tokenizer,
        collator: &WindowCollator,
        rows: &[Sentence],
    ) -> Result<(Vec<Window>, Unusual)> {
        let words: Vec<&str> = rows.iter().flat_map(|row| &row.words).map(String::as_str).collect();
        let mut pieces = tokenizer.encode_words(&words)?.into_iter();
        let mut encoded = Vec::new();
        let mut unusual = Unusual::default();
        for (index, row) in rows.iter().enumerate() {
            let mut words: Vec<Vec<u32>> = pieces.by_ref().take(row.words.len()).collect();
            for word in &mut words {
                unusual.unseen_words += u64::from(word.is_empty());
                unusual.cut_words += u64::from(word.len() > collator.capacity());
                word.truncate(collator.capacity());
            }
            let tokens: usize = words.iter().map(Vec::len).sum();
            let special = collator.max_seq_length - collator.capacity();
            unusual.longest = unusual.longest.max((tokens + special) as u64);
            let windows = windows(index, &words, collator.capacity());
            unusual.long_sentences += u64::from(windows.len() > 1);
            unusual.short_sentences += u64::from(windows.len() == 1);
            encoded.extend(windows);
        }
        Ok((encoded, unusual))
    }

    fn places(window: &Window) -> impl Iterator<Item = Place> {
        window.words.iter().map(|(word, _)| Place { example: window.sentence, word: *word })
    }

    fn batch(collator: &WindowCollator, encoded: &[&Window], first_row: u64) -> Batch {
        collator.batch(encoded.iter().copied(), first_row)
    }

    fn files(_: &FinetuneConfig) -> Vec<(String, Vec<u8>)> {
        Vec::new()
    }

    fn text(row: &Sentence) -> String {
        row.words.join(" ")
    }

    fn unanswered(row: &Sentence) -> Vec<Predicted> {
        vec![Predicted::UNSEEN; row.words.len()]
    }

    fn put(answer: &mut Vec<Predicted>, word: usize, outputs: Vec<f32>) {
        answer[word] = Predicted::best(&outputs);
    }

    fn lengths(rows: &[Sentence], unusual: &Unusual) -> Lengths {
        Lengths { examples: rows.len(), longest: unusual.longest, too_long: unusual.long_sentences }
    }

    fn too_long(length: usize) -> String {
        format!("sentences are longer than {length} tokens, and read in windows")
    }

    fn notes(
        set: &str,
        encoded: &[Window],
        rows: &[Sentence],
        unusual: &Unusual,
        collator: &WindowCollator,
    ) -> Vec<String> {
        let Unusual { long_sentences: long, short_sentences: short, cut_words, unseen_words, .. } = *unusual;
        let many = rows.len();
        let length = collator.max_seq_length;
        let mut notes = Vec::new();
        if long > 0 {
            let windows = encoded.len() as u64 - short;
            notes.push(format!(
                "{long} of {many} {set} sentences are longer than {length} tokens: read in {windows} windows"
            ));
        }
        if unseen_words > 0 {
            notes.push(format!(
                "{unseen_words} {set} words are nothing to the tokenizer: the model never sees them"
            ));
        }
        if cut_words > 0 {
            notes.push(format!("{cut_words} {set} words were cut at {length} tokens"));
        }
        notes
    }

    fn count(rows: &[Sentence], scored: &mut Scored) {
        let words: usize = rows.iter().map(|row| row.words.len()).sum();
        scored.add("examples", rows.len(), "sentences", rows.len());
        scored.add("words", words, "words", words);
    }

    fn count_unusual(unusual: &Unusual, scored: &mut Scored) {
        let Unusual { long_sentences: long, cut_words, unseen_words, .. } = *unusual;
        if long > 0 {
            scored.add("long_examples", long, "in windows", format!("{long} sentences"));
        }
        if cut_words > 0 {
            scored.add("words_cut", cut_words, "words cut", cut_words);
        }
        if unseen_words > 0 {
            scored.add("words_unseen", unseen_words, "words unseen", unseen_words);
        }
    }

    fn note_of_predict(_: usize, unusual: &Unusual) -> Option<String> {
        let cut = unusual.cut_words;
        (cut > 0).then(|| format!("note: {cut} words were longer than the model takes and were cut"))
    }

    fn questions(input: &InputFile<'_>) -> Result<Box<dyn Iterator<Item = Result<Asked>>>> {
        input.asked()
    }

    fn origin(question: &Asked) -> &InputText {
        question.row()
    }

    /// A text is split into words.
    fn row(question: &Asked) -> Sentence {
        let words = match question {
            Asked::Words(words, _) => words.clone(),
            Asked::Text(row) => {
                let text = &row.texts.0;
                words_of(text).into_iter().map(|span| text[span.bytes].to_string()).collect()
            }
        };
        Sentence { words, ..Sentence::default() }
    }
}

/// Returns true if this tagger was trained with blanks before words although its tokenizer.json does not show
/// that. Earlier versions of mlmtrain wrote such folders; transformers, which writes its version into each
/// `config.json`, did not.
fn had_blanks(folder: &PretrainedFolder, tokenizer: &Tokenizer) -> Result<bool> {
    if folder.head != HeadKind::TokenClassification || !tokenizer.asks_for_words() {
        return Ok(false);
    }
    let config = fs::read_capped(&folder.path.join("config.json"), CONFIG_CAP_BYTES)?;
    let config: Value = serde_json::from_slice(&config)?;
    Ok(config["transformers_version"].is_null())
}

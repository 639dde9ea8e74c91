//! `mlmtrain predict`: labels texts, or fills in their masks; one JSON line each on standard output.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use anyhow::Result;
use serde_json::Value;
use serde_json::json;

use crate::commands::cli::PredictArgs;
use crate::commands::terminal;
use crate::commands::terminal::Output;
use crate::error::Problem;
use crate::families::HeadKind;
use crate::fs;
use crate::interop::read_folder;
use crate::machine;
use crate::tasks::classify::Classifier;
use crate::tasks::classify::PredictionRow;
use crate::tasks::classify::TextPair;
use crate::tasks::masked_lm::MaskedLm;
use crate::tasks::masked_lm::fill_mask::fill_mask;

/// A longer line is no text to label.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// Candidates of each mask.
const CANDIDATES: usize = 5;

/// Runs the subcommand.
pub fn run(args: &PredictArgs) -> Result<()> {
    machine::use_threads(args.compute.threads)?;
    let device = candle_core::Device::Cpu;
    let mut out = Output::stdout();
    let texts = Texts::open(args)?;
    match read_folder(&args.model)?.head {
        HeadKind::SequenceClassification => {
            label(
                &Classifier::load(&args.model, &device)?,
                texts,
                args.compute.batch_size as usize,
                &mut out,
            )?;
        }
        HeadKind::MaskedLm => {
            let (task, tokenizer) = MaskedLm::load(&args.model, &device)?;
            for text in texts {
                let (place, (text, _)) = text?;
                let masks = fill_mask(&task, &tokenizer, &text, CANDIDATES, &place)?;
                let masks: Vec<Vec<Value>> = masks
                    .iter()
                    .map(|m| {
                        m.iter()
                            .map(|c| json!({"token": c.token, "id": c.id, "score": c.probability}))
                            .collect()
                    })
                    .collect();
                out.line(&json!({"text": text, "masks": masks}).to_string())?;
            }
        }
        HeadKind::None => {
            return Err(Problem::new("holds an encoder without a head, which predicts nothing")
                .at(args.model.display())
                .hint("fine-tune it first with `mlmtrain finetune`")
                .into());
        }
    }
    out.finish()
}

fn label(classifier: &Classifier, texts: Texts, batch_size: usize, out: &mut Output) -> Result<()> {
    let (mut examples, mut cut) = (0, 0);
    let mut texts = texts.peekable();
    while texts.peek().is_some() {
        let batch: Vec<TextPair> =
            texts.by_ref().take(batch_size).map(|text| Ok(text?.1)).collect::<Result<_>>()?;
        let (encoded, lost) = classifier.encode(&batch, &[])?;
        (examples, cut) = (examples + batch.len(), cut + lost.examples);
        for ((first, second), probabilities) in batch.into_iter().zip(classifier.probabilities(&encoded)?) {
            let row = PredictionRow::new(first, second, None, &classifier.labels, &probabilities);
            out.line(&serde_json::to_string(&row)?)?;
        }
    }
    if cut > 0 {
        terminal::note(&format!(
            "note: {cut} of {examples} texts were longer than the model takes and were cut"
        ));
    }
    Ok(())
}

/// The texts of the input with their places, one a line; empty lines of plain text are passed over.
struct Texts {
    reader: BufReader<Box<dyn Read>>,
    name: String,
    line: u64,
    /// Names of the fields of a JSONL input.
    fields: Option<(String, Option<String>)>,
}

impl Texts {
    fn open(args: &PredictArgs) -> Result<Self> {
        let is_stdin = args.input == Path::new("-");
        let reader: Box<dyn Read> =
            if is_stdin { Box::new(std::io::stdin()) } else { Box::new(fs::open_text(&args.input)?) };
        let plain = fs::without_compression(&args.input);
        let is_jsonl = plain.extension().is_some_and(|e| e == "jsonl" || e == "ndjson");
        let columns = &args.columns;
        let fields = (is_jsonl || columns.text_column.is_some()).then(|| {
            (
                columns.text_column.clone().unwrap_or_else(|| "text".to_string()),
                columns.text_pair_column.clone(),
            )
        });
        let name = if is_stdin { "standard input".to_string() } else { args.input.display().to_string() };
        Ok(Self { reader: BufReader::new(reader), name, line: 0, fields })
    }

    fn place(&self) -> String {
        format!("{}:{}", self.name, self.line)
    }

    fn text(&mut self) -> Result<Option<(String, TextPair)>> {
        loop {
            let mut bytes = Vec::new();
            self.line += 1;
            self.reader
                .by_ref()
                .take(LINE_BYTES_MAX + 1)
                .read_until(b'\n', &mut bytes)
                .with_context(|| format!("cannot read {}", self.place()))?;
            if bytes.is_empty() {
                return Ok(None);
            }
            if bytes.len() as u64 > LINE_BYTES_MAX {
                return Err(Problem::new(format!("the line is longer than {LINE_BYTES_MAX} bytes"))
                    .at(self.place())
                    .into());
            }
            let text = String::from_utf8(bytes).map_err(|e| {
                Problem::new(format!("is not UTF-8 text (byte {} of the line)", e.utf8_error().valid_up_to()))
                    .at(self.place())
            })?;
            let text = text.trim_end_matches(['\n', '\r']);
            if text.trim().is_empty() {
                continue;
            }
            let pair = match &self.fields {
                None => (text.to_string(), None),
                Some((first, second)) => self.row(text, first, second.as_deref())?,
            };
            return Ok(Some((self.place(), pair)));
        }
    }

    fn row(&self, line: &str, first: &str, second: Option<&str>) -> Result<TextPair> {
        let row: Value = serde_json::from_str(line).map_err(|e| {
            Problem::new(format!("is not a JSON object: {e}"))
                .at(self.place())
                .hint("without `--text-column`, each line of a .txt file is a text")
        })?;
        let field = |name: &str| {
            let value = row.get(name).and_then(Value::as_str).map(str::to_string);
            value.ok_or_else(|| {
                Problem::new(format!("field `{name}` is missing or not a text"))
                    .at(self.place())
                    .hint("name it with `--text-column`")
            })
        };
        Ok((field(first)?, second.map(field).transpose()?))
    }
}

impl Iterator for Texts {
    type Item = Result<(String, TextPair)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.text().transpose()
    }
}

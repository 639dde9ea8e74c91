//! `mlmtrain predict`: labels texts, or fills in their masks; one JSON line each on standard output.

use std::path::Path;

use anyhow::Result;
use candle_core::Device;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::commands::device;
use crate::commands::scoring_args::PredictArgs;
use crate::commands::terminal;
use crate::commands::terminal::Output;
use crate::error::Problem;
use crate::families::HeadKind;
use crate::interop::DISCRIMINATOR;
use crate::interop::GENERATOR;
use crate::interop::holds_pair;
use crate::interop::read_folder;
use crate::machine;
use crate::tasks::classify::Classifier;
use crate::tasks::classify::Columns;
use crate::tasks::classify::InputText;
use crate::tasks::classify::InputTexts;
use crate::tasks::classify::PredictionRow;
use crate::tasks::classify::TextPair;
use crate::tasks::fill_mask::Candidate;
use crate::tasks::fill_mask::fill_mask;
use crate::tasks::masked_lm::MaskedLm;
use crate::tasks::pretraining::Pretrained;
use crate::tasks::replaced_token_detection::told::Discriminator;
use crate::tokenizer::Tokenizer;

/// Candidates of each mask.
const CANDIDATES: usize = 5;

/// Runs the subcommand.
pub fn run(args: &PredictArgs) -> Result<()> {
    machine::use_threads(args.compute.threads)?;
    let device = device::pick(args.compute.device)?;
    let mut out = Output::stdout();
    let columns = Columns {
        text: args.columns.text_column.as_deref(),
        text_pair: args.columns.text_pair_column.as_deref(),
        ..Columns::default()
    };
    let texts = InputTexts::open(&args.input, args.format.map(Into::into), &columns)?;
    if holds_pair(&args.model) {
        return replaced_tokens(&args.model, texts, &device, out);
    }
    match read_folder(&args.model)?.head {
        HeadKind::SequenceClassification => {
            let classifier = Classifier::load(&args.model, &device)?;
            label(&classifier, texts, args.compute.batch_size as usize, &mut out)?;
        }
        HeadKind::MaskedLm => {
            let (task, tokenizer) = MaskedLm::load(&args.model, &device)?;
            for text in texts {
                fill(&task, &tokenizer, &text?, &mut out)?;
            }
        }
        HeadKind::ReplacedTokenDetection => {
            let discriminator = Discriminator::load(&args.model, &device)?;
            for text in texts {
                tell(&discriminator, &text?, &mut out)?;
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

/// A text with masks goes to the generator, any other to the discriminator.
fn replaced_tokens(path: &Path, texts: InputTexts, device: &Device, mut out: Output) -> Result<()> {
    let (task, tokenizer) = MaskedLm::load(&path.join(GENERATOR), device)?;
    let discriminator = Discriminator::load(&path.join(DISCRIMINATOR), device)?;
    let place = path.display();
    terminal::note(&format!(
        "note: {place}: `{GENERATOR}` fills in the masks of a text, `{DISCRIMINATOR}` tells replaced tokens where there are none"
    ));
    let mask = tokenizer.token(tokenizer.special().mask()?).unwrap_or_default();
    for text in texts {
        let text = text?;
        if text.texts.0.contains(&mask) {
            fill(&task, &tokenizer, &text, &mut out)?;
        } else {
            tell(&discriminator, &text, &mut out)?;
        }
    }
    out.finish()
}

/// What stands in the place of each mask.
fn fill(task: &MaskedLm, tokenizer: &Tokenizer, text: &InputText, out: &mut Output) -> Result<()> {
    let masks = fill_mask(task, task.longest(), tokenizer, &text.texts.0, CANDIDATES, &text.place)?;
    let candidate = |c: &Candidate| json!({"token": c.token, "id": c.id, "score": c.probability});
    let masks: Vec<Vec<Value>> = masks.iter().map(|m| m.iter().map(candidate).collect()).collect();
    write(json!({"text": text.texts.0, "masks": masks}), text, out)
}

/// How probably each token was replaced.
fn tell(discriminator: &Discriminator, text: &InputText, out: &mut Output) -> Result<()> {
    let told = discriminator.tell(&text.texts.0, &text.place)?;
    let (tokens, replaced): (Vec<String>, Vec<f64>) = told.into_iter().map(|t| (t.token, t.replaced)).unzip();
    write(json!({"text": text.texts.0, "tokens": tokens, "replaced": replaced}), text, out)
}

fn label(classifier: &Classifier, texts: InputTexts, batch_size: usize, out: &mut Output) -> Result<()> {
    let (mut examples, mut cut) = (0, 0);
    let mut texts = texts.peekable();
    while texts.peek().is_some() {
        let batch: Vec<InputText> = texts.by_ref().take(batch_size).collect::<Result<_>>()?;
        let pairs: Vec<TextPair> = batch.iter().map(|text| text.texts.clone()).collect();
        let (encoded, lost) = classifier.encode(&pairs, &[])?;
        (examples, cut) = (examples + batch.len(), cut + lost.examples);
        for ((text, (first, second)), probabilities) in
            batch.iter().zip(pairs).zip(classifier.probabilities(&encoded)?)
        {
            let row = PredictionRow::new(first, second, None, &classifier.labels, &probabilities);
            write(serde_json::to_value(&row)?, text, out)?;
        }
    }
    if cut > 0 {
        terminal::note(&format!(
            "note: {cut} of {examples} texts were longer than the model takes and were cut"
        ));
    }
    Ok(())
}

/// Writes what was found, and behind it the other fields of the input.
fn write(found: Value, text: &InputText, out: &mut Output) -> Result<()> {
    let mut line: Map<String, Value> = serde_json::from_value(found)?;
    let others = text.others_beside(&line);
    line.extend(others);
    out.line(&Value::from(line).to_string())
}

//! Tokens/s of the loader alone: order, packing, masking, layout of batches; no model.
//!
//! `cargo bench --bench loader -- 40000` prints a table; the number is what a training step consumes
//! (tokens/s of `tiny` on this machine's CPU, see `mlmtrain bench`), and the last column how many times that
//! the loader gives on one thread. The processor time of all its threads is what counts there: with two cores
//! it is quicker by the clock. Further arguments choose rows: `-- 40000 disk segments` prints those that name
//! both.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use mlmtrain::batches::{
    BatchPlan, Cursor, Frame, Loader, LoaderOptions, Masking, Order, Packing, StepShape, packing_report,
};
use mlmtrain::config::{MaskingUnit, MlmConfig};
use mlmtrain::corpus::Side;
use mlmtrain::rng::{Purpose, Stream};
use mlmtrain::shards::{Manifest, ShardSet, ShardWriter, SplitEntry};
use mlmtrain::tokenizer::Tokenizer;
use serde_json::{Map, Value, json};

/// Tokens/s of a training step of `tiny`, where none are given.
const STEP_TOKENS_PER_SECOND: f64 = 40_000.0;
const VOCAB_SIZE: usize = 32_000;
const CORPUS_TOKENS: usize = 8_000_000;
const SECONDS: f64 = 1.0;
const MAX_SEQ_LENGTH: usize = 128;
const ROWS: usize = 64;
/// The unit of /proc/self/stat on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

const PACKINGS: [(&str, Packing); 4] = [
    ("segments", Packing::Segments),
    ("full_sentences", Packing::FullSentences { separator: true }),
    ("documents", Packing::Documents),
    ("best_fit", Packing::BestFit { window_documents: 1024 }),
];

const UNITS: [(&str, MaskingUnit); 3] =
    [("token", MaskingUnit::Token), ("whole_word", MaskingUnit::WholeWord), ("span", MaskingUnit::Span)];

/// A tokenizer of a usual size; every third token goes on with a word.
fn tokenizer() -> Option<Tokenizer> {
    let special = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"].map(str::to_string);
    let rest =
        (special.len()..VOCAB_SIZE).map(|n| if n % 3 == 0 { format!("##p{n}") } else { format!("w{n}") });
    let vocab: Map<String, Value> = special.into_iter().chain(rest).zip((0..).map(Value::from)).collect();
    let json = json!({"version": "1.0", "added_tokens": [], "model": {"type": "WordPiece", "unk_token": "[UNK]",
        "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab}});
    Tokenizer::from_files(vec![("tokenizer.json".to_string(), json.to_string().into_bytes())], "bench").ok()
}

fn documents(length: usize, vocab_size: usize) -> Vec<Vec<u32>> {
    let stream = Stream::new(1, Purpose::Test, length as u64);
    // Lengths spread evenly around the one that is asked for.
    let tokens = |n: usize| length / 2 + stream.below(n as u64, length as u64 + 1) as usize;
    let token = |n: usize, t: usize| {
        5 + stream.below((n * 8 * length + t) as u64 + (1 << 40), vocab_size as u64 - 5) as u32
    };
    (0..CORPUS_TOKENS / length).map(|n| (0..tokens(n)).map(|t| token(n, t)).collect()).collect()
}

fn on_disk(folder: &Path, documents: &[Vec<u32>], vocab_size: usize) -> Option<ShardSet> {
    let mut writer = ShardWriter::new(folder, Side::Train, "bench", vocab_size, 1 << 24);
    for document in documents {
        writer.push(0, document, document.len() as u64).ok()?;
    }
    let manifest = Manifest {
        version: Manifest::VERSION,
        settings_sha256: String::new(),
        tokenizer: "bench".to_string(),
        vocab_size,
        sources: vec!["bench".to_string()],
        documents_read: 0,
        without_tokens: 0,
        train: writer.finish().ok()?,
        validation: SplitEntry::default(),
    };
    manifest.write(folder).ok()?;
    ShardSet::open(folder, Side::Train).ok()
}

/// Processor seconds of all threads of this process so far.
fn processor_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |number: usize| fields.get(number)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

/// Tokens a second by the clock, and tokens a second of processor time.
fn rates(set: &Arc<ShardSet>, frame: Frame, masking: &Masking) -> Option<(f64, f64)> {
    let plan = BatchPlan::constant(StepShape {
        max_seq_length: MAX_SEQ_LENGTH,
        rows_per_micro_batch: ROWS,
        micro_batches: 1,
    });
    let options = LoaderOptions::new(1, plan);
    let mut loader =
        Loader::start(Arc::clone(set), frame, masking.clone(), options, Cursor::default()).ok()?;
    let (start, processor_start) = (Instant::now(), processor_seconds()?);
    let mut tokens = 0;
    while start.elapsed().as_secs_f64() < SECONDS {
        let step = loader.next_step().ok()?;
        tokens += step.tokens;
        loader.give_back(step);
    }
    let (seconds, processor) = (start.elapsed().as_secs_f64(), processor_seconds()? - processor_start);
    Some((tokens as f64 / seconds, tokens as f64 / processor))
}

/// Prints the rows that have all of `names`.
fn run(step_tokens_per_second: f64, names: &[String], out: &mut impl Write) -> Option<()> {
    let tokenizer = tokenizer()?;
    let vocab_size = tokenizer.vocab_size();
    writeln!(
        out,
        "| documents | shards | packing | masking | full | M tokens/s | M tokens/s a core | x training |"
    )
    .ok()?;
    writeln!(out, "|---|---|---|---|---|---|---|---|").ok()?;
    for length in [30, 2000] {
        let documents = documents(length, vocab_size);
        let folder = tempfile::tempdir().ok()?;
        let in_memory = Arc::new(ShardSet::in_memory(&documents, vocab_size));
        let on_disk = Arc::new(on_disk(folder.path(), &documents, vocab_size)?);
        for (place, set) in [("memory", &in_memory), ("disk", &on_disk)] {
            for (packing_name, packing) in PACKINGS {
                let frame = Frame::new(&tokenizer, MAX_SEQ_LENGTH).ok()?.with_packing(packing).with_chunks();
                let fill = 100.0 * packing_report(set, &Order::Shuffled { seed: 1 }, frame).ok()?.fill();
                for (unit_name, unit) in UNITS {
                    let row = [&format!("{length} tokens"), place, packing_name, unit_name];
                    if !names.iter().all(|name| row.contains(&name.as_str())) {
                        continue;
                    }
                    let masking =
                        Masking::new(&MlmConfig { masking: unit, ..MlmConfig::default() }, &tokenizer)
                            .ok()?;
                    let (clock, core) = rates(set, frame, &masking)?;
                    writeln!(
                        out,
                        "| {length} tokens | {place} | {packing_name} | {unit_name} | {fill:.1} % | {:.1} | {:.1} | {:.0} |",
                        clock / 1e6,
                        core / 1e6,
                        core / step_tokens_per_second
                    )
                    .ok()?;
                }
            }
        }
    }
    Some(())
}

fn main() {
    // Cargo adds `--bench`.
    let arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
    let (numbers, names): (Vec<String>, Vec<String>) =
        arguments.partition(|argument| argument.parse::<f64>().is_ok());
    let asked = numbers.first().and_then(|number| number.parse().ok());
    let mut out = std::io::stdout();
    if run(asked.unwrap_or(STEP_TOKENS_PER_SECOND), &names, &mut out).is_none() {
        // A closed pipe is one reason; there may be no reader left to tell.
        let _ = writeln!(out, "the bench could not be run to its end");
    }
}

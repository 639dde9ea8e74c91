//! Training and encoding of the three kinds of tokenizer on given texts, on one thread; seconds are CPU
//! seconds (Linux).
//!
//! `cargo bench --bench tokenizer -- 32768 FILE..` prints, for each algorithm, the seconds of counting and
//! learning a vocabulary of that size, the megabytes of text encoded in a second (cold and again), tokens for
//! a word, and bytes for a token. With `--against DIR` before the files, the tokens of the tokenizer in DIR
//! on the same texts too; with `--save DIR`, the files go to DIR/ALGORITHM.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use mlmtrain::config::{TokenizerAlgorithm, TokenizerConfig};
use mlmtrain::families::Family;
use mlmtrain::fs;
use mlmtrain::tokenizer::{Fertility, Tokenizer, Trainer, TrainerOptions};

/// Texts are handed over in documents of about this many bytes.
const DOCUMENT_BYTES: usize = 4 << 10;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|a| a != "--bench").peekable();
    let vocab_size = arguments.next().context("wants a size and files")?.parse()?;
    let mut folder =
        |name: &str| arguments.next_if(|a| a == name).and_then(|_| arguments.next()).map(PathBuf::from);
    let (against, save) = (folder("--against"), folder("--save"));
    let texts: Vec<String> =
        arguments.map(|file| read(Path::new(&file))).collect::<Result<Vec<_>>>()?.concat();
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global()?;
    let megabytes = texts.iter().map(String::len).sum::<usize>() as f64 / 1e6;
    let mut out = std::io::stdout();
    writeln!(out, "{megabytes:.1} MB in {} documents", texts.len())?;
    for (algorithm, family) in [
        (TokenizerAlgorithm::ByteLevelBpe, Family::ROBERTA),
        (TokenizerAlgorithm::WordPiece, Family::BERT),
        (TokenizerAlgorithm::Unigram, Family::ROBERTA),
    ] {
        let config = TokenizerConfig { algorithm, vocab_size, ..TokenizerConfig::default() };
        let (start, mut trainer) = (cpu_seconds()?, Trainer::new(TrainerOptions::new(&config, family, 512))?);
        texts.chunks(1024).try_for_each(|portion| trainer.add(portion))?;
        let counted = cpu_seconds()? - start;
        let trained = trainer.finish(|_| {})?;
        let learned = cpu_seconds()? - start - counted;
        let tokenizer = &trained.tokenizer;
        if let Some(save) = &save {
            for (name, bytes) in tokenizer.files() {
                fs::write_bytes(&save.join(format!("{algorithm:?}")).join(name), bytes)?;
            }
        }
        write!(
            out,
            "{algorithm:?}, {} entries: counted in {counted:.1} s, learnt in {learned:.1} s; ",
            tokenizer.vocab_size()
        )?;
        let counts = encode(tokenizer, &texts, &mut out, megabytes)?;
        writeln!(
            out,
            "{:.3} tokens a word, {:.2} bytes a token",
            counts.tokens_per_word(),
            counts.bytes_per_token()
        )?;
        trained.notes.iter().try_for_each(|note| writeln!(out, "  {note}"))?;
    }
    if let Some(folder) = against {
        write!(out, "{}: ", folder.display())?;
        let counts = encode(&Tokenizer::load(&folder)?, &texts, &mut out, megabytes)?;
        writeln!(
            out,
            "{:.3} tokens a word, {:.2} bytes a token",
            counts.tokens_per_word(),
            counts.bytes_per_token()
        )?;
    }
    Ok(())
}

fn encode(
    tokenizer: &Tokenizer,
    texts: &[String],
    out: &mut impl Write,
    megabytes: f64,
) -> Result<Fertility> {
    let mut counts = Fertility::default();
    for round in ["cold", "again"] {
        let mut seconds = 0.0;
        counts = Fertility::default();
        for portion in texts.chunks(1024) {
            let start = cpu_seconds()?;
            let ids = tokenizer.encode_corpus(portion)?;
            seconds += cpu_seconds()? - start;
            portion.iter().zip(ids).for_each(|(text, ids)| counts.add(text, &ids, tokenizer.special().unk));
        }
        write!(out, "{round} {:.1} MB/s; ", megabytes / seconds)?;
    }
    Ok(counts)
}

/// User and system time of this process: columns 14 and 15 of its line in /proc, in hundredths of a second.
fn cpu_seconds() -> Result<f64> {
    let line = std::fs::read_to_string("/proc/self/stat")?;
    let ticks = line.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    Ok(ticks.map(|ticks| ticks.parse::<f64>().unwrap_or_default()).sum::<f64>() / 100.0)
}

/// The lines of a file in documents.
fn read(path: &Path) -> Result<Vec<String>> {
    let mut text = String::new();
    fs::open_text(path)?.read_to_string(&mut text)?;
    let mut documents = vec![String::new()];
    for line in text.split_inclusive('\n') {
        match documents.last_mut() {
            Some(last) if last.len() < DOCUMENT_BYTES => last.push_str(line),
            _ => documents.push(line.to_string()),
        }
    }
    Ok(documents)
}

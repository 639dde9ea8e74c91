//! `mlmtrain tokenizer encode`: prints the token ids of each line of a text as a JSON array.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use crate::commands::terminal::Output;
use crate::commands::{staging, terminal};
use crate::error::Problem;
use crate::fs;
use crate::tokenizer::Tokenizer;

/// Longest line in bytes; a longer one is an error.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Bytes of the lines that are encoded together, about.
const PORTION_BYTES: usize = 4 << 20;

/// Subcommands of `tokenizer`.
#[derive(Debug, Subcommand)]
pub enum TokenizerCommand {
    /// Print the token ids of each line of a text: one JSON array a line
    ///
    /// No special tokens are added. A control token spelled out in a line, such as [SEP], is plain text;
    /// other added tokens are tokens.
    #[command(after_help = "Examples:
  mlmtrain tokenizer encode --tokenizer runs/quickstart/final --input novels.txt > ids.jsonl
  echo 'The capital of France' | \\
      mlmtrain tokenizer encode --tokenizer runs/quickstart/final --input -")]
    Encode(TokenizerEncodeArgs),
}

/// Arguments of `tokenizer encode`.
#[derive(Debug, Args)]
pub struct TokenizerEncodeArgs {
    /// Folder with a tokenizer.json (or vocab.txt, or vocab.json and merges.txt), or the file itself
    #[arg(long, value_name = "DIR")]
    pub tokenizer: PathBuf,
    /// Text, plain or compressed (.gz, .zst, .bz2); `-` is standard input
    #[arg(long, value_name = "FILE|-")]
    pub input: PathBuf,
}

/// Runs the subcommand.
pub fn run(command: &TokenizerCommand) -> Result<()> {
    match command {
        TokenizerCommand::Encode(args) => encode(args),
    }
}

fn encode(args: &TokenizerEncodeArgs) -> Result<()> {
    let tokenizer = Tokenizer::load(&staging::path(&args.tokenizer)?)?;
    tokenizer.notes().iter().for_each(|note| terminal::note(&terminal::printable(&format!("note: {note}"))));
    let input = staging::input(&args.input)?;
    let is_stdin = input == Path::new("-");
    let reader: Box<dyn Read> =
        if is_stdin { Box::new(std::io::stdin()) } else { Box::new(fs::open_text(&input)?) };
    let name = if is_stdin { "standard input".to_string() } else { input.display().to_string() };
    let mut reader = BufReader::new(reader);
    let mut out = Output::stdout();
    let mut read = 0;
    loop {
        let lines = portion(&mut reader, &name, read)?;
        if lines.is_empty() {
            return out.finish();
        }
        read += lines.len();
        for ids in tokenizer.encode_corpus(&lines)? {
            out.line(&serde_json::to_string(&ids)?)?;
        }
    }
}

/// Reads the next lines, without their ends; no lines at the end of the input. `before` is the number of
/// lines that were read already, for the line number in errors.
fn portion(reader: &mut impl BufRead, name: &str, before: usize) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut bytes = 0;
    while bytes < PORTION_BYTES {
        let number = before + lines.len() + 1;
        let mut line = Vec::new();
        let count = reader
            .take(LINE_BYTES_MAX + 1)
            .read_until(b'\n', &mut line)
            .with_context(|| format!("cannot read {name}:{number}"))?;
        if count == 0 {
            break;
        }
        if count as u64 > LINE_BYTES_MAX {
            return Err(Problem::new(format!("the line is longer than {LINE_BYTES_MAX} bytes"))
                .at(format!("{name}:{number}"))
                .into());
        }
        bytes += count;
        let end = if line.ends_with(b"\r\n") { 2 } else { usize::from(line.ends_with(b"\n")) };
        line.truncate(count - end);
        lines.push(String::from_utf8(line).map_err(|e| {
            Problem::new(format!("is not UTF-8 text (byte {} of the line)", e.utf8_error().valid_up_to()))
                .at(format!("{name}:{number}"))
        })?);
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_without_their_ends_and_broken_ones_are_named() {
        assert_eq!(lines(b"one\r\n\ntwo \r x").unwrap(), ["one", "", "two \r x"]);
        assert_eq!(lines(b"").unwrap(), [""; 0]);
        assert_eq!(
            lines(b"one\nab\xff").unwrap_err().to_string(),
            "a.txt:6: is not UTF-8 text (byte 2 of the line)"
        );
    }

    fn lines(mut text: &[u8]) -> Result<Vec<String>> {
        portion(&mut text, "a.txt", 4)
    }
}

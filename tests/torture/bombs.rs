//! Row `bombs`: small inputs that unfold to a gibibyte, lines without an end, deep nesting, aliases of
//! aliases. The program reads or refuses them in little more memory than a harmless run takes.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::job::Job;
use crate::place::{Bench, Place};
use crate::readers::compressed::{gzip, zstd};
use crate::sitting::Sitting;
use crate::table::{Control, Outcome};

pub(crate) const TARGET: &str = "<= 256 MiB over a harmless run";

const ABOVE_MIB: u64 = 256;

const GIBIBYTE: usize = 1 << 30;

/// A piece of what a bomb unfolds to; archives may hold one member after the other.
const PIECE: usize = 16 << 20;

/// A bomb takes a few seconds to read.
const HANG: Duration = Duration::from_secs(120);

/// A file, what is in it, and the command that is given it.
struct Bomb {
    file: &'static str,
    content: Vec<u8>,
    arguments: Vec<String>,
}

pub(crate) fn run(bench: &Bench, _: Job) -> Result<Outcome> {
    let place = bench.place()?;
    let harmless = words(&["prepare", "--config", "config.yaml", "--set", "data.prepared_dir=other"]);
    let (baseline, fault) = peak(&mut program(bench, &harmless), &place, &[0])?;
    let (mut misses, mut most): (Vec<String>, u64) = (fault.into_iter().collect(), 0);
    let bombs = bombs(bench.count(0, 1) == 1);
    let count = bombs.len();
    for bomb in bombs {
        let place = bench.place()?;
        fs::write(place.path(bomb.file), bomb.content)?;
        let (mib, fault) = peak(&mut program(bench, &bomb.arguments), &place, &[0, 1, 2])?;
        most = most.max(mib);
        misses.extend(fault.map(|fault| format!("{}: {fault}", bomb.file)));
        misses.extend(too_much(mib, baseline).map(|fault| format!("{}: {fault}", bomb.file)));
    }
    let mut control = Control::default();
    let mut greedy = Command::new("dd");
    greedy.args(["if=/dev/zero", "of=/dev/null", "count=2"]).arg(format!("bs={}M", baseline + 300));
    control.expect("a greedy program", too_much(peak(&mut greedy, &place, &[0])?.0, baseline).as_ref());
    let figure = format!("{count} bombs: at most {most} MiB, a harmless run {baseline} MiB");
    Ok(control.outcome(figure, misses))
}

fn too_much(mib: u64, baseline: u64) -> Option<String> {
    (mib > baseline + ABOVE_MIB).then(|| format!("took {mib} MiB"))
}

fn program(bench: &Bench, arguments: &[String]) -> Command {
    let mut command = Command::new(&bench.program);
    command.args(arguments);
    command
}

/// Runs a command in a place, and says the most memory that it held, and what is wrong with its end.
fn peak(command: &mut Command, place: &Place, codes: &[i32]) -> Result<(u64, Option<String>)> {
    let mut bare = Command::new(command.get_program());
    bare.args(command.get_args()).current_dir(place.path(""));
    let mut sitting = Sitting::start(bare, place)?;
    let (status, mut kib) = (format!("/proc/{}/status", sitting.id()), 0);
    // The peak never falls, so that looking often is looking enough.
    while !sitting.is_over()? && sitting.elapsed() < HANG {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(kib);
        std::thread::sleep(Duration::from_micros(500));
    }
    let ended = sitting.finish_within(Duration::ZERO)?;
    (kib > 0).then_some(()).context("the system does not tell the memory of a process")?;
    Ok((kib >> 10, ended.fault(codes)))
}

/// All of them, or one of each kind.
fn bombs(is_full: bool) -> Vec<Bomb> {
    let unfold = |block: &[u8], pack: fn(&[u8]) -> Vec<u8>| {
        pack(&block.repeat(PIECE / block.len())).repeat(GIBIBYTE / PIECE)
    };
    let mut bombs = vec![
        corpus("zeros.txt.gz", unfold(b"\0", gzip)),
        corpus("line.jsonl.zst", unfold(b"{\"text\": \"", zstd)),
        corpus("line.txt", b"sana ".repeat(GIBIBYTE / 5)),
        corpus("deep.jsonl", b"[".repeat(100_000)),
        Bomb { file: "bomb.yaml", content: aliases(), arguments: words(&["config", "check", "bomb.yaml"]) },
        labelled("line.csv.gz", [gzip(b"label,text\nbird,"), unfold(b"sana ", gzip)].concat()),
    ];
    if is_full {
        bombs.extend([
            corpus("zeros.txt.zst", unfold(b"\0", zstd)),
            corpus("line.jsonl.gz", unfold(b"{\"text\": \"", gzip)),
            corpus("line.txt.zst", unfold(b"sana ", zstd)),
            corpus("objects.json", [b"[".to_vec(), b"{\"text\":".repeat(100_000)].concat()),
            corpus("field.jsonl", [b"{\"text\": ".to_vec(), b"[".repeat(100_000)].concat()),
            labelled("deep.jsonl", b"{\"text\": ".repeat(100_000)),
            labelled("line.tsv.zst", [zstd(b"label\ttext\nbird\t"), unfold(b"sana ", zstd)].concat()),
            Bomb {
                file: "deep.json",
                content: b"[".repeat(900_000),
                arguments: words(&["config", "check", "deep.json"]),
            },
        ]);
    }
    bombs
}

fn corpus(file: &'static str, content: Vec<u8>) -> Bomb {
    let source = format!("data.sources=[{{\"files\": [\"{file}\"], \"document\": \"line\"}}]");
    let base = words(&["prepare", "--config", "config.yaml", "--set", "data.prepared_dir=other", "--set"]);
    Bomb { file, content, arguments: [base, vec![source]].concat() }
}

fn labelled(file: &'static str, content: Vec<u8>) -> Bomb {
    let base = words(&["finetune", "--task", "classify", "--config", "finetune.yaml", "--set"]);
    Bomb { file, content, arguments: [base, vec![format!("data.train_file={file}")]].concat() }
}

/// Ten times ten times ten ... of the same.
fn aliases() -> Vec<u8> {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_string();
    for level in 1..12 {
        let alias = format!("*a{}", level - 1);
        let aliases = [alias.as_str(); 10].join(", ");
        text.extend(["a", &level.to_string(), ": &a", &level.to_string(), " [", &aliases, "]\n"]);
    }
    text.into_bytes()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

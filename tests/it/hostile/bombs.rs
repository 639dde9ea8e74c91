//! Small inputs that ask for much: the built program refuses or reads them in little memory.
//!
//! Each runs as a process of its own; its peak is compared with that of a harmless run.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::notes;
use crate::readers::compressed;
use crate::workplace::Workplace;

/// What a bomb unfolds to.
const GIBIBYTE: usize = 1 << 30;

/// Most memory above that of a harmless run.
const ABOVE_MIB: u64 = 256;

/// A program that still runs after this long hangs: all bombs together are read in a minute or two.
const HANG: Duration = Duration::from_secs(600);

/// How a process ended.
#[derive(Debug)]
struct Ended {
    code: i32,
    peak_mib: u64,
    stderr: String,
}

/// Runs the program in `workplace` and looks at its peak memory all the while.
fn run(workplace: &Workplace, arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlmtrain"));
    watched(workplace, command.args(arguments))
}

fn watched(workplace: &Workplace, command: &mut Command) -> Ended {
    let stderr = fs::File::create(workplace.path("stderr")).unwrap();
    command.current_dir(workplace.path("")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    let (mut child, started) = (command.spawn().unwrap(), Instant::now());
    let mut peak_mib = 0;
    let status = loop {
        peak_mib = peak_of(child.id()).unwrap_or(peak_mib);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > HANG {
            child.kill().unwrap();
            panic!("{command:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let code = status.code().unwrap_or_else(|| panic!("the program was killed or aborted: {status}"));
    Ended { code, peak_mib, stderr: fs::read_to_string(workplace.path("stderr")).unwrap() }
}

/// The most memory that a process has held at once, in MiB. It never falls, so that looking often is looking
/// enough.
fn peak_of(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?
        .trim()
        .trim_end_matches(" kB")
        .parse::<u64>()
        .ok()?;
    Some(kib >> 10)
}

/// Runs a bomb and compares; `None` where the system does not tell the memory of a process.
#[track_caller]
fn defused(name: &str, workplace: &Workplace, arguments: &[&str]) -> Option<Ended> {
    if !Path::new("/proc/self/status").exists() {
        notes::skipped("there is no `/proc`, which tells the memory of a process");
        return None;
    }
    let harmless = run(&Workplace::new(), &["prepare", "--config", "config.yaml"]);
    assert_eq!(harmless.code, 0, "{harmless:?}");
    let ended = run(workplace, arguments);
    assert!(
        ended.peak_mib <= harmless.peak_mib + ABOVE_MIB,
        "{name}: {ended:?}, a harmless run takes {} MiB",
        harmless.peak_mib
    );
    assert!(!ended.stderr.contains("panicked"), "{name}: {}", ended.stderr);
    Some(ended)
}

/// `prepare` with `bytes` as the only file of the corpus.
fn prepare(file: &str, bytes: &[u8]) -> Option<Ended> {
    let workplace = Workplace::new();
    fs::write(workplace.path(file), bytes).unwrap();
    let source = format!("data.sources=[{{\"files\": [\"{file}\"], \"document\": \"line\"}}]");
    defused(file, &workplace, &["prepare", "--config", "config.yaml", "--set", &source])
}

/// A gibibyte of `block`, compressed: all four formats allow members one after the other, so that one is
/// made.
fn unfolding(block: &[u8], compress: compressed::Compress) -> Vec<u8> {
    compress(&block.repeat((16 << 20) / block.len())).repeat(GIBIBYTE / (16 << 20))
}

/// The bomb was read to its end as one document too long to keep, and there is no other.
#[track_caller]
fn assert_nothing_is_left(ended: Option<Ended>) {
    if let Some(ended) = ended {
        assert!(ended.code == 1 && ended.stderr.contains("hold no text"), "{ended:?}");
    }
}

#[test]
fn the_harness_sees_a_process_that_takes_too_much() {
    if Path::new("/proc/self/status").exists() {
        let ended = watched(
            &Workplace::new(),
            Command::new("dd").args(["if=/dev/zero", "of=/dev/null", "bs=300M", "count=2"]),
        );
        assert!(ended.peak_mib >= 300, "{ended:?}");
    }
}

const FORMATS: [(&str, compressed::Compress); 4] =
    [("gz", compressed::gzip), ("zst", compressed::zstd), ("bz2", compressed::bzip2), ("xz", compressed::xz)];

#[test]
fn archives_of_a_gibibyte_of_zeros_take_little_memory() {
    for (extension, compress) in FORMATS {
        let zeros = format!("zeros.txt.{extension}");
        assert_nothing_is_left(prepare(&zeros, &unfolding(b"\0", compress)));
    }
}

#[test]
fn archives_of_one_endless_line_take_little_memory() {
    for (extension, compress) in FORMATS {
        let (line, object) = (format!("line.txt.{extension}"), format!("line.jsonl.{extension}"));
        assert_nothing_is_left(prepare(&line, &unfolding(b"sana ", compress)));
        assert_nothing_is_left(prepare(&object, &unfolding(b"{\"text\": \"", compress)));
    }
}

#[test]
fn json_that_is_nested_deeply_is_refused() {
    for (file, content) in [
        ("deep.jsonl", "[".repeat(100_000)),
        ("field.jsonl", format!("{{\"text\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000))),
        ("objects.json", format!("[{}", "{\"text\":".repeat(100_000))),
    ] {
        if let Some(ended) = prepare(file, content.as_bytes()) {
            assert!(ended.code == 1 && ended.stderr.contains(file), "{ended:?}");
        }
    }
}

#[test]
fn aliases_in_a_configuration_do_not_multiply() {
    let workplace = Workplace::new();
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_string();
    for level in 1..12 {
        let alias = format!("*a{}", level - 1);
        text.push_str(
            &format_args!("a{level}: &a{level} [{}]\n", [alias.as_str(); 10].join(", ")).to_string(),
        );
    }
    fs::write(workplace.path("bomb.yaml"), text).unwrap();
    for arguments in [["config", "check", "bomb.yaml"], ["prepare", "--config", "bomb.yaml"]] {
        if let Some(ended) = defused("bomb.yaml", &workplace, &arguments) {
            assert!(ended.code == 2 && ended.stderr.contains("bomb.yaml"), "{ended:?}");
        }
    }
}

#[test]
fn a_shard_that_claims_more_than_any_disk_holds_is_refused() {
    let workplace = Workplace::new();
    workplace.program(&["prepare", "--config", "config.yaml"], "").ok();
    let path = workplace.path("run/data/shards/train-00000.safetensors");
    let bytes = fs::read(&path).unwrap();
    let header_end = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..header_end]).unwrap();
    for (key, at) in
        [("tokens", 1u64 << 60), ("offsets", 1 << 60), ("tokens", u64::MAX), ("offsets", u64::MAX)]
    {
        let mut header = header.clone();
        header[key]["shape"][0] = at.into();
        header[key]["data_offsets"][1] = at.wrapping_mul(2).into();
        let text = header.to_string();
        let forged = [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &bytes[header_end..]].concat();
        fs::write(&path, &forged).unwrap();
        sign(&workplace, &forged);
        for arguments in [
            ["shards", "verify", "run/data"],
            ["shards", "inspect", "run/data"],
            ["prepare", "--config", "config.yaml"],
        ] {
            if let Some(ended) = defused("shard", &workplace, &arguments) {
                let is_named = ended.stderr.contains("train-00000.safetensors") || arguments[1] == "verify";
                assert!(ended.code == 1 && is_named, "{ended:?}");
            }
        }
    }
}

/// The manifest vouches for the forged shard, so that length and hash do not give it away.
fn sign(workplace: &Workplace, bytes: &[u8]) {
    use sha2::Digest;
    let path = workplace.path("run/data/shards/manifest.json");
    let mut manifest: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let hash =
        sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    manifest["train"]["shards"][0]["bytes"] = bytes.len().into();
    manifest["train"]["shards"][0]["sha256"] = hash.into();
    fs::write(&path, manifest.to_string()).unwrap();
}

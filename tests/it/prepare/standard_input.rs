//! Text that is piped in: it can be read only once, and that is enough.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::workplace::{Workplace, corpus};

#[test]
fn what_is_piped_in_makes_the_same_shards_as_a_file() {
    let (from_file, from_pipe) = (Workplace::new(), Workplace::new());
    assert!(from_file.subcommand("prepare", &[], &[]).output().unwrap().status.success());
    fs::remove_file(from_pipe.path("corpus.txt")).unwrap();
    let mut child = from_pipe
        .subcommand("prepare", &["data.sources.0.files=[\"-\"]"], &[])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(corpus(400).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in ["data/shards/train-00000.safetensors", "data/tokenizer/tokenizer.json"] {
        assert!(
            fs::read(from_file.run_path(name)).unwrap() == fs::read(from_pipe.run_path(name)).unwrap(),
            "`{name}` differs"
        );
    }
}

//! The tests of all ops again under each lower cap on the vector instructions.

use std::process::Command;

use base::instructions::{Instructions, VARIABLE, in_use};

use crate::testing::HOST_TURNS;

/// Runs the tests of all ops once for each cap below the instructions of this machine, so that the slower
/// code is tested, too. The cap of a process cannot change, so each run is a process of its own.
#[test]
fn all_ops_are_right_under_each_lower_cap() {
    const FEWEST: usize = 100;
    for cap in Instructions::CAPS.into_iter().filter(|cap| *cap < in_use()) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--skip", "all_ops_are_right", "--skip", "memory::", "--skip", "cuda::"]);
        // A cap does not affect GPU code, so that is tested as little as possible.
        let output = command.env(VARIABLE, cap.name()).env(HOST_TURNS, "0").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "under {}:\n{text}", cap.name());
        let passed =
            text.split("test result: ok. ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        assert!(passed.is_some_and(|passed: usize| passed > FEWEST), "too few tests were run:\n{text}");
    }
}

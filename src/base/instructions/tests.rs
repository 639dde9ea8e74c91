//! Parsing and effect of the cap.

use std::ffi::OsStr;
use std::process::Command;

use super::{Choice, Instructions, VARIABLE, arch, choice, features, in_use, machine};

const ALL: [Instructions; 5] = [
    Instructions::Baseline,
    Instructions::Avx2,
    Instructions::Avx512,
    Instructions::Avx512Bf16,
    Instructions::Amx,
];

fn choose(value: &str, machine: Instructions) -> Choice {
    Choice::new(Some(OsStr::new(value)), machine).unwrap()
}

#[test]
fn a_cap_lowers_and_never_raises() {
    for machine in ALL {
        assert_eq!(Choice::new(None, machine).unwrap().in_use(), machine);
        assert_eq!(choose("", machine), Choice { machine, cap: None });
        for cap in Instructions::CAPS {
            let choice = choose(cap.name(), machine);
            assert_eq!(choice.in_use(), machine.min(cap));
            assert_eq!(choice.note().is_some(), cap != machine, "{cap:?} on {machine:?}");
        }
    }
}

#[test]
fn an_unknown_cap_is_an_error_that_lists_the_known_ones() {
    for wrong in ["avx", "AVX2", "baseline", "avx512_bf16", " amx"] {
        let problem = Choice::new(Some(OsStr::new(wrong)), Instructions::Amx).unwrap_err();
        assert_eq!(problem.class.exit_code(), 2, "{wrong}");
    }
    insta::assert_snapshot!(Choice::new(Some(OsStr::new("sse9")), Instructions::Avx2).unwrap_err(), @r"
    MLMTRAIN_CPU: `sse9` is not a set of instructions
      hint: set it to one of `avx2`, `avx512`, `avx512-bf16`, `amx`, or unset it to use all that the processor has
    ");
}

#[test]
fn notes_describe_the_effect_of_the_cap() {
    insta::assert_snapshot!(choose("avx2", Instructions::Amx).note().unwrap(), @"note: MLMTRAIN_CPU=avx2 keeps the CPU's code to AVX2; this processor has AMX");
    insta::assert_snapshot!(choose("amx", Instructions::Avx512).note().unwrap(), @"note: MLMTRAIN_CPU=amx has no effect: the best that this processor has, and the system permits, is AVX-512");
}

#[test]
fn the_detected_set_is_among_the_features() {
    let names = features();
    for (least, name) in [
        (Instructions::Avx2, "avx2"),
        (Instructions::Avx512, "avx512vl"),
        (Instructions::Avx512Bf16, "avx512_bf16"),
    ] {
        // The converse does not hold: a processor may have one feature of a set but not all of them.
        assert!(machine::best() < least || names.contains(&name), "{least:?} without {name}: {names:?}");
    }
}

/// This test runs without a cap first, and with each lower cap in the processes that the next test starts:
/// the cap of a process cannot change.
#[test]
fn the_cap_of_this_process_is_heeded() {
    let choice = choice().unwrap();
    assert_eq!(choice.machine, machine::best());
    assert_eq!(in_use(), choice.in_use());
    let wanted = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    assert_eq!(choice.cap.map(Instructions::name).map(OsStr::new), wanted.as_deref());
    #[cfg(target_arch = "x86_64")]
    assert!(match arch() {
        pulp::Arch::V4(_) => in_use() >= Instructions::Avx512,
        pulp::Arch::V3(_) => in_use() == Instructions::Avx2,
        _ => in_use() == Instructions::Baseline,
    });
    #[cfg(not(target_arch = "x86_64"))]
    assert_eq!(format!("{:?}", arch()), format!("{:?}", pulp::Arch::new()));
}

#[test]
fn each_lower_cap_is_heeded_in_a_process_of_its_own() {
    for cap in Instructions::CAPS.into_iter().filter(|cap| *cap < in_use()) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "instructions::tests::the_cap_of_this_process_is_heeded"]);
        let output = command.env(VARIABLE, cap.name()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "under {}:\n{text}", cap.name());
    }
}

//! The tests of `src/model` and `src/training` that run the GPU's kernels as C++ on the CPU. `.ci/run` runs
//! these modules alone in that build.

use std::path::Path;

use super::{read, rust_files};

/// The modules of a crate with such tests: those that run a body on each device, or name the feature in their
/// documentation.
fn modules_with_kernels(crate_folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    rust_files(crate_folder, &mut files);
    let files = files.into_iter().filter(|file| {
        let text = read(file);
        let mut lines = text.lines().filter(|line| !line.starts_with("#["));
        lines.any(|line| line.contains("on_each_device(") || line.contains("--features cuda-on-host"))
    });
    let modules = files.map(|file| {
        let path = file.strip_prefix(crate_folder).expect("is below the folder").with_extension("");
        let parts: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        parts.join("::") + "::"
    });
    modules.collect()
}

#[test]
fn the_check_of_every_change_runs_all_tests_of_emulated_kernels() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let check = read(&root.join(".ci/run"));
    for name in ["model", "training"] {
        let modules = modules_with_kernels(&root.join("src").join(name));
        assert!(modules.len() >= 2, "{name}: {modules:?}");
        let marker = format!("\"${name}\" ");
        let (_, run) = check.split_once(&marker).unwrap_or_else(|| panic!("`{marker}` is not in .ci/run"));
        let named: Vec<&str> = run.lines().next().unwrap_or_default().split([' ', ')']).collect();
        for module in modules {
            assert!(
                named.contains(&module.as_str()),
                ".ci/run does not name `{module}` of {name}: {named:?}"
            );
        }
    }
}

//! `mlmtrain example`, for a program that was installed without its source: what it writes is a run.

use std::fs;
use std::path::Path;

use crate::workplace::{Workplace, assert_same_tree};

#[test]
fn the_quickstart_is_that_of_the_source_and_trains() {
    let place = Workplace::new();
    let stdout = place.program(&["example", "quickstart"], "").ok().stdout;
    assert!(stdout.starts_with("wrote `./quickstart.yaml`\n"), "{stdout}");
    assert!(stdout.ends_with("\nnext: mlmtrain pretrain --config quickstart.yaml\n"), "{stdout}");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let same =
        |ours: &Path, name: &str| assert_eq!(fs::read(ours).unwrap(), fs::read(source.join(name)).unwrap());
    same(&place.path("quickstart.yaml"), "quickstart.yaml");
    // A novel that is added to the source must be added to the program, too.
    let mut texts = 0;
    for entry in fs::read_dir(source.join("quickstart")).unwrap() {
        let name = format!("quickstart/{}", entry.unwrap().file_name().to_string_lossy());
        same(&place.path("configs").join(&name), &name);
        texts += 1;
    }
    assert_eq!(texts, 7);

    place.program(&["config", "check", "quickstart.yaml"], "").ok();
    let short =
        ["training.max_steps=2", "run.threads=1", "data.sources.0.files=[configs/quickstart/doyle-*.zst]"];
    let mut arguments = vec!["pretrain", "--config", "quickstart.yaml"];
    arguments.extend(short.iter().flat_map(|setting| ["--set", setting]));
    let done = place.program(&arguments, "").ok();
    assert!(done.stdout.contains("trained 2 steps"), "{}", done.stdout);
    assert!(done.stderr.contains("`evaluation.loss_band` is ignored"), "{}", done.stderr);
    // As it is written, but for its time, its loss is held against that of other seeds.
    let whole = ["training.max_train_time=1s", "run.output_dir=whole"];
    let mut arguments = vec!["pretrain", "--config", "quickstart.yaml"];
    arguments.extend(whole.iter().flat_map(|setting| ["--set", setting]));
    let stderr = place.program(&arguments, "").ok().stderr;
    assert!(!stderr.contains("evaluation.loss_band"), "{stderr}");
}

#[test]
fn the_classifier_has_its_sentences_and_names_the_model_of_the_quickstart() {
    let place = Workplace::new();
    let stdout = place.program(&["example", "classify", "try it"], "").ok().stdout;
    let next = "next: cd 'try it' && mlmtrain finetune --task classify --config finetune-sample.yaml\n";
    assert!(stdout.ends_with(next), "{stdout}");
    let folder = place.path("try it");
    for name in ["topics-train.csv", "topics-dev.csv"] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/samples").join(name);
        assert_eq!(fs::read(folder.join("configs/samples").join(name)).unwrap(), fs::read(source).unwrap());
    }
    place.program(&["config", "check", "try it/finetune-sample.yaml"], "").ok();
    let model = fs::read_to_string(folder.join("finetune-sample.yaml")).unwrap();
    assert!(model.contains("\nmodel: runs/quickstart/final\n"), "{model}");
}

#[test]
fn a_second_time_nothing_is_written_and_a_file_that_differs_is_kept() {
    let place = Workplace::new();
    let example = || place.program(&["example", "quickstart", "here"], "");
    example().ok();
    let before = place.tree_of("here");
    assert!(example().ok().stdout.starts_with("all files are there already\n"));
    assert_same_tree(&before, &place.tree_of("here"));

    // One is missing: it alone is written.
    let novel = "here/configs/quickstart/doyle-the-hound-of-the-baskervilles.txt.zst";
    fs::remove_file(place.path(novel)).unwrap();
    let stdout = example().ok().stdout;
    assert!(stdout.starts_with(&format!("wrote `{novel}`\nnext: ")), "{stdout}");
    assert_same_tree(&before, &place.tree_of("here"));

    // One of the same length differs, another is missing: the first is told and kept, and nothing is written.
    let mut changed = fs::read(place.path("here/quickstart.yaml")).unwrap();
    changed[2] ^= 1;
    fs::write(place.path("here/quickstart.yaml"), &changed).unwrap();
    fs::remove_file(place.path(novel)).unwrap();
    example().refused(2, &["here/quickstart.yaml: exists already", "hint: name another folder"]);
    assert_eq!(fs::read(place.path("here/quickstart.yaml")).unwrap(), changed);
    assert!(!place.path(novel).exists());
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let place = Workplace::new();
    place
        .program(&["example", "quickstart", "config.yaml/below"], "")
        .refused(1, &["cannot create folder `config.yaml/below`", "because: "]);
    place.program(&["example", "quickstart", "/proc/nowhere"], "").refused(1, &["`/proc/nowhere`"]);
}

#[test]
fn each_command_has_a_manual_page() {
    let place = Workplace::new();
    let stdout = place.program(&["manual", "man1"], "").ok().stdout;
    let pages = fs::read_dir(place.path("man1")).unwrap().count();
    assert_eq!(stdout, format!("wrote {pages} pages to `man1`\n"));
    let page = |name: &str| fs::read_to_string(place.path("man1").join(name)).unwrap();
    assert!(page("mlmtrain.1").contains("mlmtrain\\-example(1)"), "{}", page("mlmtrain.1"));
    let pretrain = page("mlmtrain-pretrain.1");
    assert!(
        pretrain.contains(".nf\n  mlmtrain pretrain \\-\\-config configs/quickstart.yaml\n"),
        "{pretrain}"
    );
    let program = concat!("\"mlmtrain ", env!("CARGO_PKG_VERSION"), "\"");
    assert!(pretrain.contains(program) && !pretrain.contains(".SH EXTRA"), "{pretrain}");
    assert!(place.path("man1/mlmtrain-config-check.1").exists());
    assert!(!place.path("man1/mlmtrain-bench-job.1").exists(), "is hidden");
}

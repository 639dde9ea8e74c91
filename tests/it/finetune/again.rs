//! The same command again, in the folder of an earlier one: what a run refuses, and what a dry run tells of
//! it.

use std::fs;

use crate::finetune::{FLAGS, workplace};
use crate::workplace::{Finished, Workplace, assert_same_tree};

fn finetune(place: &Workplace, more: &[&str]) -> Finished {
    place.program(&[FLAGS, &["--set", "training.save_steps=2"], more].concat(), "")
}

/// Turns a complete run of four steps into one that was stopped after two.
fn unfinish(place: &Workplace, folder: &str) {
    for path in ["final", "checkpoint-4"] {
        fs::remove_dir_all(place.path(folder).join(path)).unwrap();
    }
    for name in ["all_results.json", "eval_results.json", "train_results.json"] {
        fs::remove_file(place.path(folder).join(name)).unwrap();
    }
}

#[test]
fn a_complete_run_keeps_its_length_and_an_unfinished_one_may_change_it() {
    let place = workplace();
    let run = ["--output-dir", "a", "--max-steps", "4"];
    let planned = finetune(&place, &[&run[..], &["--dry-run"]].concat()).ok().stdout;
    assert!(planned.contains("  a, seed 42\n"), "{planned}");
    finetune(&place, &run).ok();
    let before = place.tree_of("a");
    for steps in ["2", "6"] {
        let was = "training.max_steps: was `4` in the complete run of this folder and is ";
        let words = [&format!("{was}`{steps}` now"), "choose another `--output-dir`"];
        for more in [&["--dry-run"][..], &[]] {
            finetune(&place, &[&["--output-dir", "a", "--max-steps", steps], more].concat())
                .refused(2, &words);
        }
    }
    let words = ["training.max_steps: was `4`", "training.num_train_epochs: was `3.0`"];
    finetune(&place, &["--output-dir", "a", "--epochs", "2"]).refused(2, &words);
    assert_same_tree(&before, &place.tree_of("a"));
    let planned = finetune(&place, &[&run[..], &["--dry-run"]].concat()).ok().stdout;
    assert!(planned.contains("  a, seed 42, complete already, at step 4: prints its results"), "{planned}");
    let lock = fs::File::open(place.path("a/.lock")).unwrap();
    lock.lock().unwrap();
    let planned = finetune(&place, &[&run[..], &["--dry-run"]].concat()).ok().stdout;
    assert!(planned.contains("  a, seed 42, in use by another process"), "{planned}");
    drop(lock);
    unfinish(&place, "a");
    let longer = ["--output-dir", "a", "--max-steps", "6"];
    let planned = finetune(&place, &[&longer[..], &["--dry-run"]].concat()).ok().stdout;
    assert!(planned.contains("  a, seed 42, resumes after step 2"), "{planned}");
    let done = finetune(&place, &longer).ok();
    assert!(done.stderr.contains("note: `training.max_steps` was 4 and is 6 now"), "{}", done.stderr);
    assert!(place.path("a/checkpoint-6").exists());
}

#[test]
fn one_complete_seed_keeps_the_length_of_all() {
    let place = workplace();
    let run = ["--output-dir", "a", "--seeds", "1,2", "--max-steps"];
    finetune(&place, &[&run[..], &["4"]].concat()).ok();
    unfinish(&place, "a/seed-1");
    let before = place.tree_of("a");
    let was = ["training.max_steps: was `4` in the complete run of this folder and is `6` now"];
    for more in [&["6", "--dry-run"][..], &["6"]] {
        finetune(&place, &[&run[..], more].concat()).refused(2, &was);
    }
    assert_same_tree(&before, &place.tree_of("a"));
    let planned = finetune(&place, &[&run[..], &["4", "--dry-run"]].concat()).ok().stdout;
    for words in [
        "a/seed-1, seed 1, resumes after step 2",
        "a/seed-2, seed 2, complete already, at step 4",
        "at most for all 2 runs",
    ] {
        assert!(planned.contains(words), "`{words}` is not in:\n{planned}");
    }
}

#[test]
fn one_seed_and_several_have_folders_of_their_own_also_for_a_dry_run() {
    let place = workplace();
    let short = ["--max-steps", "4", "--seeds"];
    for (folder, first, then, words) in [
        ("one", "1", "1,2", ["one: holds `final` of a run with one seed", "hint: choose another"]),
        ("two", "1,2", "1", ["two: holds `seed-1` of a run with several seeds", "name all seeds"]),
    ] {
        let there = ["--output-dir", folder];
        finetune(&place, &[&short[..], &[first], &there].concat()).ok();
        let before = place.tree_of(folder);
        for more in [&["--dry-run"][..], &[]] {
            finetune(&place, &[&short[..], &[then], &there, more].concat()).refused(2, &words);
        }
        assert_same_tree(&before, &place.tree_of(folder));
    }
}

/// Trains these seeds for four steps each, below the folder `a`.
fn run(place: &Workplace, seeds: &str) -> Finished {
    finetune(place, &["--output-dir", "a", "--seeds", seeds, "--max-steps", "4"])
}

fn read(place: &Workplace, name: &str) -> Vec<u8> {
    fs::read(place.path(name)).unwrap()
}

fn text(place: &Workplace, name: &str) -> String {
    String::from_utf8(read(place, name)).unwrap()
}

#[test]
fn the_configuration_of_a_seed_repeats_it_and_folders_of_earlier_versions_resume() {
    let place = workplace();
    run(&place, "1,2").ok();
    assert!(text(&place, "a/config.yaml").contains("\nseeds: [1, 2]\n"), "{}", text(&place, "a/config.yaml"));
    let own = text(&place, "a/seed-2/config.yaml");
    assert!(own.contains("\nseeds: [2]\n") && own.contains("\n  output_dir: a/seed-2\n"), "{own}");
    let repeat = ["finetune", "--config", "a/seed-2/config.yaml"];
    let complete = place.program(&repeat, "").ok();
    assert!(complete.stdout.contains("a/seed-2/final  (complete already)"), "{}", complete.stdout);
    place.program(&[&repeat[..], &["--output-dir", "b"]].concat(), "").ok();
    let weights = read(&place, "a/seed-2/final/model.safetensors");
    assert!(read(&place, "b/final/model.safetensors") == weights);
    // As an earlier version left it: stopped after two steps, with the configuration of all seeds.
    unfinish(&place, "a/seed-2");
    fs::write(place.path("a/seed-2/config.yaml"), read(&place, "a/config.yaml")).unwrap();
    place.forge("../a/seed-2/checkpoint-2", "trainer/config.json", |config| {
        config["seeds"] = vec![1, 2].into();
        config["run"]["output_dir"] = "a".into();
    });
    let resumed = run(&place, "1,2").ok();
    assert!(resumed.stderr.contains("resuming after step 2"), "{}", resumed.stderr);
    assert!(!resumed.stderr.contains(" now\n"), "no key has changed: {}", resumed.stderr);
    assert!(read(&place, "a/seed-2/final/model.safetensors") == weights);
    assert_eq!(text(&place, "a/seed-2/config.yaml"), own);
    // Another seed joins them.
    let before = read(&place, "a/seed-1/final/model.safetensors");
    run(&place, "1,2,3").ok();
    assert!(read(&place, "a/seed-1/final/model.safetensors") == before);
    assert!(place.path("a/seed-3/final/model.safetensors").exists());
}

#[test]
fn the_dry_run_of_a_sweep_names_the_runs_that_the_sweep_makes() {
    let place = workplace();
    let sweep = ["--output-dir", "a", "--sweep", "learning_rate=1e-4,1e-3", "--at-once", "2", "--max-steps"];
    let dry = finetune(&place, &[&sweep[..], &["2", "--dry-run"]].concat()).ok().stdout;
    for words in [
        "a/learning_rate=1e-4/seed-42, seed 42\n",
        "a/learning_rate=1e-3/seed-42, seed 42\n",
        "at most for all 2 runs; at the end only the best run keeps its weights",
    ] {
        assert!(dry.contains(words), "`{words}` is not in:\n{dry}");
    }
    let pair = finetune(&place, &[&sweep[..], &["2", "--dry-run", "--threads", "2"]].concat()).ok().stdout;
    assert!(pair.contains(" for 2 runs at once"), "{pair}");
    assert!(!place.path("a").exists(), "nothing is written");
    finetune(&place, &[&sweep[..], &["2"]].concat()).ok();
    let dry = finetune(&place, &[&sweep[..], &["2", "--dry-run"]].concat()).ok().stdout;
    for rate in ["1e-4", "1e-3"] {
        assert!(dry.contains(&format!("a/learning_rate={rate}/seed-42, seed 42, complete already")), "{dry}");
    }
    for more in [&["3", "--dry-run"][..], &["3"]] {
        finetune(&place, &[&sweep[..], more].concat())
            .refused(2, &["cell.json: `training.max_steps` was 2 and is 3 now"]);
    }
}

#[test]
fn notes_about_what_seeds_share_are_printed_once() {
    let place = workplace();
    let short = ["--seeds", "1,2", "--max-steps", "2", "--set", "data.max_seq_length=8", "--output-dir"];
    let done = finetune(&place, &[&short[..], &["a"]].concat()).ok().stderr;
    assert_eq!(done.matches("examples were cut at 8 tokens").count(), 2, "training and evaluation: {done}");
    assert_eq!(done.matches("newly initialised with the seed of the run").count(), 1, "{done}");
}

#[test]
fn evaluation_texts_that_are_trained_on_are_counted() {
    let place = workplace();
    let shared = "warning: 40 of 40 evaluation texts are also in `data.train_file`";
    let two = ["--max-steps", "2", "--output-dir"];
    for (folder, more) in [("a", &[][..]), ("b", &["--sweep", "learning_rate=1e-4,1e-3"])] {
        let done = finetune(&place, &[&two[..], &[folder], more].concat()).ok().stderr;
        assert_eq!(done.matches(shared).count(), 1, "{done}");
    }
    let dry = finetune(&place, &[&two[..], &["c", "--dry-run"]].concat()).ok().stdout;
    assert!(dry.contains("40 of 40 evaluation texts are also"), "{dry}");
    let split = ["finetune", "--task", "classify", "--model", "run/final", "--train", "train.csv"];
    let part = ["--eval-fraction", "0.2", "--max-steps", "2", "--output-dir", "d"];
    let done = place.program(&[&split[..], &part].concat(), "").ok().stderr;
    assert!(!done.contains("evaluation texts are also"), "{done}");
}

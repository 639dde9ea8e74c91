//! Tests of configurations with several files, variables and profiles: their values and their errors.

use super::*;

/// Files in a temporary folder.
struct Files(tempfile::TempDir);

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("is below the folder")).expect("is writable");
            std::fs::write(path, text).expect("is writable");
        }
        Self(folder)
    }

    /// Loads one of the files. Messages are returned without the name of the folder.
    fn load(&self, name: &str, profiles: &[&str], sets: &[&str]) -> Result<Loaded<PretrainConfig>, String> {
        let place = format!("{}/", self.0.path().display());
        let overrides = overrides(&owned(profiles), &owned(sets)).expect("are right");
        load_pretrain_with(&self.0.path().join(name), &overrides)
            .map_err(|e| format!("error: {e}").replace(&place, ""))
    }

    fn problems(&self, name: &str) -> String {
        self.load(name, &[], &[]).expect_err("is wrong")
    }

    /// Returns the messages for `a.yaml` with these profiles.
    fn problems_with(&self, profiles: &[&str]) -> String {
        self.load("a.yaml", profiles, &[]).expect_err("is wrong")
    }

    fn origin(&self, loaded: &Loaded<PretrainConfig>, key: &str) -> String {
        loaded.origins.of(key).replace(&format!("{}/", self.0.path().display()), "")
    }
}

#[test]
fn later_files_win_and_the_file_itself_over_all() {
    let files = Files::new(&[
        ("a.yaml", "include: [base.yaml, sub/rates.yaml]\nrun: {seed: 3}\ntraining:\n  max_steps: 9\n"),
        ("base.yaml", SMALL),
        (
            "sub/rates.yaml",
            "include: ../more.yaml\ntraining: {learning_rate: 0.25, max_steps: 7}\nrun:\n  seed: 2\n",
        ),
        ("more.yaml", "training: {learning_rate: 0.5, weight_decay: 0.125, warmup_ratio: 0.5}\n"),
    ]);
    let loaded = files.load("a.yaml", &[], &["training.warmup_steps=0.25"]).expect("is right");
    let run = &loaded.config.run;
    let training = &loaded.config.training;
    assert_eq!((run.seed, training.max_steps), (3, 9));
    let shares = [training.learning_rate, training.weight_decay, training.warmup_steps].map(f64::to_bits);
    assert_eq!(shares, [0.25_f64, 0.125, 0.25].map(f64::to_bits));
    let origins = [
        "run.seed",
        "training.learning_rate",
        "training.weight_decay",
        "training.warmup_steps",
        "data.sources",
    ];
    assert_eq!(
        origins.map(|key| files.origin(&loaded, key)),
        ["a.yaml:2", "sub/rates.yaml:2", "sub/../more.yaml:1", "--set", "base.yaml:2"]
    );
    let saved = load(to_yaml(&loaded.config), &[]).expect("is right");
    assert_eq!(saved.config, loaded.config, "what is saved includes nothing");
}

#[test]
fn a_problem_names_the_file_that_contains_its_value() {
    let files = Files::new(&[
        ("a.yaml", "include: base.yaml\ntraining:\n  max_steps: many\n"),
        (
            "base.yaml",
            "data: {sources: [{files: [a.txt]}]}\nmodel:\n  roberta: {hidden_size: 100}\nrun:\n  seed: 1\n  seed: 2\n",
        ),
    ]);
    insta::assert_snapshot!(files.problems("a.yaml"), @"
    error: a.yaml:3:14: `training.max_steps` wants a whole number, not the text `many`
      hint: write digits, or a unit such as `5k`, `2.5M` or `10B` (10^9)
    error: base.yaml:3:13: `model.roberta.hidden_size` 100 is not divisible by `num_attention_heads` 12
      hint: 100 is divisible by 1, 2, 4, 5, 10, 20, 25, 50
    error: base.yaml:6:3: key `seed` is given a second time, first in line 5
      hint: keep one of the two
    ");
}

#[test]
fn wrong_includes_are_named_with_their_place() {
    let files = Files::new(&[
        ("missing.yaml", "run: {seed: 1}\ninclude: sub/none.yaml\n"),
        ("shape.yaml", "include: [base.yaml, 3]\n"),
        ("empty.yaml", "include:\n"),
        ("twice.yaml", "include: [base.yaml, ./base.yaml]\n"),
        ("again.yaml", "include: base.yaml\nrun: {}\ninclude: more.yaml\n"),
        ("inner.yaml", "include: base.yaml\nrun: {include: base.yaml}\n"),
        ("base.yaml", SMALL),
        ("self.yaml", "include: self.yaml\n"),
        ("one.yaml", "include: two.yaml\n"),
        ("two.yaml", "include:\n  - base.yaml\n  - one.yaml\n"),
        ("broken.yaml", "include: bad.yaml\n"),
        ("bad.yaml", "run:\n  seed: 1: 2\n"),
        ("folder.yaml", "include: sub\n"),
        ("sub/file.yaml", ""),
        ("0.yaml", "include: 1.yaml\n"),
        ("1.yaml", "include: 2.yaml\n"),
        ("2.yaml", "include: 3.yaml\n"),
        ("3.yaml", "include: 4.yaml\n"),
        ("4.yaml", "include: 5.yaml\n"),
        ("5.yaml", "include: 6.yaml\n"),
        ("6.yaml", "include: 7.yaml\n"),
        ("7.yaml", "include: 8.yaml\n"),
        ("8.yaml", SMALL),
    ]);
    let names =
        ["missing", "shape", "empty", "twice", "again", "inner", "self", "one", "broken", "folder", "0"];
    let messages: Vec<String> = names.iter().map(|name| files.problems(&format!("{name}.yaml"))).collect();
    insta::assert_snapshot!(messages.join("\n"), @"
    error: missing.yaml:2:10: cannot open `sub/none.yaml`: No such file or directory (os error 2)
      hint: check the path; it is relative to the folder of the file that includes it
    error: shape.yaml:1:22: `include` wants a path or a list of paths, not `3`
      hint: write `include: base.yaml`, or `include: [a.yaml, b.yaml]`; later ones win
    error: empty.yaml:1:8: `include` wants a path or a list of paths, not nothing
      hint: write `include: base.yaml`, or `include: [a.yaml, b.yaml]`; later ones win
    error: twice.yaml:1:22: `./base.yaml` is included a second time, first in twice.yaml:1:11
      hint: keep one of the two: its values would win over what lies between
    error: again.yaml:3:1: unknown key `include`
      hint: `include` stands at the top of a file
    error: inner.yaml:2:7: unknown key `include` in `run`
      hint: `include` stands at the top of a file
    error: self.yaml:1:10: `self.yaml` includes itself: self.yaml -> self.yaml
      hint: remove one of these includes
    error: two.yaml:3:5: `one.yaml` includes itself: one.yaml -> two.yaml -> one.yaml
      hint: remove one of these includes
    error: bad.yaml:2:10: not valid YAML or JSON
      hint: look at the indentation, the colons and the quotes here and in the line above
    error: folder.yaml:1:10: `sub` is a folder, a file is wanted
      hint: a configuration is a small YAML or JSON file
    error: 7.yaml:1:10: files include each other more than 8 deep
      hint: let this file include fewer others
    ");
    assert!(files.load("1.yaml", &[], &[]).is_ok(), "eight files below each other are read");
}

/// A variable that is set wherever the tests of this crate run: the path of the crate.
const SET: &str = "CARGO_MANIFEST_DIR";

#[test]
fn variables_are_filled_in_and_paths_are_saved_as_they_are_written() {
    let home = std::env::var(SET).expect("cargo sets it");
    let text = format!(
        "data: {{sources: [{{files: [\"${{{SET}}}/none/*.txt\", '$${{literal}}.txt']}}]}}\nmodel: {{roberta: {{}}}}\n\
         run:\n  seed: ${{NOT_SET_7:-7}}\n  sample_text: a ${{NOT_SET_7:-b}} <mask>\n  usd_per_hour: ${{NOT_SET_7:-}}\n\
         training:\n  learning_rate: ${{NOT_SET_7:-1e-4}}\n  lr_scheduler_type: ${{NOT_SET_7:-cosine}}\n  \
         save_total_bytes: ${{NOT_SET_7:-2GB}}\n  save_in_background: ${{NOT_SET_7:-false}}\n"
    );
    let loaded = load(&text, &[]).expect("is right");
    let config = &loaded.config;
    assert_eq!(config.data.sources[0].files, [format!("{home}/none/*.txt"), "${literal}.txt".to_string()]);
    assert_eq!((config.run.seed, config.run.sample_text.as_deref()), (7, Some("a b <mask>")));
    assert_eq!(
        (config.training.learning_rate.to_bits(), config.run.usd_per_hour),
        (1e-4_f64.to_bits(), None)
    );
    assert_eq!(config.training.lr_scheduler_type, SchedulerType::Cosine);
    assert_eq!(
        (config.training.save_total_bytes, config.training.save_in_background),
        (Some(2_000_000_000), false)
    );
    let yaml = to_yaml(config);
    assert!(yaml.contains(&format!("files: [\"${{{SET}}}/none/*.txt\", \"$${{literal}}.txt\"]")), "{yaml}");
    assert!(yaml.contains("sample_text: \"a b <mask>\"") && yaml.contains("learning_rate: 0.0001"), "{yaml}");
    assert_eq!(load(&yaml, &[]).expect("is right").config, *config);
    assert_eq!(load(to_json(config), &[]).expect("is right").config, *config);
    // A checkpoint from another machine, where the variable may have another value.
    let there: PretrainConfig = serde_json::from_value(saved(config)).expect("is a configuration");
    assert_ne!(there, *config);
    assert_eq!(compare_for_resume(&there, config).expect("is allowed"), []);
    let here: PretrainConfig = serde_json::from_value(with_variables(saved(config))).expect("is one");
    assert_eq!(here.data.sources[0].files[0], config.data.sources[0].files[0]);
    assert_eq!(portable(&format!("{home}/none/a.txt")), format!("${{{SET}}}/none/a.txt"));
    assert_eq!(portable(&format!("{home}-other/a.txt")), format!("{home}-other/a.txt"));
    let other = load(text.replace(":-1e-4", ":-2e-4"), &[]).expect("is right").config;
    assert!(compare_for_resume(&there, &other).is_err(), "a number is compared by its value");
}

#[test]
fn one_of_several_seeds_has_a_configuration_of_its_own() {
    let text = format!(
        "model: a\nrun: {{output_dir: \"${{{SET}}}/x\", upload_to: \"s3://bucket/x/\"}}\nseeds: [42, 43]\n\
         data: {{train_file: a.csv, eval_file: b.csv}}\n"
    );
    let all = load_labelled(&text, &[]).expect("is right").config;
    let one = all.with_seed(43);
    assert_eq!((one.seeds.as_slice(), one.run.seed), (&[43][..], 42));
    assert_eq!(one.run.upload_to.as_deref(), Some("s3://bucket/x/seed-43"));
    let yaml = to_yaml(&one);
    assert!(yaml.contains(&format!("${{{SET}}}/x/seed-43")), "{yaml}");
    assert_eq!(load_labelled(&yaml, &[]).expect("is right").config, one);
    // Earlier versions saved the configuration of all seeds with each of them.
    assert_eq!(for_seed_folder(saved(&all), Path::new("copied/seed-43")), saved(&one));
    assert_eq!(for_seed_folder(saved(&one), Path::new("copied/seed-43")), saved(&one));
    for folder in ["x/seed-44", "x/seed-", "x", ""] {
        assert_eq!(for_seed_folder(saved(&all), Path::new(folder)), saved(&all), "{folder}");
    }
}

#[test]
fn wrong_variables_are_named_with_their_place() {
    let text = "\
data: {sources: [{files: [\"${NOT_SET_7}/a.txt\"]}]}
model: {roberta: {}}
run:
  seed: ${NOT_SET_7:-seven}
  output_dir: ${
  device: ${NOT_SET_7:-gpu}
training:
  learning_rate: ${NOT_SET_7}
  max_steps: ${NOT_SET_7:-[1]}
  phases: ${NOT_SET_7:-none}
";
    insta::assert_snapshot!(problems(text, &[]), @"
    error: a.yaml:1:27: `data.sources.0.files.0`: the variable `NOT_SET_7` is not set
      hint: set it, or write `${NOT_SET_7:-default}` for what to take then
    error: a.yaml:4:9: `run.seed` wants a whole number, not the text `seven` (`${NOT_SET_7:-seven}`)
      hint: write digits, or a unit such as `5k`, `2.5M` or `10B` (10^9)
    error: a.yaml:5:15: `run.output_dir`: a `${` without the name of a variable
      hint: write `${NAME}` or `${NAME:-default}`, and `$${` for `${` itself
    error: a.yaml:6:11: `run.device` cannot be `gpu` (`${NOT_SET_7:-gpu}`)
      hint: did you mean `cpu`?
    error: a.yaml:8:18: `training.learning_rate`: the variable `NOT_SET_7` is not set
      hint: set it, or write `${NOT_SET_7:-default}` for what to take then
    error: a.yaml:9:14: `training.max_steps` wants a whole number, not the text `[1]` (`${NOT_SET_7:-[1]}`)
      hint: write digits, or a unit such as `5k`, `2.5M` or `10B` (10^9)
    error: a.yaml:10:11: `training.phases` wants a list, each item a table of keys, not the text `${NOT_SET_7:-none}`
      hint: write it as `[a, b]`, or one `- item` a line
    ");
    assert!(
        load(
            text.replace("${\n", "a\n"),
            &[
                "run.seed=1",
                "run.device=cpu",
                "training.learning_rate=1",
                "training.max_steps=1",
                "training.phases=[]",
                "data.sources.0.files=[a]"
            ]
        )
        .is_ok(),
        "what is set is not asked for"
    );
    insta::assert_snapshot!(problems("run: {seed: ${SEED}}\n", &[]), @r#"
    error: a.yaml:1:14: not valid YAML or JSON: while parsing a flow mapping, did not find expected ',' or '...
      hint: between brackets put a text with `${` in quotes: `["${HOME}/a.txt"]`
    "#);
}

#[test]
fn profiles_win_over_the_file_and_settings_win_over_profiles() {
    let files = Files::new(&[
        (
            "a.yaml",
            "include: base.yaml\nprofiles:\n  short:\n    training: {max_steps: 5}\n    run: {seed: 5}\n  wide:\n    \
                    training:\n      max_steps: 6\n    data:\n      sources:\n        - files: [wide.txt]\n",
        ),
        (
            "base.yaml",
            &format!(
                "{SMALL}profiles:\n  short:\n    run: {{seed: 1, threads: 2}}\n  far:\n    data: {{prepared_dir: \"${{NOT_SET_7}}/x\"}}\n"
            ),
        ),
    ]);
    for (profiles, sets, max_steps, seed, threads, file) in [
        (&[][..], &[][..], -1, 42, 0, "corpus/*.txt.zst"),
        (&["short"], &[], 5, 5, 2, "corpus/*.txt.zst"),
        (&["short", "wide"], &[], 6, 5, 2, "wide.txt"),
        (&["wide", "short"], &["training.max_steps=7"], 7, 5, 2, "wide.txt"),
    ] {
        let config = files.load("a.yaml", profiles, sets).expect("is right").config;
        let run = (config.training.max_steps, config.run.seed, config.run.threads);
        assert_eq!(run, (max_steps, seed, threads), "{profiles:?}");
        assert_eq!(config.data.sources[0].files[0], file, "{profiles:?}");
    }
    let loaded = files.load("a.yaml", &["short"], &[]).expect("is right");
    assert_eq!(files.origin(&loaded, "training.max_steps"), "a.yaml:4");
    assert!(!to_yaml(&loaded.config).contains("profiles"));
    insta::assert_snapshot!(files.problems_with(&["shrot", "x"]), @"
    error: --profile: there is no profile `shrot`
      hint: did you mean `short`? There are `short`, `far`, `wide`
    error: --profile: there is no profile `x`
      hint: there are `short`, `far`, `wide`
    ");
    insta::assert_snapshot!(files.problems_with(&["far"]), @"
    error: base.yaml:12:26: `data.prepared_dir`: the variable `NOT_SET_7` is not set
      hint: set it, or write `${NOT_SET_7:-default}` for what to take then
    ");
    insta::assert_snapshot!(files.load("base.yaml", &["short"], &["run.sed=1"]).expect_err("is wrong"), @"
    error: --set run.sed: unknown key `sed` in `run`
      hint: did you mean `seed`?
    ");
    let none = load_finetune_with(None, &[Override::profile("short")]).expect_err("is wrong");
    insta::assert_snapshot!(none, @"
    --profile: `short` is asked for, and there is no `--config`
      hint: profiles stand in a configuration file
    ");
    let plain = Files::new(&[("a.yaml", SMALL)]);
    insta::assert_snapshot!(plain.load("a.yaml", &["short"], &[]).expect_err("is wrong"), @"
    error: --profile: `short` is asked for, and `a.yaml` has no `profiles`
      hint: write `profiles:`, below it a name for each, and below that its keys, such as `training:`
    ");
}

#[test]
fn profiles_that_are_not_asked_for_are_checked_too() {
    let text = format!(
        "{SMALL}profiles:\n  short:\n    training:\n      max_step: 5\n      learning_rate: fast\n  twice:\n    run: {{}}\n  \
         twice:\n    run: {{}}\n  none:\n  five: 5\n  inner:\n    include: a.yaml\n    profiles: {{}}\n"
    );
    let messages = problems(&text, &[]);
    insta::assert_snapshot!(messages, @"
    error: a.yaml:11:7: unknown key `max_step` in `training`
      hint: did you mean `max_steps`?
    error: a.yaml:12:22: `training.learning_rate` wants a number, not the text `fast`
      hint: write it like `0.1` or `5.0e-5`
    error: a.yaml:15:3: `profiles.twice` is given a second time
      hint: write `profiles:`, below it a name for each, and below that its keys, such as `training:`
    error: a.yaml:18:3: `profiles.five` wants a table of keys, not `5`
      hint: write `profiles:`, below it a name for each, and below that its keys, such as `training:`
    error: a.yaml:20:5: unknown key `include`
      hint: `include` stands at the top of a file
    error: a.yaml:21:5: unknown key `profiles`
      hint: `profiles` stands at the top of a file
    ");
    let files = Files::new(&[("a.yaml", &text)]);
    assert_eq!(
        files.load("a.yaml", &["short"], &[]).expect_err("is wrong"),
        messages,
        "each problem is told once"
    );
    insta::assert_snapshot!(problems(format!("{SMALL}profiles: [short]\n"), &[]), @"
    error: a.yaml:8:1: `profiles` wants a table of profiles, not a list
      hint: write `profiles:`, below it a name for each, and below that its keys, such as `training:`
    ");
}

#[test]
fn sweeps_and_tasks_take_includes_variables_and_profiles() {
    let files = Files::new(&[
        ("a.yaml", "include: base.yaml\nprofiles: {two: {sweep: {learning_rate: [1, 2]}}}\n"),
        (
            "base.yaml",
            "model: m\ndata: {train_file: a.csv, eval_file: b.csv}\nsweep:\n  weight_decay: [\"${NOT_SET_7:-0.5}\", 0]\n",
        ),
        (
            "tasks.yaml",
            "include: base.yaml\nprofiles: {f1: {metric: f1}}\ntasks:\n  - name: ${NOT_SET_7:-topics}\n",
        ),
    ]);
    let path = |name: &str| files.0.path().join(name);
    let two = overrides(&owned(&["two"]), &[]).expect("are right");
    let FinetunePlan::Sweep(sweep) =
        load_plan(Some(&path("a.yaml")), &two, Swept::default()).expect("is right")
    else {
        panic!("a sweep");
    };
    assert_eq!(sweep.keys, ["training.weight_decay", "training.learning_rate"]);
    assert_eq!(sweep.settings.len(), 4);
    assert_eq!(sweep.settings[0].config.training.weight_decay.to_bits(), 0.5_f64.to_bits());
    std::fs::write(path("base.yaml"), "data: {train_file: a.csv, eval_file: b.csv}\n").expect("is writable");
    for (profiles, metric) in [(&[][..], "accuracy"), (&["f1"], "f1")] {
        let overrides = overrides(&owned(profiles), &[]).expect("are right");
        let tasks = load_tasks(&path("tasks.yaml"), &overrides).expect("is right");
        assert_eq!((tasks[0].name.as_str(), tasks[0].metric.name()), ("topics", metric));
    }
}

#[test]
fn every_file_in_configs_is_right() {
    let pattern = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/**/*.yaml");
    let files: Vec<PathBuf> =
        glob::glob(pattern).expect("is a pattern").map(|file| file.expect("is readable")).collect();
    assert!(files.len() > 30);
    // Files that are only included need not be complete.
    let includes = ["recipe.yaml", "published-finnish.yaml"];
    for file in files.into_iter().filter(|file| !includes.iter().any(|name| file.ends_with(name))) {
        assert_eq!(load_any(&file, &[]).map(|_| ()), Ok(()));
    }
}

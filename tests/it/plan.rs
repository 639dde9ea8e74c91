//! `mlmtrain plan` as its users meet it.

use serde_json::Value;

use crate::workplace::Workplace;

fn plan(place: &Workplace, arguments: &[&str]) -> Value {
    let all = [&["plan", "--config", "config.yaml", "--json"], arguments].concat();
    serde_json::from_str(&place.program(&all, "").ok().stdout).expect("is JSON")
}

#[test]
fn this_machine_is_measured_and_others_are_predicted() {
    let place = Workplace::new();
    let arguments =
        ["--device", "here,h100,v100-32", "--price", "h100=3.6,here=1", "--set", "run.usd_per_hour=9"];
    let found = plan(&place, &arguments);
    let [here, rented, old] = &found["devices"].as_array().unwrap()[..] else { panic!("{found}") };
    assert_eq!((&here["measured"], &rented["measured"]), (&Value::Bool(true), &Value::Bool(false)));
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"));
    let tokens = number(&found, "tokens");
    for row in [here, rented] {
        let (speed, seconds) = (number(row, "tokens_per_second"), number(row, "train_seconds"));
        assert!((speed * seconds / tokens - 1.0).abs() < 1e-6, "{row}");
    }
    for row in [here, rented] {
        let part = |name: &str| number(&row["memory_parts"], &format!("{name}_bytes"));
        let step = (part("activation") + part("temporary")).max(part("evaluation"));
        let sum = part("state") + step + part("saving") + part("process");
        assert!((number(row, "memory_bytes") - sum).abs() < 1.0, "{row}");
        assert!(number(row, "largest_per_device_train_batch_size") > 1000.0, "{row}");
    }
    let saved = [here, rented].map(|row| row["memory_parts"]["saving_bytes"].as_u64().unwrap());
    assert_eq!(saved, [12 * found["num_parameters"].as_u64().unwrap(), 0]);
    assert!((number(rented, "usd") / number(rented, "train_seconds") - 1e-3).abs() < 1e-9);
    assert_eq!(here["usd_per_hour"], 1.0, "the flag is nearer than the configuration");
    assert_eq!(old["problem"], "no code for it: a T4 or newer is wanted");
    // Nothing was written, prepared or trained.
    assert!(!place.path("run").exists());
}

#[test]
fn prices_come_from_a_file_and_the_processor_is_a_device() {
    let place = Workplace::new();
    std::fs::write(place.path("prices.yaml"), "# of a seller\nH100: 7.2\ncpu: 0.5\nl4: 1\n").unwrap();
    let arguments = ["--device", "cpu,h100,l4", "--prices", "prices.yaml", "--price", "l4=0.25"];
    let found = plan(&place, &arguments);
    let rows = found["devices"].as_array().unwrap();
    let prices: Vec<f64> = rows.iter().filter_map(|row| row["usd_per_hour"].as_f64()).collect();
    assert_eq!(prices, [0.5, 7.2, 0.25], "{found}");
    assert_eq!((&rows[0]["device"], &rows[0]["measured"]), (&"cpu".into(), &true.into()));
    let refused = |text: &str, words: &[&str]| {
        std::fs::write(place.path("prices.yaml"), text).unwrap();
        let all = ["plan", "--config", "config.yaml", "--prices", "prices.yaml"];
        place.program(&all, "").refused(2, words);
    };
    let wrong =
        ["prices.yaml:1:1: the price is", "prices.yaml:2:1: the price is", "`h100: 1.99`, a line each"];
    refused("h100: cheap\nl4: -1\n", &wrong);
    refused("t5: 1\n", &["prices.yaml:1:1: `t5` is not known; take here, cpu, b200, "]);
    refused("[]\n", &["prices.yaml: holds no prices"]);
}

#[test]
fn the_table_says_what_is_measured_and_what_is_not_counted() {
    let place = Workplace::new();
    let more =
        ["--device", "l4", "--set", "training.max_train_time=1s", "--set", "training.max_steps=100000"];
    let all = [&["plan", "--config", "config.yaml"], &more[..]].concat();
    let shown = place.program(&all, "").ok().stdout;
    for words in [
        "parameters",
        "predicted",
        "memory on l4: ",
        " of activations, ",
        "l4: `training.max_train_time` ends it after 1 second, ",
        "tokens/s",
        "evaluating and saving come on top",
        "--price h100=1.99",
        "--prices FILE",
    ] {
        assert!(shown.contains(words), "`{words}` is not in:\n{shown}");
    }
}

/// What a command prints with more arguments.
fn shown_with(place: &Workplace, command: &[&str], more: &[&str]) -> String {
    place.program(&[command, more].concat(), "").ok().stdout
}

#[test]
fn several_machines_share_a_run_and_pay_for_their_network() {
    let place = Workplace::new();
    let set = "training.gradient_accumulation_steps=64";
    let asked = ["--device", "h100", "--set", set, "--machines", "1,4", "--gpus-per-machine", "2"];
    let found = plan(&place, &[&asked[..], &["--network", "0.01,100"]].concat());
    let rows = found["clusters"].as_array().unwrap();
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"));
    let times: Vec<f64> = rows.iter().map(|row| number(row, "micro_batches")).collect();
    assert_eq!(times, [32.0, 8.0, 8.0], "one machine has no network: {found}");
    let seconds: Vec<f64> = rows.iter().map(|row| number(row, "train_seconds")).collect();
    assert!(seconds[2] < seconds[0] && seconds[2] < seconds[1], "{found}");
    assert!(number(&rows[1], "efficiency") < number(&rows[2], "efficiency"), "{found}");
    for row in rows {
        let parts = number(row, "efficiency") + number(row, "communication_share");
        assert!((parts - 1.0).abs() < 1e-9, "{row}");
    }
    let gpus = number(&rows[2], "usd") * 3600.0 / seconds[2] / number(&found["devices"][0], "usd_per_hour");
    assert!((gpus - 8.0).abs() < 1e-6, "{found}");
    let all = [&["plan", "--config", "config.yaml"], &asked[..]].concat();
    let shown = place.program(&all, "").ok().stdout;
    for words in ["x GPUs", "communication", "4 x 2", "8 times", "a process for each GPU"] {
        assert!(shown.contains(words), "`{words}` is not in:\n{shown}");
    }
    let networks = shown.lines().filter(|line| line.starts_with("a network of ")).count();
    assert_eq!(networks, 3, "10, 25 and 100 Gb/s: {shown}");
    let few = shown_with(&place, &all, &["--set", "training.gradient_accumulation_steps=4"]);
    assert!(few.contains("more than 4 GPUs are refused") && !shown.contains("are refused"), "{few}");
    // A refused cluster has no time and no price.
    assert!(few.lines().any(|line| line.contains("4 x 2") && line.contains("refused")), "{few}");
    let sharded = plan(&place, &[&asked[..], &["--set", "distributed.shard_optimizer=true"]].concat());
    let bytes = |plan: &Value| plan["clusters"][1]["memory_bytes"].as_u64().unwrap();
    // Eight GPUs hold an eighth of the moments each, which are 8 bytes a parameter.
    let saved = 8 * found["num_parameters"].as_u64().unwrap() * 7 / 8;
    assert_eq!(bytes(&found) - bytes(&sharded), saved, "{found} {sharded}");
    let slow = shown_with(&place, &all, &["--network", "0.01"]);
    for words in [
        "a network of 0.01 Gb/s limits h100 on 4 x 2: communication takes more than 5 % of a step",
        "what helps: `distributed.wire: bf16` sends half the bytes, a larger",
    ] {
        assert!(slow.contains(words), "`{words}` is not in:\n{slow}");
    }
    let slow = shown_with(&place, &all, &["--network", "0.01", "--set", "distributed.wire=bf16"]);
    assert!(slow.contains("what helps: a larger"), "{slow}");
    let fast = shown_with(&place, &all, &["--network", "100000"]);
    assert!(fast.contains("a network of 100000 Gb/s limits none of the runs"), "{fast}");
    assert!(!fast.contains("what helps"), "{fast}");
    let refused = |more: &[&str], words: &[&str]| {
        place.program(&[&["plan", "--config", "config.yaml"], more].concat(), "").refused(2, words);
    };
    refused(&["--machines", "0"], &["--machines", "0"]);
    refused(&["--network", "fast"], &["not a bandwidth in Gb/s"]);
    refused(&["--machines", "2", "--device", "here"], &["--machines: is for GPUs by name"]);
    refused(&["--device", "h100", "--price", "l4=1"], &["--price: names `l4`", "`--device l4`"]);
}

#[test]
fn a_kept_plan_is_held_against_its_run() {
    let place = Workplace::new();
    plan(&place, &["--device", "here", "--save"]);
    assert!(place.path("run/plan.json").exists());
    let shown = place.program(&["pretrain", "--config", "config.yaml"], "").ok().stdout;
    let line =
        |name: &str| shown.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default();
    assert!(line("planned").ends_with("(measured by `plan`)"), "{shown}");
    let actual = line("actual");
    let has = |words: [&str; 2]| words.iter().any(|word| actual.contains(word));
    assert!(has([" % slower than planned;", " % faster than planned;"]), "{shown}");
    assert!(has([" % more", " % less"]), "{shown}");
    // An hour costs what all of it is worth a hundred times over.
    let less = ["--device", "here", "--price", "here=1e9", "--set", "run.budget_usd=1e-3"];
    let all = [&["plan", "--config", "config.yaml", "--set", "run.usd_per_hour=1"], &less[..]].concat();
    let shown = place.program(&all, "").ok().stdout;
    assert!(
        shown.contains("here: `run.budget_usd` leaves 0 seconds, so that there are 0 % of the steps"),
        "{shown}"
    );
}

#[test]
fn what_cannot_be_planned_is_named() {
    let place = Workplace::new();
    let plan = |more: &[&str]| place.program(&[&["plan", "--config", "config.yaml"], more].concat(), "");
    plan(&["--device", "tpu"]).refused(2, &["tpu", "h100"]);
    plan(&["--price", "h100=cheap", "--device", "h100"]).refused(2, &["cheap"]);
    let no_steps = ["--set", "training.max_steps=-1"];
    plan(&no_steps).refused(2, &["training.max_steps", "--tokens 10B", "mlmtrain prepare"]);
    plan(&["--tokens", "0"]).refused(2, &["--tokens", "at least 1"]);
    plan(&["--tokens", "many"]).refused(2, &["`many` is not a count"]);
    plan(&["--tokens", "1000000T"]).refused(2, &["--tokens", "updates"]);
}

#[test]
fn a_number_of_tokens_stands_for_steps() {
    let place = Workplace::new();
    let phases = "training.phases=[{until_step: 2, max_seq_length: 16}]";
    for (more, update, short) in [(&[][..], 8 * 32, 0), (&["--set", phases], 8 * 32, 2 * 8 * 16)] {
        for steps in ["training.max_steps=-1", "training.max_steps=9"] {
            if short > 0 && steps.ends_with("-1") {
                continue;
            }
            let asked = ["--device", "l4", "--tokens", "100k", "--set", steps];
            let found = plan(&place, &[&asked[..], more].concat());
            let (planned, steps) = (found["tokens"].as_u64().unwrap(), found["steps"].as_u64().unwrap());
            assert!((100_000..100_000 + update).contains(&planned), "{found}");
            let before = if short > 0 { 2 } else { 0 };
            assert_eq!((steps - before) * update + short, planned, "{found}");
        }
    }
}

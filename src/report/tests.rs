//! Tests of pages about made-up run folders: complete, damaged, hostile and long ones.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::*;

const HOSTILE: &str = "</pre></td>\"'><script>alert(1)</script><img src=x onerror=alert(2)>";

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join(name), text).unwrap();
}

/// A complete run of 100 steps whose evaluation losses end at `loss`.
fn pretrained(root: &Path, name: &str, seed: u64, loss: f64) -> PathBuf {
    let folder = root.join(name);
    let config =
        format!("run:\n  output_dir: {name}\n  seed: {seed}\ntask: masked_lm\ntraining:\n  max_steps: 100\n");
    write(&folder, "config.yaml", &config);
    let mut metrics = String::new();
    for step in (10..=100).step_by(10) {
        let train = loss + 50.0 / step as f64;
        let _ = writeln!(
            metrics,
            "{{\"step\":{step},\"train/loss\":{train},\"train/learning_rate\":0.002,\"train/grad_norm\":1.5,\"perf/elapsed_seconds\":{step},\"perf/save_seconds\":0.5}}"
        );
        let _ = writeln!(
            metrics,
            "{{\"step\":{step},\"eval/loss\":{},\"eval/accuracy\":0.25,\"perf/eval_seconds\":2}}",
            train + 0.1
        );
    }
    write(&folder, "metrics.jsonl", &metrics);
    let results = format!(
        "{{\"eval_loss\":{loss},\"eval_accuracy\":0.26,\"eval_perplexity\":78.3,\"eval_unigram_loss\":6.5341,\"train_runtime\":100,\"train_tokens_per_second\":42700}}"
    );
    write(&folder, "all_results.json", &results);
    write(
        &folder,
        "machine.json",
        "{\"version\":\"0.1.0\",\"device\":\"CPU\",\"threads\":2,\"processor\":\"A & B\"}",
    );
    folder
}

fn page_of(folders: &[PathBuf]) -> String {
    let mut runs: Vec<Run> = folders.iter().map(|folder| Run::read(folder).unwrap()).collect();
    name_all(&mut runs);
    page(&runs, None, None)
}

/// Checks that every element is closed, and that the page has no script, no image and no NaN.
#[track_caller]
fn assert_whole(page: &str) {
    for tag in [
        "div", "svg", "details", "ol", "ul", "li", "pre", "table", "tr", "section", "figure", "span", "g",
        "p", "td",
    ] {
        let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "<{tag}>");
    }
    assert!(
        !page.contains("NaN") && !page.contains("<script") && !page.contains("src="),
        "of a harmless page"
    );
}

#[test]
fn the_page_of_a_run_has_state_scores_time_and_configuration() {
    let root = tempfile::tempdir().unwrap();
    let page = page_of(&[pretrained(root.path(), "novels", 7, 4.36)]);
    assert_whole(&page);
    for text in [
        "<h1>novels</h1>",
        "complete, 100 steps",
        "<dd>4.3600</dd>",
        "baseline 6.5341",
        "<dd>42.7k</dd>",
        "<dd>1m40s</dd>",
        "<figcaption>Loss</figcaption>",
        "<figcaption>Learning rate</figcaption>",
        "<title>unigram loss: 6.5341</title>",
        "step 100: 4.9600",
        "evaluation <span class=\"muted\">20s</span>",
        "saving <span class=\"muted\">5.0s</span>",
        "steps <span class=\"muted\">1m17s</span>",
        "A &amp; B",
        "max_steps: 100",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(
        !page.contains("What could not be read")
            && !page.contains("What differs")
            && !page.contains("Corpus")
    );
}

#[test]
fn a_run_that_ended_before_its_last_step_says_what_stopped_it() {
    let root = tempfile::tempdir().unwrap();
    let folder = pretrained(root.path(), "novels", 7, 4.36);
    let done = "after 1m40s, 100 of 3,000 steps done";
    for (keys, state) in [
        ("max_train_time: 100s", format!("complete: stopped by training.max_train_time {done}")),
        (
            "max_train_time: 100s, early_stopping_patience: 3",
            format!("complete: stopped by training.max_train_time {done}"),
        ),
        (
            "max_train_time: 10m, early_stopping_patience: 3",
            format!("complete: stopped by training.early_stopping_patience {done}"),
        ),
        ("max_train_time: null", "complete, ended at step 100 of 3,000".to_string()),
    ] {
        let config = format!("task: masked_lm\ntraining: {{max_steps: 3000, {keys}}}\n");
        write(&folder, "config.yaml", &config);
        let page = page_of(std::slice::from_ref(&folder));
        assert!(page.contains(&format!("<span class=\"state done\">{state}</span>")), "{keys}: {state}");
    }
}

#[test]
fn several_runs_are_drawn_over_each_other_and_compared() {
    let root = tempfile::tempdir().unwrap();
    let folders =
        [pretrained(root.path(), "a/seed-7", 7, 4.36), pretrained(root.path(), "a/seed-8", 8, 4.25)];
    let page = page_of(&folders);
    assert_whole(&page);
    assert!(page.contains("<h1>2 runs</h1>") && page.contains("seed-7</th>") && page.contains("seed-8</th>"));
    assert!(page.contains("<th scope=\"row\">run.<wbr>seed</th><td>7</td><td>8</td>"), "what differs");
    assert!(!page.contains("<th scope=\"row\">run.<wbr>output"), "places are no differences");
    assert!(
        page.contains("<td>4.3600</td><td class=\"best\">4.2500</td>"),
        "the lower loss is the better one"
    );
    assert!(page.contains("4.3050 ± 0.0778"), "only the seeds differ");
    assert!(page.contains("Loss over time") && page.contains("var(--pale1)"));
    // With another difference than the seed, there are no means over seeds.
    write(&folders[1], "config.yaml", "run:\n  seed: 8\ntask: masked_lm\ntraining:\n  max_steps: 90\n");
    let page = page_of(&folders);
    assert!(
        page.contains("training.<wbr>max_<wbr>steps</th><td>100</td><td>90</td>") && !page.contains(" ± ")
    );
}

#[test]
fn losses_over_other_tokens_are_not_ranked() {
    let root = tempfile::tempdir().unwrap();
    let folders = [pretrained(root.path(), "one", 7, 4.36), pretrained(root.path(), "two", 7, 4.25)];
    let page = page_of(&folders);
    assert!(page.contains("class=\"best\"") && !page.contains("do not compare"), "the same validation data");
    let results = "{\"eval_loss\":4.25,\"eval_accuracy\":0.3,\"eval_perplexity\":70.1,\
        \"eval_unigram_loss\":6.125,\"train_runtime\":100}";
    write(&folders[1], "all_results.json", results);
    assert_unranked(&folders, "Tokenizers or validation data differ");
    for (tokenizers, reason) in [(["a", "a"], "Validation data differ"), (["a", "b"], "Tokenizers differ")] {
        for (folder, tokenizer) in folders.iter().zip(tokenizers) {
            let inputs = format!("{{\"data.sources\":\"c\",\"tokenizer\":\"{tokenizer}\"}}");
            write(&folder.join("checkpoint-100/trainer"), "inputs.json", &inputs);
        }
        assert_unranked(&folders, reason);
    }
}

/// The page of these runs marks no score as the best, and gives this reason once.
#[track_caller]
fn assert_unranked(folders: &[PathBuf], reason: &str) {
    let page = page_of(folders);
    assert_whole(&page);
    assert!(!page.contains("class=\"best\""), "{page}");
    let note = format!(">{reason}: losses per token do not compare.<");
    assert_eq!(page.matches(&note).count(), 1, "{page}");
}

fn json(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

#[test]
fn texts_of_a_run_are_escaped() {
    let root = tempfile::tempdir().unwrap();
    let name = HOSTILE.replace('/', "_");
    let folder = root.path().join(format!("x{name}"));
    write(&folder, "config.yaml", &format!("task: \"{}\"\nkey: 1\n", HOSTILE.replace('"', "\\\"")));
    let hostile = json(HOSTILE);
    let tag = json(&format!("eval/{HOSTILE}"));
    let other = json(&format!("odd/{HOSTILE}"));
    write(
        &folder,
        "metrics.jsonl",
        &format!("{{\"step\":1,{tag}:1,{other}:2}}\n{{\"step\":2,{tag}:3,{other}:4}}\n"),
    );
    write(&folder, "machine.json", &format!("{{\"processor\":{hostile}}}"));
    write(&folder, "all_results.json", &format!("{{{}:1}}", json(&format!("eval_{HOSTILE}"))));
    let rows = [hostile.as_str(), "\"b\""].map(|gold| {
        format!(
            "{{\"text\":{hostile},\"text_pair\":{hostile},\"label\":{hostile},\"gold\":{gold},\"score\":0.9,\"probabilities\":{{{hostile}:1,\"b\":0}}}}\n"
        )
    });
    write(&folder, "predictions.jsonl", &rows.concat());
    let twin = root.path().join(format!("y{name}"));
    write(&twin, "config.yaml", "task: b\n");
    write(&twin, "metrics.jsonl", &format!("{{\"step\":1,{tag}:1}}\n"));
    for page in [page_of(std::slice::from_ref(&folder)), page_of(&[folder, twin])] {
        assert!(!page.contains("<script") && !page.contains("<img") && page.contains("&lt;script&gt;"));
        assert_whole(&page.replace("src=x", "").replace("src=<wbr>x", ""));
    }
}

#[test]
fn damaged_files_are_gaps_and_the_rest_is_shown() {
    let root = tempfile::tempdir().unwrap();
    let folder = pretrained(root.path(), "run", 7, 4.36);
    std::fs::create_dir(folder.join("data")).unwrap();
    for (name, text) in [
        ("config.yaml", "run: [".as_bytes()),
        ("all_results.json", b"{\"eval_loss\": "),
        ("machine.json", b"[]"),
        ("predictions.jsonl", b"\xff\xfe\n"),
        ("data/report.json", b"{\"version\": 9}"),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let metrics = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    write(&folder, "metrics.jsonl", &format!("{metrics}{{\"step\":11\nnonsense\n{{\"step\":110,\"train/lo"));
    let page = page_of(std::slice::from_ref(&folder));
    assert_whole(&page);
    let gaps = page.split("What could not be read").nth(1).unwrap();
    for name in [
        "config.yaml",
        "all_results.json",
        "machine.json",
        "predictions.jsonl",
        "data/report.json",
        "left out: 2",
    ] {
        assert!(gaps.contains(name), "{name}: {gaps}");
    }
    assert!(page.contains("<figcaption>Loss</figcaption>") && page.contains("stopped at step 100"));
    std::fs::remove_file(folder.join("metrics.jsonl")).unwrap();
    assert!(page_of(&[folder]).contains("stopped before its first record"));
}

#[test]
fn a_long_run_is_a_small_page() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("long");
    let mut metrics = String::new();
    for step in 1..=200_000 {
        let loss = 4.0 + (f64::from(step) * 0.37).sin();
        let _ = writeln!(
            metrics,
            "{{\"step\":{step},\"train/loss\":{loss:.6},\"train/grad_norm\":{}}}",
            1.0 + loss / 7.0
        );
    }
    write(&folder, "metrics.jsonl", &metrics);
    let page = page_of(&vec![folder; 12]);
    assert_whole(&page);
    assert!(page.len() < 2 << 20, "{}", page.len());
    assert!(page.contains("Curves of up to 200,000 records are drawn with at most"));
}

#[test]
fn a_folder_of_several_runs_stands_for_all_of_them() {
    let root = tempfile::tempdir().unwrap();
    let both =
        [pretrained(root.path(), "topics/seed-1", 1, 2.0), pretrained(root.path(), "topics/seed-2", 2, 2.0)];
    // The folder of all seeds has a configuration and means, but no records.
    write(&root.path().join("topics"), "config.yaml", "task: classify\n");
    write(&root.path().join("topics"), "all_results.json", "{\"eval_loss_mean\":2}");
    assert_eq!(runs_of(&root.path().join("topics")).unwrap().runs, both);
    assert_eq!(runs_of(&both[0]).unwrap().runs, both[..1]);
    std::os::unix::fs::symlink("seed-2", root.path().join("topics/best")).unwrap();
    assert_eq!(runs_of(&root.path().join("topics")).unwrap().runs, both, "a second name of a run");
    assert_eq!(find(root.path()).unwrap().runs, [&[root.path().join("topics")], &both[..]].concat());
    write(&root.path().join("empty"), "notes.txt", "");
    for (name, message) in [("empty", "holds no run"), ("none", "is no folder")] {
        assert!(runs_of(&root.path().join(name)).unwrap_err().to_string().contains(message));
    }
}

/// A run without results, with these records.
fn unfinished(root: &Path, name: &str, config: &str, records: &[String]) -> PathBuf {
    let folder = root.join(name);
    write(&folder, "config.yaml", config);
    write(&folder, "metrics.jsonl", &records.concat());
    folder
}

fn record(step: u32, tag: &str, value: f64) -> String {
    format!("{{\"step\":{step},\"{tag}\":{value:e},\"perf/elapsed_seconds\":{step}}}\n")
}

/// The chart with this caption.
#[track_caller]
fn chart<'a>(page: &'a str, caption: &str) -> &'a str {
    let start = page.find(&format!("<figcaption>{caption}")).expect(caption);
    page[start..].split_once("</figure>").expect("the figure ends").0
}

#[test]
fn a_diverged_run_neither_flattens_the_others_nor_its_own_beginning() {
    let root = tempfile::tempdir().unwrap();
    let records: Vec<String> =
        (0..30).map(|step| record(step, "train/loss", 8.0 * 10f64.powi(step as i32))).collect();
    let diverged = unfinished(root.path(), "big", "task: masked_lm\n", &records);
    write(&diverged.join("diverged-30"), "step.json", "{}");
    let page = page_of(std::slice::from_ref(&diverged));
    assert_whole(&page);
    let place = diverged.join("diverged-30").display().to_string();
    assert!(page.contains("diverged at step 29") && page.contains("<code>mlmtrain replay "), "{place}");
    assert!(page.contains("training loss,<wbr> latest</th><td>8.000e29"), "the loss it ended with");
    let loss = chart(&page, "Loss");
    assert!(loss.contains("Values above 8000 of diverged runs are not drawn") && !loss.contains("step 5:"));
    let page = page_of(&[pretrained(root.path(), "good", 7, 4.36), diverged]);
    let loss = chart(&page, "Loss<");
    assert!(loss.contains("Values above 94.6 of diverged runs"), "{loss}");
    assert!(loss.contains("big, step 1: 80.0000") && !loss.contains("big, step 2:"), "{loss}");
}

#[test]
fn runs_of_different_tasks_have_their_own_baselines_and_no_best_value() {
    let root = tempfile::tempdir().unwrap();
    let plain = pretrained(root.path(), "plain", 7, 4.36);
    let pair = pretrained(root.path(), "pair", 7, 4.25);
    write(&pair, "config.yaml", "task: replaced_token_detection\n");
    let results = "{\"eval_loss\":12.5,\"eval_generator_loss\":5.5,\"eval_discriminator_loss\":0.25,\
        \"eval_discriminator_baseline_loss\":0.5,\"eval_unigram_loss\":7.25,\"train_runtime\":9}";
    write(&pair, "all_results.json", results);
    let page = page_of(&[plain.clone(), pair.clone()]);
    assert!(!page.contains("class=\"best\""), "scores of different tasks cannot be compared");
    assert!(page.contains("evaluation loss</th><td>4.3600</td><td><span"), "two rows");
    assert!(
        page.contains("evaluation loss (weighted sum)</th><td><span class=\"muted\">–</span></td><td>12.5")
    );
    let loss = chart(&page, "Loss<");
    assert!(loss.contains("plain, step") && !loss.contains("pair, step"), "the sum is another loss");
    assert!(loss.contains("unigram loss: 6.5341") && !loss.contains("7.2500"), "{loss}");
    // The parts come before their sum.
    let order = ["discriminator loss", "discriminator baseline loss", "generator loss", "(weighted sum)"];
    let page = page_of(&[pair]);
    let places: Vec<usize> =
        order.iter().map(|title| page.rfind(&format!("{title}</th>")).unwrap()).collect();
    assert!(places.is_sorted(), "{places:?}");
    // Two baselines of one loss are two lines.
    let other = pretrained(root.path(), "other", 7, 4.36);
    write(&other, "all_results.json", "{\"eval_loss\":4,\"eval_unigram_loss\":7.25,\"train_runtime\":9}");
    let page = page_of(&[plain, other]);
    let loss = chart(&page, "Loss<");
    assert!(loss.contains("unigram loss of plain: 6.5341") && loss.contains("unigram loss of other: 7.2500"));
    assert!(chart(&page, "Learning rate").contains("the same for all runs"));
}

#[test]
fn a_sweep_has_a_table_of_its_settings_and_a_learning_curve() {
    let root = tempfile::tempdir().unwrap();
    let sweep = root.path().join("sweep");
    let mut settings = Vec::new();
    let mut folders = Vec::new();
    for (share, scores) in [(1.0, [0.8, 0.9]), (0.25, [0.5, 0.7])] {
        let mut runs = Vec::new();
        for (seed, score) in scores.iter().enumerate() {
            let name = format!("max_train_fraction={share}/seed-{seed}");
            folders.push(pretrained(&sweep, &name, 7, *score));
            runs.push(serde_json::json!({"folder": format!("elsewhere/{name}"), "scores": {"eval_accuracy": score}}));
        }
        settings.push(serde_json::json!({"setting": {"data.max_train_fraction": share}, "runs": runs}));
    }
    let file = serde_json::json!({
        "metric": "eval_accuracy",
        "settings": settings,
        "best": {"setting": {"data.max_train_fraction": 1.0}},
        "learning_curve": [
            {"share": 0.25, "examples": 18, "scores": [0.5, 0.7], "floor": 0.4},
            {"share": 1.0, "examples": 72, "scores": [0.8, null], "floor": null},
        ],
    });
    write(&sweep, "sweep.json", &file.to_string());
    assert_eq!(runs_of(&sweep).unwrap().runs, folders, "in the order of the sweep");
    let page = page_of(&folders);
    assert_whole(&page);
    for text in [
        "<tr class=\"best\"><th scope=\"row\">1</th><td>2</td><td>85.00 % ± 7.07 %</td>",
        "<tr><th scope=\"row\">0.25</th><td>2</td><td>60.00 % ± 14.14 %</td>",
        "<figcaption>Accuracy by training examples</figcaption>",
        "72 examples: 80.00 %",
        "dashed: without a network",
    ] {
        assert!(page.contains(text), "{text}");
    }
    write(&sweep, "sweep.json", "{");
    assert!(page_of(&folders).contains("sweep.json: is broken"), "a gap");
}

#[test]
fn differences_leave_out_what_is_not_set_and_compare_models_of_two_families() {
    let root = tempfile::tempdir().unwrap();
    let tail = "evaluation: {loss_band: null}\ntask: masked_lm\n";
    let one =
        format!("model: {{roberta: {{hidden_size: 64, layers: 2}}}}\nrun: {{budget_usd: null}}\n{tail}");
    let two = "model: {bert: {hidden_size: 64, layers: 3}}\nevaluation: {loss_band: 4}\ntask: masked_lm\n";
    let runs = [unfinished(root.path(), "a", &one, &[]), unfinished(root.path(), "b", two, &[])];
    let page = page_of(&runs);
    assert!(page.contains("model (family)</th><td>roberta</td><td>bert</td>"));
    assert!(page.contains("model.<wbr>layers</th><td>2</td><td>3</td>"));
    for key in ["hidden_<wbr>size", "loss_<wbr>band", "budget_"] {
        assert!(!page.contains(&format!("{key}</th>")), "{key}");
    }
    assert!(page.contains("stopped before its first record") && !page.contains("last record"));
    let seeds = [1, 2].map(|seed| unfinished(root.path(), &format!("seed-{seed}"), &one, &[]));
    assert!(page_of(&seeds).contains("Only the seed differs."));
}

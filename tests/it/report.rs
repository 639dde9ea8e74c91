//! `mlmtrain report` on runs that the test makes, and its page in a real browser.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::material::{examples, tagged};
use crate::notes;
use crate::workplace::{Finished, Workplace};

/// Two pretraining runs, a classifier of two seeds and a tagger.
fn workplace() -> Workplace {
    let place = Workplace::new();
    place.run(&["training.max_steps=20"], &[]).ok();
    place.run(&["training.max_steps=12", "run.output_dir=other", "run.seed=8"], &[]).ok();
    fs::write(place.path("train.csv"), examples(80)).unwrap();
    fs::write(place.path("dev.csv"), examples(40)).unwrap();
    fs::write(place.path("train.conll"), tagged(40)).unwrap();
    fs::write(place.path("dev.conll"), tagged(20)).unwrap();
    let tune = |task: &str, end: &str, more: &[&str]| {
        let (train, dev, out) = (format!("train.{end}"), format!("dev.{end}"), format!("{task}-out"));
        let flags = ["finetune", "--task", task, "--model", "run/final", "--train", &train, "--eval", &dev];
        let sets =
            ["--output-dir", &out, "--set", "data.max_seq_length=32", "--set", "training.num_train_epochs=1"];
        place.program(&[&flags, &sets[..], more].concat(), "").ok();
    };
    tune("classify", "csv", &["--seeds", "1,2"]);
    tune("token-classify", "conll", &[]);
    place
}

#[test]
fn pages_tell_what_runs_left() {
    let place = workplace();
    let report = |arguments: &[&str]| place.program(&[&["report"], arguments].concat(), "");
    assert!(report(&["run"]).ok().stdout.starts_with("run/report.html ("));
    let page = fs::read_to_string(place.run_path("report.html")).unwrap();
    for text in [
        "masked lm",
        "complete, 20 steps",
        "<figcaption>Loss</figcaption>",
        "mlmtrain</th>",
        "evaluation <span",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(
        page.contains("href=\"./data/report.html\"") && page.contains("max_steps: 20"),
        "links and configuration"
    );
    // Again, now with a report in the folder, and a name that a user gives.
    report(&["run", "other", "-o", "pages/both.html"]).ok();
    let both = fs::read_to_string(place.path("pages/both.html")).unwrap();
    assert!(both.contains("<h1>2 runs</h1>") && both.contains("<td>20</td><td>12</td>"), "steps differ");
    let piped = report(&["classify-out", "-o", "-"]).ok().stdout;
    for text in ["seed-1</th>", "seed-2</th>", "in the data ↓ predicted →", " ± "] {
        assert!(piped.contains(text), "{text}");
    }
    let tags = report(&["token-classify-out", "-o", "-"]).ok().stdout;
    assert!(tags.contains("<th scope=\"row\">bird</th>") && tags.contains("entity F1"), "scores by type");
    fs::remove_file(place.run_path("all_results.json")).unwrap();
    let stopped = report(&["run", "-o", "-"]).ok().stdout;
    assert!(stopped.contains("stopped at step 20"));
    report(&["none"]).refused(2, &["none: is no folder"]);
    report(&["pages"]).refused(2, &["pages: holds no run", "hint: "]);
    let words = ["run/data: holds no run", "of a prepared corpus: its page is `run/data/report.html`"];
    report(&["run/data"]).refused(2, &words);
}

/// A browser's window of this width and height.
const DESKTOP: (u32, u32) = (1200, 900);

/// The width of a phone.
const PHONE: u32 = 390;

#[test]
fn pages_open_in_a_browser_without_errors_and_fit_a_phone() {
    let Some(chromium) =
        ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| starts(name))
    else {
        notes::skipped("there is no `chromium` to open the page in");
        return;
    };
    let place = workplace();
    let pages: [(&str, &[&str]); 3] = [
        ("one", &["run"]),
        ("several", &["run", "other", "token-classify-out"]),
        ("seeds", &["classify-out"]),
    ];
    for (name, runs) in pages {
        let file = format!("{name}.html");
        place.program(&[&["report", "-o", &file], runs].concat(), "").ok();
        let page = fs::read_to_string(place.path(&file)).unwrap();
        assert!(page.len() < 2 << 20, "{name}: {} bytes", page.len());
        let opened = open(chromium, &place.path(&file));
        assert_eq!(console(&opened.stderr), Vec::<&str>::new(), "{name}");
        assert!(opened.stdout.contains("</svg>"), "{name}: {}", opened.stderr);
        // In a frame as wide as a phone, which a script of the page around it looks into.
        let framed = open(chromium, &framed(&place, &page));
        let measured = |what: &str| {
            let after = framed.stdout.split_once(&format!("data-{what}=\"")).map_or("", |(_, after)| after);
            after.split('"').next().and_then(|value| value.parse::<u32>().ok())
        };
        assert_eq!(measured("beyond"), Some(0), "{name} is wider than a phone");
        assert!(measured("charts") >= Some(3), "{name}: {:?} charts are seen", measured("charts"));
        assert!(measured("smallest") >= Some(9), "{name}: text of {:?} pixels", measured("smallest"));
    }
    // The checks find what they are for.
    let broken = "<!doctype html><p style=\"width:500px\">wide</p><script>console.error('planted')</script>";
    fs::write(place.path("broken.html"), broken).unwrap();
    let found = open(chromium, &place.path("broken.html"));
    assert!(console(&found.stderr).iter().any(|line| line.contains("planted")), "{}", found.stderr);
    let wide = open(chromium, &framed(&place, broken));
    assert!(
        wide.stdout.contains("data-beyond=") && !wide.stdout.contains("data-beyond=\"0\""),
        "{}",
        wide.stdout
    );
}

fn starts(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// What the page is once it is loaded, and what the browser says of it.
fn open(chromium: &str, page: &Path) -> Finished {
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(chromium);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-quic",
    ]);
    command.args(["--no-first-run", "--disable-background-networking", "--disable-component-update"]);
    command.args(["--disable-sync", "--enable-logging=stderr", "--timeout=60000", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", profile.path().display()));
    command.arg(format!("--window-size={},{}", DESKTOP.0, DESKTOP.1));
    command.arg(format!("file://{}", page.display())).stdin(Stdio::null());
    Finished::from(command.output().expect("starts")).ok()
}

/// What a page wrote to the console, its errors and the browser's own about it.
fn console(stderr: &str) -> Vec<&str> {
    stderr.lines().filter(|line| line.contains("CONSOLE")).collect()
}

/// A page with `page` in a frame, and how far it reaches beyond that, scroll bars apart, how many charts it
/// shows, and its smallest text.
fn framed(place: &Workplace, page: &str) -> std::path::PathBuf {
    let content = page.replace('&', "&amp;").replace('"', "&quot;");
    let frame = format!(
        "<!doctype html><meta charset=\"utf-8\"><iframe id=\"phone\" style=\"width:{PHONE}px;height:800px;border:0\" srcdoc=\"{content}\">\
         </iframe><script>addEventListener('load', () => {{\
         const shown = document.getElementById('phone').contentDocument;\
         const sizes = [...shown.querySelectorAll('svg.chart')].map(svg => {{\
           const text = svg.querySelector('text'), scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;\
           return text ? scale * parseFloat(getComputedStyle(text).fontSize) : 0; }});\
         const page = shown.documentElement;\
         document.body.dataset.beyond = page.scrollWidth - page.clientWidth;\
         document.body.dataset.charts = sizes.filter(size => size > 0).length;\
         document.body.dataset.smallest = Math.floor(Math.min(...sizes)); }});</script>"
    );
    let path = place.path("framed.html");
    fs::write(&path, frame).unwrap();
    path
}

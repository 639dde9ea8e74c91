//! Secrets planted in variables, URLs and configurations stand in no file, on no terminal and in no bucket.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::material::{CONFIG, corpus, examples};
use crate::notes;
use crate::stores::server::{S3, Server, equip, status};
use crate::workplace::{Finished, Workplace};

/// All of what is planted begins like this, or is it in base64, alone or behind the name of a user.
const PLANTED: [&[u8]; 3] = [b"planted-", b"cGxhbnRlZC", b"YW5uOnBsYW50ZWQ"];

const VARIABLES: [(&str, &str); 6] = [
    ("AWS_SESSION_TOKEN", "planted-session"),
    ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
    ("AZURE_STORAGE_ACCOUNT_KEY", "cGxhbnRlZC1henVyZQ=="),
    ("HF_TOKEN", "planted-hub"),
    ("MLFLOW_TRACKING_PASSWORD", "planted-mlflow"),
    ("MY_API_KEY", "planted-variable"),
];

/// A machine on which everything that can be told is.
struct Subject {
    place: Workplace,
    /// Answers to whoever knows the password, and repeats to others what they sent.
    web: Server,
    s3: Option<S3>,
    told: Vec<String>,
}

impl Subject {
    fn new() -> Self {
        let web = Server::start(|request| {
            let files = [("text.txt", corpus(400)), ("train.csv", examples(48)), ("eval.csv", examples(12))];
            let body = files.into_iter().find(|(name, _)| request.head.contains(name)).map(|(_, body)| body);
            match body {
                Some(body) if request.head.contains("signature=planted-sign ") => {
                    request.answer(body.as_bytes(), "\"1\"", usize::MAX)
                }
                _ => status("403 Forbidden", &format!("no: {}, of planted-word", request.head)),
            }
        });
        let place = Workplace::new();
        fs::remove_file(place.path("corpus.txt")).unwrap();
        let s3 = S3::start();
        if s3.is_none() {
            notes::skipped("there is no `moto_server`: of buckets nothing is looked at");
        }
        Self { place, web, s3, told: Vec::new() }
    }

    /// The URL of a file of the server, as a user has it who was given a signed one.
    fn url(&self, name: &str) -> String {
        format!("http://ann:planted-word@{}/{name}?signature=planted-sign", self.web.host)
    }

    fn run(&mut self, code: i32, arguments: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlmtrain"));
        command.args(arguments).current_dir(self.place.path("")).envs(VARIABLES);
        let endpoint = self.s3.as_ref().map_or("http://127.0.0.1:9", |s3| &s3.endpoint);
        equip(&mut command, endpoint, &self.place.path("cache"));
        let ran: Finished = command.output().unwrap().into();
        assert_eq!(ran.code, Some(code), "{arguments:?}: {}{}", ran.stdout, ran.stderr);
        self.told.push(format!("{arguments:?}\n{}\n{}", ran.stdout, ran.stderr));
    }
}

fn is_planted(bytes: &[u8]) -> bool {
    PLANTED.iter().any(|secret| bytes.windows(secret.len()).any(|window| window == *secret))
}

/// The files below a folder in which something planted stands, in their names too.
fn hits(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let is_hit = is_planted(path.file_name().unwrap().as_encoded_bytes());
        if path.is_dir() {
            hits(&path, found);
        } else if is_hit || fs::read(&path).is_ok_and(|bytes| is_planted(&bytes)) {
            found.push(path.display().to_string());
        }
    }
}

#[test]
fn a_request_with_credentials_is_not_sent_on_to_another_host() {
    let place = Workplace::new();
    let other = Server::start(|request| request.answer(corpus(400).as_bytes(), "\"1\"", usize::MAX));
    let target = other.host.clone();
    let first = Server::start(move |_| {
        format!("HTTP/1.1 302 Found\r\nLocation: http://{target}/text.txt\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .into_bytes()
    });
    let run = |url: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlmtrain"));
        let tokenize = ["tokenizer", "encode", "--tokenizer", "run/final", "--input", url];
        command.args(tokenize).current_dir(place.path(""));
        equip(&mut command, &format!("http://{}", first.host), &place.path("cache"));
        command.env_remove("AWS_SKIP_SIGNATURE").env("AWS_SESSION_TOKEN", "planted-session");
        command.env("AWS_ACCESS_KEY_ID", "planted-id").env("AWS_SECRET_ACCESS_KEY", "planted-word");
        Finished::from(command.output().unwrap())
    };
    place.run(&["training.max_steps=2", "run.sample_text=null"], &[]).ok();
    for url in [
        format!("http://ann:planted-word@{}/text.txt", first.host),
        format!("http://{}/text.txt?signature=planted-sign", first.host),
        "s3://bucket/text.txt".to_string(),
    ] {
        let ran = run(&url);
        assert_ne!(ran.code, Some(0), "{ran:?}");
        assert!(!ran.stderr.contains("planted"), "{}", ran.stderr);
        assert_eq!(other.seen.lock().unwrap().len(), 0, "{url}: {:?}", other.seen.lock().unwrap());
    }
    // Without credentials it is, and does not tell where it comes from.
    let ran = run(&format!("http://{}/text.txt", first.host));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let seen = other.seen.lock().unwrap().concat().to_lowercase();
    assert!(!seen.is_empty() && !seen.contains("referer") && !seen.contains("planted"), "{seen}");
}

#[test]
fn variables_that_cannot_be_used_are_refused_in_every_command() {
    let place = Workplace::new();
    let commands: [&[&str]; 4] = [
        &["predict", "--model", "s3://bucket/model", "--input", "-"],
        &["embed", "--model", "s3://bucket/m", "--file", "s3://bucket/t.txt", "--output", "v.npy"],
        &["pretrain", "--config", "config.yaml", "--set", "run.upload_to=s3://bucket/run"],
        &["prepare", "--config", "config.yaml", "--set", "data.sources.0.files=[s3://bucket/a.txt]"],
    ];
    for (number, value) in ["", "localhost:9000", "http://", "http://host:99999", "no url"].iter().enumerate()
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlmtrain"));
        command.args(commands[number % commands.len()]).current_dir(place.path(""));
        equip(&mut command, value, &place.path("cache"));
        Finished::from(command.output().unwrap()).refused(2, &["AWS_ENDPOINT_URL: ", "hint: "]);
    }
    let blank = ["tokenizer", "encode", "--tokenizer", "s3://a b/t", "--input", "-"];
    place.program(&blank, "").refused(2, &["names no bucket that there can be"]);
}

#[test]
fn what_is_planted_is_found_nowhere() {
    let mut subject = Subject::new();
    let (text, train, eval) = (subject.url("text.txt"), subject.url("train.csv"), subject.url("eval.csv"));
    let run = "output_dir: run, trackers: [mlflow], prometheus_dir: prometheus, notify_command: 'test \"${MY_API_KEY}\" && env > /dev/null; echo \"$MLMTRAIN_MESSAGE\" >> told.txt'";
    let config = CONFIG.replace("corpus.txt", &format!("\"{text}\"")).replace("output_dir: run", run);
    let upload = if subject.s3.is_some() { "run.upload_to=s3://bucket/runs/mine" } else { "run.seed=7" };
    // What a user writes is the user's own, and lies elsewhere.
    let own = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        fs::write(own.path().join(name), text).unwrap();
        own.path().join(name).display().to_string()
    };
    let good = file("good.yaml", &config);
    let wrong = file("wrong.yaml", &config.replace("max_steps: 40", "max_stepz: 40"));
    let refused = file("refused.yaml", &config.replace("signature=planted-sign", "signature=planted-old"));
    let tasks = file(
        "tasks.yaml",
        &format!(
            "seeds: [1]\ntraining: {{max_steps: 4}}\ntasks:\n  - {{name: one, data: {{train_file: \"{train}\", eval_file: \"{eval}\", max_seq_length: 32}}}}\n"
        ),
    );

    subject.run(0, &["config", "show", &good]);
    subject.run(2, &["config", "check", &wrong]);
    let log = ["--log-file", "log.txt", "-v"];
    subject.run(0, &[&log[..], &["pretrain", "--config", &good, "--set", upload]].concat());
    let events = ["--set", "run.output_dir=other", "--set", "training.max_steps=8"];
    subject.run(0, &[&["--events", "pretrain", "--config", &good], &events[..]].concat());
    subject
        .run(1, &[&log[..], &["pretrain", "--config", &refused, "--set", "run.output_dir=third"]].concat());
    subject.run(0, &["plan", "--config", &good, "--save", "--set", "run.output_dir=planned"]);
    subject.run(
        2,
        &[
            "prepare",
            "--config",
            &good,
            "--set",
            "data.sources.0.files=[\"az://box/x.txt?sv=1&sig=planted-sas\"]",
        ],
    );
    subject.run(
        2,
        &["prepare", "--config", &good, "--set", "data.sources.0.files=[\"s3://ann:planted-key@box/x.txt\"]"],
    );
    let model = ["--model", "run/final"];
    let sets = ["--set", "data.max_seq_length=32", "--set", "training.max_steps=8"];
    let tune =
        ["finetune", "--task", "classify", "--train", &train, "--eval", &eval, "--output-dir", "tuned"];
    subject.run(0, &[&log[..], &tune, &model, &sets].concat());
    subject.run(0, &["compare", "--models", "run/final", "--tasks", &tasks]);
    let tuned = ["--model", "tuned/final"];
    subject
        .run(0, &[&["evaluate", "--data", &eval, "--predictions", "predicted.jsonl"], &tuned[..]].concat());
    subject.run(0, &[&["predict", "--input", &subject.url("eval.csv")], &tuned[..]].concat());
    subject.run(0, &["report", "run", "tuned", "-o", "report.html"]);
    subject.run(0, &["runs", "."]);

    let mut found = Vec::new();
    hits(subject.place.path("").as_path(), &mut found);
    let told = subject.told.iter().filter_map(|text| {
        // The arguments are the user's own.
        let (arguments, output) = text.split_once('\n')?;
        is_planted(output.as_bytes()).then(|| format!("{arguments}: {output}"))
    });
    found.extend(told);
    for key in subject.s3.iter().flat_map(S3::keys) {
        if is_planted(&subject.s3.as_ref().unwrap().get(&key)) {
            found.push(format!("s3://bucket/{key}"));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(subject.web.seen.lock().unwrap().iter().any(|head| head.contains("planted-sign")));
}

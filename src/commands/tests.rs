//! Tests of the command line as a user types it.

use std::path::Path;

use clap::{CommandFactory, Parser};

use crate::commands::cli::{Cli, Command};
use crate::commands::config_args::Resume;
use crate::commands::finetune::args::FinetuneArgs;
use crate::config::{FinetuneConfig, FinetunePlan};

fn parse(line: &str) -> Result<Command, String> {
    Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.command).map_err(|e| e.to_string())
}

fn finetune(line: &str) -> FinetuneArgs {
    match parse(&format!("mlmtrain finetune --task classify {line}")) {
        Ok(Command::Finetune(args)) => *args,
        other => panic!("{other:?}"),
    }
}

/// The configuration of a single run.
fn config_of(args: &FinetuneArgs) -> Box<FinetuneConfig> {
    match args.load() {
        Ok(FinetunePlan::Single(loaded)) => Box::new(loaded.config),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_definition_holds_together() {
    Cli::command().debug_assert();
}

/// Splits a command line into words like a shell, up to a redirection, a pipe or a comment.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = None::<String>;
    let mut quote = None;
    for c in line.chars().chain([' ']) {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('#', None) if word.is_none() => break,
            ('>' | '|' | ';' | '&', None) => break,
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words
}

/// Returns every call of the program in a text whose lines of code are indented by `indent` blanks.
fn calls(text: &str, indent: usize) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let code = text.lines().filter(|line| {
        let rest = line.trim_start_matches(' ');
        line.len() - rest.len() == indent && !rest.starts_with(['#', '$']) && !line.contains("cargo ")
    });
    code.flat_map(|line| {
        let starts = line.match_indices("mlmtrain ").map(|(at, _)| at);
        starts
            .filter(|at| line[..*at].is_empty() || line[..*at].ends_with([' ', '/']))
            .map(|at| line[at..].to_string())
            .collect::<Vec<String>>()
    })
    .collect()
}

#[test]
fn every_example_of_the_help_is_a_command_line_and_fits_a_terminal() {
    let mut examples = 0;
    let mut commands = vec![Cli::command()];
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands().cloned());
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        if command.get_name() != "mlmtrain" {
            assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
        }
        for call in calls(&help, 2) {
            let parsed = Cli::try_parse_from(words(&call));
            assert!(parsed.is_ok(), "{call}: {:?}", parsed.err());
            examples += 1;
        }
    }
    assert!(examples >= 60, "{examples}");
}

#[test]
fn every_example_of_a_page_is_a_command_line() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![root.join("README.md")];
    for folder in ["configs", "configs/guides", "configs/tasks", "scripts", "benches", ".github"] {
        let files = std::fs::read_dir(root.join(folder)).expect("is a folder");
        pages.extend(
            files
                .map(|file| file.expect("can be read").path())
                .filter(|file| file.extension().is_some_and(|name| name == "md")),
        );
    }
    let mut examples = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("is text");
        for call in calls(&text, 4).iter().filter(|call| !call.contains("...")) {
            let parsed = Cli::try_parse_from(words(call));
            assert!(parsed.is_ok(), "{}: {call}: {:?}", page.display(), parsed.err());
            examples += 1;
        }
    }
    assert!(examples >= 60, "{examples}");
}

#[test]
fn resume_is_a_word_or_a_path() {
    for (text, want) in [
        ("auto", Resume::Auto),
        ("never", Resume::Never),
        ("runs/a/checkpoint-5", Resume::From("runs/a/checkpoint-5".into())),
    ] {
        let Ok(Command::Pretrain(args)) =
            parse(&format!("mlmtrain pretrain --config a.yaml --resume {text}"))
        else {
            panic!("{text}")
        };
        assert_eq!(args.resume, want);
    }
}

#[test]
fn finetune_takes_flags_without_a_file() {
    let args = finetune(
        "--model models/mini --train a.csv --eval b.csv --seeds 1,2,3 --max-train-fraction 0.1 --set training.max_steps=5",
    );
    let config = config_of(&args);
    assert_eq!(config.seeds, [1, 2, 3]);
    assert_eq!(config.data.max_train_fraction, Some(0.1));
    assert_eq!(config.data.train_file.to_str(), Some("a.csv"));
    assert_eq!(config.training.max_steps, 5);
    insta::assert_snapshot!(finetune("--model m --train a.csv --eval b.csv --max-train-fraction 10").load().expect_err("is wrong"), @r#"
    --max-train-fraction: `data.max_train_fraction` is 10, it must be above 0 and at most 1
      hint: 10 percent is written `0.1`
    "#);
    insta::assert_snapshot!(finetune("--model m").load().expect_err("is wrong"), @r#"
    `--train`, `--eval` must be given, for there is no `--config`
      hint: give `--model DIR --train FILE` with `--eval FILE` or `--eval-fraction 0.1`, or `--config FILE`
    "#);
}

#[test]
fn a_share_that_is_no_number_is_refused() {
    for share in ["nan", "inf", "-inf"] {
        let line = format!("mlmtrain finetune --model m --max-train-fraction={share}");
        let message = parse(&line).expect_err("is wrong");
        assert!(message.contains("a finite number is wanted"), "{message}");
    }
}

#[test]
fn threads_have_a_flag_wherever_there_is_work() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/quickstart.yaml");
    for command in ["pretrain", "prepare"] {
        let args = match parse(&format!("mlmtrain {command} --config {file} --threads 3")) {
            Ok(Command::Pretrain(args)) => args.config,
            Ok(Command::Prepare(args)) => args.config,
            other => panic!("{other:?}"),
        };
        assert_eq!(args.load().expect("is right").config.run.threads, 3);
    }
    let args = finetune("--model m --train a.csv --eval b.csv --threads 3");
    assert_eq!(config_of(&args).run.threads, 3);
    let Ok(Command::Evaluate(args)) = parse("mlmtrain evaluate --model m --data a.csv --threads 3") else {
        panic!("evaluate")
    };
    let Ok(Command::Predict(other)) = parse("mlmtrain predict --model m --input a.txt --threads 3") else {
        panic!("predict")
    };
    assert_eq!((args.compute.threads, other.compute.threads), (3, 3));
}

#[test]
fn flags_win_over_the_file() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/finetune-agnews.yaml");
    let config =
        config_of(&finetune(&format!("--config {file} --output-dir runs/other --text-column title")));
    assert_eq!(config.run.output_dir.to_str(), Some("runs/other"));
    assert_eq!(config.data.text_column.as_deref(), Some("title"));
    assert_eq!(config.seeds, [1, 2, 3]);
}

#[test]
fn a_wrong_command_line_gets_a_suggestion() {
    insta::assert_snapshot!(parse("mlmtrain pretrian --config a.yaml").expect_err("is wrong"), @r#"
    error: unrecognized subcommand 'pretrian'

      tip: some similar subcommands exist: 'prepare', 'predict', 'pretrain'

    Usage: mlmtrain [OPTIONS] <COMMAND>

    For more information, try '--help'.
    "#);
    insta::assert_snapshot!(parse("mlmtrain pretrain").expect_err("is wrong"), @r#"
    error: the following required arguments were not provided:
      --config <FILE>

    Usage: mlmtrain pretrain --config <FILE>

    For more information, try '--help'.
    "#);
}

//! Errors of a wrong command line: adds tips that need the names of subcommands and of configuration keys.

use std::ffi::OsString;
use std::path::Path;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Error};

use crate::commands::cli::Cli;
use crate::config;
use crate::config::Kind;

/// Extensions of configuration files.
const CONFIG_ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// Adds the tips to an error of the command line that clap cannot give.
pub fn with_tips(mut error: Error, arguments: &[OsString]) -> Error {
    match error.kind() {
        ErrorKind::InvalidSubcommand => nearest_subcommand(&mut error),
        ErrorKind::UnknownArgument => unknown_argument(&mut error, arguments),
        _ => {}
    }
    error
}

/// Suggests only the nearest one of several similar subcommands.
fn nearest_subcommand(error: &mut Error) {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else { return };
    let Some(ContextValue::Strings(similar)) = error.get(ContextKind::SuggestedSubcommand) else { return };
    let nearest = similar.iter().min_by_key(|name| strsim::damerau_levenshtein(typed, name)).cloned();
    if let Some(nearest) = nearest {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![nearest]));
    }
}

/// Replaces keys by flags in the text of an error, such as `data.text_column` by `--text-column`, if the
/// command has such a flag and its line no `--config`. With a configuration the keys are kept.
pub fn in_flags(text: &str, arguments: &[OsString]) -> String {
    let mut texts = arguments.iter().filter_map(|argument| argument.to_str());
    if texts.any(|argument| argument.starts_with("--config")) {
        return text.to_string();
    }
    let all = Cli::command();
    let named = arguments.iter().skip(1).find_map(|argument| all.find_subcommand(argument));
    let Some(command) = named else { return text.to_string() };
    // The same key is in the data of fine-tuning and in each source of a text.
    let text = if has_flag(command, "encoding") {
        text.replace("`encoding: ", "`--encoding ")
    } else {
        text.to_string()
    };
    let flags = command.get_arguments().filter_map(|argument| argument.get_long());
    flags.fold(text, |text, flag| {
        let key = format!("data.{}", flag.replace('-', "_"));
        text.replace(&format!("`{key}: "), &format!("`--{flag} "))
            .replace(&format!("`{key}`"), &format!("`--{flag}`"))
            .replace(&format!("error: {key}: "), &format!("error: --{flag}: "))
    })
}

/// Adds a tip about an unknown argument.
fn unknown_argument(error: &mut Error, arguments: &[OsString]) {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg).cloned() else { return };
    // `--model` is meant to be `--models`, and no key.
    if let Some(ContextValue::String(similar)) = error.get(ContextKind::SuggestedArg)
        && similar.strip_prefix(typed.as_str()).is_some_and(|rest| rest.len() == 1)
    {
        return;
    }
    let all = Cli::command();
    let named = arguments.iter().skip(1).find_map(|argument| all.find_subcommand(argument));
    let Some(tip) = named.and_then(|command| tip(command, &typed)) else { return };
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
}

fn has_flag(command: &Command, flag: &str) -> bool {
    command.get_arguments().any(|argument| argument.get_long() == Some(flag))
}

/// Returns a tip about an argument that `command` does not know.
fn tip(command: &Command, typed: &str) -> Option<String> {
    let Some(name) = typed.strip_prefix("--") else {
        let ending = Path::new(typed).extension().and_then(|ending| ending.to_str());
        let is_config =
            has_flag(command, "config") && ending.is_some_and(|ending| CONFIG_ENDINGS.contains(&ending));
        return is_config.then(|| format!("a configuration is named by a flag: '--config {typed}'"));
    };
    if !has_flag(command, "set") {
        return None;
    }
    let kinds: &[Kind] = match command.get_name() {
        "finetune" | "compare" => &[Kind::Finetune],
        "verify-resume" | "tune" => &[Kind::Pretrain, Kind::Finetune],
        _ => &[Kind::Pretrain],
    };
    let key = kinds.iter().find_map(|&kind| config::meant_by_flag(name, kind))?;
    Some(format!("it is a key of the configuration: '--set {key}'"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn arguments(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn message(line: &str) -> String {
        let arguments = arguments(line);
        let error = Cli::try_parse_from(&arguments).expect_err("is wrong");
        with_tips(error, &arguments).to_string()
    }

    #[test]
    fn the_nearest_subcommand_is_suggested() {
        for line in ["mlmtrain pretain", "mlmtrain pretain x.yaml", "mlmtrain pretrian --config x.yaml"] {
            let message = message(line);
            assert!(message.contains("a similar subcommand exists: 'pretrain'\n"), "{message}");
        }
        assert!(message("mlmtrain evalute").contains("'evaluate'"));
        assert!(message("mlmtrain config shwo a.yaml").contains("'show'"));
    }

    #[test]
    fn a_key_that_is_typed_as_a_flag_gets_a_tip_with_its_section() {
        for (line, tip) in [
            ("pretrain --config a.yaml --weight-decay 0.1", "'--set training.weight_decay=VALUE'"),
            ("pretrain --config a.yaml --num_train_epochs=2", "'--set training.num_train_epochs=VALUE'"),
            ("finetune --config a.yaml --lr 1e-4", "'--set training.learning_rate=VALUE'"),
            ("finetune --config a.yaml --fp16", "'--set precision.compute=f16'"),
            ("prepare --config a.yaml --vocab-size 8000", "'--set tokenizer.vocab_size=VALUE'"),
            ("compare --model a --tasks b", "a similar argument exists: '--models'"),
            ("compare --models a --tasks b --warmup-steps 4", "'--set training.warmup_steps=VALUE'"),
            ("verify-resume --config a.yaml --eval-file b", "'--set data.eval_file=VALUE'"),
            ("pretrain a.yaml", "a configuration is named by a flag: '--config a.yaml'"),
            ("plan configs/a.json --json", "'--config configs/a.json'"),
        ] {
            let message = message(&format!("mlmtrain {line}"));
            assert!(message.contains(tip) && message.matches("tip:").count() == 1, "{line}: {message}");
        }
        for line in ["predict --model a --input b --colour red", "runs a b.yaml"] {
            assert!(!message(&format!("mlmtrain {line}")).contains("--set"), "{line}");
        }
    }

    #[test]
    fn hints_name_the_flags_of_a_command_without_a_configuration() {
        let text = "error: data.max_seq_length: is 9\n  hint: set `data.text_column`, or `data.eval_fraction: 0.1`\n";
        let flags = in_flags(text, &arguments("mlmtrain finetune --model m"));
        assert_eq!(
            flags,
            "error: --max-seq-length: is 9\n  hint: set `--text-column`, or `--eval-fraction 0.1`\n"
        );
        assert_eq!(in_flags(text, &arguments("mlmtrain finetune --config a.yaml")), text);
        let some = in_flags(text, &arguments("mlmtrain predict --model m"));
        assert_eq!(some, text.replace("`data.text_column`", "`--text-column`"));
        let key = "leave out: `data.on_bad_record: skip`, or name it: `encoding: windows-1252`";
        assert_eq!(
            in_flags(key, &arguments("mlmtrain evaluate --model m")),
            "leave out: `--on-bad-record skip`, or name it: `--encoding windows-1252`"
        );
    }
}

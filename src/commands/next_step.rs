//! The commands to run next after a run, with the paths of the run, to be copied into a shell.

use std::path::Path;

use crate::config::{FinetuneConfig, FinetuneTask};

/// The output of a finished run.
pub(super) struct Ended {
    /// Lines of its report.
    pub(super) lines: Vec<String>,
    /// Warnings about its model, printed after the report.
    pub(super) warnings: Vec<String>,
    /// The commands to run next.
    pub(super) next: String,
}

/// Returns the commands after pretraining: to fill masks with the model in `folder`, and to fine-tune it.
/// `mask` is the model's mask token, `sample` a text that has it.
pub(super) fn after_pretraining(folder: &Path, mask: &str, sample: Option<&str>) -> String {
    let made = format!("Some text with a {mask} in it.");
    let text = quoted(sample.unwrap_or(&made));
    let model = shown(folder);
    next(&[
        format!("echo {text} | mlmtrain predict --model {model} --input -"),
        format!("mlmtrain finetune --task classify --model {model} --train train.csv --eval dev.csv"),
    ])
}

/// Returns the commands after fine-tuning: to label texts with the model in `folder`, and to score it.
pub(super) fn after_finetuning(folder: &Path, config: &FinetuneConfig) -> String {
    let model = shown(folder);
    let data = &config.data;
    // Evaluation examples that are held out from the training file have no file of their own.
    let file = if data.eval_fraction.is_some() { &data.train_file } else { &data.eval_file };
    let predict = format!("mlmtrain predict --model {model} --input {}", shown(file));
    let scored = if data.eval_fraction.is_none() { shown(file) } else { "test.csv".to_string() };
    // The names that were given may be those of numbers in the file.
    let may_have_numbers = config.task != FinetuneTask::Regression && !data.labels.is_empty();
    let fits_a_flag = !data.labels.iter().any(|name| name.contains(','));
    let labels = (may_have_numbers && fits_a_flag).then(|| data.labels.join(","));
    let flags = [
        ("--label-column", &data.label_column),
        ("--label-separator", &data.label_separator),
        ("--labels", &labels),
    ];
    let flags = flags.iter().filter_map(|(flag, value)| Some(format!(" {flag} {}", quoted(value.as_ref()?))));
    let flags: String = flags.collect();
    next(&[predict, format!("mlmtrain evaluate --model {model} --data {scored}{flags}")])
}

/// Returns the command after a tuning: to train with the configuration of the winner.
pub(super) fn after_tuning(command: &str, config: &Path) -> String {
    next(&[format!("mlmtrain {command} --config {}", shown(config))])
}

fn next(commands: &[String]) -> String {
    commands.iter().fold("next:".to_string(), |text, command| format!("{text}\n  {command}"))
}

fn shown(path: &Path) -> String {
    quoted(&path.display().to_string())
}

/// Quotes a text as one word for a shell.
fn quoted(text: &str) -> String {
    if !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "_-./=,:@%+".contains(c)) {
        return text.to_string();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_the_folder_and_survive_a_shell() {
        let text = after_pretraining(Path::new("runs/my model/final"), "[MASK]", Some("It's <mask>."));
        assert_eq!(
            text,
            "next:\n  echo 'It'\\''s <mask>.' | mlmtrain predict --model 'runs/my model/final' --input -\n  \
             mlmtrain finetune --task classify --model 'runs/my model/final' --train train.csv --eval dev.csv"
        );
        let text = after_pretraining(Path::new("runs/ä/final"), "[MASK]", None);
        assert!(text.contains("echo 'Some text with a [MASK] in it.' | ") && text.contains(" runs/ä/final "));
        let given = config(r#"{"train_file": "a.csv", "eval_file": "b.csv"}"#);
        assert_eq!(
            after_finetuning(Path::new("runs/a/final"), &given),
            "next:\n  mlmtrain predict --model runs/a/final --input b.csv\n  \
             mlmtrain evaluate --model runs/a/final --data b.csv"
        );
        let own = r#"{"train_file": "a.csv", "eval_file": "b.csv", "label_column": "my tags", "label_separator": ";"}"#;
        let text = after_finetuning(Path::new("m"), &config(own));
        assert!(text.ends_with("--data b.csv --label-column 'my tags' --label-separator ';'"), "{text}");
        let named = r#"{"train_file": "a.csv", "eval_file": "b.csv", "labels": ["bad", "so so"]}"#;
        let text = after_finetuning(Path::new("m"), &config(named));
        assert!(text.ends_with("--data b.csv --labels 'bad,so so'"), "{text}");
        let split = config(r#"{"train_file": "a.csv", "eval_fraction": 0.1}"#);
        let text = after_finetuning(Path::new("m"), &split);
        assert!(text.contains("--input a.csv") && text.contains("--data test.csv"), "{text}");
    }

    fn config(data: &str) -> FinetuneConfig {
        serde_json::from_str(&format!(r#"{{"model": "m", "data": {data}}}"#)).expect("has the shape")
    }
}

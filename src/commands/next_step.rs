//! The commands that come next after a run, with its own paths, to be copied into a shell.

use std::path::Path;

use crate::config::FinetuneConfig;

/// A run that came to its end.
pub(super) struct Ended {
    /// Its report.
    pub(super) lines: Vec<String>,
    /// The commands that come next.
    pub(super) next: String,
}

/// After pretraining: the use of the model in `folder`, whose mask token is `mask`, and fine-tuning. `sample` is
/// a text with that token.
pub(super) fn after_pretraining(folder: &Path, mask: &str, sample: Option<&str>) -> String {
    let made = format!("Some text with a {mask} in it.");
    let (text, model) = (quoted(sample.unwrap_or(&made)), shown(folder));
    next(&[
        format!("echo {text} | mlmtrain predict --model {model} --input -"),
        format!("mlmtrain finetune --task classify --model {model} --train train.csv --eval dev.csv"),
    ])
}

/// After fine-tuning: labels for texts, and the scores of the model in `folder`.
pub(super) fn after_finetuning(folder: &Path, config: &FinetuneConfig) -> String {
    let (model, data) = (shown(folder), &config.data);
    // A share of the training examples has no file of its own.
    let file = if data.eval_fraction.is_some() { &data.train_file } else { &data.eval_file };
    let predict = format!("mlmtrain predict --model {model} --input {}", shown(file));
    let scored = if data.eval_fraction.is_none() { shown(file) } else { "test.csv".to_string() };
    next(&[predict, format!("mlmtrain evaluate --model {model} --data {scored}")])
}

fn next(commands: &[String]) -> String {
    commands.iter().fold("next:".to_string(), |text, command| format!("{text}\n  {command}"))
}

fn shown(path: &Path) -> String {
    quoted(&path.display().to_string())
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./=,:@%+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_string();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_the_folder_and_survive_a_shell() {
        let told = after_pretraining(Path::new("runs/my model/final"), "[MASK]", Some("It's <mask>."));
        assert_eq!(
            told,
            "next:\n  echo 'It'\\''s <mask>.' | mlmtrain predict --model 'runs/my model/final' --input -\n  \
             mlmtrain finetune --task classify --model 'runs/my model/final' --train train.csv --eval dev.csv"
        );
        let told = after_pretraining(Path::new("runs/ä/final"), "[MASK]", None);
        assert!(told.contains("echo 'Some text with a [MASK] in it.' | ") && told.contains(" runs/ä/final "));
        let config = |data: &str| -> FinetuneConfig {
            serde_json::from_str(&format!(r#"{{"model": "m", "data": {data}}}"#)).expect("has the shape")
        };
        let given = config(r#"{"train_file": "a.csv", "eval_file": "b.csv"}"#);
        assert_eq!(
            after_finetuning(Path::new("runs/a/final"), &given),
            "next:\n  mlmtrain predict --model runs/a/final --input b.csv\n  \
             mlmtrain evaluate --model runs/a/final --data b.csv"
        );
        let split = config(r#"{"train_file": "a.csv", "eval_fraction": 0.1}"#);
        let told = after_finetuning(Path::new("m"), &split);
        assert!(told.contains("--input a.csv") && told.contains("--data test.csv"), "{told}");
    }
}

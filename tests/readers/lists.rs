//! Files beside a corpus that decide what is left out of it: lists of words, evaluation files, good text.

use std::path::Path;

use mlmtrain::config::DataConfig;
use mlmtrain::corpus::Judge;
use serde_json::{Value, json};

use super::compressed::gzip;
use super::{Input, Outcome, corpora};

const TARGET: &str = "lists";

pub(super) fn all(folder: &Path) -> Vec<Input> {
    let words = "# what must not occur\nlorem ipsum\nsana\nhidas juna kulkee\n";
    let list = |name: &str, text: &str, data: fn(&Path) -> Value| {
        let read = move |path: &Path| -> Outcome {
            let config: DataConfig = serde_json::from_value(data(path))?;
            Judge::new(&config)?.judge("the hidas juna kulkee over the hills, and sana follows");
            Ok(1)
        };
        Input::new(TARGET, name, folder.join(name).join(name), text.into(), read)
    };
    let mut inputs = vec![
        list("words.txt", words, |path| json!({"filters": {"words": {"files": [path]}}})),
        list(
            "stop.txt",
            words,
            |path| json!({"filters": {"gopher": {"enabled": true, "stop_word_files": [path]}}}),
        ),
    ];
    for (name, _, text) in corpora::plain() {
        let evaluation =
            list(&format!("evaluation-{name}"), &text, |path| json!({"contamination": {"files": [path]}}));
        inputs.push(evaluation.packed(".gz", gzip));
        inputs.push(evaluation);
        inputs.push(list(&format!("good-{name}"), &text, |path| {
            let most = json!({"reference_files": [path], "max_perplexity": 100, "memory_bytes": 1 << 16});
            json!({"filters": {"perplexity": most}})
        }));
    }
    inputs
}

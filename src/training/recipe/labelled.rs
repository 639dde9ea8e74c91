//! A configuration of `finetune` for labelled files, as commented YAML.

use crate::recipe::write::{Yaml, quoted};
use base::fs::TextEncoding;
use base::quantity::format_count;

/// Most labels whose counts are listed in the configuration.
const LISTED: usize = 20;

/// Hidden size from which a model counts as wide. Narrower models get a higher learning rate and larger
/// batches. MiniLM has this width, and scores higher with the rate of wide models (`benches/README.md`).
const WIDE: usize = 384;

/// Least number of updates of a run: small files are read in more epochs.
const LEAST_UPDATES: f64 = 600.0;

/// Macro F1 is the metric if the rarest label has less than this share of the most frequent one.
const BALANCED_SHARE: f64 = 0.1;

/// The rarest label is mentioned if it has less than this share of the most frequent one.
const TOLD_SHARE: f64 = 0.2;

/// Number of evaluations, and of checkpoints, in a run.
const EVALUATIONS: u64 = 6;

/// The column or columns with the labels of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelColumns {
    /// In one column.
    One(String),
    /// In a column of 0 and 1 for each label, after which it is named.
    Each(Vec<String>),
}

impl LabelColumns {
    /// Returns the names of the columns.
    pub fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Each(names) => names,
        }
    }
}

/// Columns of a file of labelled texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextColumns {
    /// Column of the (first) text.
    pub text: String,
    /// Column of the second text of a pair.
    pub text_pair: Option<String>,
    /// Column of the label or number, or the columns of the labels.
    pub labels: LabelColumns,
    /// True if the labels of one column are lists.
    pub has_lists: bool,
    /// True if the evaluation file names a column otherwise, so that the configuration names none:
    /// fine-tuning knows the usual names.
    pub names_differ: bool,
    /// A description of each column of the file.
    pub found: Vec<String>,
}

impl TextColumns {
    /// Returns true if a text has any number of labels.
    pub fn has_label_sets(&self) -> bool {
        self.has_lists || matches!(self.labels, LabelColumns::Each(_))
    }

    fn write(&self, yaml: &mut Yaml) {
        if self.names_differ {
            yaml.why(2, "The evaluation file names its columns otherwise; both have usual names.");
        } else {
            self.write_texts(yaml);
        }
        match &self.labels {
            LabelColumns::One(_) if self.names_differ => {}
            LabelColumns::One(name) => yaml.line(2, &format!("label_column: {}", quoted(name))),
            LabelColumns::Each(names) => {
                yaml.why(2, "Each label is a column of 0 and 1, and a text may have any number of them.");
                let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
                yaml.line(2, &format!("labels: [{}]", names.join(", ")));
            }
        }
    }

    fn write_texts(&self, yaml: &mut Yaml) {
        yaml.line(2, &format!("text_column: {}", quoted(&self.text)));
        if let Some(pair) = &self.text_pair {
            yaml.line(2, &format!("text_pair_column: {}", quoted(pair)));
        }
    }
}

/// Statistics of labelled examples, and the model that learns from them.
#[derive(Debug)]
pub struct LabelledFacts {
    /// Key `task`.
    pub task: String,
    /// Training file.
    pub train: String,
    /// Evaluation file; without it a tenth of the training file is held out.
    pub eval: Option<String>,
    /// Folder of the run.
    pub output_dir: String,
    /// Number of examples.
    pub examples: usize,
    /// Encoding of the files, if it is named.
    pub encoding: Option<TextEncoding>,
    /// Columns of texts and labels; `None` for tagged words.
    pub columns: Option<TextColumns>,
    /// Key `tag_scheme`, for tagged words.
    pub tag_scheme: Option<String>,
    /// Count of each label or type of entity, the most frequent first; empty for regression.
    pub labels: Vec<(String, usize)>,
    /// Tokens of each example, special tokens included, in ascending order. Not empty.
    pub lengths: Vec<usize>,
    /// Folder of the model.
    pub model: String,
    /// Width of the model.
    pub hidden_size: usize,
    /// Longest sequence that the model takes, in tokens.
    pub longest_sequence: usize,
}

impl LabelledFacts {
    /// The examples and labels in a few words.
    pub fn summary(&self) -> String {
        let examples = format_count(self.examples as u64);
        match self.labels.len() {
            0 => format!("{examples} examples"),
            labels => format!("{examples} examples, {labels} labels"),
        }
    }

    /// The configuration, with the reason of each choice as a comment.
    pub fn to_yaml(&self) -> String {
        let mut yaml = Yaml::default();
        yaml.why(0, &format!("Made by `mlmtrain init` for {}.", self.summary()));
        yaml.why(0, "Everything here may be changed; `mlmtrain config show` prints what is left out.");
        yaml.line(0, "");
        yaml.line(0, &format!("task: {}", self.task));
        if self.has_label_sets() {
            yaml.line(0, "problem_type: multi_label_classification");
        }
        yaml.line(0, &format!("model: {}", quoted(&self.model)));
        yaml.line(0, "");
        yaml.line(0, "run:");
        yaml.line(2, &format!("output_dir: {}", quoted(&self.output_dir)));
        yaml.line(0, "");
        self.data(&mut yaml);
        yaml.line(0, "");
        yaml.why(0, "One seed says little: the report has the mean and the standard deviation of three.");
        yaml.line(0, "seeds: [1, 2, 3]");
        yaml.line(0, "");
        self.training(&mut yaml);
        yaml.0
    }

    fn has_label_sets(&self) -> bool {
        self.columns.as_ref().is_some_and(TextColumns::has_label_sets)
    }

    fn data(&self, yaml: &mut Yaml) {
        yaml.line(0, "data:");
        yaml.line(2, &format!("train_file: {}", quoted(&self.train)));
        if let Some(eval) = &self.eval {
            yaml.line(2, &format!("eval_file: {}", quoted(eval)));
        } else {
            let is_balanced = !self.labels.is_empty();
            let shares = if is_balanced { ", and each label keeps its share" } else { "" };
            yaml.why(2, &format!("Rows with the same text are on one side{shares}."));
            yaml.line(2, "eval_fraction: 0.1");
        }
        if let Some(encoding) = self.encoding {
            yaml.line(2, &format!("encoding: {}", encoding.name()));
        }
        if let Some(columns) = &self.columns {
            yaml.why(2, &format!("The file has {}.", columns.found.join(", ")));
            columns.write(yaml);
        }
        if let Some(scheme) = &self.tag_scheme {
            yaml.line(2, &format!("tag_scheme: {scheme}"));
        }
        if !self.labels.is_empty() {
            let listed = self.labels.iter().take(LISTED);
            let mut listed: Vec<String> = listed
                .map(|(label, count)| format!("{} {}", quoted(label), format_count(*count as u64)))
                .collect();
            let rest = self.labels.len().saturating_sub(LISTED);
            if rest > 0 {
                listed.push(format!("and {rest} more"));
            }
            yaml.why(2, &format!("Labels: {}.", listed.join(", ")));
        }
        let [median, most, longest] = [0.5, 0.99, 1.0].map(|share| self.length_at(share));
        let able = self.longest_sequence;
        yaml.why(
            2,
            &format!(
                "Tokens of a text: the median is {median}, 99 of 100 have at most {most}, the longest has {longest}; \
                 the model takes {able}."
            ),
        );
        yaml.line(2, &format!("max_seq_length: {}", most.next_multiple_of(8).clamp(16, 512).min(able)));
    }

    /// The length that this share of the examples does not exceed.
    fn length_at(&self, share: f64) -> usize {
        self.lengths[((self.lengths.len() - 1) as f64 * share) as usize]
    }

    fn training(&self, yaml: &mut Yaml) {
        let is_wide = self.hidden_size >= WIDE;
        let rows: u32 = if is_wide { 16 } else { 32 };
        let updates = self.examples as f64 / f64::from(rows);
        let epochs = (LEAST_UPDATES / updates).ceil().clamp(3.0, 20.0);
        let steps = ((updates * epochs) as u64 / EVALUATIONS).max(1);
        yaml.line(0, "training:");
        yaml.line(2, &format!("per_device_train_batch_size: {rows}"));
        yaml.line(2, &format!("num_train_epochs: {epochs}"));
        yaml.why(
            2,
            if is_wide {
                "As for base models; models of up to 256 wide want more, such as 3.0e-4."
            } else {
                "Small models want a higher one than 5.0e-5."
            },
        );
        yaml.line(2, if is_wide { "learning_rate: 5.0e-5" } else { "learning_rate: 3.0e-4" });
        yaml.line(2, "warmup_steps: 0.1");
        yaml.line(2, "weight_decay: 0.01");
        if let Some(rarest) = self.rarest() {
            yaml.why(
                2,
                &format!(
                    "{rarest}: accuracy says little of rare labels, macro F1 counts each alike. \
                     `training.class_weights: balanced` raises their share of the loss."
                ),
            );
        }
        if self.has_one_label() && self.least_share() < BALANCED_SHARE {
            yaml.line(2, "metric_for_best_model: f1");
            yaml.line(2, "load_best_model_at_end: true");
        }
        yaml.line(2, &format!("logging_steps: {}", (steps / 5).max(1)));
        yaml.line(2, &format!("eval_steps: {steps}"));
        yaml.line(2, &format!("save_steps: {steps}"));
    }

    /// Returns true if each text has one label.
    fn has_one_label(&self) -> bool {
        self.task == "classify" && !self.has_label_sets()
    }

    /// The count of the rarest label as a share of that of the most frequent one.
    fn least_share(&self) -> f64 {
        match (self.labels.first(), self.labels.last()) {
            (Some((_, most)), Some((_, least))) => *least as f64 / *most as f64,
            _ => 1.0,
        }
    }

    /// Text such as "`spam` is the label of 30 of 330 examples (9.1 %)" about the rarest label; `None` if it
    /// is not rare.
    pub fn rarest(&self) -> Option<String> {
        let (label, count) = self.labels.last()?;
        (self.has_one_label() && self.least_share() < TOLD_SHARE).then(|| {
            let [count_text, all] = [*count, self.examples].map(|count| format_count(count as u64));
            let share = 100.0 * *count as f64 / self.examples as f64;
            format!("`{label}` is the label of {count_text} of {all} examples ({share:.1} %)")
        })
    }
}

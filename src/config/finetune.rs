//! The whole configuration of `mlmtrain finetune`.

use std::path::PathBuf;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batching::{LONGEST_SEQUENCE, SHORTEST_SEQUENCE};
use crate::cache::CacheConfig;
use crate::distillation::Distillation;
use crate::distributed::DistributedConfig;
use crate::on_resume::OnResume;
use crate::precision::PrecisionConfig;
use crate::run::RunSection;
use crate::sources::OnBadRecord;
use crate::task::{FinetuneTask, Goal, ProblemType};
use crate::training::TrainingConfig;
use base::fs::TextEncoding;

/// Labelled files and the columns that matter. Format by extension: .csv, .tsv, .json, .jsonl, .parquet; for
/// tagged words .json, .jsonl, .parquet, anything else is CoNLL; all but Parquet also .gz, .zst, .bz2, .xz.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClassifyData {
    /// Training examples: a file, a folder of files, or a pattern such as `rows/*.csv`.
    #[schemars(extend("x-path" = true))]
    pub train_file: PathBuf,
    /// Evaluation examples, as `train_file`.
    #[schemars(extend("x-path" = true, "x-other-names" = ["validation_file"]))]
    pub eval_file: PathBuf,
    /// Share of the training examples that is kept for evaluation where there is no `eval_file`: the same
    /// share of each label, chosen by the texts alone.
    #[schemars(example = 0.1, extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 1))]
    pub eval_fraction: Option<f64>,
    /// Test examples, as `train_file`: the final model is scored on them once, as `test_accuracy` and so on.
    #[schemars(extend("x-path" = true))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_file: Option<PathBuf>,
    /// Encoding of all these files, such as `windows-1252`, by a name of the WHATWG's encoding standard; UTF-8,
    /// or what a byte-order mark says, when absent. Parquet files need none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<TextEncoding>,
    /// Column or field of the (first) text; `text`, `sentence` or `content` when absent and one of them is
    /// there. In JSON this and the other columns may be within an object: `review.text`.
    #[schemars(length(min = 1), example = &"text", extend("x-other-names" = ["text_column_name"]))]
    pub text_column: Option<String>,
    /// Column or field of the second text of a pair.
    #[schemars(length(min = 1), example = &"text")]
    pub text_pair_column: Option<String>,
    /// Column or field of the label; `label`, `category` or `class` when absent and one of them is there,
    /// with any number of labels `labels` before them.
    #[schemars(length(min = 1), example = &"label", extend("x-other-names" = ["label_column_name"]))]
    pub label_column: Option<String>,
    /// Separator of the labels of a text that has any number of them, `,` when absent; a list needs none.
    #[schemars(length(min = 1), example = "|")]
    pub label_separator: Option<String>,
    /// The labels in the order of their ids; discovered from the training file and sorted when empty. A file
    /// may have numbers in their place, from 0. For regression the columns of several numbers; with any
    /// number of labels, where all of them are columns, a 0 or 1 is read from each.
    pub labels: Vec<String>,
    /// Share of the training examples to use, the same share of each label.
    #[schemars(range(max = 1.0), example = 0.1, extend("exclusiveMinimum" = 0))]
    pub max_train_fraction: Option<f64>,
    /// Smaller shares whose examples are to be among those of `max_train_fraction`, as a learning curve has
    /// them; else rounding could part them by an example.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nested_train_fractions: Vec<f64>,
    /// Most training examples to use, in the proportions of the labels.
    #[schemars(range(min = 1))]
    pub max_train_samples: Option<usize>,
    /// Most evaluation examples to use, drawn as those of `max_train_samples`.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_eval_samples: Option<usize>,
    /// Most test examples to use, drawn as those of `max_train_samples`.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_test_samples: Option<usize>,
    /// Each seed draws the training, evaluation and test examples with replacement, as many as there are (a
    /// bootstrap), so that scores over seeds vary as they would with other examples.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bootstrap: bool,
    /// Longest sequence in tokens, special tokens included; 128 when absent, or what the model takes if that
    /// is less. Longer texts are cut and counted, by `evaluate` and `predict`, too; longer sentences of
    /// tagged words are read in overlapping windows.
    #[schemars(
        range(min = SHORTEST_SEQUENCE, max = LONGEST_SEQUENCE),
        extend("x-other-names" = ["max_length"]),
    )]
    pub max_seq_length: Option<usize>,
    /// True if control tokens (start, end, separator, padding, mask, unknown) that are spelled out in a text
    /// are text; `false` reads them as tokens, for fields joined by `[SEP]`. Other added tokens always are
    /// tokens.
    pub split_special_tokens: bool,
    /// Column of the words in a CoNLL file: 1 is the first, -1 the last. In JSONL `text_column` names the
    /// list, else `tokens`.
    pub token_column: i64,
    /// Column of the tags in a CoNLL file. In JSONL `label_column` names the list, else `tags`.
    pub tag_column: i64,
    /// How entities are tagged.
    pub tag_scheme: TagScheme,
    /// Other names for types of entities, such as one for several: `{from: [PRO, EVENT], to: MISC}`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rename_types: Vec<RenamedTypes>,
    /// Refuse a tag that its scheme does not allow there, such as an `I-` without a `B-`; else it is read as
    /// `conlleval` does, and counted.
    pub strict: bool,
    /// Action on a row or sentence that cannot be read: a line that is no JSON object, too few fields, no
    /// text, no label.
    pub on_bad_record: OnBadRecord,
}

/// Types of entities that get another name after a file of tagged words is read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RenamedTypes {
    /// The types in the file.
    pub from: Vec<String>,
    /// Their name for training and scores; `O` leaves their entities out.
    pub to: String,
}

/// How tags say where an entity begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum TagScheme {
    /// Guessed from each file.
    #[default]
    Auto,
    /// `I-`; `B-` only between two entities of one type.
    Iob1,
    /// `B-` for the first word of each entity, `I-` for the others.
    Iob2,
    /// `B-`, `I-`, `E-` for the last word, `S-` for an entity of one word.
    Bioes,
}

/// Tokens of the longest sequence, unless the configuration or the model sets another length.
const USUAL_SEQ_LENGTH: usize = 128;

impl ClassifyData {
    /// Returns the number of tokens of the longest sequence.
    pub fn sequence_length(&self) -> usize {
        self.max_seq_length.unwrap_or(USUAL_SEQ_LENGTH)
    }

    /// Chooses the length of sequences, if it is not given, for a model that takes at most `longest` tokens.
    /// Returns a note for the user if the model takes fewer than is usual.
    pub fn choose_sequence_length(&mut self, longest: usize) -> Option<String> {
        if self.max_seq_length.is_some() {
            return None;
        }
        let length = longest.min(USUAL_SEQ_LENGTH);
        self.max_seq_length = Some(length);
        (length < USUAL_SEQ_LENGTH).then(|| {
            format!("note: `data.max_seq_length` is {length}: it is not given, and the model takes no more")
        })
    }
}

impl Default for ClassifyData {
    fn default() -> Self {
        Self {
            train_file: PathBuf::new(),
            eval_file: PathBuf::new(),
            eval_fraction: None,
            test_file: None,
            encoding: None,
            text_column: None,
            text_pair_column: None,
            label_column: None,
            label_separator: None,
            labels: Vec::new(),
            max_train_fraction: None,
            nested_train_fractions: Vec::new(),
            max_train_samples: None,
            max_eval_samples: None,
            max_test_samples: None,
            bootstrap: false,
            max_seq_length: None,
            split_special_tokens: true,
            token_column: 1,
            tag_column: -1,
            tag_scheme: TagScheme::Auto,
            rename_types: Vec::new(),
            strict: false,
            on_bad_record: OnBadRecord::Fail,
        }
    }
}

/// Everything that `finetune` reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FinetuneConfig {
    /// Output folder, seed, device.
    #[serde(default)]
    pub run: RunSection,
    /// Task of the fine-tuning.
    #[serde(default)]
    pub task: FinetuneTask,
    /// `classify`: whether each example has one label or any number of them; one when absent.
    #[serde(default)]
    pub problem_type: Option<ProblemType>,
    /// A model folder in the Hugging Face layout: a checkpoint of ours or anybody's.
    #[schemars(
        length(min = 1),
        example = "runs/first/final",
        extend("x-path" = true, "x-other-names" = ["model_name_or_path"]),
    )]
    pub model: PathBuf,
    /// Dropout on embeddings, attention output and feed-forward output, in the place of what the model's
    /// folder says: small models are often pretrained without any, and overfit a few thousand examples.
    #[schemars(range(min = 0.0), example = 0.1, extend("exclusiveMaximum" = 1))]
    #[serde(default)]
    pub hidden_dropout_prob: Option<f64>,
    /// Dropout on attention probabilities, in the place of what the model's folder says.
    #[schemars(range(min = 0.0), example = 0.1, extend("exclusiveMaximum" = 1))]
    #[serde(default)]
    pub attention_probs_dropout_prob: Option<f64>,
    /// `classify` with one label an example: learn from the probabilities of another model, too, as in
    /// `{teacher: runs/large/final}`. Only the labels are learnt when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distillation: Option<Distillation>,
    /// The examples.
    pub data: ClassifyData,
    /// Seeds to train with; the report gives mean and standard deviation. Empty means `run.seed`.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// Number of runs that are trained at once on a CPU, each with its share of the threads; 0 means as many
    /// as there are threads and memory for. It changes no number.
    #[schemars(extend("x-on-resume" = OnResume::Free))]
    #[serde(default)]
    pub runs_at_once: usize,
    /// Batch, optimizer, schedule, cadence.
    #[serde(default)]
    pub training: TrainingConfig,
    /// Precision.
    #[serde(default)]
    pub precision: PrecisionConfig,
    /// Cache of objects that URLs name.
    #[schemars(extend("x-on-resume" = OnResume::Free))]
    #[serde(default)]
    pub cache: CacheConfig,
    /// Several processes.
    #[serde(default)]
    pub distributed: DistributedConfig,
}

impl FinetuneConfig {
    /// Returns what is learnt of each example.
    pub fn goal(&self) -> Goal {
        Goal::new(self.task, self.problem_type)
    }
}

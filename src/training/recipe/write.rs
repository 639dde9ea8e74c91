//! Writes a plan as a configuration in YAML, with a comment that gives the reason for each value.

use std::fmt::Write;

use crate::recipe::choose::{Limit, MOST_EPOCHS, TOKENS_PER_PARAMETER};
use crate::recipe::crawl::{ExpectedLanguage, FilterPreview};
use crate::recipe::plan::{MOST_VALIDATION, Plan};
use crate::recipe::sample::TextSample;
use crate::recipe::size::SHORT_LENGTH;
use base::families::{EncoderConfig, Family, ModelConfig};
use base::quantity::{format_bytes, format_count};
use base::words::counted;
use config::defaults::{ADAM_BETA2, WARMUP_SHARE, WEIGHT_DECAY};
use config::{DocumentUnit, OnBadRecord, PretrainTask, SourceConfig, defaults};

/// The user's request, and the facts about text and machine that the configuration quotes.
#[derive(Debug, Clone)]
pub struct Wish {
    /// The files of the text, and how they are read.
    pub sources: Vec<SourceConfig>,
    /// If the text looks like a crawl: the reason, and the share that each filter drops.
    pub crawl: Option<(String, Vec<FilterPreview>)>,
    /// The language that documents should have.
    pub language: Option<ExpectedLanguage>,
    /// The budget of time as the user typed it, such as `2h`.
    pub budget: String,
    /// Key `run.device`.
    pub device: String,
    /// Description of the machine that the speed was measured on or computed for.
    pub measured_on: String,
    /// Key `run.output_dir`.
    pub output_dir: String,
    /// The family of the model.
    pub family: Family,
}

impl Wish {
    /// Pretraining task of the family.
    fn task(&self) -> PretrainTask {
        PretrainTask::of(self.family)
    }
}

/// A filter, and the shares of the documents and of the text of the sample that it drops, as a comment.
fn with_shares(filter: &str, [documents, text]: [f64; 2]) -> String {
    let [documents, text] = [documents, text].map(|share| 100.0 * share);
    format!("{filter:<42} # {documents:.1} % of the documents, {text:.1} % of the text")
}

/// Returns the configuration as YAML, with the reason for each choice as a comment.
pub fn to_yaml(wish: &Wish, sample: &TextSample, plan: &Plan) -> String {
    let mut yaml = Yaml::default();
    yaml.head(wish, sample, plan);
    yaml.run(wish);
    yaml.data(wish, sample, plan);
    yaml.model(wish, plan);
    yaml.training(wish, plan);
    yaml.0
}

/// A configuration as YAML with comments.
#[derive(Default)]
pub(super) struct Yaml(pub(super) String);

impl Yaml {
    /// Adds a line with `indent` spaces before it.
    pub(super) fn line(&mut self, indent: usize, text: &str) {
        // Writing into a String cannot fail.
        let _ = writeln!(self.0, "{:indent$}{text}", "");
    }

    /// Adds a comment, wrapped at 100 columns.
    pub(super) fn why(&mut self, indent: usize, text: &str) {
        const WIDTH: usize = 100;
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.is_empty() && indent + 3 + line.len() + word.len() > WIDTH {
                self.line(indent, &format!("# {line}"));
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.line(indent, &format!("# {line}"));
    }

    fn head(&mut self, wish: &Wish, sample: &TextSample, plan: &Plan) {
        let choice = &plan.choice;
        self.why(
            0,
            &format!(
                "Made by `mlmtrain init` for {} of training on {}: {} tokens/s with this model.",
                wish.budget,
                wish.measured_on,
                format_count(choice.tokens_per_second as u64)
            ),
        );
        self.why(
            0,
            &format!(
                "The text: {}, about {} of text, {} tokens. Training reads {} tokens, {:.1} epochs.",
                counted(sample.files, "file"),
                format_bytes(sample.text_bytes as u64),
                format_count(choice.text_tokens as u64),
                format_count(plan.tokens()),
                plan.tokens() as f64 / choice.text_tokens
            ),
        );
        self.why(0, "Everything here may be changed; `mlmtrain config show` prints what is left out.");
        self.line(0, "");
    }

    fn run(&mut self, wish: &Wish) {
        self.line(0, "run:");
        self.line(2, &format!("output_dir: {}", quoted(&wish.output_dir)));
        self.line(2, "seed: 42");
        if wish.device != "auto" {
            self.line(2, &format!("device: {}", wish.device));
        }
        self.line(0, "");
    }

    fn data(&mut self, wish: &Wish, sample: &TextSample, plan: &Plan) {
        self.line(0, "data:");
        self.line(2, "sources:");
        wish.sources.iter().for_each(|source| self.source(source));
        self.filters(wish);
        if sample.left_out > 0 {
            self.why(2, "The reader left things out of the sample; the report of `prepare` says which.");
        }
        self.why(2, if plan.validation_fraction < MOST_VALIDATION {
            "About 64,000 tokens: enough to tell losses apart that differ by a hundredth."
        } else {
            "64,000 tokens would tell losses apart that differ by a hundredth; this text has fewer to spare."
        });
        self.line(2, &format!("validation_fraction: {}", plan.validation_fraction));
        if plan.has_long_rows() {
            self.why(2, "Of the last steps; the phase below says what comes before.");
        } else {
            self.why(2, "Long rows cost more and teach the beginning no better.");
        }
        self.line(2, &format!("max_seq_length: {}", plan.max_seq_length));
        self.line(0, "");
        self.tokenizer(wish, plan);
    }

    fn source(&mut self, source: &SourceConfig) {
        let files: Vec<String> = source.files.iter().map(|file| quoted(file)).collect();
        self.line(4, &format!("- files: [{}]", files.join(", ")));
        match source.document {
            DocumentUnit::File => {}
            DocumentUnit::Paragraph => {
                self.why(6, "Of plain text, what stands between blank lines is a document.");
                self.line(6, "document: paragraph");
            }
            DocumentUnit::Line => {
                self.why(6, "Of plain text, each line is a document.");
                self.line(6, "document: line");
            }
            DocumentUnit::DocTag => self.line(6, "document: doc_tag"),
        }
        if source.field != "text" {
            self.line(6, &format!("field: {}", quoted(&source.field)));
        }
        if let Some(encoding) = source.encoding {
            self.line(6, &format!("encoding: {}", encoding.name()));
        }
        if source.on_bad_record == OnBadRecord::Skip {
            self.why(6, "The sample has records that cannot be read; the report of `prepare` counts them.");
            self.line(6, "on_bad_record: skip");
        }
    }

    fn filters(&mut self, wish: &Wish) {
        if let Some((reason, _)) = &wish.crawl {
            self.why(
                2,
                &format!(
                    "A crawl, it seems: {reason}. The note after each filter says how much of the sample it drops \
                     when it is used alone. A filter that is commented out drops more than a quarter, or suits some \
                     texts only."
                ),
            );
        }
        if wish.language.is_some() {
            self.why(2, "Documents in other languages, and documents that were there before, are left out.");
        } else {
            self.why(2, "Documents that were there before are left out.");
        }
        if wish.language.is_some() || wish.crawl.is_some() {
            self.line(2, "filters:");
        }
        for filter in wish.crawl.iter().flat_map(|(_, previews)| previews) {
            let entry = format!("{}{}: {}", if filter.is_used { "" } else { "# " }, filter.key, filter.value);
            self.line(4, &with_shares(&entry, [filter.documents, filter.text]));
        }
        if let Some(language) = &wish.language {
            let entry = format!("language: {{expected: [{}]}}", language.code);
            self.line(4, &with_shares(&entry, [language.documents, language.text]));
        }
        let near = if wish.crawl.is_some() { ", near_threshold: 0.8" } else { "" };
        self.line(2, &format!("deduplication: {{exact: true{near}}}"));
    }

    fn tokenizer(&mut self, wish: &Wish, plan: &Plan) {
        self.line(0, "tokenizer:");
        self.why(2, "No more entries than layers have parameters for, nor than the text shows often.");
        self.line(2, &format!("vocab_size: {}", plan.choice.vocab_size));
        if wish.family.word_piece_class.is_some() {
            self.line(2, "algorithm: wordpiece");
        } else {
            self.why(
                2,
                "The first word of a text is cut as the others are, and so are the words of a tagger.",
            );
            self.line(2, "add_prefix_space: true");
        }
        self.line(0, "");
    }

    fn model(&mut self, wish: &Wish, plan: &Plan) {
        let choice = &plan.choice;
        self.line(0, "model:");
        let larger = match choice.limit {
            Limit::Time => format!("the next larger one would see fewer than {TOKENS_PER_PARAMETER}"),
            Limit::Text => format!(
                "the next larger one would see fewer than {TOKENS_PER_PARAMETER}, because the text is read \
                 {MOST_EPOCHS} times at most: more text would help more than more time"
            ),
            Limit::Memory => "the next larger one does not fit into memory".to_string(),
            Limit::Sizes => "there is no larger one to choose".to_string(),
        };
        self.why(
            2,
            &format!(
                "{} parameters in the layers, each with {:.1} tokens of training; {larger}.",
                format_count(choice.size.layer_parameters()),
                choice.tokens_per_parameter()
            ),
        );
        if choice.tokens_per_parameter() < TOKENS_PER_PARAMETER {
            self.why(2, "That is too few even for the smallest model: expect little of it.");
        }
        if plan.has_counted_embeddings() {
            self.why(
                2,
                "Which words are alike takes a short training long to find out; counting says it in seconds.",
            );
            self.line(2, "initial_embeddings: cooccurrence");
        }
        let family = wish.family;
        let model = choice.size.model(family, choice.vocab_size, plan.max_seq_length);
        let usual = ModelConfig { family, encoder: EncoderConfig::of(family) }.to_table();
        if wish.task() == PretrainTask::ReplacedTokenDetection {
            self.why(
                2,
                "A discriminator learns late. If its recall stays 0, train with `task: masked_lm` first, and continue \
                 from that model.",
            );
        }
        self.line(2, &format!("{}:", family.name));
        for (key, value) in model.to_table().into_iter().filter(|(key, value)| usual.get(key) != Some(value))
        {
            match family.field(&key) {
                Some("hidden_dropout_prob") => self.why(4, "A model this small does not overfit."),
                Some("initializer_range") => {
                    self.why(4, "A narrow model learns sooner from larger first weights.");
                }
                _ => {}
            }
            self.line(4, &format!("{key}: {value}"));
        }
        self.line(0, "");
        if wish.task() == PretrainTask::MaskedLm {
            self.line(0, "mlm:");
            self.why(2, "Wide models learn more from more targets; narrow ones need the words around each.");
            self.line(2, &format!("mlm_probability: {}", choice.size.mlm_probability()));
            self.line(0, "");
        }
    }

    fn training(&mut self, wish: &Wish, plan: &Plan) {
        self.line(0, "training:");
        self.why(
            2,
            &format!(
                "Updates of {} tokens: larger ones would save no steps in a training of this length.",
                format_count(plan.update_tokens())
            ),
        );
        let rows = plan.rows * SHORT_LENGTH / plan.max_seq_length;
        self.line(2, &format!("per_device_train_batch_size: {rows}"));
        self.line(2, &format!("per_device_eval_batch_size: {rows}"));
        self.line(2, &format!("gradient_accumulation_steps: {}", plan.micro_batches));
        if plan.ramp_steps > 0 {
            self.why(2, "Small updates are enough at the beginning.");
            self.line(2, &format!("batch_size_ramp: {{start_micro_batches: 1, steps: {}}}", plan.ramp_steps));
        }
        self.line(2, &format!("max_steps: {}", plan.steps));
        if plan.has_long_rows() {
            self.why(2, "Nine tenths of the steps on short rows; the rest learns the positions beyond.");
            self.line(2, "phases:");
            self.line(
                4,
                &format!(
                    "- {{until_step: {}, max_seq_length: {SHORT_LENGTH}, per_device_train_batch_size: {}}}",
                    plan.short_steps, plan.rows
                ),
            );
        }
        self.why(2, "Whatever happens, stop then, with a checkpoint.");
        self.line(2, &format!("max_train_time: {}", wish.budget));
        self.why(2, "The wider the model, the smaller.");
        let learning_rate = defaults::learning_rate(plan.choice.size.hidden, wish.task());
        self.line(2, &format!("learning_rate: {learning_rate:e}"));
        self.why(
            2,
            "Constant until the last fifth: should there be more time after all, a checkpoint from before it \
             is what `pretrain --decay-from` goes on from.",
        );
        self.line(2, "lr_scheduler_type: warmup_stable_decay");
        self.line(2, &format!("warmup_steps: {WARMUP_SHARE}"));
        self.line(2, "lr_decay_steps: 0.2");
        self.line(2, &format!("weight_decay: {WEIGHT_DECAY}"));
        self.line(2, &format!("adam_beta2: {ADAM_BETA2}"));
        self.line(2, &format!("logging_steps: {}", (plan.look_steps / 10).clamp(1, 100)));
        self.line(2, &format!("eval_steps: {}", plan.look_steps));
        self.line(2, &format!("save_steps: {}", plan.look_steps));
        self.line(2, "save_total_limit: 2");
    }
}

/// Quotes a string, so that YAML reads it back unchanged whatever characters it has.
pub(super) fn quoted(text: &str) -> String {
    // Every JSON string is a valid YAML string.
    serde_json::Value::from(text).to_string()
}

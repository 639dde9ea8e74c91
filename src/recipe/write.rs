//! A plan as a commented configuration.

use std::fmt::Write;

use crate::config::DocumentUnit;
use crate::config::SourceConfig;
use crate::families::ModelConfig;
use crate::quantity::format_bytes;
use crate::quantity::format_count;
use crate::recipe::choose::Limit;
use crate::recipe::choose::MOST_EPOCHS;
use crate::recipe::choose::TOKENS_PER_PARAMETER;
use crate::recipe::plan::Plan;
use crate::recipe::sample::TextSample;
use crate::recipe::size::SHORT_LENGTH;

/// What was asked for.
#[derive(Debug, Clone)]
pub struct Wish {
    /// Where the text lies and how it is read.
    pub source: SourceConfig,
    /// ISO code of the language that documents should have.
    pub language: Option<String>,
    /// As it was typed, such as `2h`.
    pub budget: String,
    /// `run.device`.
    pub device: String,
    /// What the speed was measured or computed on, in words.
    pub measured_on: String,
    /// `run.output_dir`.
    pub output_dir: String,
}

/// The configuration, with the reason of each choice beside it.
pub fn to_yaml(wish: &Wish, sample: &TextSample, plan: &Plan) -> String {
    let mut yaml = Yaml::default();
    yaml.head(wish, sample, plan);
    yaml.run(wish);
    yaml.data(wish, sample, plan);
    yaml.model(plan);
    yaml.training(wish, plan);
    yaml.0
}

#[derive(Default)]
struct Yaml(String);

impl Yaml {
    fn line(&mut self, indent: usize, text: &str) {
        // Writing into a String cannot fail.
        let _ = writeln!(self.0, "{:indent$}{text}", "");
    }

    /// A comment, wrapped.
    fn why(&mut self, indent: usize, text: &str) {
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
                "The text: {} files, about {} of text, {} tokens. Training reads {} tokens, {:.1} times the text.",
                sample.files,
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
        let source = &wish.source;
        self.line(0, "data:");
        self.line(2, "sources:");
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
        if let Some(language) = &wish.language {
            self.why(2, "Documents in other languages, and documents that were there before, are left out.");
            self.line(2, "filters:");
            self.line(4, &format!("language: {{expected: [{language}]}}"));
        } else {
            self.why(2, "Documents that were there before are left out.");
        }
        self.line(2, "deduplication: {exact: true}");
        if sample.left_out > 0 {
            self.why(2, "The reader left things out of the sample; the report of `prepare` says which.");
        }
        self.why(2, "About 64,000 tokens: enough to tell losses apart that differ by a hundredth.");
        self.line(2, &format!("validation_fraction: {}", plan.validation_fraction));
        if plan.has_long_rows() {
            self.why(2, "Of the last steps; the phase below says what comes before.");
        } else {
            self.why(2, "Long rows cost more and teach the beginning no better.");
        }
        self.line(2, &format!("max_seq_length: {}", plan.max_seq_length));
        self.line(0, "");
        self.line(0, "tokenizer:");
        self.why(2, "No more entries than layers have parameters for, nor than the text shows often.");
        self.line(2, &format!("vocab_size: {}", plan.choice.vocab_size));
        self.line(0, "");
    }

    fn model(&mut self, plan: &Plan) {
        let choice = &plan.choice;
        let ModelConfig { family, encoder } = choice.size.model(choice.vocab_size, plan.max_seq_length);
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
        self.line(2, &format!("{}:", family.name));
        self.line(4, &format!("hidden_size: {}", encoder.hidden_size));
        self.line(4, &format!("num_hidden_layers: {}", encoder.num_hidden_layers));
        self.line(4, &format!("num_attention_heads: {}", encoder.num_attention_heads));
        self.line(4, &format!("intermediate_size: {}", encoder.intermediate_size));
        self.line(4, &format!("max_position_embeddings: {}", encoder.max_position_embeddings));
        if encoder.hidden_dropout_prob == 0.0 {
            self.why(4, "A model this small does not overfit.");
        }
        self.line(4, &format!("hidden_dropout_prob: {:?}", encoder.hidden_dropout_prob));
        self.line(4, &format!("attention_probs_dropout_prob: {:?}", encoder.attention_probs_dropout_prob));
        if choice.size.hidden < 256 {
            self.why(4, "A narrow model learns sooner from larger first weights.");
        }
        self.line(4, &format!("initializer_range: {}", encoder.initializer_range));
        self.line(0, "");
        self.line(0, "mlm:");
        self.why(2, "Wide models learn more from more targets; narrow ones need the words around each.");
        self.line(2, &format!("mlm_probability: {}", choice.size.mlm_probability()));
        self.line(0, "");
        self.line(0, "precision:");
        self.why(2, "The best type that the machine computes quickly.");
        self.line(2, "compute: auto");
        self.line(0, "");
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
        self.line(2, &format!("learning_rate: {:e}", plan.choice.size.learning_rate()));
        self.why(
            2,
            "Constant until the last fifth: should there be more time after all, a checkpoint from before it \
             is what `pretrain --decay-from` goes on from.",
        );
        self.line(2, "lr_scheduler_type: warmup_stable_decay");
        self.line(2, "warmup_steps: 0.05");
        self.line(2, "lr_decay_steps: 0.2");
        self.line(2, "weight_decay: 0.01");
        self.line(2, "adam_beta2: 0.98");
        self.line(2, &format!("logging_steps: {}", (plan.look_steps / 10).clamp(1, 100)));
        self.line(2, &format!("eval_steps: {}", plan.look_steps));
        self.line(2, &format!("save_steps: {}", plan.look_steps));
        self.line(2, "save_total_limit: 2");
    }
}

/// A string as YAML reads it back whatever it holds.
fn quoted(text: &str) -> String {
    // A JSON string is one of YAML.
    serde_json::Value::from(text).to_string()
}

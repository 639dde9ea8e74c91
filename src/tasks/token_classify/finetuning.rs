//! A token-classification run: tagged sentences, a pretrained encoder and a new head.

use std::path::Path;

use anyhow::Result;
use candle_core::Device;

use crate::config::FinetuneConfig;
use crate::families::HeadKind;
use crate::interop::{HubConfig, PretrainedFolder};
use crate::machine::Machine;
use crate::models::{Blueprint, Model};
use crate::quantity::format_count;
use crate::scores::{Better, Outcomes};
use crate::tasks::examples::{Divided, Sources};
use crate::tasks::finetuned::{Finetuned, Floor};
use crate::tasks::floors::dictionary;
use crate::tasks::labelled::tags::OUTSIDE;
use crate::tasks::labelled::{Sentence, Tagging, read_tagged, twins};
use crate::tasks::planned::{Lengths, Planned};
use crate::tasks::run::{Inputs, Kind, ModelFolder, Parts, Setting, Shapes, TargetShare, total_steps};
use crate::tasks::token_classify::data::{TrainingData, words};
use crate::tasks::token_classify::tagger::{encode, framing};
use crate::tasks::token_classify::windows::WindowCollator;
use crate::tasks::token_classify::{TagSet, Tagger, TokenClassify, report};
use crate::tasks::trained::Trained;
use crate::tasks::{Task, planned, start};
use crate::tokenizer::Tokenizer;

/// The sentences of a run, read and checked before anything is trained.
pub struct TaggedExamples {
    /// The labels of words.
    pub labels: TagSet,
    /// Training sentences, after the subset was selected.
    pub train: Vec<Sentence>,
    pub(super) train_ids: Vec<Vec<u32>>,
    /// Evaluation sentences.
    pub eval: Vec<Sentence>,
    pub(super) eval_ids: Vec<Vec<u32>>,
    notes: Vec<String>,
    /// The warning about evaluation texts that are training texts as well.
    warning: Option<String>,
}

impl Finetuned for TaggedExamples {
    const HEAD: HeadKind = HeadKind::TokenClassification;
    const COLUMNS: &'static [(&'static str, &'static str, f64)] = &[
        ("eval_overall_f1", "F1 %", 100.0),
        ("eval_overall_precision", "precision %", 100.0),
        ("eval_overall_recall", "recall %", 100.0),
        ("eval_overall_accuracy", "accuracy %", 100.0),
        ("eval_loss", "loss", 1.0),
    ];

    type Kind<'a> = Finetuning<'a>;

    /// Splits and subsets keep the proportion of sentences with entities.
    fn read(config: &FinetuneConfig) -> Result<Self> {
        let data = &config.data;
        let tagging = Tagging::from_config(data);
        let mut notes = Vec::new();
        let sources = Sources::read(data, |path| {
            let file = read_tagged(path, &tagging)?;
            notes.extend(file.notes(path));
            Ok(file.sentences)
        })?;
        let labels = if data.labels.is_empty() {
            TagSet::discover(&data.train_file, &sources.train.all)?
        } else {
            TagSet::given(&data.labels)?
        };
        notes.extend(twins::twin_note("types", labels.kinds()));
        let Divided { train, eval, warning } = sources.divided(
            config,
            |path, sentences| sentences.iter().map(|sentence| labels.ids(path, sentence)).collect(),
            |set| set.rows.iter().map(|sentence| u32::from(has_entities(sentence))).collect(),
            |sentence| sentence.words.join(" "),
        )?;
        Ok(Self {
            labels,
            train: train.rows,
            train_ids: train.ids,
            eval: eval.rows,
            eval_ids: eval.ids,
            notes,
            warning,
        })
    }

    fn summary(&self) -> String {
        let train = size_text(&self.train);
        let eval = size_text(&self.eval);
        let types = self.labels.num_types();
        let summary = format!("{train} to train on, {eval} to evaluate on, {types} types of entities");
        [&self.notes[..], &[summary]].concat().join("\n")
    }

    fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    fn num_train(&self) -> usize {
        self.train.len()
    }

    fn planned(&self, config: &FinetuneConfig, folder: &PretrainedFolder) -> Result<Planned> {
        let length = config.data.sequence_length();
        let (tokenizer, collator) = framing(folder, length, true)?;
        let (train, rows) = lengths(&tokenizer, &collator, &self.train)?;
        let (eval, _) = lengths(&tokenizer, &collator, &self.eval)?;
        let both = [train, eval];
        let windows = format!("sentences are longer than {length} tokens, and read in windows");
        let kinds: Vec<String> = self.labels.kinds().into_iter().map(|kind| format!("`{kind}`")).collect();
        let lines = vec![
            ("types", kinds.join(", ")),
            ("longest sentence", planned::longest(both)),
            ("windows", planned::too_long(both, &windows)),
        ];
        Ok(Planned { rows, lines })
    }

    fn kind<'a>(&'a self, config: &'a FinetuneConfig, folder: &'a PretrainedFolder) -> Finetuning<'a> {
        Finetuning { config, folder, examples: self }
    }

    fn details(&self, data: &TrainingData<'_>) -> String {
        format!("entities:\n{}", report::score_table(&data.tally).trim_end())
    }

    fn best(&self) -> (&'static str, Better) {
        ("overall_f1", Better::Higher)
    }

    fn outcomes(&self, data: &TrainingData<'_>) -> Outcomes {
        Outcomes::Entities { sentences: data.sentence_counts() }
    }

    fn floors(&self) -> Vec<Floor> {
        let sentences = dictionary::counts(&self.train, &self.eval);
        vec![Floor { name: dictionary::NAME, outcomes: Outcomes::Entities { sentences } }]
    }

    fn unfilled(folder: &PretrainedFolder, machine: &Machine) -> Result<Box<dyn Task>> {
        let labels = folder.id2label.as_ref().map_or(0, Vec::len);
        let model = Model::token_classifier(&folder.config, labels, 0, &machine.device)?;
        Ok(Box::new(TokenClassify { model }.computing_in(machine.policy.compute)?))
    }

    fn open(path: &Path, device: &Device) -> Result<Box<dyn Trained>> {
        Ok(Box::new(Tagger::load(path, device)?))
    }
}

fn has_entities(sentence: &Sentence) -> bool {
    sentence.tags.iter().any(|tag| tag != OUTSIDE)
}

/// Text such as "12 sentences (208 words)".
fn size_text(sentences: &[Sentence]) -> String {
    let words: usize = sentences.iter().map(|sentence| sentence.words.len()).sum();
    format!("{} sentences ({} words)", format_count(sentences.len() as u64), format_count(words as u64))
}

/// The lengths of sentences, and the number of their windows.
fn lengths(
    tokenizer: &Tokenizer,
    collator: &WindowCollator,
    sentences: &[Sentence],
) -> Result<(Lengths, usize)> {
    let encoded = encode(tokenizer, collator, &words(sentences), &[])?;
    let lengths =
        Lengths { examples: sentences.len(), longest: encoded.longest, too_long: encoded.long_sentences };
    Ok((lengths, encoded.windows.len()))
}

fn sha256_of(sentences: &[Sentence]) -> Result<String> {
    start::sha256_of(sentences.iter().map(|sentence| (&sentence.words, &sentence.tags)))
}

/// A configuration, with the model folder and the sentences that it names.
#[derive(Clone, Copy)]
pub struct Finetuning<'a> {
    /// The configuration.
    pub config: &'a FinetuneConfig,
    /// The folder of the model to start from.
    pub folder: &'a PretrainedFolder,
    /// The sentences.
    pub examples: &'a TaggedExamples,
}

impl<'a> Kind for Finetuning<'a> {
    type Task = TokenClassify;
    type Data = TrainingData<'a>;

    fn shapes(&self) -> Result<Shapes> {
        let model = start::model_of(self.config, &self.folder.config)?;
        let labels = self.examples.labels.names().len();
        let mut outline = Blueprint::token_classifier(&model, labels)?;
        start::follow(&self.config.training, &mut outline.encoder)?;
        Ok(Shapes {
            outline: Box::new(outline),
            model,
            length: self.config.data.sequence_length(),
            // Most words are a single token, so nearly all tokens have a label.
            targets: TargetShare::OfTokens(1.0),
        })
    }

    fn inputs(&self) -> Result<Inputs> {
        let Self { folder, examples, .. } = self;
        let hashes = [sha256_of(&examples.train)?, sha256_of(&examples.eval)?];
        start::inputs(folder, hashes, examples.labels.names())
    }

    fn build(self, setting: Setting<'_>) -> Result<Parts<TokenClassify, TrainingData<'a>>> {
        let Self { config, folder, examples } = self;
        let Setting { training, machine, seed, progress, .. } = setting;
        let length = config.data.sequence_length();
        let labels = examples.labels.clone();
        let model = start::model_of(config, &folder.config)?;
        let (tagger, filled) =
            Tagger::from_folder(folder, &model, labels, length, Some(seed), &machine.device)?;
        start::tell(config, folder, &filled, progress);
        let Tagger { mut task, tokenizer, collator, labels } = tagger.computing_in(machine.policy.compute)?;
        start::follow(training, &mut task.model.encoder)?;
        let names = labels.names().to_vec();
        let mut hub = HubConfig::new(model, HeadKind::TokenClassification, Some(names));
        hub.extra.clone_from(&folder.extra);
        // Stores the length in the folder, so that windows have the same length when the model is used.
        let tokenizer = start::for_texts(config, tokenizer, progress).with_model_max_length(length);
        let folders = vec![ModelFolder::whole(&hub, &tokenizer, task.model.parameters.layout())];
        let data = TrainingData::encode(examples, &tokenizer, collator, setting)?;
        let total_steps = total_steps(training, data.rows_per_epoch());
        Ok(Parts { task, data, total_steps, folders, best: examples.best() })
    }
}

//! The start of a run from the architecture, weights and tokenizer of an existing model folder, written by
//! mlmtrain or another program.
//!
//! With another tokenizer, the embedding rows of tokens that both tokenizers have are kept (matched by their
//! text), and the others start at the mean of all rows.

use std::path::Path;

use anyhow::Result;

use crate::tasks::run::Inputs;
use crate::telemetry::Progress;
use base::error::Problem;
use base::families::{HeadKind, ModelConfig, NormNames, PositionKind};
use config::{ModelSection, PretrainConfig, PretrainTask, TokenizerConfig, validate_generator};
use data::tokenizer::Tokenizer;
use model::interop::{GENERATOR, PretrainedFolder, Refit, holds_pair, read_folder};
use model::layers::Parameters;
use model::models::Blueprint;

/// The model folders that a run starts from.
pub struct Origin {
    /// Folder of the model (the discriminator of an ELECTRA pair).
    model: PretrainedFolder,
    /// Folder of the generator, if there is one.
    generator: Option<PretrainedFolder>,
    /// The folder's tokenizer, if the run uses a different one.
    other_tokenizer: Option<Tokenizer>,
}

/// Completes a configuration with the model and task of the folder that it names, if any. Returns it with the
/// folders to start from.
pub fn resolve(config: &PretrainConfig) -> Result<(PretrainConfig, Option<Origin>)> {
    let Some(path) = &config.model.path else { return Ok((config.clone(), None)) };
    let mut resolved = config.clone();
    let folder = read_folder(path)?;
    let family = folder.config.family;
    let head_task = match folder.head {
        // The folder does not record which of the two tasks about pairs it was trained for.
        HeadKind::MaskedLm | HeadKind::SentencePairs => PretrainTask::MaskedLm,
        HeadKind::ReplacedTokenDetection => PretrainTask::ReplacedTokenDetection,
        _ => PretrainTask::of(family),
    };
    let task = *resolved.task.get_or_insert(head_task);
    let mut model = folder.config.clone();
    let keeps_tokenizer = config.tokenizer == TokenizerConfig::default();
    if keeps_tokenizer {
        resolved.tokenizer.path = Some(folder.path.clone());
    } else {
        model.encoder.vocab_size = 0;
        model.encoder.pad_token_id = family.defaults.pad_token_id;
    }
    if let Some(positions) = config.model.max_position_embeddings {
        let there = model.encoder.max_position_embeddings;
        if positions < there {
            return Err(Problem::usage(format!("is {positions}, the model of the folder has {there}"))
                .at("model.max_position_embeddings")
                .hint("leave it out, or give it a larger number")
                .into());
        }
        if family.positions == PositionKind::Relative {
            // Relative distances keep their rows, however long sequences become.
            model.encoder.max_relative_positions = model.encoder.farthest_position();
        }
        model.encoder.max_position_embeddings = positions;
    }
    if let Some(layers) = config.model.num_hidden_layers {
        deepen(&mut model, layers)?;
    }
    let length = config.data.max_seq_length;
    let longest = model.max_sequence_length();
    if length > longest {
        return Err(Problem::usage(format!("is {length}, the model of the folder takes {longest} tokens"))
            .at("data.max_seq_length")
            .hint("shorten it, or give `model.max_position_embeddings` a larger number")
            .into());
    }
    let generator = generator(config, path, task)?;
    if let Some(generator) = &generator {
        let shape = &generator.config.encoder;
        resolved.rtd.generator_hidden_size = Some(shape.hidden_size);
        resolved.rtd.generator_num_hidden_layers = Some(shape.num_hidden_layers);
        resolved.rtd.generator_num_attention_heads = Some(shape.num_attention_heads);
        resolved.rtd.generator_intermediate_size = Some(shape.intermediate_size);
    } else if task == PretrainTask::ReplacedTokenDetection
        && let Some(problem) = validate_generator(&resolved, &model).into_iter().next()
    {
        return Err(problem.into());
    }
    let other_tokenizer = if keeps_tokenizer { None } else { Some(Tokenizer::load(&folder.path)?) };
    resolved.model = ModelSection { tables: vec![model], ..ModelSection::default() };
    Ok((resolved.with_task_defaults(), Some(Origin { model: folder, generator, other_tokenizer })))
}

/// Increases the number of layers of a model to `layers`.
fn deepen(model: &mut ModelConfig, layers: usize) -> Result<(), Problem> {
    let there = model.encoder.num_hidden_layers;
    if layers < there {
        let message = format!("is {layers}, the model of the folder has {there}");
        return Err(refused_depth(message, "leave it out, or give it a larger number"));
    }
    if let NormNames::Before { .. } = model.family.names.norms {
        let message =
            format!("cannot be given: the first layer of {} is unlike all others", model.family.title);
        return Err(refused_depth(message, "leave it out"));
    }
    model.encoder.num_hidden_layers = layers;
    Ok(())
}

fn refused_depth(message: String, hint: &str) -> Problem {
    Problem::usage(message).at("model.num_hidden_layers").hint(hint)
}

/// Reads the folder of the generator: the one that is named, or the one next to the discriminator.
fn generator(config: &PretrainConfig, path: &Path, task: PretrainTask) -> Result<Option<PretrainedFolder>> {
    if task != PretrainTask::ReplacedTokenDetection {
        return Ok(None);
    }
    match &config.model.generator_path {
        Some(path) => read_folder(path).map(Some),
        None if holds_pair(path) => read_folder(&path.join(GENERATOR)).map(Some),
        None => Ok(None),
    }
}

/// The parameters of a task that are read from model folders, as pairs of their name in the run and in the
/// folder.
pub struct FolderNames {
    /// Parameters of the model.
    pub model: Vec<(String, String)>,
    /// Parameters of the generator, without the embeddings that it shares with the model; empty without a
    /// generator.
    pub generator: Vec<(String, String)>,
}

impl Origin {
    /// Returns hashes of the folders, by the configuration keys that name them.
    pub fn inputs(&self) -> Result<Inputs> {
        let named = [("model.path", Some(&self.model)), ("model.generator_path", self.generator.as_ref())];
        let found = named.into_iter().filter_map(|(key, folder)| Some((key, folder?)));
        found.map(|(key, folder)| Ok((key.to_string(), folder.sha256()?))).collect()
    }

    /// Returns the error with which a run of `task` would refuse the folders, if there is one; `model` is the
    /// model of the run.
    pub fn check(&self, model: &ModelConfig, task: PretrainTask) -> Result<()> {
        // For this check, the rows of another tokenizer may come from any row of the folder.
        let words = self.other_tokenizer.as_ref().map(|_| vec![None; model.encoder.vocab_size]);
        let refit = Refit {
            words,
            position_offsets: (self.model.config.position_offset(), model.position_offset()),
            layers: Some(self.model.config.encoder.num_hidden_layers),
        };
        let layout = match (task, model.family.replaced_tokens) {
            (PretrainTask::ReplacedTokenDetection, Some(names)) => {
                Blueprint::replaced_tokens(model, names).layout
            }
            (PretrainTask::NextSentencePrediction | PretrainTask::SentenceOrderPrediction, _) => {
                Blueprint::sentence_pairs(model)?.layout
            }
            _ => Blueprint::masked_lm(model).layout,
        };
        self.model.check(&layout, &layout.own_names(), Some(&refit))?;
        let Some(generator) = &self.generator else { return Ok(()) };
        let mut shape = generator.config.clone();
        shape.encoder.vocab_size = model.encoder.vocab_size;
        shape.encoder.max_position_embeddings = model.encoder.max_position_embeddings;
        let layout = Blueprint::masked_lm(&shape).layout;
        generator.check(&layout, &layout.own_names(), Some(&Refit { layers: None, ..refit }))
    }

    /// Copies the weights of the folders into `parameters`, and prints notes about missing and changed ones.
    pub fn fill(
        &self,
        parameters: &Parameters,
        names: &FolderNames,
        model: &ModelConfig,
        tokenizer: &Tokenizer,
        progress: &Progress,
    ) -> Result<()> {
        let place = self.model.path.display().to_string();
        self.model.notes.iter().for_each(|note| progress.note(&format!("{place}: {note}")));
        progress.note(&format!("{place}: the run begins with these weights"));
        let refit = self.refit(model, tokenizer);
        let words = refit.words.as_ref().filter(|words| !keeps_rows(words, tokenizer));
        if let Some(words) = words {
            let kept = words.iter().flatten().count();
            progress.note(&format!(
                "{place}: another tokenizer: {kept} of its {} tokens are in the folder's and keep their rows, {} \
                 begin at the mean",
                words.len(),
                words.len() - kept
            ));
        }
        let positions =
            (self.model.config.encoder.max_position_embeddings, model.encoder.max_position_embeddings);
        let shape = &model.encoder;
        let has_table = model.family.names.position.is_some()
            && (shape.position_biased_input || shape.enhanced_mask_decoder);
        if positions.0 < positions.1 && has_table {
            let (before, after) = positions;
            progress.note(&format!("{place}: {before} positions become {after}: the rows are repeated"));
        }
        let layers = [&self.model.config, model].map(|model| model.encoder.num_hidden_layers);
        if layers[0] < layers[1] {
            let [before, after] = layers;
            progress
                .note(&format!("{place}: {before} layers become {after}: they are repeated in their order"));
        }
        let mut filled = self.model.fill_refitted(parameters, &names.model, &refit)?;
        if let Some(generator) = &self.generator {
            let refit = Refit { layers: None, ..refit };
            let of_generator = generator.fill_refitted(parameters, &names.generator, &refit)?;
            filled.new.extend(of_generator.new);
        } else {
            filled.new.extend(names.generator.iter().map(|(own, _)| own.clone()));
        }
        filled.notes.iter().for_each(|note| progress.note(&format!("{place}: {note}")));
        if !filled.new.is_empty() {
            progress.note(&format!("{place}: these begin fresh: {}", listed(&filled.new)));
        }
        Ok(())
    }

    fn refit(&self, model: &ModelConfig, tokenizer: &Tokenizer) -> Refit {
        let rows = model.encoder.vocab_size;
        let words = self.other_tokenizer.as_ref().map(|before| matches(before, tokenizer, rows));
        let before = &self.model.config;
        Refit {
            words,
            position_offsets: (before.position_offset(), model.position_offset()),
            layers: Some(before.encoder.num_hidden_layers),
        }
    }
}

/// For each row of a vocabulary of `rows`, the row of the same token in `before`. Special tokens are matched
/// by their role.
fn matches(before: &Tokenizer, after: &Tokenizer, rows: usize) -> Vec<Option<u32>> {
    let pairs: Vec<(u32, u32)> = special_ids(after)
        .into_iter()
        .zip(special_ids(before))
        .filter_map(|(new, old)| new.zip(old))
        .collect();
    let mut matches = Vec::with_capacity(rows);
    for id in 0..rows as u32 {
        matches.push(match pairs.iter().find(|(new, _)| *new == id) {
            Some(&(_, old)) => Some(old),
            None => after.token(id).and_then(|token| before.id(&token)),
        });
    }
    matches
}

/// Returns true if each token of the tokenizer has the same row in the folder as in the run.
fn keeps_rows(words: &[Option<u32>], tokenizer: &Tokenizer) -> bool {
    let of_tokens = words.iter().take(tokenizer.vocab_size());
    of_tokens.enumerate().all(|(id, word)| word.is_some_and(|word| word as usize == id))
}

/// The ids of the special tokens, in the order of their roles.
fn special_ids(tokenizer: &Tokenizer) -> [Option<u32>; 5] {
    let special = tokenizer.special();
    [Some(special.cls), Some(special.sep), Some(special.pad), special.mask, special.unk]
}

/// Lists the first names, and the number of the others.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 6;
    let shown = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(SHOWN);
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

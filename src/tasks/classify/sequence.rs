//! What runs with a head over whole texts share, whatever it says of them: a class, several labels, numbers.

use anyhow::Result;

use crate::config::FinetuneConfig;
use crate::families::HeadKind;
use crate::interop::HubConfig;
use crate::interop::PretrainedFolder;
use crate::machine::Machine;
use crate::models::Blueprint;
use crate::models::Model;
use crate::models::Objective;
use crate::tasks::Task;
use crate::tasks::classify::Classifier;
use crate::tasks::classify::Classify;
use crate::tasks::classify::Collator;
use crate::tasks::classify::Encoded;
use crate::tasks::classify::classifier::encode;
use crate::tasks::classify::classifier::framing;
use crate::tasks::labelled::Example;
use crate::tasks::labelled::TextPair;
use crate::tasks::labelled::TrainedColumns;
use crate::tasks::planned;
use crate::tasks::planned::Lengths;
use crate::tasks::planned::Planned;
use crate::tasks::run::ModelFolder;
use crate::tasks::run::Setting;
use crate::tasks::run::Shapes;
use crate::tasks::run::TargetShare;
use crate::tasks::start;
use crate::telemetry::Progress;
use crate::tokenizer::Tokenizer;

/// A model that is ready to be trained, and what goes with it.
pub(in crate::tasks) struct Ready {
    /// Model and head.
    pub(in crate::tasks) task: Classify,
    /// Cuts where training cuts.
    pub(in crate::tasks) tokenizer: Tokenizer,
    /// Frames and cuts examples.
    pub(in crate::tasks) collator: Collator,
    /// What a checkpoint holds of it.
    pub(in crate::tasks) folders: Vec<ModelFolder>,
}

/// Shapes of a run whose head has so many outputs.
pub(in crate::tasks) fn shapes(
    config: &FinetuneConfig,
    folder: &PretrainedFolder,
    outputs: usize,
) -> Result<Shapes> {
    let model = start::model_of(config, &folder.config)?;
    let mut outline = Blueprint::classifier(&model, outputs);
    start::follow(&config.training, &mut outline.encoder)?;
    Ok(Shapes {
        outline: Box::new(outline),
        model,
        length: config.data.sequence_length(),
        targets: TargetShare::OneARow,
    })
}

/// The model of `folder` with a head of this kind, an output for each of `names`, and says what was read.
pub(in crate::tasks) fn ready(
    config: &FinetuneConfig,
    folder: &PretrainedFolder,
    head: HeadKind,
    names: &[String],
    setting: Setting<'_>,
) -> Result<Ready> {
    let Setting { training, machine, seed, progress, .. } = setting;
    let (pairs, length) = (config.data.text_pair_column.is_some(), config.data.sequence_length());
    let (model, new_head) = (start::model_of(config, &folder.config)?, Some((head, seed)));
    let (classifier, filled) =
        Classifier::from_folder(folder, &model, names.to_vec(), length, pairs, new_head, &machine.device)?;
    start::tell(config, folder, &filled, seed, progress);
    let Classifier { mut task, tokenizer, collator, .. } =
        classifier.with_objective(Objective::of(head)).computing_in(machine.policy.compute)?;
    start::follow(training, &mut task.model.encoder)?;
    let mut hub = HubConfig::new(model, head, Some(names.to_vec()));
    hub.extra.clone_from(&folder.extra);
    // So that texts are cut at the same place where the model is used.
    let tokenizer = start::for_texts(config, tokenizer, progress).with_model_max_length(length);
    let mut folder = ModelFolder::whole(&hub, &tokenizer, task.model.parameters.layout());
    folder.files.push(TrainedColumns::new(&config.data).file());
    let folders = vec![folder];
    Ok(Ready { task, tokenizer, collator, folders })
}

/// What a run with these examples would read, `labels` beside it.
pub(in crate::tasks) fn planned(
    config: &FinetuneConfig,
    folder: &PretrainedFolder,
    examples: [&[Example]; 2],
    labels: String,
) -> Result<Planned> {
    let (pairs, length) = (config.data.text_pair_column.is_some(), config.data.sequence_length());
    let (tokenizer, collator) = framing(folder, length, pairs)?;
    let tokenizer = start::splitting(config, tokenizer);
    let lengths = |examples: &[Example]| {
        let (_, lost) = encode(&tokenizer, &collator, &texts(examples), &[])?;
        anyhow::Ok(Lengths { examples: examples.len(), longest: lost.longest, too_long: lost.examples })
    };
    let [train, eval] = examples;
    let both = [lengths(train)?, lengths(eval)?];
    let cut = planned::too_long(both, &format!("texts, at {length} tokens"));
    let lines = vec![("labels", labels), ("longest text", planned::longest(both)), ("cut", cut)];
    Ok(Planned { rows: train.len(), lines })
}

fn texts(examples: &[Example]) -> Vec<TextPair> {
    examples.iter().map(|e| (e.text.clone(), e.text_pair.clone())).collect()
}

/// The model of a folder before its values are read.
pub(in crate::tasks) fn unfilled(folder: &PretrainedFolder, machine: &Machine) -> Result<Box<dyn Task>> {
    let outputs = folder.id2label.as_ref().map_or(0, Vec::len);
    let mut model = Model::classifier(&folder.config, outputs, 0, &machine.device)?;
    model.head = model.head.with_objective(Objective::of(folder.head));
    Ok(Box::new(Classify { model }.computing_in(machine.policy.compute)?))
}

/// Token ids of examples and their labels (0 where there are none), and says what was cut.
pub(in crate::tasks) fn encoded(
    what: &str,
    examples: &[Example],
    labels: &[u32],
    (tokenizer, collator): (&Tokenizer, &Collator),
    progress: &Progress,
) -> Result<Vec<Encoded>> {
    let (encoded, lost) = encode(tokenizer, collator, &texts(examples), labels)?;
    if lost.examples > 0 {
        let (cut, all, tokens) = (lost.examples, examples.len(), lost.tokens);
        let length = collator.max_seq_length();
        progress.note(&format!(
            "{cut} of {all} {what} examples were cut at {length} tokens, {tokens} tokens lost"
        ));
    }
    Ok(encoded)
}

//! Checks of the model: consistent sizes, enough positions for the longest sequence, a vocabulary large
//! enough for the tokenizer.

use crate::dotted::join;
use crate::validate::{Findings, unused};
use crate::{InitialEmbeddings, PretrainConfig, PretrainTask};
use base::families::{Family, ModelConfig, PositionKind};

/// Fewest tokens of a row with a pair: three special tokens, and at least the tokens of text that
/// `batches::pairs` requires.
const PAIR_LENGTH_MIN: usize = 8;

pub(super) fn model(config: &PretrainConfig, findings: &mut Findings) {
    let tables: Vec<String> =
        config.model.tables.iter().map(|model| format!("model.{}", model.family.name)).collect();
    from_folder(config, &tables, findings);
    match config.model.tables.as_slice() {
        [] if config.model.path.is_some() => {}
        [] => {
            let families: Vec<String> =
                Family::ALL.iter().map(|family| format!("`{}:`", family.name)).collect();
            findings.add(
                &["model"],
                "`model` names no family".to_string(),
                format!(
                    "put a table {} below `model:`, or the `path` of a model folder",
                    families.join(" or ")
                ),
            );
        }
        [model] => {
            let table = &tables[0];
            sizes(table, model, findings);
            rotary(table, model, findings);
            relative(table, model, findings);
            embedding(table, model, findings);
            task(config, model, findings);
            positions(table, model, config.data.max_seq_length, findings);
            vocabulary(table, model, config, findings);
        }
        [_, second, ..] => {
            let count = if tables.len() == 2 { "both " } else { "" };
            let message = format!("{count}`{}` are given", tables.join("` and `"));
            let second = format!("model.{}", second.family.name);
            findings.add(&[&second, &tables[0], "model"], message, "keep the one family to train");
        }
    }
}

/// Checks the keys next to `model.path`.
fn from_folder(config: &PretrainConfig, tables: &[String], findings: &mut Findings) {
    let section = &config.model;
    if let (Some(_), Some(table)) = (&section.path, tables.first()) {
        let message = format!("`model.path` and `{table}` are given: the folder says what the model is");
        findings.add(&[table, "model.path"], message, "keep one of the two");
    }
    let dependent = [
        ("model.generator_path", section.generator_path.is_some()),
        ("model.max_position_embeddings", section.max_position_embeddings.is_some()),
        ("model.num_hidden_layers", section.num_hidden_layers.is_some()),
    ];
    for (path, _) in dependent.into_iter().filter(|(_, is_given)| *is_given && section.path.is_none()) {
        findings.add(&[path], format!("`{path}` is given, but `model.path` is not"), "add `model.path`");
    }
    if section.path.is_some() && section.initial_embeddings != InitialEmbeddings::Random {
        let key = "model.initial_embeddings";
        let message = format!("`model.path` and `{key}` are given: the embeddings are those of the folder");
        findings.add(&[key, "model.path"], message, "keep one of the two");
    }
}

fn sizes(table: &str, model: &ModelConfig, findings: &mut Findings) {
    let family = model.family;
    let encoder = &model.encoder;
    // Fields without a key in the family have the family's defaults, which are always valid.
    let at = |field: &str| format!("{table}.{}", family.key(field).unwrap_or(field));
    if encoder.intermediate_size > 0 && model.feed_forward_width() == 0 {
        let path = at("intermediate_size");
        let message = format!("`{path}` {} leaves no feed-forward width", encoder.intermediate_size);
        findings.add(&[&path], message, "two thirds of it are taken: four times `hidden_size` is usual");
    }
    if encoder.type_vocab_size == 0 && family.defaults.type_vocab_size > 0 {
        let path = at("type_vocab_size");
        findings.add(&[&path], format!("`{path}` is 0, it must be at least 1"), "remove it");
    }
    let hidden = encoder.hidden_size;
    let heads = encoder.num_attention_heads;
    let sensible = (1..=1 << 16).contains(&hidden);
    if sensible && heads > 0 && !hidden.is_multiple_of(heads) {
        let message = format!(
            "`{}` {hidden} is not divisible by `{}` {heads}",
            at("hidden_size"),
            family.key("num_attention_heads").unwrap_or("num_attention_heads")
        );
        let divisors: Vec<String> =
            (1..=hidden.min(64)).filter(|n| hidden.is_multiple_of(*n)).map(|n| n.to_string()).collect();
        let hint = format!("{hidden} is divisible by {}", divisors.join(", "));
        findings.add(&[&at("num_attention_heads"), &at("hidden_size")], message, hint);
    }
}

/// Checks rotary positions, and the reach of layers with local attention.
fn rotary(table: &str, model: &ModelConfig, findings: &mut Findings) {
    if model.family.positions != PositionKind::Rotary {
        return;
    }
    let encoder = &model.encoder;
    let hidden = encoder.hidden_size;
    let heads = encoder.num_attention_heads;
    if heads > 0 && hidden.is_multiple_of(heads) && !encoder.head_size().is_multiple_of(2) {
        let message = format!(
            "`{table}.hidden_size` {hidden} by `num_attention_heads` {heads} makes heads of {}, and rotary positions turn pairs",
            encoder.head_size()
        );
        findings.add(
            &[&join(table, "num_attention_heads"), &join(table, "hidden_size")],
            message,
            "give heads an even width, 64 is usual",
        );
    }
}

/// Checks the table of relative positions, and the distances that share a row of it.
fn relative(table: &str, model: &ModelConfig, findings: &mut Findings) {
    if model.family.positions != PositionKind::Relative {
        return;
    }
    let encoder = &model.encoder;
    let buckets = encoder.position_buckets;
    let farthest = encoder.farthest_position();
    if !encoder.buckets_fit() {
        let message = format!(
            "`{table}.position_buckets` {buckets} does not go with distances up to {farthest}: half of the buckets are for one distance each, the others for farther ones"
        );
        let most = 2 * farthest.saturating_sub(2) + 1;
        let hint = format!("take from 2 to {most}, or 0 for a row for each distance");
        let keys = [join(table, "position_buckets"), join(table, "max_relative_positions")];
        findings.add(&[&keys[0], &keys[1]], message, hint);
    }
    if encoder.enhanced_mask_decoder && encoder.position_biased_input {
        let keys = [join(table, "enhanced_mask_decoder"), join(table, "position_biased_input")];
        let message =
            format!("`{}` and `{}` are both set: absolute positions come in one way", keys[0], keys[1]);
        findings.add(&[&keys[0], &keys[1]], message, "remove one of the two");
    }
}

fn embedding(table: &str, model: &ModelConfig, findings: &mut Findings) {
    let path = format!("{table}.embedding_size");
    if model.encoder.embedding_size.is_some() && model.family.embedding_map.is_none() {
        let message = format!("`{path}` is given, but embeddings of {} have its width", model.family.title);
        findings.add(&[&path], message, "remove it, and set `hidden_size`");
    }
}

/// Checks that the family supports the task, and the keys of the generator.
fn task(config: &PretrainConfig, model: &ModelConfig, findings: &mut Findings) {
    let family = model.family;
    match config.task() {
        PretrainTask::ReplacedTokenDetection if family.replaced_tokens.is_none() => {
            let message =
                format!("`task: replaced_token_detection` needs a head that {} does not have", family.title);
            findings.add(
                &["task"],
                message,
                "use `task: masked_lm`, or the family `electra` or `deberta-v2`",
            );
        }
        PretrainTask::ReplacedTokenDetection => generator(config, model, findings),
        PretrainTask::MaskedLm => no_generator(config, "`task` is `masked_lm`", findings),
        PretrainTask::NextSentencePrediction | PretrainTask::SentenceOrderPrediction => {
            no_generator(config, "`task` is about pairs of segments", findings);
            pairs(config, model, findings);
        }
    }
}

fn no_generator(config: &PretrainConfig, why: &str, findings: &mut Findings) {
    let hint = "remove it, or use `task: replaced_token_detection`";
    unused::ignored("rtd", &config.rtd, &[], why, hint, findings);
}

/// Checks that a model and its rows support pairs of segments.
fn pairs(config: &PretrainConfig, model: &ModelConfig, findings: &mut Findings) {
    let family = model.family;
    if family.sentence_pairs.is_none() {
        let message = format!("`task` is about pairs of segments, for which {} has no head", family.title);
        findings.add(&["task"], message, "use `task: masked_lm`, or the family `bert` or `albert`");
    } else if model.encoder.type_vocab_size < 2 {
        let path = format!("model.{}.type_vocab_size", family.name);
        let message = format!("`{path}` is 1, and the segments of a pair have a token type each");
        findings.add(&[&path, "task"], message, "remove it");
    }
    let why = "`task` is about pairs of segments, which fill rows in their own way";
    unused::ignored("data.packing", &config.data.packing, &[], why, "remove it", findings);
    let lengths = config.training.phases.iter().map(|phase| phase.max_seq_length);
    let shortest = lengths.fold(config.data.max_seq_length, usize::min);
    if shortest < PAIR_LENGTH_MIN {
        let message = format!("rows of {shortest} tokens hold no pair of segments");
        let hint = format!("set `data.max_seq_length` and those of phases to {PAIR_LENGTH_MIN} or more");
        findings.add(&["data.max_seq_length", "task"], message, hint);
    }
}

pub(super) fn generator(config: &PretrainConfig, model: &ModelConfig, findings: &mut Findings) {
    let rtd = &config.rtd;
    // Families without such a head and sizes outside of their limits are reported elsewhere.
    let given =
        [rtd.generator_hidden_size, rtd.generator_num_attention_heads, rtd.generator_intermediate_size];
    let is_sensible = model.family.replaced_tokens.is_some()
        && model.encoder.num_attention_heads > 0
        && model.encoder.hidden_size >= model.encoder.num_attention_heads
        && given.iter().all(|size| size.is_none_or(|size| (1..=1 << 18).contains(&size)));
    if !is_sensible {
        return;
    }
    let shape = rtd.generator(model).encoder;
    if model.family.embedding_map.is_none() && shape.hidden_size != model.encoder.hidden_size {
        let message = format!(
            "`rtd.generator_hidden_size` {} is not the model's {}, and {} shares embeddings of that width",
            shape.hidden_size, model.encoder.hidden_size, model.family.title
        );
        let hint = "remove it, and give the generator fewer layers: `rtd.generator_num_hidden_layers`";
        findings.add(&["rtd.generator_hidden_size"], message, hint);
        return;
    }
    if !shape.hidden_size.is_multiple_of(shape.num_attention_heads) {
        let message = format!(
            "`rtd.generator_hidden_size` {} is not divisible by its {} attention heads",
            shape.hidden_size, shape.num_attention_heads
        );
        let hint = "give `rtd.generator_num_attention_heads` a divisor of it";
        findings.add(&["rtd.generator_hidden_size", "rtd.generator_num_attention_heads"], message, hint);
    }
}

fn positions(table: &str, model: &ModelConfig, max_seq_length: usize, findings: &mut Findings) {
    let key = model.family.key("max_position_embeddings").unwrap_or("max_position_embeddings");
    let path = join(table, key);
    let positions = model.encoder.max_position_embeddings;
    let offset = model.position_offset();
    let has_key = model.family.key("pad_token_id").is_some();
    if positions > 0 && offset >= positions && has_key {
        let pad = format!("{table}.pad_token_id");
        let message = format!(
            "`{pad}` {} leaves none of the {positions} positions: {} counts them from one past it",
            offset - 1,
            model.family.title
        );
        findings.add(&[&pad, &path], message, format!("remove it to take {}'s own id", model.family.title));
    } else if max_seq_length > model.max_sequence_length() {
        let message = format!(
            "`data.max_seq_length` {max_seq_length} is longer than the {} positions of the model (`{path}` {positions}{})",
            model.max_sequence_length(),
            if offset > 0 {
                format!(", the first {offset} of which {} leaves unused", model.family.title)
            } else {
                String::new()
            },
        );
        let hint = format!("shorten the sequences or set `{key}: {}`", max_seq_length.saturating_add(offset));
        findings.add(&["data.max_seq_length", &path], message, hint);
    }
}

fn vocabulary(table: &str, model: &ModelConfig, config: &PretrainConfig, findings: &mut Findings) {
    let encoder = &model.encoder;
    let path = format!("{table}.vocab_size");
    let entries = encoder.vocab_size;
    let trained = config.tokenizer.padded_vocab_size();
    // 0 means the tokenizer's size. The size of an existing tokenizer is not known here.
    if entries > 0 && config.tokenizer.path.is_none() && entries < trained {
        let message = format!("`{path}` {entries} is smaller than `tokenizer.vocab_size` {trained}");
        findings.add(&[&path, "tokenizer.vocab_size"], message, "remove it to take the tokenizer's size");
    }
    let known = if entries > 0 { Some(entries) } else { config.tokenizer.path.is_none().then_some(trained) };
    // If positions are counted from the padding id, `positions` has reported an id that is too large.
    let counted = model.position_offset() >= encoder.max_position_embeddings;
    if let Some(known) = known.filter(|_| !counted).filter(|known| encoder.pad_token_id as usize >= *known) {
        let pad = format!("{table}.pad_token_id");
        let message =
            format!("`{pad}` {} is outside the vocabulary of {known} entries", encoder.pad_token_id);
        findings.add(&[&pad, &path], message, "remove it to take the family's own id");
    }
}

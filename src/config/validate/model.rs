//! The model: sizes that go together, positions for the longest sequence, a vocabulary for the tokenizer.

use crate::config::PretrainConfig;
use crate::config::validate::Findings;
use crate::families::EncoderConfig;
use crate::families::Family;
use crate::families::ModelConfig;

pub(super) fn model(config: &PretrainConfig, findings: &mut Findings) {
    let tables: Vec<String> =
        config.model.tables.iter().map(|model| format!("model.{}", model.family.name)).collect();
    match config.model.tables.as_slice() {
        [] => {
            let families: Vec<String> =
                Family::ALL.iter().map(|family| format!("`{}:`", family.name)).collect();
            findings.add(
                &["model"],
                "`model` names no family".to_string(),
                format!("put a table {} below `model:`", families.join(" or ")),
            );
        }
        [model] => {
            let table = &tables[0];
            sizes(table, &model.encoder, findings);
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

fn sizes(table: &str, encoder: &EncoderConfig, findings: &mut Findings) {
    let at = |key: &str| format!("{table}.{key}");
    // The upper ends only catch slips of the finger before they become allocations of petabytes.
    findings.count(&at("hidden_size"), encoder.hidden_size as u64, 1, 1 << 16);
    findings.count(&at("num_hidden_layers"), encoder.num_hidden_layers as u64, 1, 1 << 10);
    findings.count(&at("num_attention_heads"), encoder.num_attention_heads as u64, 1, 1 << 16);
    findings.count(&at("intermediate_size"), encoder.intermediate_size as u64, 1, 1 << 18);
    findings.count(&at("max_position_embeddings"), encoder.max_position_embeddings as u64, 1, 1 << 20);
    findings.count(&at("type_vocab_size"), encoder.type_vocab_size as u64, 1, 1 << 10);
    findings.below_one(&at("hidden_dropout_prob"), encoder.hidden_dropout_prob, "0.1");
    findings.below_one(&at("attention_probs_dropout_prob"), encoder.attention_probs_dropout_prob, "0.1");
    findings.below_one(&at("classifier_dropout"), encoder.classifier_dropout.unwrap_or(0.0), "0.1");
    findings.positive(&at("layer_norm_eps"), encoder.layer_norm_eps);
    findings.positive(&at("initializer_range"), encoder.initializer_range);
    let (hidden, heads) = (encoder.hidden_size, encoder.num_attention_heads);
    let sensible = (1..=1 << 16).contains(&hidden);
    if sensible && heads > 0 && !hidden.is_multiple_of(heads) {
        let message =
            format!("`{table}.hidden_size` {hidden} is not divisible by `num_attention_heads` {heads}");
        let divisors: Vec<String> =
            (1..=hidden.min(64)).filter(|n| hidden.is_multiple_of(*n)).map(|n| n.to_string()).collect();
        let hint = format!("{hidden} is divisible by {}", divisors.join(", "));
        findings.add(&[&at("num_attention_heads"), &at("hidden_size")], message, hint);
    }
}

fn positions(table: &str, model: &ModelConfig, max_seq_length: usize, findings: &mut Findings) {
    let path = format!("{table}.max_position_embeddings");
    let (positions, offset) = (model.encoder.max_position_embeddings, model.position_offset());
    if positions > 0 && offset >= positions {
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
        let hint = format!(
            "shorten the sequences or set `max_position_embeddings: {}`",
            max_seq_length.saturating_add(offset)
        );
        findings.add(&["data.max_seq_length", &path], message, hint);
    }
}

fn vocabulary(table: &str, model: &ModelConfig, config: &PretrainConfig, findings: &mut Findings) {
    let encoder = &model.encoder;
    let path = format!("{table}.vocab_size");
    let (entries, trained) = (encoder.vocab_size, config.tokenizer.padded_vocab_size());
    // 0 stands for "as many as the tokenizer has", and the size of an existing tokenizer is not known here.
    if entries > 0 && config.tokenizer.path.is_none() && entries < trained {
        let message = format!("`{path}` {entries} is smaller than `tokenizer.vocab_size` {trained}");
        findings.add(&[&path, "tokenizer.vocab_size"], message, "remove it to take the tokenizer's size");
    }
    findings.count(&path, entries as u64, 0, 1 << 24);
    let known = if entries > 0 { Some(entries) } else { config.tokenizer.path.is_none().then_some(trained) };
    // Where positions are counted from the id, `positions` has reported it.
    let counted = model.position_offset() >= encoder.max_position_embeddings;
    if let Some(known) = known.filter(|_| !counted).filter(|known| encoder.pad_token_id as usize >= *known) {
        let pad = format!("{table}.pad_token_id");
        let message =
            format!("`{pad}` {} is outside the vocabulary of {known} entries", encoder.pad_token_id);
        findings.add(&[&pad, &path], message, "remove it to take the family's own id");
    }
}

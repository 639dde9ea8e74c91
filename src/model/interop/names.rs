//! Maps names of tensors to canonical names: those that this program's models have and transformers 5.23
//! saves.

use std::collections::BTreeMap;

use base::families::{Family, ModelConfig, PositionKind};

/// The use of a tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mapped {
    /// It is kept under this canonical name.
    Keep(String),
    /// It is the decoder's weight, which must equal the word embedding.
    TiedDecoder,
    /// It is a second name of the canonical one given here.
    Alias(String),
    /// It is a constant or belongs to something that this program does not have.
    Unused,
}

/// Maps a tensor's name, as any version of transformers or a family's authors wrote it, to its use.
pub(super) fn canonical(family: Family, name: &str) -> Mapped {
    let mut name = name.to_string();
    for (old, new) in [("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")] {
        if let Some(start) = name.strip_suffix(old) {
            name = format!("{start}{new}");
        }
    }
    if let Some((other, own)) = family.other_names.iter().find(|(other, _)| name.starts_with(other)) {
        return Mapped::Alias(name.replacen(other, own, 1));
    }
    // A pooler is the encoder's in some families, and the classifier's in others.
    if family.names.begins(&name) && !name.starts_with(family.classification.dense) {
        name = format!("{}.{name}", family.prefix);
    }
    match name.strip_prefix(family.masked_lm.decoder) {
        Some(".weight") if family.masked_lm.is_tied => Mapped::TiedDecoder,
        Some(".bias") => Mapped::Alias(family.masked_lm.bias.to_string()),
        _ if family.unused_tensors.iter().any(|start| name.starts_with(start)) => Mapped::Unused,
        _ if name.ends_with(".position_ids") || name.ends_with("embeddings.token_type_ids") => Mapped::Unused,
        _ => Mapped::Keep(name),
    }
}

/// Returns the name of the word embedding, to which the decoder is tied in most families.
pub(super) fn word_embedding(family: Family) -> String {
    format!("{}.{}.weight", family.prefix, family.names.word)
}

/// Returns the name of the position embedding, if the family has one.
pub(super) fn position_embedding(family: Family) -> Option<String> {
    Some(format!("{}.{}.weight", family.prefix, family.names.position?))
}

/// Returns a note for the log if `sources`, the tensors of a folder, contain absolute positions that its
/// model does not read.
pub(super) fn unread_positions(model: &ModelConfig, sources: &BTreeMap<String, String>) -> Option<String> {
    let ModelConfig { family, encoder } = model;
    let are_read = encoder.position_biased_input || encoder.enhanced_mask_decoder;
    let is_relative = family.positions == PositionKind::Relative;
    let name = position_embedding(*family).filter(|_| is_relative && !are_read)?;
    sources.contains_key(&name).then(|| {
        format!(
            "tensor `{name}` is not read: the authors' mask decoder, which does, wants `\"enhanced_mask_decoder\": \
             true` in `config.json`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::families::EncoderConfig;

    #[test]
    fn absolute_positions_that_only_a_mask_decoder_reads_are_noted() {
        let table = "deberta.embeddings.position_embeddings.weight";
        assert!(note(Family::DEBERTA_V2, false, table).unwrap().contains("\"enhanced_mask_decoder\": true"));
        assert_eq!(note(Family::DEBERTA_V2, true, table), None);
        assert_eq!(note(Family::DEBERTA_V2, false, "deberta.embeddings.word_embeddings.weight"), None);
        assert_eq!(note(Family::BERT, false, "bert.embeddings.position_embeddings.weight"), None);
    }

    fn note(family: Family, enhanced_mask_decoder: bool, tensor: &str) -> Option<String> {
        let encoder = EncoderConfig { enhanced_mask_decoder, ..EncoderConfig::of(family) };
        let sources = BTreeMap::from_iter([(tensor.to_string(), tensor.to_string())]);
        unread_positions(&ModelConfig { family, encoder }, &sources)
    }
}

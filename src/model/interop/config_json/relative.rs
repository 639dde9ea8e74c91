//! Normalises the keys of DeBERTa's `config.json`: published folders write them in several forms, this
//! program in one. Refuses variants of DeBERTa that only transformers builds, and names the key.

use serde_json::{Value, json};

use crate::interop::config_json::{Reader, shown};

impl Reader<'_> {
    /// Normalises or refuses the keys of relative positions, of the pooler and of the head.
    pub(super) fn unfold_positions(&mut self) {
        if self.keys.get("relative_attention").is_none_or(|value| *value != true) {
            let hint = "an absent key stands for `false`";
            let message = format!("`relative_attention` must be `true` ({hint}): others are not supported");
            self.refuse(message);
            self.keys.shift_remove("relative_attention");
        }
        // `legacy` only chooses the names of the head's tensors. Both namings are read; one is written.
        if self.keys.get("legacy").is_some_and(Value::is_boolean) {
            self.keys.shift_remove("legacy");
        }
        for key in ["position_buckets", "max_relative_positions"] {
            if self.keys.get(key).and_then(Value::as_i64).is_some_and(|number| number < 0) {
                self.keys.insert(key.to_string(), 0.into());
            }
        }
        self.unfold_scores();
        self.unfold_norm();
        if self.is_true("enhanced_mask_decoder", false) && self.is_true("position_biased_input", true) {
            self.refuse(
                "`enhanced_mask_decoder` wants `position_biased_input` `false`: absolute positions come in one way"
                    .into(),
            );
        }
        if self.keys.shift_remove("conv_kernel_size").is_some_and(|size| !size.is_null() && size != 0) {
            self.refuse(
                "`conv_kernel_size` is not supported: no convolution stands behind the first layer".into(),
            );
        }
        let hidden = self.whole_number("hidden_size");
        let heads = self.whole_number("num_attention_heads");
        let head = hidden.zip(heads).and_then(|(hidden, heads)| hidden.checked_div(heads));
        for (key, own) in
            [("embedding_size", hidden), ("pooler_hidden_size", hidden), ("attention_head_size", head)]
        {
            let Some(width) = self.keys.shift_remove(key).filter(|width| !width.is_null()) else { continue };
            if own.is_some_and(|own| width != own) {
                let own = own.unwrap_or_default();
                self.refuse(format!("`{key}` {} is not supported, only {own} is", shown(&width)));
            }
        }
    }

    /// Returns true if `key` is `true`; `absent` if the file does not have the key.
    fn is_true(&self, key: &str, absent: bool) -> bool {
        self.keys.get(key).map_or(absent, |value| *value == true)
    }

    /// Returns the value of `key` if it is a whole number.
    fn whole_number(&self, key: &str) -> Option<u64> {
        self.keys.get(key).and_then(Value::as_u64)
    }

    /// Normalises `pos_att_type`: `p2c|c2p` in either order, one of the two, or a list of them.
    fn unfold_scores(&mut self) {
        const KEY: &str = "pos_att_type";
        let Some(value) = self.keys.get(KEY) else { return };
        let words: Option<Vec<String>> = match value {
            Value::Null => Some(Vec::new()),
            Value::String(text) => Some(split(text)),
            Value::Array(items) => items.iter().map(|item| Some(item.as_str()?.to_lowercase())).collect(),
            _ => None,
        };
        let word = words.and_then(|words| {
            let has_c2p = words.iter().any(|word| word == "c2p");
            let has_p2c = words.iter().any(|word| word == "p2c");
            let are_known = words.iter().all(|word| ["c2p", "p2c", "none", ""].contains(&word.as_str()));
            are_known.then_some(match (has_c2p, has_p2c) {
                (true, true) => "p2c|c2p",
                (true, false) => "c2p",
                (false, true) => "p2c",
                (false, false) => "none",
            })
        });
        if let Some(word) = word {
            self.keys.insert(KEY.to_string(), json!(word));
        } else {
            let message = format!("`{KEY}` must be of `c2p` and `p2c`, not {value}");
            self.keys.shift_remove(KEY);
            self.refuse(message);
        }
    }

    /// Normalises `norm_rel_ebd`, several words with `|` between them, to `layer_norm` or `none`.
    fn unfold_norm(&mut self) {
        const KEY: &str = "norm_rel_ebd";
        let Some(words) = self.keys.get(KEY).and_then(Value::as_str).map(split) else { return };
        match words.iter().find(|word| !["layer_norm", "none"].contains(&word.as_str())) {
            None => {
                let has_norm = words.iter().any(|word| word == "layer_norm");
                self.keys.insert(KEY.to_string(), json!(if has_norm { "layer_norm" } else { "none" }));
            }
            Some(other) => {
                let message = format!("`{KEY}` `{other}` is not supported, only `layer_norm` and `none` are");
                self.keys.shift_remove(KEY);
                self.refuse(message);
            }
        }
    }
}

fn split(text: &str) -> Vec<String> {
    text.split('|').map(|word| word.trim().to_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::interop::HubConfig;
    use base::families::{PositionNorm, PositionScores};

    fn read(keys: &Value) -> Result<HubConfig, String> {
        let mut all = json!({"model_type": "deberta-v2", "relative_attention": true, "hidden_size": 48});
        all.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        HubConfig::parse("config.json", all.to_string().as_bytes()).map_err(|e| e.to_string())
    }

    /// Uses the keys of `microsoft/deberta-v3-small` that have to do with positions.
    #[test]
    fn the_published_form_is_read_and_written_back() {
        let published = json!({
            "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": true,
            "pos_att_type": "p2c|c2p", "max_relative_positions": -1, "position_biased_input": false,
            "type_vocab_size": 0, "layer_norm_eps": 1e-7,
        });
        let config = read(&published).unwrap();
        assert_eq!(config.extra.len(), 0, "{:?}", config.extra);
        let shape = &config.model.encoder;
        assert_eq!((shape.position_buckets, shape.farthest_position()), (256, 512));
        assert_eq!((shape.pos_att_type, shape.norm_rel_ebd), (PositionScores::Both, PositionNorm::LayerNorm));
        let written = config.to_json();
        assert_eq!(written["pos_att_type"], "p2c|c2p");
        assert_eq!((&written["legacy"], &written["relative_attention"]), (&json!(true), &json!(true)));
        assert_eq!(
            HubConfig::parse("config.json", written.to_string().as_bytes()).unwrap().model,
            config.model
        );
    }

    #[test]
    fn other_forms_are_read_as_the_published_one() {
        for (value, scores) in [
            (json!(["p2c", "c2p"]), PositionScores::Both),
            (json!(" C2P | p2c "), PositionScores::Both),
            (json!(["c2p"]), PositionScores::ContentToPosition),
            (json!("p2c"), PositionScores::PositionToContent),
            (json!(null), PositionScores::None),
        ] {
            let encoder = read(&json!({"pos_att_type": value})).unwrap().model.encoder;
            assert_eq!(encoder.pos_att_type, scores, "{value}");
        }
        let absent = read(&json!({"legacy": false, "position_buckets": -1})).unwrap().model.encoder;
        assert_eq!((absent.position_buckets, absent.pos_att_type), (0, PositionScores::None));
        assert!(absent.position_biased_input && !absent.share_att_key);
    }

    #[test]
    fn unsupported_keys_are_refused_by_name() {
        for (keys, part) in [
            (json!({"relative_attention": false}), "`relative_attention` must be `true`"),
            (json!({"pos_att_type": "p2p"}), "`pos_att_type` must be of `c2p` and `p2c`"),
            (json!({"pos_att_type": 3}), "`pos_att_type` must be of `c2p` and `p2c`, not 3"),
            (json!({"norm_rel_ebd": "batch_norm"}), "`norm_rel_ebd` `batch_norm` is not supported"),
            (json!({"norm_rel_ebd": 3}), "`norm_rel_ebd` must be `layer_norm` or `none`"),
            (json!({"conv_kernel_size": 3}), "`conv_kernel_size` is not supported"),
            (json!({"embedding_size": 12}), "`embedding_size` `12` is not supported, only 48 is"),
            (json!({"attention_head_size": 12}), "`attention_head_size` `12` is not supported, only 2 is"),
            (json!({"share_att_key": 1}), "`share_att_key` must be `true` or `false`"),
            (json!({"enhanced_mask_decoder": true}), "`enhanced_mask_decoder` wants `position_biased_input`"),
            (json!({"pooler_hidden_act": "tanh"}), "`pooler_hidden_act` \"tanh\" is not supported"),
            (json!({"position_buckets": 1}), "`position_buckets` 1 and `max_relative_positions` 512"),
        ] {
            let keys = keys.as_object().unwrap().clone();
            let keys = keys.into_iter().chain([("num_attention_heads".to_string(), json!(24))]).collect();
            let message = read(&Value::Object(keys)).unwrap_err();
            assert!(message.contains(part), "{part} is not in {message}");
        }
    }
}

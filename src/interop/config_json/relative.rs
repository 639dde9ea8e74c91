//! Keys of DeBERTa's `config.json` in the forms that folders have them in, brought to the one that is written
//! here; and models that only transformers builds, refused by the key that tells them.

use serde_json::Value;
use serde_json::json;

use crate::interop::config_json::Reader;
use crate::interop::config_json::shown;

impl Reader<'_> {
    /// The keys of relative positions, of the pooler and of the head.
    pub(super) fn unfold_positions(&mut self) {
        if self.keys.get("relative_attention").is_none_or(|value| *value != true) {
            let hint = "an absent key stands for `false`";
            let message = format!("`relative_attention` must be `true` ({hint}): others are not supported");
            self.refuse(message);
            self.keys.shift_remove("relative_attention");
        }
        // Both kinds of head compute the same; they are read by either name, and written by one.
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
        let is_set = |key: &str, absent: bool| self.keys.get(key).map_or(absent, |value| *value == true);
        if is_set("enhanced_mask_decoder", false) && is_set("position_biased_input", true) {
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
        let of_width = |key: &str| self.keys.get(key).and_then(Value::as_u64);
        let hidden = of_width("hidden_size");
        let head = hidden.zip(of_width("num_attention_heads")).and_then(|(hidden, n)| hidden.checked_div(n));
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

    /// `p2c|c2p`, in either order, or as a list.
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
            let has = |word: &str| words.iter().any(|other| other == word);
            let is_known = |word: &String| ["c2p", "p2c", "none", ""].contains(&word.as_str());
            words.iter().all(is_known).then(|| match (has("c2p"), has("p2c")) {
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

    /// `none` or `layer_norm`, as one word of several.
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
    use serde_json::Value;
    use serde_json::json;

    use crate::families::PositionNorm;
    use crate::families::PositionScores;
    use crate::interop::HubConfig;

    fn read(keys: &Value) -> Result<HubConfig, String> {
        let mut all = json!({"model_type": "deberta-v2", "relative_attention": true, "hidden_size": 48});
        all.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        HubConfig::parse("config.json", all.to_string().as_bytes()).map_err(|e| e.to_string())
    }

    /// The keys of `microsoft/deberta-v3-small` that have to do with positions.
    #[test]
    fn the_published_form_is_read_and_comes_back() {
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
    fn other_forms_say_the_same() {
        let scores = |value: Value| read(&json!({"pos_att_type": value})).unwrap().model.encoder.pos_att_type;
        assert_eq!(scores(json!(["p2c", "c2p"])), PositionScores::Both);
        assert_eq!(scores(json!(" C2P | p2c ")), PositionScores::Both);
        assert_eq!(scores(json!(["c2p"])), PositionScores::ContentToPosition);
        assert_eq!(scores(json!("p2c")), PositionScores::PositionToContent);
        assert_eq!(scores(json!(null)), PositionScores::None);
        let absent = read(&json!({"legacy": false, "position_buckets": -1})).unwrap().model.encoder;
        assert_eq!((absent.position_buckets, absent.pos_att_type), (0, PositionScores::None));
        assert!(absent.position_biased_input && !absent.share_att_key);
    }

    #[test]
    fn what_is_not_supported_is_refused_by_its_key() {
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

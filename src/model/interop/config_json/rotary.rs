//! Converts the newer form of the keys for rotary positions (RoPE) and kinds of layers to the older form.
//!
//! Transformers 5 writes `rope_parameters` with a table for each kind of layer, and `layer_types` with the
//! kind of each layer. Older versions and the published folders of ModernBERT have `global_rope_theta`,
//! `local_rope_theta` and `global_attn_every_n_layers` instead. Every version reads these, so this program
//! writes them.

use serde_json::{Map, Value};

use crate::interop::config_json::{Reader, shown};

const GLOBAL: &str = "full_attention";
const LOCAL: &str = "sliding_attention";
const EVERY: &str = "global_attn_every_n_layers";

impl Reader<'_> {
    /// Replaces the newer keys by the older ones. If the file has both forms, the newer wins, as in
    /// transformers.
    pub(super) fn unfold_layers(&mut self) {
        match self.keys.shift_remove("rope_parameters") {
            None | Some(Value::Null) => {}
            Some(Value::Object(kinds)) => self.unfold_rope_parameters(kinds),
            Some(other) => {
                self.refuse(format!("`rope_parameters` must be an object, not {}", shown(&other)));
            }
        }
        if self.keys.shift_remove("rope_scaling").is_some_and(|value| !value.is_null()) {
            self.refuse("`rope_scaling` is not supported".to_string());
        }
        match self.keys.shift_remove("layer_types") {
            None | Some(Value::Null) => {}
            Some(Value::Array(kinds)) => self.unfold_layer_types(&kinds),
            Some(other) => self.refuse(format!("`layer_types` must be a list, not {}", shown(&other))),
        }
    }

    fn unfold_rope_parameters(&mut self, mut kinds: Map<String, Value>) {
        for (kind, key) in [(GLOBAL, "global_rope_theta"), (LOCAL, "local_rope_theta")] {
            let place = format!("rope_parameters.{kind}");
            let mut parameters = match kinds.shift_remove(kind) {
                None | Some(Value::Null) => continue,
                Some(Value::Object(parameters)) => parameters,
                Some(other) => {
                    self.refuse(format!("`{place}` must be an object, not {}", shown(&other)));
                    continue;
                }
            };
            if let Some(theta) = parameters.shift_remove("rope_theta") {
                self.keys.insert(key.to_string(), theta);
            }
            for key in ["rope_type", "type"] {
                let value =
                    parameters.shift_remove(key).filter(|value| !value.is_null() && *value != "default");
                if let Some(other) = value {
                    self.refuse(format!("`{place}.{key}` {other} is not supported, only `default` is"));
                }
            }
            for (key, _) in parameters.iter().filter(|(_, value)| !value.is_null()) {
                self.refuse(format!("`{place}.{key}` is not supported"));
            }
        }
        for kind in kinds.keys() {
            self.refuse(format!("`rope_parameters.{kind}` is not known: `{GLOBAL}` and `{LOCAL}` are"));
        }
    }

    /// Replaces `layer_types` by `global_attn_every_n_layers`. The layers that attend to all tokens must be
    /// the first and every n-th after it; else the list is refused.
    fn unfold_layer_types(&mut self, kinds: &[Value]) {
        let layers = self.keys.get("num_hidden_layers").and_then(Value::as_u64);
        if layers.is_some_and(|layers| layers != kinds.len() as u64) {
            let count = kinds.len();
            self.refuse(format!(
                "`layer_types` tells of {count} layers, `num_hidden_layers` of another number"
            ));
            return;
        }
        let given = self.keys.get(EVERY).and_then(Value::as_u64).unwrap_or(0) as usize;
        let mut candidates = std::iter::once(given).chain(1..=kinds.len().max(1));
        match candidates.find(|&every| every > 0 && is_global_every(kinds, every)) {
            Some(every) => _ = self.keys.insert(EVERY.to_string(), every.into()),
            None => self.refuse(format!(
                "`layer_types` is supported only with `{GLOBAL}` for the first layer and every so many from there on, and `{LOCAL}` for the others"
            )),
        }
    }
}

/// Returns true if layers 0, `every`, 2 × `every`, ... attend to all tokens and all others to a window.
fn is_global_every(kinds: &[Value], every: usize) -> bool {
    kinds.iter().enumerate().all(|(layer, kind)| {
        let wanted = if layer.is_multiple_of(every) { GLOBAL } else { LOCAL };
        *kind == wanted
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::interop::HubConfig;

    fn read(keys: &Value) -> Result<HubConfig, String> {
        let mut all = json!({"model_type": "modernbert", "num_hidden_layers": 4, "vocab_size": 10});
        all.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        HubConfig::parse("config.json", all.to_string().as_bytes()).map_err(|e| e.to_string())
    }

    /// Returns the RoPE bases of global and local layers, and n of "every n-th layer is global".
    fn sizes(keys: &Value) -> (f64, f64, usize) {
        let config = read(keys).unwrap();
        assert_eq!(config.extra.len(), 0, "{:?}", config.extra);
        let shape = config.model.encoder;
        (shape.global_rope_theta, shape.local_rope_theta, shape.global_attn_every_n_layers)
    }

    #[test]
    fn both_forms_give_the_same_model_and_the_newer_wins() {
        assert_eq!(sizes(&json!({})), (160_000.0, 10_000.0, 3));
        let older = json!({"global_rope_theta": 5.0, "local_rope_theta": 6, "global_attn_every_n_layers": 2});
        assert_eq!(sizes(&older), (5.0, 6.0, 2));
        let kinds = ["full_attention", "sliding_attention", "full_attention", "sliding_attention"];
        let newer = json!({
            "rope_parameters": {"full_attention": rope(5.0), "sliding_attention": rope(6.0)},
            "layer_types": kinds, "global_rope_theta": 7.0, "global_attn_every_n_layers": 3, "rope_scaling": null,
        });
        assert_eq!(sizes(&newer), (5.0, 6.0, 2));
        assert_eq!(sizes(&json!({"layer_types": vec!["full_attention"; 4]})).2, 1);
        let one = ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"];
        assert_eq!(sizes(&json!({"layer_types": one})).2, 4);
        assert_eq!(sizes(&json!({"layer_types": one, "global_attn_every_n_layers": 9})).2, 9);
        let empty = json!({"rope_parameters": {"full_attention": {}}, "layer_types": null});
        assert_eq!(sizes(&empty), (160_000.0, 10_000.0, 3));
    }

    fn rope(theta: f64) -> Value {
        json!({"rope_type": "default", "rope_theta": theta})
    }

    #[test]
    fn unsupported_keys_are_refused_by_name() {
        let local = ["sliding_attention", "full_attention", "full_attention", "full_attention"];
        for (keys, part) in [
            (json!({"layer_types": local}), "`layer_types` is supported only"),
            (json!({"layer_types": ["full_attention"]}), "`layer_types` tells of 1 layers"),
            (json!({"layer_types": 3}), "`layer_types` must be a list"),
            (json!({"rope_scaling": {"type": "linear"}}), "`rope_scaling`"),
            (json!({"rope_parameters": 3}), "`rope_parameters` must be an object"),
            (json!({"rope_parameters": {"full_attention": 3}}), "`rope_parameters.full_attention` must be"),
            (
                json!({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}),
                "full_attention.rope_type` \"yarn\"",
            ),
            (json!({"rope_parameters": {"sliding_attention": {"factor": 2}}}), "sliding_attention.factor`"),
            (json!({"rope_parameters": {"rope_theta": 2}}), "`rope_parameters.rope_theta` is not known"),
            (json!({"global_rope_theta": 0}), "`global_rope_theta` must be"),
            (json!({"local_attention": 1}), "`local_attention` must be"),
            (json!({"classifier_pooling": "max"}), "`classifier_pooling` must be `cls` or `mean`"),
            (json!({"norm_bias": true}), "`norm_bias` true is not supported, only `false` is"),
            (json!({"num_attention_heads": 256}), "heads of 3 do not fall into pairs"),
        ] {
            let message = read(&keys).unwrap_err();
            assert!(message.contains(part), "{part} is not in {message}");
        }
    }
}

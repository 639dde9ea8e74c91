//! Rotary positions and kinds of layers in the newer of two forms, brought to the older.
//!
//! Transformers 5 writes `rope_parameters` with a table for each kind of layer, and `layer_types` with the
//! kind of each. Before, and in the published folders of ModernBERT, these were `global_rope_theta`,
//! `local_rope_theta` and `global_attn_every_n_layers`, which every version reads, and which are written here.

use serde_json::Map;
use serde_json::Value;

use crate::interop::config_json::Reader;
use crate::interop::config_json::shown;

const GLOBAL: &str = "full_attention";
const LOCAL: &str = "sliding_attention";
const EVERY: &str = "global_attn_every_n_layers";

impl Reader<'_> {
    /// Where both forms are there, the newer one counts, as it does in transformers.
    pub(super) fn unfold_layers(&mut self) {
        match self.keys.shift_remove("rope_parameters") {
            None | Some(Value::Null) => {}
            Some(Value::Object(kinds)) => self.unfold_angles(kinds),
            Some(other) => {
                self.refuse(format!("`rope_parameters` must be an object, not {}", shown(&other)));
            }
        }
        if self.keys.shift_remove("rope_scaling").is_some_and(|value| !value.is_null()) {
            self.refuse("`rope_scaling` is not supported".to_string());
        }
        match self.keys.shift_remove("layer_types") {
            None | Some(Value::Null) => {}
            Some(Value::Array(kinds)) => self.unfold_kinds(&kinds),
            Some(other) => self.refuse(format!("`layer_types` must be a list, not {}", shown(&other))),
        }
    }

    fn unfold_angles(&mut self, mut kinds: Map<String, Value>) {
        for (kind, key) in [(GLOBAL, "global_rope_theta"), (LOCAL, "local_rope_theta")] {
            let place = format!("rope_parameters.{kind}");
            let mut angles = match kinds.shift_remove(kind) {
                None | Some(Value::Null) => continue,
                Some(Value::Object(angles)) => angles,
                Some(other) => {
                    self.refuse(format!("`{place}` must be an object, not {}", shown(&other)));
                    continue;
                }
            };
            if let Some(theta) = angles.shift_remove("rope_theta") {
                self.keys.insert(key.to_string(), theta);
            }
            let is_default = |value: &Value| value.is_null() || *value == "default";
            for key in ["rope_type", "type"] {
                if let Some(other) = angles.shift_remove(key).filter(|value| !is_default(value)) {
                    self.refuse(format!("`{place}.{key}` {other} is not supported, only `default` is"));
                }
            }
            for (key, _) in angles.iter().filter(|(_, value)| !value.is_null()) {
                self.refuse(format!("`{place}.{key}` is not supported"));
            }
        }
        for kind in kinds.keys() {
            self.refuse(format!("`rope_parameters.{kind}` is not known: `{GLOBAL}` and `{LOCAL}` are"));
        }
    }

    /// The layers that attend to all tokens must be every so many, from the first on.
    fn unfold_kinds(&mut self, kinds: &[Value]) {
        let layers = self.keys.get("num_hidden_layers").and_then(Value::as_u64);
        if layers.is_some_and(|layers| layers != kinds.len() as u64) {
            let count = kinds.len();
            self.refuse(format!(
                "`layer_types` tells of {count} layers, `num_hidden_layers` of another number"
            ));
            return;
        }
        let fits = |every: usize| {
            let wanted = |layer: usize| if layer.is_multiple_of(every) { GLOBAL } else { LOCAL };
            kinds.iter().enumerate().all(|(layer, kind)| *kind == wanted(layer))
        };
        let given = self.keys.get(EVERY).and_then(Value::as_u64).unwrap_or(0) as usize;
        match std::iter::once(given).chain(1..=kinds.len().max(1)).find(|&every| every > 0 && fits(every)) {
            Some(every) => _ = self.keys.insert(EVERY.to_string(), every.into()),
            None => self.refuse(format!(
                "`layer_types` is supported only with `{GLOBAL}` for the first layer and every so many from there on, and `{LOCAL}` for the others"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use serde_json::json;

    use crate::interop::HubConfig;

    fn read(keys: &Value) -> Result<HubConfig, String> {
        let mut all = json!({"model_type": "modernbert", "num_hidden_layers": 4, "vocab_size": 10});
        all.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        HubConfig::parse("config.json", all.to_string().as_bytes()).map_err(|e| e.to_string())
    }

    /// Global angles, local angles, how many layers to a global one.
    fn sizes(keys: &Value) -> (f64, f64, usize) {
        let config = read(keys).unwrap();
        assert_eq!(config.extra.len(), 0, "{:?}", config.extra);
        let shape = config.model.encoder;
        (shape.global_rope_theta, shape.local_rope_theta, shape.global_attn_every_n_layers)
    }

    #[test]
    fn both_forms_say_the_same_and_the_newer_counts() {
        assert_eq!(sizes(&json!({})), (160_000.0, 10_000.0, 3));
        let older = json!({"global_rope_theta": 5.0, "local_rope_theta": 6, "global_attn_every_n_layers": 2});
        assert_eq!(sizes(&older), (5.0, 6.0, 2));
        let angles = |theta: f64| json!({"rope_type": "default", "rope_theta": theta});
        let kinds = ["full_attention", "sliding_attention", "full_attention", "sliding_attention"];
        let newer = json!({
            "rope_parameters": {"full_attention": angles(5.0), "sliding_attention": angles(6.0)},
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

    #[test]
    fn what_is_not_supported_is_refused_by_its_key() {
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

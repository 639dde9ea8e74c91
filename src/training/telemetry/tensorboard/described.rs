//! Converts a configuration to TensorBoard's summaries: a page of text, and the hyper-parameters by which
//! runs are compared.

use std::collections::BTreeMap;

use prost::Message;
use serde_json::Value;

use super::messages::{
    Dim, HParamsPluginData, PluginData, ProtoKind, ProtoValue, SessionStartInfo, SummaryMetadata,
    SummaryValue, TensorProto, TensorShape,
};

/// Keys of a configuration that become hyper-parameters, by which people sort runs.
const HPARAMS: [&str; 14] = [
    "task",
    "model",
    "training.learning_rate",
    "training.lr_scheduler_type",
    "training.warmup_steps",
    "training.weight_decay",
    "training.optim",
    "training.per_device_train_batch_size",
    "training.gradient_accumulation_steps",
    "training.max_steps",
    "training.num_train_epochs",
    "data.max_seq_length",
    "mlm.mlm_probability",
    "precision.compute",
];

/// The value of `DT_STRING` in tensorflow's `types.proto`.
const DT_STRING: i32 = 7;

/// Returns both summaries of a configuration.
pub(super) fn values(config: &Value, seed: u64, start_time_secs: f64) -> Vec<SummaryValue> {
    vec![text(config), hparams(config, seed, start_time_secs)]
}

/// Returns the page of text: Markdown with the JSON in a code block.
fn text(config: &Value) -> SummaryValue {
    let page = format!("```json\n{config:#}\n```");
    let tensor = TensorProto {
        dtype: DT_STRING,
        tensor_shape: Some(TensorShape { dim: vec![Dim { size: 1 }] }),
        string_val: vec![page.into_bytes()],
    };
    let metadata = Some(plugin_metadata("text", Vec::new()));
    SummaryValue {
        tag: "config/text_summary".to_string(),
        tensor: Some(tensor),
        metadata,
        ..Default::default()
    }
}

fn hparams(config: &Value, seed: u64, start_time_secs: f64) -> SummaryValue {
    let found = HPARAMS.iter().filter_map(|&key| {
        let value = key.split('.').try_fold(config, |table, part| table.get(part))?;
        let kind = match value {
            Value::Number(number) => ProtoKind::Number(number.as_f64()?),
            Value::String(text) => ProtoKind::Text(text.clone()),
            Value::Bool(flag) => ProtoKind::Flag(*flag),
            _ => return None,
        };
        Some((key.rsplit('.').next()?.to_string(), kind))
    });
    let seed = [("seed".to_string(), ProtoKind::Number(seed as f64))];
    let hparams: BTreeMap<String, ProtoValue> =
        found.chain(seed).map(|(key, kind)| (key, ProtoValue { kind: Some(kind) })).collect();
    let start = SessionStartInfo { hparams, start_time_secs };
    let content = HParamsPluginData { session_start_info: Some(start) }.encode_to_vec();
    let metadata = Some(plugin_metadata("hparams", content));
    SummaryValue { tag: "_hparams_/session_start_info".to_string(), metadata, ..Default::default() }
}

fn plugin_metadata(name: &str, content: Vec<u8>) -> SummaryMetadata {
    SummaryMetadata { plugin_data: Some(PluginData { plugin_name: name.to_string(), content }) }
}

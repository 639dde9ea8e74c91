//! The protobuf messages of event files, with only those fields that this program writes. Fields are numbered
//! as in tensorflow's `event.proto`, `summary.proto` and `tensor.proto`, and in `plugin_data.proto` of
//! TensorBoard's hparams.

use std::collections::BTreeMap;

use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    #[prost(double, tag = "1")]
    pub(super) wall_time: f64,
    #[prost(int64, tag = "2")]
    pub(super) step: i64,
    #[prost(string, optional, tag = "3")]
    pub(super) file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    pub(super) summary: Option<Summary>,
    #[prost(message, optional, tag = "7")]
    pub(super) session_log: Option<SessionLog>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub(super) values: Vec<SummaryValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SummaryValue {
    #[prost(string, tag = "1")]
    pub(super) tag: String,
    #[prost(float, optional, tag = "2")]
    pub(super) simple_value: Option<f32>,
    #[prost(message, optional, tag = "5")]
    pub(super) histogram: Option<HistogramProto>,
    #[prost(message, optional, tag = "8")]
    pub(super) tensor: Option<TensorProto>,
    #[prost(message, optional, tag = "9")]
    pub(super) metadata: Option<SummaryMetadata>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HistogramProto {
    #[prost(double, tag = "1")]
    pub(super) min: f64,
    #[prost(double, tag = "2")]
    pub(super) max: f64,
    #[prost(double, tag = "3")]
    pub(super) num: f64,
    #[prost(double, tag = "4")]
    pub(super) sum: f64,
    #[prost(double, tag = "5")]
    pub(super) sum_squares: f64,
    #[prost(double, repeated, tag = "6")]
    pub(super) bucket_limit: Vec<f64>,
    #[prost(double, repeated, tag = "7")]
    pub(super) bucket: Vec<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorProto {
    #[prost(int32, tag = "1")]
    pub(super) dtype: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) tensor_shape: Option<TensorShape>,
    #[prost(bytes = "vec", repeated, tag = "8")]
    pub(super) string_val: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorShape {
    #[prost(message, repeated, tag = "2")]
    pub(super) dim: Vec<Dim>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Dim {
    #[prost(int64, tag = "1")]
    pub(super) size: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SummaryMetadata {
    #[prost(message, optional, tag = "1")]
    pub(super) plugin_data: Option<PluginData>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PluginData {
    #[prost(string, tag = "1")]
    pub(super) plugin_name: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) content: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SessionLog {
    #[prost(int32, tag = "1")]
    pub(super) status: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HParamsPluginData {
    #[prost(message, optional, tag = "3")]
    pub(super) session_start_info: Option<SessionStartInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SessionStartInfo {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(super) hparams: BTreeMap<String, ProtoValue>,
    #[prost(double, tag = "5")]
    pub(super) start_time_secs: f64,
}

/// The message `google.protobuf.Value`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ProtoValue {
    #[prost(oneof = "ProtoKind", tags = "2, 3, 4")]
    pub(super) kind: Option<ProtoKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum ProtoKind {
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Flag(bool),
}

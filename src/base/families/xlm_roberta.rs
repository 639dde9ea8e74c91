//! XLM-RoBERTa: RoBERTa with another vocabulary, in a hundred languages. arXiv:1911.02116;
//! `modeling_xlm_roberta.py` of transformers.

use crate::families::{Descriptor, Family, roberta};

impl Family {
    /// XLM-RoBERTa.
    pub const XLM_ROBERTA: Self = Self(&DESCRIPTOR);
}

static DESCRIPTOR: Descriptor = Descriptor {
    name: "xlm-roberta",
    title: "XLM-RoBERTa",
    class: "XLMRoberta",
    hub_defaults: roberta::HUB_DEFAULTS,
    byte_level_class: None,
    ..roberta::DESCRIPTOR
};

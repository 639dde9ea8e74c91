//! CamemBERT: RoBERTa with another vocabulary, for French. arXiv:1911.03894; `modeling_camembert.py` of
//! transformers.

use crate::families::{Descriptor, Family, roberta};

impl Family {
    /// CamemBERT.
    pub const CAMEMBERT: Self = Self(&DESCRIPTOR);
}

static DESCRIPTOR: Descriptor = Descriptor {
    name: "camembert",
    title: "CamemBERT",
    class: "Camembert",
    hub_defaults: roberta::HUB_DEFAULTS,
    byte_level_class: None,
    ..roberta::DESCRIPTOR
};

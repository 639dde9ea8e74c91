//! BERT: names of its heads; the classifier's first map is the encoder's pooler.

use crate::config::EncoderConfig;
use crate::layers::Registry;
use crate::models::heads::masked_lm::MaskedLmNames;
use crate::models::heads::sequence_classification::ClassificationHead;
use crate::models::heads::sequence_classification::ClassificationNames;

pub(super) const MASKED_LM: MaskedLmNames = MaskedLmNames {
    dense: "cls.predictions.transform.dense",
    norm: "cls.predictions.transform.LayerNorm",
    bias: "cls.predictions.bias",
};

pub(super) fn classification_head(
    registry: &mut Registry,
    shape: &EncoderConfig,
    num_labels: usize,
) -> ClassificationHead {
    let names = ClassificationNames { dense: "bert.pooler.dense", output: "classifier" };
    ClassificationHead::new(registry, names, shape, num_labels, false)
}

//! RoBERTa: names of its heads; dropout before the first map of the classifier.

use crate::config::EncoderConfig;
use crate::layers::Registry;
use crate::models::heads::masked_lm::MaskedLmNames;
use crate::models::heads::sequence_classification::ClassificationHead;
use crate::models::heads::sequence_classification::ClassificationNames;

pub(super) const MASKED_LM: MaskedLmNames =
    MaskedLmNames { dense: "lm_head.dense", norm: "lm_head.layer_norm", bias: "lm_head.bias" };

pub(super) fn classification_head(
    registry: &mut Registry,
    shape: &EncoderConfig,
    num_labels: usize,
) -> ClassificationHead {
    let names = ClassificationNames { dense: "classifier.dense", output: "classifier.out_proj" };
    ClassificationHead::new(registry, names, shape, num_labels, true)
}

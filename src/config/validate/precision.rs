//! Checks of number types and of the loss scale that f16 needs.

use crate::validate::Findings;
use crate::{ComputeChoice, PrecisionConfig};

pub(super) fn precision(precision: &PrecisionConfig, findings: &mut Findings) {
    let Some(loss_scale) = &precision.loss_scale else { return };
    if !matches!(precision.compute, ComputeChoice::F16 | ComputeChoice::Auto) {
        let message = "`precision.loss_scale` is given, but only f16 scales the loss".to_string();
        findings.add(
            &["precision.loss_scale", "precision.compute"],
            message,
            "remove it: f32 and bf16 have range enough",
        );
        return;
    }
    let powers = [
        ("precision.loss_scale.init_scale", loss_scale.init_scale),
        ("precision.loss_scale.min_scale", Some(loss_scale.min_scale)),
    ];
    for (path, scale) in powers.into_iter().filter_map(|(path, scale)| Some((path, scale?))) {
        // Beyond 2^24 no gradient of a mean loss survives in f16; below 2^-24 every one is lost.
        if !((-24..=24).map(|exponent| 2f64.powi(exponent)).any(|power| power.total_cmp(&scale).is_eq())) {
            let message = format!("`{path}` is {scale}, it must be a power of two from 2^-24 to 2^24");
            findings.add(&[path], message, "65536 to begin with and 1 at least are usual");
            return;
        }
    }
    if let Some(init_scale) = loss_scale.init_scale.filter(|init_scale| *init_scale < loss_scale.min_scale) {
        let message = format!(
            "`precision.loss_scale.init_scale` {init_scale} is below `min_scale` {}",
            loss_scale.min_scale
        );
        findings.add(
            &["precision.loss_scale.init_scale", "precision.loss_scale.min_scale"],
            message,
            "start higher, or lower `min_scale`",
        );
    }
}

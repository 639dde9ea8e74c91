//! Checks of number types, of gradients in bf16, and of the loss scale that f16 needs.

use crate::validate::Findings;
use crate::{BatchSize, ComputeChoice, PrecisionConfig, TrainingConfig, WeightGradients};

/// Refuses gradients in bf16 where a step adds up micro-batches: bf16 has 8 bits, so the sum would lose the
/// later ones.
pub(super) fn weight_gradients(
    precision: &PrecisionConfig,
    training: &TrainingConfig,
    findings: &mut Findings,
) {
    const KEY: &str = "precision.weight_gradients";
    if precision.weight_gradients == WeightGradients::F32 {
        return;
    }
    let steps = training.gradient_accumulation_steps;
    let phases = training.phases.iter().enumerate().map(|(number, phase)| {
        let steps = phase.gradient_accumulation_steps.unwrap_or(1);
        (format!("training.phases.{number}.gradient_accumulation_steps"), steps > 1, steps.to_string())
    });
    let is_auto = training.per_device_train_batch_size == BatchSize::Auto;
    let others = [
        ("training.gradient_accumulation_steps".to_string(), steps > 1, steps.to_string()),
        ("training.per_device_train_batch_size".to_string(), is_auto, "`auto`".to_string()),
    ];
    let several = others.into_iter().chain(phases).find(|(_, is_several, _)| *is_several);
    if let Some((path, _, value)) = several {
        let message =
            format!("`{KEY}` is `bf16`, which is for steps of one micro-batch, and `{path}` is {value}");
        let hint = "remove it, or take steps of one micro-batch: sums of micro-batches are f32";
        findings.add(&[KEY, &path], message, hint);
    }
}

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

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use crate::resume::compare_for_resume;
    use crate::validate::{validate_finetune, validate_pretrain};
    use crate::{FinetuneConfig, PretrainConfig};
    use base::error::Problem;

    fn config(precision: &Json, training: &Json) -> PretrainConfig {
        serde_json::from_value(json!({
            "data": {"sources": [{"files": ["a.txt"]}]}, "model": {"roberta": {}},
            "precision": precision, "training": training,
        }))
        .unwrap()
    }

    /// Returns the problems with gradients in bf16.
    fn found(compute: &str, training: &Json) -> Vec<Problem> {
        validate_pretrain(&config(&json!({"compute": compute, "weight_gradients": "bf16"}), training))
    }

    #[test]
    fn gradients_in_bf16_are_for_steps_of_one_micro_batch_in_bf16() {
        let one = json!({"max_steps": 9, "phases": [{"until_step": 5, "max_seq_length": 64}]});
        for compute in ["auto", "bf16"] {
            assert!(found(compute, &one).is_empty());
        }
        for compute in ["f16", "f32"] {
            let found = found(compute, &one);
            assert!(found.len() == 1 && found[0].to_string().contains("precision.compute"), "{found:?}");
        }
        let several = found("bf16", &json!({"gradient_accumulation_steps": 4}));
        assert_eq!(several.len(), 1);
        insta::assert_snapshot!(several[0], @r"
        precision.weight_gradients: `precision.weight_gradients` is `bf16`, which is for steps of one micro-batch, and `training.gradient_accumulation_steps` is 4
          hint: remove it, or take steps of one micro-batch: sums of micro-batches are f32
        ");
        for (training, path) in [
            (
                json!({"per_device_train_batch_size": "auto", "train_batch_size": 64}),
                "`training.per_device_train_batch_size` is `auto`",
            ),
            (
                json!({"max_steps": 9, "phases":
                    [{"until_step": 5, "max_seq_length": 64, "gradient_accumulation_steps": 2}]}),
                "`training.phases.0.gradient_accumulation_steps` is 2",
            ),
        ] {
            let found = found("bf16", &training);
            assert!(found.len() == 1 && found[0].message.contains(path), "{found:?}");
        }
        let finetune: FinetuneConfig = serde_json::from_value(json!({
            "model": "m", "data": {"train_file": "a.csv", "eval_file": "b.csv"},
            "precision": {"weight_gradients": "bf16"}, "training": {"gradient_accumulation_steps": 2},
        }))
        .unwrap();
        assert_eq!(validate_finetune(&finetune).len(), 1);
    }

    #[test]
    fn a_resumed_run_keeps_the_type_of_its_gradients() {
        let [single, half] = ["f32", "bf16"]
            .map(|weights| config(&json!({"compute": "bf16", "weight_gradients": weights}), &json!({})));
        assert!(compare_for_resume(&half, &half).unwrap().is_empty());
        let error = compare_for_resume(&single, &half).unwrap_err().to_string();
        let refused = "precision.weight_gradients: was `\"f32\"` when this run began and is `\"bf16\"` now";
        assert!(error.contains(refused), "{error}");
        // Runs from before this key have gradients in f32.
        let before = config(&json!({"compute": "bf16"}), &json!({}));
        assert!(compare_for_resume(&before, &single).unwrap().is_empty());
    }
}

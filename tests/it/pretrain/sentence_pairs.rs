//! Pairs of segments beside masked tokens, as users meet them: trained, evaluated, used, interrupted.

use serde_json::json;

use crate::pretrain::family::{comes_to_the_same_bytes, fine_tunes_with, learns};
use crate::workplace::Workplace;

const SAMPLE: &str = "run.sample_text=the [MASK] sees [MASK] and the [MASK] sleeps.";
const BERT: [&str; 3] = [
    "model={bert: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 48, \
     max_position_embeddings: 40, initializer_range: 0.05}}",
    "task=next_sentence_prediction",
    SAMPLE,
];
const ALBERT: [&str; 3] = [
    "model={albert: {embedding_size: 24, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, \
     intermediate_size: 48, max_position_embeddings: 40, initializer_range: 0.05}}",
    "task=sentence_order_prediction",
    SAMPLE,
];

#[test]
fn a_run_leaves_both_heads_and_a_pooler_that_fine_tuning_takes() {
    for (sets, name, class, told) in [
        (BERT, "nsp", "BertForPreTraining", "next segment: right"),
        (ALBERT, "sop", "AlbertForPreTraining", "segment order: right"),
    ] {
        let place = Workplace::new();
        let done = learns(&place, &sets);
        assert!(done.stdout.contains(told), "{}", done.stdout);
        assert_eq!(place.json("final/config.json")["architectures"], json!([class]));
        let results = place.json("all_results.json");
        let result = |key: &str| results[&format!("eval_{key}")].as_f64().unwrap();
        let sum = result("mlm_loss") + result(&format!("{name}_loss"));
        assert!((result("loss") - sum).abs() < 1e-9 && result("perplexity").is_finite(), "{results}");
        let baseline = result(&format!("{name}_baseline_accuracy"));
        assert!((0.5..0.8).contains(&baseline), "{results}");
        assert!(result(&format!("{name}_baseline_loss")) <= std::f64::consts::LN_2, "{results}");
        assert!((0.0..=1.0).contains(&result(&format!("{name}_accuracy"))), "{results}");
        for term in ["mlm", name] {
            let losses = place.series(&format!("train/{term}_loss"));
            assert!(losses.len() > 1 && losses.iter().all(|(_, loss)| loss.is_finite()), "{losses:?}");
        }
        place.program(&["checkpoint", "verify", "run/final"], "").ok();
        let filled = place.program(&["predict", "--model", "run/final", "--input", "-"], "the [MASK]\n").ok();
        assert!(filled.stdout.contains("\"masks\""), "{}", filled.stdout);
        place.program(&["evaluate", "--model", "run/final", "--data", "corpus.txt"], "").ok();
        fine_tunes_with(&place, "classifier.bias, classifier.weight");
    }
}

#[test]
fn an_interrupted_run_comes_to_the_same_bytes() {
    for sets in [BERT, ALBERT] {
        comes_to_the_same_bytes(&sets);
    }
}

#[test]
fn what_does_not_go_with_pairs_is_refused() {
    let place = Workplace::new();
    for (set, part) in [
        ("model={roberta: {hidden_size: 32, num_attention_heads: 2}}", "for which RoBERTa has no head"),
        ("model={bert: {type_vocab_size: 1}}", "`model.bert.type_vocab_size` is 1"),
        (
            "data.packing.mode=documents",
            "`data.packing.mode` is given, but `task` is about pairs of segments",
        ),
        ("data.max_seq_length=7", "rows of 7 tokens hold no pair of segments"),
        ("rtd.generator_weight=2", "`rtd.generator_weight` is given, but `task` is about pairs"),
    ] {
        place.run(&[BERT[0], BERT[1], set], &[]).refused(2, &[part]);
    }
}

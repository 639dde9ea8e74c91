//! Shares and units of masking.

use super::*;
use base::rng::{Purpose, Stream};
use config::{MaskingUnit, PretrainTask};

#[test]
fn masks_keep_to_their_shares_and_off_special_tokens() {
    let tokenizer = tokenizer();
    let masking = masking();
    let mut chosen = 0;
    let mut masked = 0;
    let mut kept = 0;
    let mut ordinary = 0;
    for sample in 0..1000 {
        let original: Vec<u32> = (0..101).map(|t| if t % 100 == 0 { 0 } else { 5 + t as u32 }).collect();
        let mut ids = original.clone();
        let mut labels = Vec::new();
        masking.apply(Stream::new(3, Purpose::Mask, sample), &mut ids, |place, id| {
            labels.push((place as usize, id));
        });
        ordinary += 99;
        chosen += labels.len();
        for (place, id) in &labels {
            assert_eq!(original[*place], *id);
            assert!(!tokenizer.special_ids().contains(id));
            match ids[*place] {
                4 => masked += 1,
                same if same == *id => kept += 1,
                other => assert!(other > 4, "a random replacement is never special"),
            }
        }
        let changed = (0..ids.len()).filter(|i| ids[*i] != original[*i]);
        assert!(changed.into_iter().all(|i| labels.iter().any(|(place, _)| *place == i)));
    }
    assert_share(chosen, ordinary, 0.15);
    assert_share(masked, chosen, 0.8);
    // One random draw in 256 is the token itself.
    assert_share(kept, chosen, 0.1 + 0.1 / 256.0);
}

/// Every token but the last of its segment is labelled with the next one, except before special tokens.
#[test]
fn causal_steps_label_the_next_token_and_mask_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let set = shards(folder.path(), &[5, 30, 9, 61]);
    let options = LoaderOptions { causal_steps: 2, total_steps: 12, ..options(7, 3, 2) };
    let masking = Masking::new(
        &MlmConfig { mlm_probability: 0.5, mlm_probability_end: Some(0.0), ..MlmConfig::default() },
        &tokenizer(),
    );
    let mut loader =
        Loader::start(Arc::clone(&set), frame(16), masking.unwrap(), options, Cursor::default()).unwrap();
    let special = tokenizer().special_ids().to_vec();
    for _ in 0..2 {
        let step = loader.next_step().unwrap();
        for batch in &step.micro {
            assert!(batch.is_causal && !batch.ids.contains(&4), "{batch:?}");
            let mut wanted = Vec::new();
            for bounds in batch.cu_seqlens.windows(2) {
                let next = bounds[0] + 1..bounds[1];
                wanted.extend(next.map(|next| (next - 1, batch.ids[next as usize])));
            }
            wanted.retain(|(_, id)| !special.contains(id));
            let labels = batch.label_positions.iter().copied().zip(batch.labels.iter().copied());
            assert_eq!(labels.collect::<Vec<_>>(), wanted);
        }
        loader.give_back(step);
    }
    // Then the share to mask falls from a half to nothing over the ten steps that are left.
    let mut labels = Vec::new();
    for _ in 0..10 {
        let step = loader.next_step().unwrap();
        assert!(step.micro.iter().all(|batch| !batch.is_causal));
        labels.push(step.label_count);
    }
    assert!(labels[0] > 24 && labels[9] == 0, "{labels:?}");
}

/// Asserts that `part` of `whole` is within four standard deviations of a binomial share.
fn assert_share(part: usize, whole: usize, expected: f64) {
    let share = part as f64 / whole as f64;
    let deviation = (expected * (1.0 - expected) / whole as f64).sqrt();
    assert!((share - expected).abs() < 4.0 * deviation, "{share}");
}

fn masking_of(unit: MaskingUnit) -> Masking {
    Masking::new(&MlmConfig { masking: unit, ..MlmConfig::default() }, &word_tokenizer()).unwrap()
}

/// A tokenizer with words, and word pieces that continue them: 5 to 299.
fn word_tokenizer() -> Tokenizer {
    let special = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"].map(str::to_string);
    let words = ["garden", "secret", "the", "county", "in", "was"].map(str::to_string);
    let pieces = ["##er", "##s", "##ive", "##ly"].map(str::to_string);
    let rest = (0..285).map(|n| if n % 2 == 0 { format!("w{n}") } else { format!("##p{n}") });
    let vocab: serde_json::Map<String, serde_json::Value> = special
        .into_iter()
        .chain(words)
        .chain(pieces)
        .chain(rest)
        .zip((0..).map(serde_json::Value::from))
        .collect();
    let json = serde_json::json!({"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab}});
    Tokenizer::from_files(vec![("tokenizer.json".to_string(), json.to_string().into_bytes())], "test")
        .unwrap()
}

/// A row of one segment of random tokens.
fn random_row(stream: Stream, tokens: u64) -> Vec<u32> {
    (0..tokens).map(|t| if t == 0 || t == tokens - 1 { 0 } else { 5 + stream.below(t, 295) as u32 }).collect()
}

#[test]
fn each_unit_masks_the_given_share() {
    for unit in [MaskingUnit::Token, MaskingUnit::WholeWord, MaskingUnit::Span] {
        let masking = masking_of(unit);
        let mut buffers = MaskBuffers::default();
        for share in [0.15, 0.3] {
            let mut chosen = 0u64;
            let mut ordinary = 0u64;
            let mut masked = 0u64;
            for sample in 0..1970 {
                let mut ids = random_row(Stream::new(sample, Purpose::Test, 0), 512);
                ordinary += 510;
                masking.apply_at(
                    share,
                    Stream::new(9, Purpose::Mask, sample),
                    &mut ids,
                    &mut buffers,
                    |_, id| {
                        assert!(id >= 5);
                        chosen += 1;
                    },
                );
                masked += ids.iter().filter(|id| **id == 4).count() as u64;
            }
            assert!(ordinary > 1_000_000);
            let found = chosen as f64 / ordinary as f64;
            assert!((found / share - 1.0).abs() < 0.02, "{unit:?}: {found} of {share}");
            let found = masked as f64 / chosen as f64;
            assert!((found / 0.8 - 1.0).abs() < 0.02, "{unit:?}: {found} of 0.8");
        }
    }
}

#[test]
fn words_are_masked_whole() {
    let tokenizer = word_tokenizer();
    let masking = masking_of(MaskingUnit::WholeWord);
    let words = tokenizer.word_boundaries().unwrap();
    let mut ids = vec![0];
    ids.extend(
        tokenizer
            .encode("the gardeners in the county was secretively secretive the gardener in county secret")
            .unwrap(),
    );
    ids.push(2);
    let starts: Vec<usize> =
        (1..ids.len()).filter(|&i| i == 1 || i == ids.len() - 1 || words.starts_word(ids[i])).collect();
    assert_eq!(starts.len(), 13 + 1);
    assert!(ids.len() > 20, "some words are of several tokens");
    let mut counts = vec![0u32; ids.len()];
    for sample in 0..2000 {
        let mut chosen = vec![false; ids.len()];
        masking.apply(Stream::new(1, Purpose::Mask, sample), &mut ids.clone(), |place, id| {
            assert_eq!(ids[place as usize], id);
            chosen[place as usize] = true;
            counts[place as usize] += 1;
        });
        for word in starts.windows(2) {
            assert!(chosen[word[0]..word[1]].iter().all(|c| *c == chosen[word[0]]));
        }
    }
    assert_eq!((counts[0], counts[ids.len() - 1]), (0, 0));
    assert!(counts[1..ids.len() - 1].iter().all(|n| (200..400).contains(n)), "{counts:?}");
}

#[test]
fn a_span_has_one_kind_of_replacement() {
    let masking = masking_of(MaskingUnit::Span);
    let mut together = 0u32;
    let mut pairs = 0u32;
    for sample in 0..500 {
        let original = random_row(Stream::new(sample, Purpose::Test, 0), 256);
        let mut ids = original.clone();
        let mut places = Vec::new();
        masking
            .apply(Stream::new(1, Purpose::Mask, sample), &mut ids, |place, _| places.push(place as usize));
        assert!(places.is_sorted_by(|a, b| a < b));
        for pair in places.windows(2).filter(|pair| pair[0] + 1 == pair[1]) {
            pairs += 1;
            together += u32::from((ids[pair[0]] == 4) == (ids[pair[1]] == 4));
        }
    }
    // If the replacement were drawn for each token, it would be 68 %; two spans may touch by chance.
    assert!(f64::from(together) > 0.93 * f64::from(pairs), "{together} of {pairs}");
}

#[test]
fn the_share_changes_along_a_line_and_evaluation_stays() {
    let config = MlmConfig { mlm_probability: 0.3, mlm_probability_end: Some(0.1), ..MlmConfig::default() };
    let masking = Masking::new(&config, &tokenizer()).unwrap();
    let thousandths =
        [0, 50, 100, 500].map(|step| (masking.probability_at(step, 101) * 1000.0).round() as u32);
    assert_eq!(thousandths, [300, 200, 100, 100]);
    let evaluation = Masking::for_evaluation(PretrainTask::MaskedLm, &tokenizer()).unwrap();
    assert!([0, 100].iter().all(|step| (evaluation.probability_at(*step, 101) - 0.15).abs() < f64::EPSILON));
}

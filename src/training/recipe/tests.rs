//! Tests of choices, plans and configurations on generated texts and with invented speeds.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::recipe::choose::{MOST_EPOCHS, TOKENS_PER_PARAMETER};
use crate::recipe::sample::document_unit;
use crate::recipe::{
    Choice, ExpectedLanguage, Limit, Plan, SHORT_LENGTH, Size, TextSample, Wish, choose, to_yaml,
};
use base::families::Family;
use base::fs;
use base::quantity::format_duration;
use config::{BatchSize, DataConfig, DocumentUnit, SourceConfig};
use data::corpus::Corpus;

/// The training speed on a machine with `flops_per_second`: a token takes six operations per parameter.
fn speed(flops_per_second: f64) -> impl Fn(Size, usize) -> Result<Option<f64>> {
    move |size, _| Ok(Some(flops_per_second / (6.0 * size.layer_parameters() as f64)))
}

fn chosen(seconds: f64, text_tokens: f64, flops_per_second: f64) -> Choice {
    choose(seconds, |_| Ok(text_tokens), speed(flops_per_second)).unwrap().unwrap()
}

#[test]
fn a_larger_budget_and_a_faster_machine_give_a_model_no_smaller_and_each_parameter_enough() {
    let mut before = 0;
    for seconds in [60.0, 600.0, 3_600.0, 86_400.0, 1e6] {
        let choice = chosen(seconds, 1e10, 5e11);
        let parameters = choice.size.layer_parameters();
        assert!(parameters >= before, "{choice:?}");
        assert!(choice.tokens_per_parameter() >= TOKENS_PER_PARAMETER, "{choice:?}");
        assert!(choice.tokens <= seconds * choice.tokens_per_second, "{choice:?}");
        before = parameters;
    }
    assert_eq!(chosen(86_400.0, 1e12, 1e15).limit, Limit::Sizes);
    assert_eq!(chosen(600.0, 1e10, 5e11).limit, Limit::Time);
    assert!(
        chosen(600.0, 1e10, 1e13).size.layer_parameters() > chosen(600.0, 1e10, 5e11).size.layer_parameters()
    );
}

#[test]
fn a_small_text_limits_model_vocabulary_and_length_of_training() {
    let choice = chosen(86_400.0, 2e5, 1e15);
    assert_eq!((choice.limit, choice.vocab_size), (Limit::Text, 4096));
    assert!((choice.epochs() - MOST_EPOCHS).abs() < 1e-9, "{choice:?}");
    assert!(chosen(86_400.0, 1e10, 1e15).vocab_size > 16_384);
}

#[test]
fn too_little_memory_and_too_little_speed_limit_the_size() {
    let choice = choose(1e6, |_| Ok(1e10), |size, _| Ok((size.hidden <= 256).then_some(1e6)));
    let choice = choice.unwrap().unwrap();
    assert_eq!((choice.size.hidden, choice.limit), (256, Limit::Memory));
    assert_eq!(choose(1e6, |_| Ok(1e10), |_, _| Ok(None)).unwrap(), None);
    // A machine that is too slow for any size: the smallest is chosen, with fewer tokens than it needs.
    let slow = chosen(10.0, 1e10, 1e8);
    assert_eq!(slow.size, Size::ALL[0]);
    assert!(slow.tokens_per_parameter() < TOKENS_PER_PARAMETER);
    let error = choose(1.0, |_| anyhow::bail!("no text"), speed(1.0)).unwrap_err();
    assert_eq!(error.to_string(), "no text");
}

#[test]
fn a_plan_uses_the_chosen_tokens_and_speed() {
    for (tokens, long_share) in [(4e6, 0.0), (1.5e7, 0.9), (3e8, 0.9), (3e8, 0.1), (5e10, 0.5)] {
        let choice = Choice { tokens, ..chosen(3600.0, 1e8, 1e12) };
        let plan = Plan::new(choice, 32, long_share);
        let planned = plan.tokens() as f64;
        assert!((0.9..=1.001).contains(&(planned / tokens)), "{planned} of {tokens}: {plan:?}");
        assert_eq!(plan.update_tokens() as usize, plan.micro_batches * plan.rows * SHORT_LENGTH);
        assert_eq!(plan.has_long_rows(), tokens > 1e8 && long_share > 0.2);
        assert_eq!(plan.has_counted_embeddings(), tokens <= 1e8);
        assert!(plan.look_steps >= 1 && plan.ramp_steps < plan.steps / 2);
        let seconds = plan.seconds(1.0);
        assert!((seconds * choice.tokens_per_second - planned).abs() < 1.0);
        assert_eq!(plan.seconds(2.0) > seconds, plan.has_long_rows());
    }
    // The size of an update grows with the number of training tokens.
    for (tokens, expected) in [(1.6e7, 4096), (2.56e8, 16_384), (1e15, 524_288)] {
        let plan = Plan::new(Choice { tokens, ..chosen(60.0, 1e8, 1e12) }, 32, 0.0);
        assert_eq!(plan.update_tokens(), expected);
    }
}

#[test]
fn the_configuration_is_valid_and_has_the_planned_values() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text with \"quotes\".txt");
    let line = "A line of some words that say little, again and again, until the file is long enough.\n";
    fs::write_bytes(&text, line.repeat(3000).as_bytes()).unwrap();
    let source = SourceConfig::of_files(vec![text.display().to_string()]);
    let data = DataConfig { sources: vec![source.clone()], ..DataConfig::default() };
    let sample = TextSample::read(&data).unwrap();
    let families = Family::ALL.into_iter().filter(|family| !family.shares_layers);
    for (family, (seconds, long_share)) in families.flat_map(|f| [(f, (60.0, 0.0)), (f, (1e6, 0.9))]) {
        let plan = Plan::new(chosen(seconds, 1e9, 1e12), 128, long_share);
        let wish = Wish {
            sources: vec![SourceConfig { document: DocumentUnit::Line, ..source.clone() }],
            crawl: None,
            language: Some(ExpectedLanguage { code: "en".to_string(), documents: 0.125, text: 0.06 }),
            budget: format_duration(Duration::from_secs_f64(seconds)),
            device: "cpu".to_string(),
            measured_on: "this machine".to_string(),
            output_dir: folder.path().join("a run: 1").display().to_string(),
            family,
        };
        let yaml = to_yaml(&wish, &sample, &plan);
        assert!(yaml.lines().all(|line| line.len() <= 140), "{yaml}");
        let file = folder.path().join("pretrain.yaml");
        fs::write_bytes(&file, yaml.as_bytes()).unwrap();
        let config = config::load_pretrain(&file, &[]).unwrap().config;
        assert_eq!(config.data.sources[0].files, source.files);
        assert_eq!(config.run.output_dir.display().to_string(), wish.output_dir);
        assert_eq!(config.training.max_steps, plan.steps as i64);
        assert_eq!(config.data.max_seq_length, plan.max_seq_length);
        let model = config.model().unwrap();
        let size = plan.choice.size;
        let expected = size.model(family, model.encoder.vocab_size, plan.max_seq_length);
        assert_eq!((model, config.tokenizer.vocab_size), (expected, plan.choice.vocab_size));
        let BatchSize::Rows(rows) = config.training.per_device_train_batch_size else { panic!("{yaml}") };
        let update = rows * config.data.max_seq_length * config.training.gradient_accumulation_steps;
        assert_eq!(update as u64, plan.update_tokens());
        assert_eq!(config.training.phases.len(), usize::from(plan.has_long_rows()));
    }
}

#[test]
fn a_sample_of_many_files_estimates_the_size_of_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = 0;
    for n in 0..100 {
        let text = format!("Text number {n} of a hundred.\n").repeat(20 + n);
        bytes += text.len();
        fs::write_bytes(&folder.path().join(format!("{n}.txt")), text.as_bytes()).unwrap();
    }
    let pattern = folder.path().join("*.txt");
    let files = Corpus::open(&data_config(&pattern, DocumentUnit::File)).unwrap();
    assert_eq!(document_unit(files.files()).unwrap(), Some(DocumentUnit::File));
    let sample = TextSample::read(&data_config(&pattern, DocumentUnit::Line)).unwrap();
    assert_eq!(sample.files, 100);
    let found = sample.text_bytes / bytes as f64;
    assert!((0.9..1.1).contains(&found), "{found} of what there is");
    let cut = sample.cut(512).unwrap();
    assert!(cut.tokens > 0.05 * bytes as f64 && cut.tokens < bytes as f64, "{cut:?}");
    assert!(cut.long_share < 1e-9, "{cut:?}");
    // With a document per file, documents are longer than a row.
    let sample = TextSample::read(&data_config(&pattern, DocumentUnit::File)).unwrap();
    assert!(sample.cut(512).unwrap().long_share > 0.3);
}

#[test]
fn a_large_compressed_text_is_read_in_part() {
    let folder = tempfile::tempdir().unwrap();
    // Lines that look random, so that the file stays large when it is compressed.
    let lines = (0..600_000u64).map(|n| {
        format!("{:x} {:x}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n.wrapping_mul(0xd1b5_4a32_d192_ed03))
    });
    let text: String = lines.collect();
    let path = folder.path().join("large.txt.zst");
    fs::write_bytes(&path, &zstd::encode_all(text.as_bytes(), 1).unwrap()).unwrap();
    let sample = TextSample::read(&data_config(&path, DocumentUnit::Line)).unwrap();
    let found = sample.text_bytes / text.len() as f64;
    assert!((0.8..1.2).contains(&found), "{found} of what there is");
}

#[test]
fn blank_lines_make_paragraphs() {
    let folder = tempfile::tempdir().unwrap();
    for (text, unit) in
        [("one\ntwo\nthree\n", DocumentUnit::Line), ("one\ntwo\n\nthree\n", DocumentUnit::Paragraph)]
    {
        let path = folder.path().join("text.txt");
        fs::write_bytes(&path, text.as_bytes()).unwrap();
        let source = SourceConfig::of_files(vec![path.display().to_string()]);
        let corpus = Corpus::open(&DataConfig { sources: vec![source], ..DataConfig::default() }).unwrap();
        assert_eq!(document_unit(corpus.files()).unwrap(), Some(unit));
    }
}

#[test]
fn the_size_of_a_text_does_not_count_bytes_that_were_read_ahead() {
    let folder = tempfile::tempdir().unwrap();
    let line = "the owl sees the horse, and the wolf waits by the river\n";
    for number in 0..40 {
        std::fs::write(folder.path().join(format!("{number}.txt")), line.repeat(6000)).unwrap();
    }
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, line.repeat(40_000).as_bytes()).unwrap();
    std::fs::write(folder.path().join("packed.gz"), packed.finish().unwrap()).unwrap();
    for (pattern, lines) in [("*.txt", 40 * 6000), ("packed.gz", 40_000)] {
        let data = data_config(&folder.path().join(pattern), DocumentUnit::Line);
        let found = TextSample::read(&data).unwrap().text_bytes;
        // The end of each line is not part of the text.
        let expected = (lines * (line.len() - 1)) as f64;
        assert!((found / expected - 1.0).abs() < 0.02, "{found} of {expected}");
    }
}

/// A configuration that reads the files of `pattern` with one document per `document`.
fn data_config(pattern: &Path, document: DocumentUnit) -> DataConfig {
    let files = vec![pattern.display().to_string()];
    let source = SourceConfig { document, ..SourceConfig::of_files(files) };
    DataConfig { sources: vec![source], ..DataConfig::default() }
}

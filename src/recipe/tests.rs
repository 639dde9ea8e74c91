//! Choices, plans and configurations on made texts and machines.

use std::time::Duration;

use anyhow::Result;

use crate::config;
use crate::config::BatchSize;
use crate::config::DataConfig;
use crate::config::DocumentUnit;
use crate::config::SourceConfig;
use crate::corpus::Corpus;
use crate::families::Family;
use crate::fs;
use crate::quantity::format_duration;
use crate::recipe::Choice;
use crate::recipe::Limit;
use crate::recipe::Plan;
use crate::recipe::SHORT_LENGTH;
use crate::recipe::Size;
use crate::recipe::TextSample;
use crate::recipe::Wish;
use crate::recipe::choose;
use crate::recipe::choose::MOST_EPOCHS;
use crate::recipe::choose::TOKENS_PER_PARAMETER;
use crate::recipe::sample::document_unit;
use crate::recipe::to_yaml;

/// A machine of so many operations a second, where a parameter takes six of them for each token.
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
fn what_does_not_fit_and_what_is_too_slow_is_said() {
    let fits = |size: Size| size.hidden <= 256;
    let choice = choose(1e6, |_| Ok(1e10), |size, _| Ok(fits(size).then_some(1e6))).unwrap().unwrap();
    assert_eq!((choice.size.hidden, choice.limit), (256, Limit::Memory));
    assert_eq!(choose(1e6, |_| Ok(1e10), |_, _| Ok(None)).unwrap(), None);
    // Too slow for any: the smallest, with fewer tokens than it wants.
    let slow = chosen(10.0, 1e10, 1e8);
    assert_eq!(slow.size, Size::ALL[0]);
    assert!(slow.tokens_per_parameter() < TOKENS_PER_PARAMETER);
    let error = choose(1.0, |_| anyhow::bail!("no text"), speed(1.0)).unwrap_err();
    assert_eq!(error.to_string(), "no text");
}

#[test]
fn a_plan_uses_what_was_chosen() {
    for (tokens, long_share) in [(4e6, 0.0), (1.5e7, 0.9), (3e8, 0.9), (3e8, 0.1), (5e10, 0.5)] {
        let choice = Choice { tokens, ..chosen(3600.0, 1e8, 1e12) };
        let plan = Plan::of(choice, 32, long_share);
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
    // The largest size of update is a matter of the length of training.
    let updates = |tokens| Plan::of(Choice { tokens, ..chosen(60.0, 1e8, 1e12) }, 32, 0.0).update_tokens();
    assert_eq!((updates(1.6e7), updates(2.56e8), updates(1e15)), (4096, 16_384, 524_288));
}

#[test]
fn the_configuration_is_a_valid_one_and_says_what_was_planned() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text with \"quotes\".txt");
    let line = "A line of some words that say little, again and again, until the file is long enough.\n";
    fs::write_bytes(&text, line.repeat(3000).as_bytes()).unwrap();
    let source = SourceConfig::of_files(vec![text.display().to_string()]);
    let data = DataConfig { sources: vec![source.clone()], ..DataConfig::default() };
    let sample = TextSample::read(&data).unwrap();
    let families = Family::ALL.into_iter().filter(|family| !family.shares_layers);
    for (family, (seconds, long_share)) in families.flat_map(|f| [(f, (60.0, 0.0)), (f, (1e6, 0.9))]) {
        let plan = Plan::of(chosen(seconds, 1e9, 1e12), 128, long_share);
        let wish = Wish {
            sources: vec![SourceConfig { document: DocumentUnit::Line, ..source.clone() }],
            crawl: None,
            language: Some("en".to_string()),
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
fn a_sample_of_many_and_of_compressed_files_tells_the_size_of_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = 0;
    for n in 0..100 {
        let text = format!("Text number {n} of a hundred.\n").repeat(20 + n);
        bytes += text.len();
        fs::write_bytes(&folder.path().join(format!("{n}.txt")), text.as_bytes()).unwrap();
    }
    let data = |document| DataConfig {
        sources: vec![SourceConfig {
            document,
            ..SourceConfig::of_files(vec![format!("{}/*.txt", folder.path().display())])
        }],
        ..DataConfig::default()
    };
    let files = Corpus::open(&data(DocumentUnit::File)).unwrap();
    assert_eq!(document_unit(files.files()).unwrap(), Some(DocumentUnit::File));
    let sample = TextSample::read(&data(DocumentUnit::Line)).unwrap();
    assert_eq!(sample.files, 100);
    let found = sample.text_bytes / bytes as f64;
    assert!((0.9..1.1).contains(&found), "{found} of what there is");
    let cut = sample.cut(512).unwrap();
    assert!(cut.tokens > 0.05 * bytes as f64 && cut.tokens < bytes as f64, "{cut:?}");
    assert!(cut.long_share < 1e-9, "{cut:?}");
    // Whole files are documents longer than a row.
    assert!(TextSample::read(&data(DocumentUnit::File)).unwrap().cut(512).unwrap().long_share > 0.3);
}

#[test]
fn a_large_compressed_text_is_read_in_part() {
    let folder = tempfile::tempdir().unwrap();
    // Random enough that it stays large when it is compressed.
    let line = |n: u64| {
        format!("{:x} {:x}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n.wrapping_mul(0xd1b5_4a32_d192_ed03))
    };
    let text: String = (0..600_000).map(line).collect();
    let path = folder.path().join("large.txt.zst");
    fs::write_bytes(&path, &zstd::encode_all(text.as_bytes(), 1).unwrap()).unwrap();
    let source = SourceConfig {
        document: DocumentUnit::Line,
        ..SourceConfig::of_files(vec![path.display().to_string()])
    };
    let sample = TextSample::read(&DataConfig { sources: vec![source], ..DataConfig::default() }).unwrap();
    let found = sample.text_bytes / text.len() as f64;
    assert!((0.8..1.2).contains(&found), "{found} of what there is");
}

#[test]
fn blank_lines_make_paragraphs() {
    let folder = tempfile::tempdir().unwrap();
    let unit_of = |text: &str| {
        let path = folder.path().join("text.txt");
        fs::write_bytes(&path, text.as_bytes()).unwrap();
        let source = SourceConfig::of_files(vec![path.display().to_string()]);
        let corpus = Corpus::open(&DataConfig { sources: vec![source], ..DataConfig::default() }).unwrap();
        document_unit(corpus.files()).unwrap()
    };
    assert_eq!(unit_of("one\ntwo\nthree\n"), Some(DocumentUnit::Line));
    assert_eq!(unit_of("one\ntwo\n\nthree\n"), Some(DocumentUnit::Paragraph));
}

#[test]
fn the_size_of_a_text_is_that_of_its_lines_and_not_of_what_waits_in_buffers() {
    let folder = tempfile::tempdir().unwrap();
    let line = "the owl sees the horse, and the wolf waits by the river\n";
    for number in 0..40 {
        std::fs::write(folder.path().join(format!("{number}.txt")), line.repeat(6000)).unwrap();
    }
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, line.repeat(40_000).as_bytes()).unwrap();
    std::fs::write(folder.path().join("packed.gz"), packed.finish().unwrap()).unwrap();
    let of = |pattern: &str| {
        let files = folder.path().join(pattern).display().to_string();
        let source = SourceConfig { document: DocumentUnit::Line, ..SourceConfig::of_files(vec![files]) };
        let data = DataConfig { sources: vec![source], ..DataConfig::default() };
        TextSample::read(&data).unwrap().text_bytes
    };
    // Without the end of each line, which is no text.
    let plain = (40 * 6000 * (line.len() - 1)) as f64;
    assert!((of("*.txt") / plain - 1.0).abs() < 0.02, "{} of {plain}", of("*.txt"));
    let packed = (40_000 * (line.len() - 1)) as f64;
    assert!((of("packed.gz") / packed - 1.0).abs() < 0.02, "{} of {packed}", of("packed.gz"));
}

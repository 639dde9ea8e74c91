//! A small configuration and a made-up corpus, for tests of the whole program.

use std::fmt::Write as _;

/// A row of 32 tokens, 8 rows a step, 40 steps: the whole run takes a second or two. In f32 whatever the machine, so
/// that losses can be compared with those that `evaluate` computes in f32.
pub(crate) const CONFIG: &str = "\
run: {output_dir: run, seed: 7, threads: 2, sample_text: 'the <mask> sees <mask> and the <mask> sleeps.'}
data:
  sources: [{files: [corpus.txt], document: paragraph}]
  validation_fraction: 0.1
  max_seq_length: 32
tokenizer: {vocab_size: 400}
model:
  roberta: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64, max_position_embeddings: 34}
precision: {compute: f32}
training:
  per_device_train_batch_size: 8
  max_steps: 40
  learning_rate: 3.0e-3
  warmup_steps: 0.1
  weight_decay: 0.01
  logging_steps: 1
  eval_steps: 16
  save_steps: 8
  save_total_limit: 100
";

/// Paragraphs of simple sentences over a small vocabulary: enough grammar to learn something from in forty
/// steps.
pub(crate) fn corpus(paragraphs: u64) -> String {
    let animals = ["cat", "dog", "horse", "bird", "fish", "fox", "bear", "wolf"];
    let verbs = ["sees", "hears", "follows", "likes", "fears", "meets"];
    let ends = ["sleeps", "runs home", "sings all day", "waits by the river", "hides in the wood"];
    // A linear congruential generator is random enough for words, and needs nothing.
    let mut state = 1u64;
    let mut draw = |words: &[&'static str]| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        words[(state >> 33) as usize % words.len()]
    };
    let mut text = String::new();
    for number in 0..paragraphs {
        write!(text, "story {number}.").unwrap();
        for _ in 0..4 {
            write!(text, " the {} {} the {}", draw(&animals), draw(&verbs), draw(&animals)).unwrap();
            writeln!(text, " and the {} {}.", draw(&animals), draw(&ends)).unwrap();
        }
        text.push('\n');
    }
    text
}

/// Sentences in CoNLL's columns; entities have one word or two.
pub(crate) fn tagged(count: usize) -> String {
    let (birds, fish) = (["eagle", "sparrow", "owl"], ["salmon", "trout", "pike"]);
    let mut conll = String::from("# made for a test\n");
    for number in 0..count {
        let (kind, words) = if number % 2 == 0 { ("bird", birds) } else { ("fish", fish) };
        let word = words[number / 2 % 3];
        writeln!(conll, "the\tO").unwrap();
        if number % 5 < 2 {
            writeln!(conll, "king\tB-{kind}\n{word}\tI-{kind}").unwrap();
        } else {
            writeln!(conll, "{word}\tB-{kind}").unwrap();
        }
        writeln!(conll, "sees\tO\nthe\tO\nhorse\tO\n,\tO\nand\tO\nthe\tO\nwolf\tO\n").unwrap();
    }
    conll
}

/// Sentences about two kinds of animals.
pub(crate) fn examples(count: usize) -> String {
    let (birds, fish) = (["eagle", "sparrow", "owl"], ["salmon", "trout", "pike"]);
    let mut csv = String::from("label,text\n");
    for number in 0..count {
        let (label, words) = if number % 2 == 0 { ("bird", birds) } else { ("fish", fish) };
        let word = words[number / 2 % 3];
        writeln!(csv, "{label},\"the {word} sees the horse, and the wolf {number} runs home\"").unwrap();
    }
    csv
}

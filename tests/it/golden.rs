//! Our numbers against PyTorch transformers': hidden states, logits, every gradient and five AdamW steps, on
//! the folders that `scripts/make_golden.py` wrote (its header names the versions).
//!
//! PyTorch computed in f64, so that a difference is our rounding alone. No tensor of a folder stays unread.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{bert, debertav2, modernbert};
use mlmtrain::batches::Batch;
use mlmtrain::config::TrainingConfig;
use mlmtrain::distributed::World;
use mlmtrain::families::{HeadKind, ModelConfig};
use mlmtrain::interop::{PretrainedFolder, read_folder};
use mlmtrain::layers::context::Pass;
use mlmtrain::layers::{Context, Gradients, Parameters, Rows};
use mlmtrain::models::{Blueprint, ClassificationHead, Model, Objective, TokenClassificationHead, TokenIds};
use mlmtrain::optim::Optimizer;
use mlmtrain::tasks::masked_lm::MaskedLm;
use mlmtrain::tasks::sentence_pairs::{About, NextSentence, SentenceOrder, SentencePairs};
use mlmtrain::tasks::{Loss, Supervised, Task};
use mlmtrain::train::step::Stepper;
use serde_json::json;

/// One golden folder.
struct Golden {
    name: &'static str,
    config: ModelConfig,
    folder: PretrainedFolder,
    batch: Batch,
    outputs: Tensors,
}

/// Tensors by name, and which of them were asked for.
pub(crate) struct Tensors {
    pub(crate) all: BTreeMap<String, Tensor>,
    pub(crate) unread: RefCell<Vec<String>>,
}

impl Tensors {
    pub(crate) fn new(all: impl IntoIterator<Item = (String, Tensor)>) -> Self {
        let all: BTreeMap<String, Tensor> = all.into_iter().collect();
        Self { unread: RefCell::new(all.keys().cloned().collect()), all }
    }

    pub(crate) fn get(&self, name: &str) -> &Tensor {
        self.unread.borrow_mut().retain(|unread| unread != name);
        self.all.get(name).unwrap_or_else(|| panic!("no golden tensor `{name}`"))
    }

    /// The batch of `inputs.safetensors`.
    pub(crate) fn batch(&self) -> Batch {
        let ids = |key: &str| self.get(key).to_vec1::<u32>().unwrap();
        let of_pairs = |key: &str| if self.all.contains_key(key) { ids(key) } else { Vec::new() };
        Batch {
            token_keys: (0..ids("ids").len() as u64).collect(),
            sample_ids: vec![0],
            ids: ids("ids"),
            token_type_ids: ids("token_type_ids"),
            position_ids: ids("position_ids"),
            cu_seqlens: ids("cu_seqlens"),
            label_positions: ids("label_positions"),
            labels: ids("labels"),
            pair_positions: of_pairs("pair_positions"),
            pair_labels: of_pairs("pair_labels"),
            ..Batch::default()
        }
    }

    pub(crate) fn numbers(&self, name: &str) -> Vec<f32> {
        self.get(name).to_vec1().unwrap()
    }
}

impl Golden {
    fn read(name: &'static str) -> Self {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
        let tensors = |file: &str| {
            Tensors::new(candle_core::safetensors::load(folder.join(file), &Device::Cpu).unwrap())
        };
        let pretrained = read_folder(&folder).unwrap();
        let inputs = tensors("inputs.safetensors");
        let batch = inputs.batch();
        assert_eq!(*inputs.unread.borrow(), Vec::<String>::new(), "{name}: inputs");
        Self {
            name,
            config: pretrained.config.clone(),
            folder: pretrained,
            batch,
            outputs: tensors("outputs.safetensors"),
        }
    }

    fn fill(&self, parameters: &Parameters) {
        let filled = self.folder.fill(parameters, false).unwrap();
        assert_eq!(filled.notes, Vec::<String>::new(), "{}: weights that nothing reads", self.name);
    }

    fn masked_lm(&self) -> MaskedLm {
        let model = Model::masked_lm(&self.config, 1, &Device::Cpu).unwrap();
        self.fill(&model.parameters);
        MaskedLm { model }
    }

    fn classify(&self) -> Supervised<ClassificationHead> {
        let labels = self.outputs.get("logits").dim(1).unwrap();
        let model = Model::classifier(&self.config, labels, 1, &Device::Cpu).unwrap();
        self.fill(&model.parameters);
        Supervised { model }
    }

    fn token_classify(&self) -> Supervised<TokenClassificationHead> {
        let labels = self.outputs.get("logits").dim(1).unwrap();
        let model = Model::token_classifier(&self.config, labels, 1, &Device::Cpu).unwrap();
        self.fill(&model.parameters);
        Supervised { model }
    }

    fn sentence_pairs<A: About>(&self) -> SentencePairs<A> {
        let blueprint = Blueprint::sentence_pairs(&self.config).unwrap();
        let model = blueprint.initialise(1, &Device::Cpu).unwrap();
        self.fill(&model.parameters);
        SentencePairs::new(model)
    }

    fn regression(&self) -> Supervised<ClassificationHead> {
        let task = self.classify();
        let head = task.model.head.clone().with_objective(Objective::Numbers);
        Supervised { model: Model { head, ..task.model } }
    }

    /// The largest difference of two tensors, relative to the largest value.
    #[track_caller]
    fn check(&self, what: &str, got: &Tensor, tolerance: f64) {
        let want = self.outputs.get(what);
        let error = largest(&(got - want).unwrap()) / largest(want);
        assert!(error < tolerance, "{}: `{what}` differs by {error:.2e}", self.name);
    }

    /// A number that should be `want`.
    #[track_caller]
    fn check_number(&self, what: &str, got: f64, want: f32, tolerance: f64) {
        let error = (got / f64::from(want) - 1.0).abs();
        assert!(error < tolerance, "{}: {what} is {got}, not {want}", self.name);
    }

    /// The same weights and tokens in the decoder form, with the numbers of `causal.safetensors`.
    fn causal(self) -> Self {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(self.name);
        let file = folder.join("causal.safetensors");
        let outputs = Tensors::new(candle_core::safetensors::load(file, &Device::Cpu).unwrap());
        let ids = |key: &str| outputs.get(key).to_vec1::<u32>().unwrap();
        let batch = Batch {
            label_positions: ids("label_positions"),
            labels: ids("labels"),
            is_causal: true,
            ..self.batch
        };
        Self { batch, outputs, ..self }
    }

    fn check_hidden_states<H>(&self, model: &Model<H>) {
        let batch = &self.batch;
        let rows = rows_of(batch);
        let ctx = Context { parameters: &model.parameters, rows, pass: None };
        let offset = self.config.position_offset() as u32;
        let position_ids: Vec<u32> = batch.position_ids.iter().map(|position| position + offset).collect();
        let tokens = TokenIds {
            ids: (&batch.ids).into(),
            position_ids: (&position_ids).into(),
            token_type_ids: (&batch.token_type_ids).into(),
        };
        let (hidden_td, _) = model.encoder.forward(tokens, None, &ctx).unwrap();
        self.check("hidden", &hidden_td, 1e-5);
    }

    /// Every gradient of the mean loss, which is what a trainer asks for.
    fn check_gradients(&self, task: &dyn Task) {
        let gradients = Gradients::new(task.parameters()).unwrap();
        let means: Vec<f32> = task.counts(&self.batch).into_iter().map(|count| 1.0 / count as f32).collect();
        let losses = task.accumulate(&self.batch, Pass::new(1, 1), &means, &gradients).unwrap();
        let loss = losses.iter().map(|loss| loss.read().unwrap().mean()).sum();
        self.check_number("the loss", loss, self.outputs.numbers("loss")[0], 2e-6);
        let norm_of_all = norm(gradients.flat().unwrap());
        self.check_number("the gradient norm", norm_of_all, self.outputs.numbers("grad_norm")[0], 1e-5);
        let golden = |name: &str| self.outputs.get(&format!("grad.{name}"));
        for (name, got) in task.parameters().layout().named(gradients.flat().unwrap()).unwrap() {
            if self.batch.is_causal && !self.outputs.all.contains_key(&format!("grad.{name}")) {
                continue;
            }
            let want = golden(&name);
            // The key bias has no gradient in exact arithmetic (softmax ignores a shift), so that only
            // rounding is there: it is compared with the gradient of the weight beside it.
            // So it is with the bias of keys of positions.
            let only_shifts =
                ["self.key.bias", "k_lin.bias", "pos_key_proj.bias", "attention.key.bias", "attn.k.bias"];
            let size = if only_shifts.iter().any(|end| name.ends_with(end)) {
                norm(golden(&name.replace("bias", "weight")))
            } else {
                norm(want)
            };
            let error = norm(&(&got - want).unwrap()) / size;
            assert!(error < 1e-5, "{}: gradient of `{name}` is off by {error:.2e}", self.name);
        }
    }

    /// Losses and gradient norms before each of five AdamW steps, the weights after them, and the loss with
    /// these.
    fn check_five_steps(&self, task: &dyn Task) {
        let config = TrainingConfig { weight_decay: 0.01, ..TrainingConfig::default() };
        let mut stepper = Stepper {
            optimizer: Optimizer::new(task.parameters(), &config).unwrap(),
            gradients: Gradients::new(task.parameters()).unwrap(),
            max_grad_norm: 1.0,
            seed: 1,
            loss_scale: None,
            world: World::ALONE,
            sums: None,
        };
        let (losses, norms) = (self.outputs.numbers("step_losses"), self.outputs.numbers("step_grad_norms"));
        for (step, (loss, norm)) in (1..).zip(losses.iter().zip(&norms)) {
            // Two halves of the batch would do as well: the loss divides by the global count.
            let outcome = stepper.run(task, std::slice::from_ref(&self.batch), step, 1e-3).unwrap();
            let sum = outcome.losses.iter().map(Loss::mean).sum();
            self.check_number(&format!("the loss before step {step}"), sum, *loss, 2e-6);
            self.check_number(&format!("the gradient norm of step {step}"), outcome.grad_norm, *norm, 1e-5);
        }
        let last = task.evaluate(&self.batch).unwrap()[..task.terms().len()].iter().map(Loss::mean).sum();
        self.check_number("the loss after the last step", last, losses[norms.len()], 2e-6);
        for (name, weight) in task.parameters().named().unwrap() {
            let golden = format!("final.{name}");
            if self.outputs.all.contains_key(&golden) {
                // AdamW divides by roots of tiny squares, which the last bits of gradients move: sums on AVX2
                // are others than on AVX-512.
                self.check(&golden, &weight, 2e-5);
            }
        }
    }

    /// Every tensor of the folder was looked at.
    fn assert_all_read(&self) {
        assert_eq!(
            *self.outputs.unread.borrow(),
            Vec::<String>::new(),
            "{}: compared with nothing",
            self.name
        );
    }
}

/// The segments of a batch.
fn rows_of(batch: &Batch) -> Rows<'_> {
    Rows {
        cu_seqlens: (&batch.cu_seqlens).into(),
        token_keys: (&batch.token_keys).into(),
        is_causal: batch.is_causal,
    }
}

pub(crate) fn norm(t: &Tensor) -> f64 {
    f64::from(t.sqr().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap()).sqrt()
}

pub(crate) fn largest(t: &Tensor) -> f64 {
    f64::from(t.abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap())
}

#[test]
fn masked_lm_and_five_adamw_steps_are_those_of_transformers() {
    for name in [
        "roberta",
        "bert",
        "modernbert",
        "distilbert",
        "xlm_roberta",
        "camembert",
        "deberta_v2",
        "deberta_v2_emd",
        "albert",
        "mpnet",
        "neobert",
    ] {
        let golden = Golden::read(name);
        let task = golden.masked_lm();
        golden.check_hidden_states(&task.model);
        golden.check("logits", &task.logits(&golden.batch).unwrap(), 1e-5);
        golden.check_gradients(&task);
        golden.check_five_steps(&task);
        golden.assert_all_read();
    }
}

#[test]
fn causal_attention_is_that_of_the_decoders_of_transformers() {
    for name in ["bert", "roberta", "modernbert"] {
        let golden = Golden::read(name).causal();
        let task = golden.masked_lm();
        golden.check("logits", &task.logits(&golden.batch).unwrap(), 1e-5);
        golden.check_gradients(&task);
        golden.assert_all_read();
    }
}

#[test]
fn a_classifier_is_that_of_transformers() {
    for name in [
        "roberta_cls",
        "bert_cls",
        "electra_cls",
        "modernbert_cls",
        "modernbert_mean",
        "distilbert_cls",
        "xlm_roberta_cls",
        "deberta_v2_cls",
        "albert_cls",
        "mpnet_cls",
        "neobert_cls",
    ] {
        let golden = Golden::read(name);
        let task = golden.classify();
        golden.check_hidden_states(&task.model);
        golden.check("logits", &task.logits(&golden.batch).unwrap(), 1e-5);
        golden.check_gradients(&task);
        golden.assert_all_read();
    }
}

#[test]
fn a_token_classifier_and_five_adamw_steps_are_those_of_transformers() {
    let names = [
        "roberta_tok",
        "bert_tok",
        "electra_tok",
        "modernbert_tok",
        "distilbert_tok",
        "deberta_v2_tok",
        "albert_tok",
        "mpnet_tok",
        "neobert_tok",
    ];
    for name in names {
        let golden = Golden::read(name);
        let task = golden.token_classify();
        golden.check_hidden_states(&task.model);
        golden.check("logits", &task.logits(&golden.batch).unwrap(), 1e-5);
        golden.check_gradients(&task);
        golden.check_five_steps(&task);
        golden.assert_all_read();
    }
}

#[test]
fn regression_and_five_adamw_steps_are_those_of_transformers() {
    for name in ["roberta_reg", "bert_reg"] {
        let golden = Golden::read(name);
        assert_eq!(golden.folder.head, HeadKind::Regression);
        let task = golden.regression();
        golden.check_hidden_states(&task.model);
        golden.check("logits", &task.logits(&golden.batch).unwrap(), 1e-5);
        golden.check_gradients(&task);
        golden.check_five_steps(&task);
        golden.assert_all_read();
    }
}

#[test]
fn pairs_of_segments_and_five_adamw_steps_are_those_of_transformers() {
    fn check<A: About>(name: &'static str) {
        let golden = Golden::read(name);
        assert_eq!(golden.folder.head, HeadKind::SentencePairs);
        let task = golden.sentence_pairs::<A>();
        golden.check_hidden_states(&task.model);
        golden.check("logits", &task.logits(&golden.batch).unwrap(), 1e-5);
        golden.check("pair_logits", &task.pair_logits(&golden.batch).unwrap(), 1e-5);
        golden.check_gradients(&task);
        golden.check_five_steps(&task);
        golden.assert_all_read();
    }
    check::<NextSentence>("bert_nsp");
    check::<SentenceOrder>("albert_sop");
}

/// A model of candle-transformers: hidden states of ids and their types, `[1, S]` each.
type Theirs = Box<dyn Fn(&Tensor, &Tensor) -> candle_core::Result<Tensor>>;

/// The second oracle: candle-transformers' models give the same hidden states in f32, one sequence at a time.
/// Its DistilBERT has another GELU than the published one, and its XLM-RoBERTa gives other states than ours,
/// which are those of transformers.
#[test]
fn hidden_states_are_those_of_candle_transformers() {
    hidden_states_are("bert", &json!({}), |vb, config| {
        let model = bert::BertModel::load(vb, &serde_json::from_value(config).unwrap())?;
        Ok(Box::new(move |ids, types| model.forward(ids, types, None)))
    });
    let names = json!({
        "layer_norm_eps": 1e-5, "global_attn_every_n_layers": 3, "global_rope_theta": 500.0, "local_rope_theta": 30.0
    });
    hidden_states_are("modernbert", &names, |vb, config| {
        let model = modernbert::ModernBert::load(vb, &serde_json::from_value(config).unwrap())?;
        Ok(Box::new(move |ids, _| model.forward(ids, &ids.ones_like()?)))
    });
    hidden_states_are("deberta_v2", &json!({}), |vb, config| {
        let config = serde_json::from_value(config).unwrap();
        let model = debertav2::DebertaV2Model::load(vb.pp("deberta"), &config)?;
        Ok(Box::new(move |ids, _| model.forward(ids, None, None)))
    });
}

/// `names`: what the oracle wants in `config.json` beside what is there.
fn hidden_states_are(
    name: &'static str,
    names: &serde_json::Value,
    load: impl FnOnce(VarBuilder<'_>, serde_json::Value) -> candle_core::Result<Theirs>,
) {
    let golden = Golden::read(name);
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let mut config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
    config.as_object_mut().unwrap().extend(names.as_object().unwrap().clone());
    let weights = candle_core::safetensors::load(folder.join("model.safetensors"), &Device::Cpu).unwrap();
    let oracle = load(VarBuilder::from_tensors(weights, DType::F32, &Device::Cpu), config).unwrap();
    let (batch, task) = (&golden.batch, golden.masked_lm());
    let rows = rows_of(batch);
    let ctx = Context { parameters: task.parameters(), rows, pass: None };
    let (ids, position_ids, token_type_ids) =
        ((&batch.ids).into(), (&batch.position_ids).into(), (&batch.token_type_ids).into());
    let tokens = TokenIds { ids, position_ids, token_type_ids };
    let (hidden_td, _) = task.model.encoder.forward(tokens, None, &ctx).unwrap();
    for bounds in batch.cu_seqlens.windows(2) {
        let (start, end) = (bounds[0] as usize, bounds[1] as usize);
        let row = |ids: &[u32]| Tensor::new(&ids[start..end], &Device::Cpu).unwrap().unsqueeze(0).unwrap();
        let want = oracle(&row(&batch.ids), &row(&batch.token_type_ids)).unwrap().squeeze(0).unwrap();
        let got = hidden_td.narrow(0, start, end - start).unwrap();
        let worst = (got - want).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
        assert!(worst < 1e-4, "{name}: tokens {start}..{end} differ by {worst}");
    }
}

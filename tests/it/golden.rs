//! Our numbers against PyTorch transformers': logits, every gradient and five AdamW steps, on the folders
//! that `scripts/make_golden.py` wrote (its header names the versions).

use std::collections::HashMap;
use std::path::PathBuf;

use candle_core::Device;
use candle_core::Tensor;
use mlmtrain::batches::Batch;
use mlmtrain::config::TrainingConfig;
use mlmtrain::distributed::World;
use mlmtrain::families::ModelConfig;
use mlmtrain::interop::PretrainedFolder;
use mlmtrain::interop::read_folder;
use mlmtrain::layers::Context;
use mlmtrain::layers::Gradients;
use mlmtrain::layers::Parameters;
use mlmtrain::layers::Rows;
use mlmtrain::layers::context::Pass;
use mlmtrain::models::Model;
use mlmtrain::models::TokenIds;
use mlmtrain::optim::Optimizer;
use mlmtrain::tasks::Task;
use mlmtrain::tasks::classify::Classify;
use mlmtrain::tasks::masked_lm::MaskedLm;
use mlmtrain::train::step::Stepper;

/// One golden folder.
struct Golden {
    name: &'static str,
    config: ModelConfig,
    folder: PretrainedFolder,
    batch: Batch,
    outputs: HashMap<String, Tensor>,
}

impl Golden {
    fn read(name: &'static str) -> Self {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
        let tensors = |file: &str| candle_core::safetensors::load(folder.join(file), &Device::Cpu).unwrap();
        let pretrained = read_folder(&folder).unwrap();
        let inputs = tensors("inputs.safetensors");
        let ids = |key: &str| inputs[key].to_vec1::<u32>().unwrap();
        let batch = Batch {
            token_keys: (0..ids("ids").len() as u64).collect(),
            sample_ids: vec![0],
            ids: ids("ids"),
            token_type_ids: ids("token_type_ids"),
            position_ids: ids("position_ids"),
            cu_seqlens: ids("cu_seqlens"),
            label_positions: ids("label_positions"),
            labels: ids("labels"),
        };
        Self {
            name,
            config: pretrained.config.clone(),
            folder: pretrained,
            batch,
            outputs: tensors("outputs.safetensors"),
        }
    }

    fn fill(&self, parameters: &Parameters) {
        self.folder.fill(parameters, false).unwrap();
    }

    fn masked_lm(&self) -> MaskedLm {
        let model = Model::masked_lm(&self.config, 1, &Device::Cpu).unwrap();
        self.fill(&model.parameters);
        MaskedLm { model }
    }

    fn classify(&self) -> Classify {
        let labels = self.outputs["logits"].dim(1).unwrap();
        let model = Model::classifier(&self.config, labels, 1, &Device::Cpu).unwrap();
        self.fill(&model.parameters);
        Classify { model }
    }

    fn check_logits(&self, logits: &Tensor) {
        let worst = (logits - &self.outputs["logits"])
            .unwrap()
            .abs()
            .unwrap()
            .max_all()
            .unwrap()
            .to_scalar::<f32>()
            .unwrap();
        println!("{}: logits differ by at most {worst:.2e}", self.name);
        assert!(worst < 1e-4, "{}: logits differ by {worst}", self.name);
    }

    fn golden_gradient(&self, name: &str) -> &Tensor {
        self.outputs.get(&format!("grad.{name}")).unwrap_or_else(|| panic!("no golden gradient of {name}"))
    }

    /// Every gradient of the mean loss, which is what a trainer asks for.
    fn check_gradients(&self, task: &dyn Task) {
        let gradients = Gradients::new(task.parameters()).unwrap();
        let mean = 1.0 / self.batch.num_labels() as f32;
        let losses = task.accumulate(&self.batch, Pass::new(1, 1), &[mean], &gradients).unwrap();
        let loss = losses[0].read().unwrap();
        let want = self.outputs["loss"].to_vec1::<f32>().unwrap()[0];
        assert!(
            (loss.mean() as f32 - want).abs() < 1e-5,
            "{}: loss {} instead of {want}",
            self.name,
            loss.mean()
        );
        let (mut compared, mut worst) = (0, 0.0f64);
        for spec in task.parameters().layout().specs() {
            let want = self.golden_gradient(&spec.name);
            let got = gradients.flat().unwrap().narrow(0, spec.range.start, spec.range.len()).unwrap();
            let got = got.reshape(want.dims()).unwrap();
            let norm = |t: &Tensor| {
                f64::from(t.sqr().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap()).sqrt()
            };
            // The key bias has no gradient in exact arithmetic (softmax ignores a shift), so that only
            // rounding is there: it is compared with the gradient of the weight beside it.
            let size = if spec.name.ends_with("self.key.bias") {
                norm(self.golden_gradient(&spec.name.replace("bias", "weight")))
            } else {
                norm(want)
            };
            let error = norm(&(&got - want).unwrap()) / size;
            worst = worst.max(error);
            assert!(error < 1e-4, "{}: gradient of `{}` is off by {error:.2e}", self.name, spec.name);
            compared += 1;
        }
        assert_eq!(
            compared,
            self.outputs.keys().filter(|k| k.starts_with("grad.")).count(),
            "{}: a gradient was not compared",
            self.name
        );
        println!("{}: {compared} gradients, worst relative error {worst:.2e}", self.name);
    }
}

#[test]
fn masked_lm_logits_and_gradients_are_those_of_transformers() {
    for name in ["roberta", "bert"] {
        let golden = Golden::read(name);
        let task = golden.masked_lm();
        golden.check_logits(&task.logits(&golden.batch).unwrap());
        golden.check_gradients(&task);
    }
}

#[test]
fn classifier_logits_and_gradients_are_those_of_transformers() {
    for name in ["roberta_cls", "bert_cls"] {
        let golden = Golden::read(name);
        let task = golden.classify();
        golden.check_logits(&task.logits(&golden.batch).unwrap());
        golden.check_gradients(&task);
    }
}

#[test]
fn five_adamw_steps_give_the_losses_of_pytorch() {
    for name in ["roberta", "bert"] {
        let golden = Golden::read(name);
        let task = golden.masked_lm();
        let config = TrainingConfig { weight_decay: 0.01, ..TrainingConfig::default() };
        let mut stepper = Stepper {
            optimizer: Optimizer::new(task.parameters(), &config).unwrap(),
            gradients: Gradients::new(task.parameters()).unwrap(),
            max_grad_norm: 1.0,
            seed: 1,
            loss_scale: None,
            world: World::ALONE,
        };
        let want = golden.outputs["step_losses"].to_vec1::<f32>().unwrap();
        for (step, want) in want.iter().enumerate() {
            // Two halves of the batch would do as well: the loss divides by the global count.
            let got = stepper
                .run(&task, std::slice::from_ref(&golden.batch), step as u64 + 1, 1e-3)
                .unwrap()
                .losses[0]
                .mean();
            println!("{name}: loss {got:.6} before step {}, PyTorch's {want:.6}", step + 1);
            assert!(
                (got as f32 - want).abs() < 1e-5,
                "{name}: loss {got} instead of {want} before step {}",
                step + 1
            );
        }
    }
}

/// The second oracle: candle-transformers' BERT gives the same hidden states in f32, one sequence at a time.
#[test]
fn hidden_states_of_bert_are_those_of_candle_transformers() {
    let golden = Golden::read("bert");
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/bert");
    let config = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
    let weights = candle_core::safetensors::load(folder.join("model.safetensors"), &Device::Cpu).unwrap();
    let builder = candle_nn::VarBuilder::from_tensors(weights, candle_core::DType::F32, &Device::Cpu);
    let oracle = candle_transformers::models::bert::BertModel::load(builder, &config).unwrap();
    let (batch, task) = (&golden.batch, golden.masked_lm());
    let rows = Rows { cu_seqlens: (&batch.cu_seqlens).into(), token_keys: (&batch.token_keys).into() };
    let ctx = Context { parameters: task.parameters(), rows, pass: None };
    let (ids, position_ids, token_type_ids) =
        ((&batch.ids).into(), (&batch.position_ids).into(), (&batch.token_type_ids).into());
    let tokens = TokenIds { ids, position_ids, token_type_ids };
    let (hidden_td, _) = task.model.encoder.forward(tokens, &ctx).unwrap();
    for bounds in batch.cu_seqlens.windows(2) {
        let (start, end) = (bounds[0] as usize, bounds[1] as usize);
        let row = |ids: &[u32]| Tensor::new(&ids[start..end], &Device::Cpu).unwrap().unsqueeze(0).unwrap();
        let want =
            oracle.forward(&row(&batch.ids), &row(&batch.token_type_ids), None).unwrap().squeeze(0).unwrap();
        let got = hidden_td.narrow(0, start, end - start).unwrap();
        let worst = (got - want).unwrap().abs().unwrap().max_all().unwrap().to_scalar::<f32>().unwrap();
        assert!(worst < 1e-4, "tokens {start}..{end} differ by {worst}");
    }
}

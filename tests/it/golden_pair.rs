//! Generator and discriminator against PyTorch transformers', with the same drawn ids: logits, every gradient
//! of the joint loss, and five AdamW steps. `scripts/make_golden.py` wrote the folder.

use std::path::Path;

use candle_core::{Device, Result, Tensor};
use mlmtrain::batches::Batch;
use mlmtrain::config::TrainingConfig;
use mlmtrain::distributed::World;
use mlmtrain::layers::context::Pass;
use mlmtrain::layers::{Gradients, Parameters};
use mlmtrain::optim::Optimizer;
use mlmtrain::tasks::replaced_token_detection::ReplacedTokenDetection;
use mlmtrain::tasks::{Loss, PendingLoss, Seen, Task, Term};
use mlmtrain::train::step::Stepper;

use crate::golden::{Tensors, largest, norm};

/// The task with drawn ids that are given.
pub(crate) struct Given {
    pub(crate) task: ReplacedTokenDetection,
    pub(crate) drawn: Tensor,
}

impl Task for Given {
    fn terms(&self) -> &[Term] {
        self.task.terms()
    }

    fn counts(&self, batch: &Batch) -> Vec<usize> {
        self.task.counts(batch)
    }

    fn accumulate(
        &self,
        batch: &Batch,
        pass: Pass,
        scales: &[f32],
        gradients: &Gradients,
    ) -> Result<Vec<PendingLoss>> {
        self.task.accumulate_with(batch, pass, scales, gradients, Some(&self.drawn))
    }

    fn observe(&self, batch: &Batch, pass: Pass, seen: &mut Seen<'_>) -> Result<()> {
        self.task.observe(batch, pass, seen)
    }

    fn logits(&self, batch: &Batch) -> Result<Tensor> {
        self.task.logits(batch)
    }

    fn evaluate(&self, batch: &Batch) -> Result<Vec<Loss>> {
        self.task.evaluate(batch)
    }

    fn parameters(&self) -> &Parameters {
        self.task.parameters()
    }

    fn flops(&self, batch: &Batch) -> f64 {
        self.task.flops(batch)
    }
}

fn tensors(folder: &Path, file: &str) -> Tensors {
    Tensors::new(candle_core::safetensors::load(folder.join(file), &Device::Cpu).unwrap())
}

/// The weights of a folder, which has no tokenizer, and its batch.
fn read(folder: &Path) -> (Given, Batch) {
    let inputs = tensors(folder, "inputs.safetensors");
    let batch = inputs.batch();
    let task = ReplacedTokenDetection::load_models(folder, &Device::Cpu).unwrap();
    (Given { task, drawn: inputs.get("drawn").clone() }, batch)
}

#[track_caller]
fn close(what: &str, got: f64, want: f32, tolerance: f64) {
    let error = (got / f64::from(want) - 1.0).abs();
    assert!(error < tolerance, "{what} is {got}, not {want}");
}

#[test]
fn logits_and_every_gradient_of_the_joint_loss_are_those_of_transformers() {
    check_folder("electra_rtd");
}

/// The discriminator's word embedding is the generator's plus its own, which alone has a gradient of its loss.
#[test]
fn disentangled_embeddings_have_the_gradients_of_pytorch() {
    check_folder("deberta_v2_rtd");
}

fn check_folder(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let ((task, batch), outputs) = (read(&folder), tensors(&folder, "outputs.safetensors"));
    let check = |what: &str, got: &Tensor| {
        let want = outputs.get(what);
        let error = largest(&(got - want).unwrap()) / largest(want);
        assert!(error < 1e-5, "`{what}` differs by {error:.2e}");
    };
    check("generator_logits", &task.logits(&batch).unwrap());
    check("discriminator_logits", &task.task.discriminator_logits(&batch, &task.drawn).unwrap());
    let gradients = Gradients::new(task.parameters()).unwrap();
    let counts = task.counts(&batch);
    let scales: Vec<f32> =
        task.terms().iter().zip(&counts).map(|(term, &n)| (term.weight / n as f64) as f32).collect();
    let losses = task.accumulate(&batch, Pass::new(1, 1), &scales, &gradients).unwrap();
    let means: Vec<f64> = losses.iter().map(|loss| loss.read().unwrap().mean()).collect();
    close("the generator's loss", means[0], outputs.numbers("generator_loss")[0], 2e-6);
    close("the discriminator's loss", means[1], outputs.numbers("discriminator_loss")[0], 2e-6);
    close("the loss", means[0] + 50.0 * means[1], outputs.numbers("loss")[0], 2e-6);
    let flat = gradients.flat().unwrap();
    close("the gradient norm", norm(flat), outputs.numbers("grad_norm")[0], 1e-5);
    let golden = |name: &str| outputs.get(&name.replacen('.', ".grad.", 1));
    for spec in task.parameters().layout().specs() {
        let want = golden(&spec.name);
        let got = flat.narrow(0, spec.range.start, spec.range.len()).unwrap().reshape(want.dims()).unwrap();
        // As in `golden.rs`: this gradient is rounding alone.
        let size = if spec.name.ends_with("self.key.bias") {
            norm(golden(&spec.name.replace("bias", "weight")))
        } else {
            norm(want)
        };
        let error = norm(&(got - want).unwrap()) / size;
        assert!(error < 1e-5, "gradient of `{}` is off by {error:.2e}", spec.name);
    }
    check_five_steps(&task, &batch, &outputs);
    assert_eq!(*outputs.unread.borrow(), Vec::<String>::new(), "compared with nothing");
}

fn check_five_steps(task: &Given, batch: &Batch, outputs: &Tensors) {
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
    let [generator, discriminator, norms] =
        ["step_generator_losses", "step_discriminator_losses", "step_grad_norms"].map(|n| outputs.numbers(n));
    for step in 1..=norms.len() {
        let outcome = stepper.run(task, std::slice::from_ref(batch), step as u64, 1e-3).unwrap();
        let means: Vec<f64> = outcome.losses.iter().map(Loss::mean).collect();
        close(&format!("the generator's loss before step {step}"), means[0], generator[step - 1], 1e-5);
        close(
            &format!("the discriminator's loss before step {step}"),
            means[1],
            discriminator[step - 1],
            1e-5,
        );
        close(&format!("the gradient norm of step {step}"), outcome.grad_norm, norms[step - 1], 1e-5);
    }
    let gradients = Gradients::new(task.parameters()).unwrap();
    let losses = task.accumulate(batch, Pass::new(1, 9), &[1.0, 1.0], &gradients).unwrap();
    close("the generator's last loss", losses[0].read().unwrap().mean(), generator[norms.len()], 1e-5);
    close(
        "the discriminator's last loss",
        losses[1].read().unwrap().mean(),
        discriminator[norms.len()],
        1e-5,
    );
}

//! What runs of the program leave, to be damaged: a pretrained model with its data, a classifier, and a run
//! that diverged. All of them are made with the program itself, in a few seconds.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::material;

/// The last checkpoint of the runs that come to an end, which have two steps.
pub(super) const CHECKPOINT: &str = "checkpoint-2";

/// What the program is called with, and the exit code that is wanted.
pub(crate) type Program<'a> = &'a mut dyn FnMut(&[&str], u8) -> Result<()>;

/// Folders of finished runs.
pub(crate) struct Runs {
    folder: PathBuf,
}

impl Runs {
    /// Makes them in `folder`.
    pub(crate) fn make(folder: &Path, program: Program) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let runs = Self { folder: folder.canonicalize()? };
        let path = |name: &str| runs.folder.join(name).display().to_string();
        fs::write(path("corpus.txt"), material::corpus(100))?;
        fs::write(path("train.csv"), material::examples(64))?;
        fs::write(path("dev.csv"), material::examples(16))?;
        fs::write(path("pretrain.yaml"), material::CONFIG.replace("corpus.txt", &path("corpus.txt")))?;
        let mut finetune = format!("model: {}\ndata:\n  max_seq_length: 32\n", path("pretrained/final"));
        write!(finetune, "  train_file: {}\n  eval_file: {}\n", path("train.csv"), path("dev.csv"))?;
        finetune += "training: {per_device_train_batch_size: 8, logging_steps: 1, warmup_steps: 0}\n";
        fs::write(path("finetune.yaml"), finetune)?;
        let mut run = |command: &[&str], config: &str, output: &str, sets: &[&str], code: u8| {
            let (config, output) = (path(config), format!("run.output_dir={}", path(output)));
            let mut arguments = [command, &["--quiet", "--config", &config]].concat();
            for set in
                [&["run.threads=0", "training.eval_steps=0", "training.save_steps=2", &output], sets].concat()
            {
                arguments.extend(["--set", set]);
            }
            program(&arguments, code)
        };
        let steps = "training.max_steps=2";
        let data = ["data.keep_documents=true", "data.deduplication={exact: true, near_threshold: 0.9}"];
        run(&["pretrain"], "pretrain.yaml", "pretrained", &[steps, data[0], data[1]], 0)?;
        let classify = ["finetune", "--task", "classify"];
        run(&classify, "finetune.yaml", "tuned", &[steps], 0)?;
        let rate = ["training.learning_rate=20000", "training.lr_scheduler_type=constant"];
        run(&classify, "finetune.yaml", "diverged", &[rate[0], rate[1], "training.max_steps=50"], 76)?;
        runs.diverged()?;
        Ok(runs)
    }

    /// Those that were made in `folder` before.
    pub(crate) fn at(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf() }
    }

    /// A file of the pretraining run.
    pub(super) fn pretrained(&self, name: &str) -> PathBuf {
        self.folder.join("pretrained").join(name)
    }

    /// A file of the run of a classifier.
    pub(super) fn tuned(&self, name: &str) -> PathBuf {
        self.folder.join("tuned").join(name)
    }

    /// The folder of the step that failed.
    pub(super) fn diverged(&self) -> Result<PathBuf> {
        for entry in fs::read_dir(self.folder.join("diverged"))? {
            let path = entry?.path();
            if path.file_name().context("it has a name")?.to_string_lossy().starts_with("diverged-") {
                return Ok(path);
            }
        }
        bail!("the run that was to diverge left no step that failed")
    }
}

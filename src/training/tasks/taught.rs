//! Predictions of teachers for a set of training examples, kept so that the runs of a command share it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

/// The probabilities for each example, in the order of the student's labels.
pub(super) type Taught = Vec<Vec<f32>>;

/// Predictions by the folder of the teacher.
#[derive(Default)]
pub(super) struct Teachers(Mutex<BTreeMap<PathBuf, Arc<Taught>>>);

impl Teachers {
    /// Returns the predictions of the teacher in `folder`, which `predict` computes the first time. Runs at
    /// the same time wait for the first one.
    pub(super) fn taught(
        &self,
        folder: &Path,
        predict: impl FnOnce() -> Result<Taught>,
    ) -> Result<Arc<Taught>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taught) = known.get(folder) {
            return Ok(Arc::clone(taught));
        }
        let taught = Arc::new(predict()?);
        known.insert(folder.to_path_buf(), Arc::clone(&taught));
        Ok(taught)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::Problem;

    #[test]
    fn a_teacher_predicts_once_and_again_only_if_it_failed() {
        let teachers = Teachers::default();
        let failed = teachers.taught(Path::new("a"), || Err(Problem::new("interrupted").into()));
        assert!(failed.is_err());
        let first = teachers.taught(Path::new("a"), || Ok(vec![vec![0.25, 0.75]])).unwrap();
        let again = teachers.taught(Path::new("a"), || panic!("it has predicted already")).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        let other = teachers.taught(Path::new("b"), || Ok(Vec::new())).unwrap();
        assert!(other.is_empty());
    }
}

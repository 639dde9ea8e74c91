//! The file `products.json` of a run folder: the algorithms that each process of a run has chosen for the
//! matrix products on its GPU. A resumed run uses them again and so computes the same bits.
//!
//! The choice itself is made in `ops/cuda`. A run on the CPU has no such file. A file that cannot be used (it
//! is damaged, or of another GPU or another version of the library) is reported in a line and does not keep a
//! run from resuming: it decides the last bits of a run, not whether the run is right, and the algorithms are
//! chosen anew.

use std::path::{Path, PathBuf};

use anyhow::Result;
use candle_core::Device;
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::telemetry::Progress;
use base::error::Problem;
use base::fs;
use model::distributed::World;
use ops::cuda::{Algorithms, Gpu};

/// Name of the file.
pub(super) const PRODUCTS: &str = "products.json";

/// Largest file that is read: some hundred thousand products, more than any run has.
const CAP_BYTES: u64 = 64 << 20;

/// Content of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    /// SHA-256 of `ranks` as JSON without spaces. The bytes of an algorithm go to the library as they are, so
    /// a damaged one must not get there.
    sha256: String,
    /// Algorithms of each process; `None` for a process without a GPU.
    ranks: Vec<Option<Algorithms>>,
}

/// Writer of the file of a run.
pub(super) struct ProductsFile {
    path: PathBuf,
    /// The algorithms that this process has sent to rank 0.
    sent: Option<Algorithms>,
    /// The algorithms of each process, as far as rank 0 has them.
    ranks: Vec<Option<Algorithms>>,
    /// True if `ranks` has what the file does not have.
    is_new: bool,
}

impl ProductsFile {
    /// Prepares the file of a run folder, which is not written yet.
    pub(super) fn new(output: &Path, world: World) -> Self {
        let path = output.join(PRODUCTS);
        Self { path, sent: None, ranks: vec![None; world.size], is_new: false }
    }

    /// Collects the algorithms of all processes. To be called by all of them, before a checkpoint.
    pub(super) fn collect(&mut self, world: World, device: &Device) -> Result<()> {
        let own = Gpu::of_device(device)?.map(|gpu| gpu.algorithms()).transpose()?;
        // After some steps there are no new ones, and nothing large is sent.
        let news = own.filter(|own| !own.chosen.is_empty() && self.sent.as_ref() != Some(own));
        for (known, news) in self.ranks.iter_mut().zip(world.gather(&news)?) {
            self.is_new |= news.is_some();
            *known = news.or_else(|| known.take());
        }
        self.sent = news.or_else(|| self.sent.take());
        Ok(())
    }

    /// Writes the file if there are new algorithms. Returns a warning if that fails: the checkpoint is worth
    /// more than its last bits, and the next one writes the file again.
    pub(super) fn write(&mut self) -> Option<String> {
        if !self.is_new {
            return None;
        }
        let written = text_of(&self.ranks).and_then(|text| fs::write_bytes(&self.path, text.as_bytes()));
        self.is_new = written.is_err();
        written.err().map(|e| format!("{e:#}; a run resumed from here may differ in last bits"))
    }
}

fn text_of(ranks: &[Option<Algorithms>]) -> Result<String> {
    let content = Content { sha256: sum_of(ranks)?, ranks: ranks.to_vec() };
    Ok(serde_json::to_string_pretty(&content)? + "\n")
}

fn sum_of(ranks: &[Option<Algorithms>]) -> Result<String> {
    Ok(fs::sha256_of(&[&serde_json::to_vec(ranks)?]))
}

fn read(path: &Path) -> Result<Vec<Option<Algorithms>>> {
    let text = fs::read_text_capped(path, CAP_BYTES)?;
    let damaged = |why: String| Problem::new(why).at(path.display());
    let content: Content =
        serde_json::from_str(&text).map_err(|e| damaged(format!("is not a list of algorithms: {e}")))?;
    if content.sha256 != sum_of(&content.ranks)? {
        return Err(damaged("is damaged: its hash is another one".to_string()).into());
    }
    Ok(content.ranks)
}

/// Uses the algorithms stored in a run folder for the products of this process from now on.
pub(super) fn use_stored(run_folder: &Path, machine: &Machine, progress: &Progress) -> Result<()> {
    let path = run_folder.join(PRODUCTS);
    let Some(gpu) = Gpu::of_device(&machine.device)?.filter(|_| fs::exists(&path)) else { return Ok(()) };
    let here = gpu.algorithms()?;
    match read(&path) {
        Ok(ranks) => match of_rank(&ranks, machine.world.rank, &here) {
            Ok(stored) => gpu.use_algorithms(&stored.chosen),
            Err(why) => progress.note(&format!("`{}` is not used: {why}", path.display())),
        },
        Err(e) => progress.warn(&format!("{e:#}; algorithms are chosen anew, so last bits may differ")),
    }
    Ok(())
}

/// Returns the algorithms for a process, those of rank 0 if the run had fewer processes before; an error if
/// they are not of the GPU and the library `here`.
fn of_rank<'a>(
    ranks: &'a [Option<Algorithms>],
    rank: usize,
    here: &Algorithms,
) -> Result<&'a Algorithms, String> {
    let stored = ranks.get(rank).or(ranks.first()).and_then(Option::as_ref);
    let Some(stored) = stored else { return Err("this process had no GPU then".to_string()) };
    if (&stored.device, &stored.library) != (&here.device, &here.library) {
        return Err(format!(
            "its algorithms are of {} on `{}`, this is {} on `{}`; algorithms are chosen anew",
            stored.library, stored.device, here.library, here.device
        ));
    }
    Ok(stored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ops::cuda::Algorithm;

    /// Algorithms of a GPU with this name, as many as `digits` has characters.
    fn algorithms(device: &str, digits: &str) -> Algorithms {
        let chosen = digits.chars().map(|digit| {
            let bytes: String = std::iter::repeat_n(digit, 128).collect();
            (format!("product {digit}"), Algorithm::try_from(bytes).unwrap())
        });
        let chosen = chosen.collect();
        Algorithms { device: device.to_string(), library: "cuBLASLt 130002".to_string(), chosen }
    }

    #[test]
    fn the_file_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(PRODUCTS);
        let ranks = vec![Some(algorithms("H200", "1f")), None, Some(algorithms("A100", ""))];
        fs::write_bytes(&path, text_of(&ranks).unwrap().as_bytes()).unwrap();
        assert_eq!(read(&path).unwrap(), ranks);
    }

    #[test]
    fn any_damage_to_the_file_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(PRODUCTS);
        let whole = text_of(&[Some(algorithms("H200", "1f"))]).unwrap();
        let damages = [
            whole[..whole.len() / 2].to_string(),
            String::new(),
            "[]".to_string(),
            whole.replacen("1111", "1011", 1),
            whole.replacen("1111", "111", 1),
            whole.replacen("H200", "H100", 1),
            whole.replacen("product 1", "product 2", 1),
            whole.replacen("\"library\"", "\"of\"", 1),
        ];
        for damaged in damages {
            assert_ne!(damaged, whole);
            std::fs::write(&path, &damaged).unwrap();
            let message = format!("{:#}", read(&path).unwrap_err());
            assert!(message.contains("products.json: is "), "{message}");
        }
    }

    #[test]
    fn only_algorithms_of_the_same_gpu_and_library_are_used() {
        let here = algorithms("H200", "");
        let ranks = [Some(algorithms("H200", "1")), Some(algorithms("H200", "2")), None];
        for (rank, wanted) in [(0, 0), (1, 1), (3, 0)] {
            assert_eq!(of_rank(&ranks, rank, &here), Ok(ranks[wanted].as_ref().unwrap()));
        }
        assert_eq!(of_rank(&ranks, 2, &here).unwrap_err(), "this process had no GPU then");
        let newer = Algorithms { library: "cuBLASLt 130100".to_string(), ..here };
        assert_eq!(
            of_rank(&ranks, 0, &newer).unwrap_err(),
            "its algorithms are of cuBLASLt 130002 on `H200`, this is cuBLASLt 130100 on `H200`; algorithms \
             are chosen anew"
        );
        assert!(
            of_rank(&ranks, 0, &algorithms("A100", ""))
                .unwrap_err()
                .contains("this is cuBLASLt 130002 on `A100`")
        );
    }

    #[test]
    fn a_run_on_the_cpu_writes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = ProductsFile::new(folder.path(), World::ALONE);
        file.collect(World::ALONE, &Device::Cpu).unwrap();
        assert_eq!(file.write(), None);
        assert!(!folder.path().join(PRODUCTS).exists());
    }

    #[test]
    fn the_file_is_written_only_if_there_are_new_algorithms() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = ProductsFile::new(folder.path(), World::ALONE);
        file.ranks = vec![Some(algorithms("H200", "1"))];
        file.is_new = true;
        assert_eq!(file.write(), None);
        assert_eq!(read(&file.path).unwrap(), file.ranks);
        std::fs::remove_file(&file.path).unwrap();
        assert_eq!(file.write(), None);
        assert!(!file.path.exists());
        // A folder that cannot be written to costs a warning.
        file.is_new = true;
        file.path = folder.path().join("gone").join("file").join(PRODUCTS);
        std::fs::write(folder.path().join("gone"), "a file").unwrap();
        let warning = file.write().unwrap();
        assert!(warning.contains("may differ in last bits"), "{warning}");
        assert!(file.is_new, "it is written with the next checkpoint");
    }
}

//! The configurations of the runs with each of several seeds.

use std::ffi::OsStr;
use std::path::Path;

use serde_json::Value as Json;

use crate::FinetuneConfig;
use crate::variables;
use crate::variables::join_path;

impl FinetuneConfig {
    /// Returns the configuration of the run with one of several seeds: it names only this seed, and its
    /// folders on the disk and in a bucket are `seed-N` in those of all seeds.
    #[must_use]
    pub fn with_seed(&self, seed: u64) -> Self {
        let name = format!("seed-{seed}");
        let mut one = self.clone();
        one.seeds = vec![seed];
        one.run.output_dir = variables::below(&self.run.output_dir.to_string_lossy(), &name).into();
        one.run.upload_to = self.run.upload_to.as_deref().map(|url| variables::below(url, &name));
        one
    }
}

/// Returns the configuration of the run in a folder `seed-N`, given that of several seeds: it names only seed
/// `N`, and its folders. Earlier versions saved the configuration of all seeds in the folder of each. A
/// configuration of a single run is returned as it is.
pub fn for_seed_folder(mut saved: Json, folder: &Path) -> Json {
    let name = folder.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let Some(seed) = name.strip_prefix("seed-").and_then(|seed| seed.parse::<u64>().ok()) else {
        return saved;
    };
    let seeds = saved.get("seeds").and_then(Json::as_array);
    if !seeds.is_some_and(|seeds| seeds.len() > 1 && seeds.contains(&Json::from(seed))) {
        return saved;
    }
    saved["seeds"] = Json::from(vec![seed]);
    for key in ["output_dir", "upload_to"] {
        if let Some(Json::String(place)) = saved.get_mut("run").and_then(|run| run.get_mut(key)) {
            *place = join_path(place, name);
        }
    }
    saved
}

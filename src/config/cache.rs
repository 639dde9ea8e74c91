//! The local cache of objects that URLs name.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The cache of objects in the place of paths: `s3://`, `gs://`, `az://`, `https://`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// Its folder, which processes may share; `mlmtrain` in the user's folder of caches when absent.
    #[schemars(extend("x-path" = true))]
    pub dir: Option<PathBuf>,
    /// Bytes that it may take, such as `50GB`: what was not used for longest goes first, and nothing that a
    /// run has in use, even where that takes more.
    pub max_bytes: u64,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self { dir: None, max_bytes: 100_000_000_000 }
    }
}

impl CacheConfig {
    /// Returns the folder of the cache; without `dir` it is `mlmtrain` in the user's cache folder, from the
    /// variables `XDG_CACHE_HOME` or `HOME`.
    pub fn folder(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| {
            let of_user = folder_in("XDG_CACHE_HOME").or_else(|| Some(folder_in("HOME")?.join(".cache")));
            of_user.unwrap_or_else(std::env::temp_dir).join("mlmtrain")
        })
    }
}

/// Returns the folder that an environment variable names; `None` if the variable is unset or empty.
fn folder_in(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

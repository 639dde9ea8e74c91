//! Where objects that URLs name are kept on this disk.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

/// The cache of objects in the place of paths: `s3://`, `gs://`, `az://`, `https://`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// Its folder, which processes may share; `mlmtrain` in the user's folder of caches when absent.
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
    /// Its folder, by the variables of this process where none is named.
    pub fn folder(&self) -> PathBuf {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let of_user = || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
        self.dir.clone().unwrap_or_else(|| of_user().unwrap_or_else(std::env::temp_dir).join("mlmtrain"))
    }
}

//! Memory: what there is, what is free, and in which pages it comes.

use std::path::Path;

use serde::Serialize;

use crate::fs;
use crate::fs::read_system_text;

/// The memory of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// All of it.
    pub total_bytes: Option<u64>,
    /// What the system could give without swapping.
    pub available_bytes: Option<u64>,
    /// The least limit of this process's control groups; `None` without one.
    pub group_limit_bytes: Option<u64>,
    /// What is left of the limit that is nearest.
    pub group_room_bytes: Option<u64>,
    /// What a run would plan with: the least of these.
    pub free_bytes: Option<u64>,
    /// Who gets huge pages: `always`, `madvise` (who asks, as this program does) or `never`.
    pub huge_pages: Option<String>,
}

impl Memory {
    /// What the system tells where `root` is `/`.
    pub(super) fn below(root: &Path) -> Self {
        let limits = fs::group_limits(root);
        Self {
            total_bytes: fs::system_bytes(root, "MemTotal:"),
            available_bytes: fs::system_bytes(root, "MemAvailable:"),
            group_limit_bytes: limits.memory_bytes,
            group_room_bytes: limits.room_bytes,
            free_bytes: fs::available_bytes_below(root),
            huge_pages: read_system_text(&root.join("sys/kernel/mm/transparent_hugepage/enabled"))
                .and_then(|text| chosen(&text)),
        }
    }
}

/// What stands in brackets, as in `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_string())
}

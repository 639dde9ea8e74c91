//! Memory of a machine: how much it has, how much is free, and the use of huge pages.

use std::path::Path;

use serde::Serialize;

use base::fs;
use base::fs::read_system_text;

/// The memory of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Total memory.
    pub total_bytes: Option<u64>,
    /// Memory that the system can provide without swapping.
    pub available_bytes: Option<u64>,
    /// The smallest memory limit of this process's control groups; `None` without a limit.
    pub group_limit_bytes: Option<u64>,
    /// Memory left below the limit that is closest to being reached.
    pub group_room_bytes: Option<u64>,
    /// Memory that a run would plan with: the smallest of available memory, room in control groups, and
    /// `ulimit -v`.
    pub free_bytes: Option<u64>,
    /// Processes that get huge pages: `always` all, `madvise` those that ask for them (as this program does),
    /// `never` none.
    pub huge_pages: Option<String>,
}

impl Memory {
    /// Reads the figures of the system below `root`, which is `/` outside of tests.
    pub(super) fn read(root: &Path) -> Self {
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

/// The word in brackets, as in `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_string())
}

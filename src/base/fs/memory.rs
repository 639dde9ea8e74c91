//! Memory of this process and of the system: peak use, and how much is left. The figures come from Linux's
//! `/proc` and from its control groups (`groups.rs`).
//!
//! On other systems every answer is `None`.

use std::io::Write;
use std::path::Path;

use crate::fs::groups::group_limits;
use crate::fs::limits::{ADDRESS_SPACE, limit_bytes};
use crate::fs::{append, read_system_text};

/// Peak resident set size of this process, in bytes.
pub fn peak_resident_bytes() -> Option<u64> {
    field_bytes(&read_system_text(Path::new("/proc/self/status"))?, "VmHWM:")
}

/// Processor time of the calling thread, in seconds.
pub fn thread_seconds() -> Option<f64> {
    let text = read_system_text(Path::new("/proc/thread-self/schedstat"))?;
    text.split_whitespace().next()?.parse::<f64>().ok().map(|nanoseconds| nanoseconds * 1e-9)
}

/// Resets the peak that [`peak_resident_bytes`] returns. Where the system does not support that, nothing
/// changes.
pub fn forget_peak() {
    if let Ok(mut file) = append(Path::new("/proc/self/clear_refs")) {
        let _ = file.write_all(b"5");
    }
}

/// Bytes that can still be allocated without swapping: the available memory of the system, or less if a
/// control group or `ulimit -v` allows less.
pub fn available_bytes() -> Option<u64> {
    available_bytes_below(Path::new("/"))
}

/// Same as [`available_bytes`], with `root` in place of `/`.
pub fn available_bytes_below(root: &Path) -> Option<u64> {
    let system = system_bytes(root, "MemAvailable:");
    [system, group_limits(root).room_bytes, addresses_left(root)].into_iter().flatten().min()
}

/// Bytes of address space that `ulimit -v` leaves to this process; `None` without a limit. Mapped memory
/// counts even if it is not used.
fn addresses_left(root: &Path) -> Option<u64> {
    let limit = limit_bytes(root, ADDRESS_SPACE)?;
    let taken = field_bytes(&read_system_text(&root.join("proc/self/status"))?, "VmSize:")?;
    Some(limit.saturating_sub(taken))
}

/// The value of a line of `/proc/meminfo`, in bytes; `name` is for example `MemTotal:`. `root` is `/` outside
/// of tests.
pub fn system_bytes(root: &Path, name: &str) -> Option<u64> {
    field_bytes(&read_system_text(&root.join("proc/meminfo"))?, name)
}

/// Asks the kernel to kill this process before any other when memory runs out. Where the system does not
/// support that, nothing changes.
pub fn end_me_first() {
    if let Ok(mut file) = append(Path::new("/proc/self/oom_score_adj")) {
        let _ = file.write_all(b"1000");
    }
}

/// The value of a line such as `VmHWM:   12 kB`, in bytes.
fn field_bytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_kib() {
        let status = "Name:\tmlmtrain\nVmPeak:\t  300 kB\nVmHWM:\t   200 kB\n";
        assert_eq!(field_bytes(status, "VmHWM:"), Some(200 << 10));
        assert_eq!((field_bytes(status, "VmSwap:"), field_bytes("VmHWM: many", "VmHWM:")), (None, None));
    }

    #[test]
    fn a_limit_of_addresses_is_one_of_memory() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "proc/meminfo", "MemAvailable: 4000 kB\n");
        write(root.path(), "proc/self/status", "VmSize:\t 1000 kB\n");
        assert_eq!(available_bytes_below(root.path()), Some(4000 << 10));
        write(root.path(), "proc/self/limits", "Max address space  2048000  unlimited  bytes\n");
        assert_eq!(available_bytes_below(root.path()), Some(1000 << 10));
        write(root.path(), "proc/self/limits", "Max address space  1024  unlimited  bytes\n");
        assert_eq!(available_bytes_below(root.path()), Some(0));
    }

    #[test]
    fn this_process_has_a_peak_and_something_is_left() {
        if Path::new("/proc/self/status").exists() {
            assert!(peak_resident_bytes().unwrap() > 1 << 20);
            assert!(available_bytes().unwrap() > 1 << 20);
        }
    }

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

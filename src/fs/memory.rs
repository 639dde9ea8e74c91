//! How much memory this process took at most, and how much is left: what Linux tells in `/proc` and
//! `/sys/fs/cgroup`.
//!
//! Elsewhere nothing is known, and every answer is `None`.

use std::io::Write;
use std::path::Path;
use std::path::PathBuf;

use crate::fs::append;
use crate::fs::read_text_capped;

/// Most bytes of such a file.
const CAP_BYTES: u64 = 1 << 20;

/// The most memory that this process has held at once (its resident set), in bytes.
pub fn peak_resident_bytes() -> Option<u64> {
    field_bytes(&read("/proc/self/status")?, "VmHWM:")
}

/// Bytes that may still be taken without swapping: what the system has, or less where a control group allows
/// less.
pub fn available_bytes() -> Option<u64> {
    let system = read("/proc/meminfo").and_then(|text| field_bytes(&text, "MemAvailable:"));
    let group = read("/proc/self/cgroup")
        .and_then(|text| groups(&text).iter().filter_map(|folder| room(folder)).min());
    match (system, group) {
        (Some(system), Some(group)) => Some(system.min(group)),
        (system, group) => system.or(group),
    }
}

/// Tells the system to end this process before any other when memory runs out; where that cannot be told,
/// nothing changes.
pub fn end_me_first() {
    if let Ok(mut file) = append(Path::new("/proc/self/oom_score_adj")) {
        let _ = file.write_all(b"1000");
    }
}

/// The folders of the control groups that this process is in, and all those above them.
fn groups(cgroup: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in cgroup.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        // Version 2 has one tree and no name for it; in version 1 each controller has its own.
        let root = match controllers {
            "" => PathBuf::from("/sys/fs/cgroup"),
            list if list.split(',').any(|name| name == "memory") => PathBuf::from("/sys/fs/cgroup/memory"),
            _ => continue,
        };
        let own: PathBuf =
            root.components().chain(Path::new(path.trim_start_matches('/')).components()).collect();
        folders.extend(own.ancestors().take_while(|folder| folder.starts_with(&root)).map(Path::to_path_buf));
    }
    folders
}

/// What a group may still take: its limit less what it uses, where pages of files that can be dropped do not
/// count.
fn room(folder: &Path) -> Option<u64> {
    let number = |name: &str| read(folder.join(name))?.trim().parse::<u64>().ok();
    // Without a limit the file says `max`, which is no number, or about 2^63, which is more than the system
    // has.
    let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let stat = read(folder.join("memory.stat")).unwrap_or_default();
    let inactive = ["total_inactive_file ", "inactive_file "].iter().find_map(|name| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    });
    Some(limit.saturating_sub(used.saturating_sub(inactive.unwrap_or(0))))
}

/// The value of a line such as `VmHWM:   12 kB`.
fn field_bytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    read_text_capped(path.as_ref(), CAP_BYTES).ok()
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
    fn groups_of_both_versions_and_all_above_them() {
        let names =
            |text: &str| groups(text).iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>();
        assert_eq!(names("0::/a/b\n"), ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"]);
        assert_eq!(
            names("5:cpu:/x\n4:cpuset,memory:/x\n"),
            ["/sys/fs/cgroup/memory/x", "/sys/fs/cgroup/memory"]
        );
        assert_eq!(names("nonsense\n0::/\n"), ["/sys/fs/cgroup"]);
    }

    #[test]
    fn a_group_has_room_for_its_limit_less_what_it_holds() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("memory.max", "max\n");
        write("memory.current", "700\n");
        assert_eq!(room(folder.path()), None);
        write("memory.max", "1000\n");
        assert_eq!(room(folder.path()), Some(300));
        write("memory.stat", "anon 500\ninactive_file 100\n");
        assert_eq!(room(folder.path()), Some(400));
        write("memory.max", "10\n");
        assert_eq!(room(folder.path()), Some(0));
    }

    #[test]
    fn this_process_has_a_peak_and_something_is_left() {
        if Path::new("/proc/self/status").exists() {
            assert!(peak_resident_bytes().unwrap() > 1 << 20);
            assert!(available_bytes().unwrap() > 1 << 20);
        }
    }
}

//! Limits of Linux control groups on memory and processor time: those of this process's group and of all
//! groups above it.

use std::path::{Path, PathBuf};

use crate::fs::read_system_text;

/// The strictest limits among the control groups of a process and all groups above them; `None` without a
/// limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GroupLimits {
    /// Limit on memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// Memory that may still be taken under that limit, in bytes.
    pub room_bytes: Option<u64>,
    /// Limit on processor time, in processors: 1.5 is one and a half.
    pub cpus: Option<f64>,
}

/// The limits of the control groups of this process. `root` is `/` outside of tests.
pub fn group_limits(root: &Path) -> GroupLimits {
    let Some(text) = read_system_text(&root.join("proc/self/cgroup")) else { return GroupLimits::default() };
    let memory = folders(root, &text, "memory");
    GroupLimits {
        memory_bytes: memory.iter().filter_map(|folder| limit(folder)).min(),
        room_bytes: memory.iter().filter_map(|folder| room(folder)).min(),
        cpus: folders(root, &text, "cpu").iter().filter_map(|folder| cpus(folder)).reduce(f64::min),
    }
}

/// The folders of the control groups that `cgroup` (the text of `/proc/self/cgroup`) lists for this
/// controller, and the folders of all groups above them.
fn folders(root: &Path, cgroup: &str, controller: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let all = root.join("sys/fs/cgroup");
    for line in cgroup.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        // Version 2 has one tree without a name; in version 1 each controller has its own tree.
        let top = match controllers {
            "" => all.clone(),
            list if list.split(',').any(|name| name == controller) => all.join(controller),
            _ => continue,
        };
        let own: PathBuf =
            top.components().chain(Path::new(path.trim_start_matches('/')).components()).collect();
        folders.extend(own.ancestors().take_while(|folder| folder.starts_with(&top)).map(Path::to_path_buf));
    }
    folders
}

fn number(folder: &Path, name: &str) -> Option<u64> {
    read_system_text(&folder.join(name))?.trim().parse().ok()
}

/// The memory limit of a group, in bytes. Without a limit the file contains `max`, which does not parse, or
/// about 2^63, which is more memory than any system has.
fn limit(folder: &Path) -> Option<u64> {
    const NONE: u64 = 1 << 62;
    let limit = number(folder, "memory.max").or_else(|| number(folder, "memory.limit_in_bytes"));
    limit.filter(|&limit| limit < NONE)
}

/// Memory that a group may still take, in bytes: its limit minus its use. Cached pages of files that the
/// kernel can drop do not count as used.
fn room(folder: &Path) -> Option<u64> {
    let limit = limit(folder)?;
    let used = number(folder, "memory.current").or_else(|| number(folder, "memory.usage_in_bytes"))?;
    let stat = read_system_text(&folder.join("memory.stat")).unwrap_or_default();
    let inactive = ["total_inactive_file ", "inactive_file "].iter().find_map(|name| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    });
    Some(limit.saturating_sub(used.saturating_sub(inactive.unwrap_or(0))))
}

/// The processor limit of a group, in processors: quota divided by period, both in microseconds. A quota of
/// `max` or -1 means that there is no limit.
fn cpus(folder: &Path) -> Option<f64> {
    let (quota, period) = match read_system_text(&folder.join("cpu.max")) {
        Some(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.parse().ok()?, period.parse().ok()?)
        }
        None => (number(folder, "cpu.cfs_quota_us")?, number(folder, "cpu.cfs_period_us")?),
    };
    (period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions_and_all_above_them() {
        assert_eq!(memory_folders("0::/a/b\n"), ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"]);
        assert_eq!(
            memory_folders("5:cpu:/x\n4:cpuset,memory:/x\n"),
            ["/sys/fs/cgroup/memory/x", "/sys/fs/cgroup/memory"]
        );
        assert_eq!(memory_folders("nonsense\n0::/\n"), ["/sys/fs/cgroup"]);
    }

    #[test]
    fn a_group_has_room_for_its_limit_less_what_it_holds() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "memory.max", "max\n");
        write(root, "memory.current", "700\n");
        assert_eq!(room(root), None);
        write(root, "memory.max", "1000\n");
        assert_eq!(room(root), Some(300));
        write(root, "memory.stat", "anon 500\ninactive_file 100\n");
        assert_eq!(room(root), Some(400));
        write(root, "memory.max", "10\n");
        assert_eq!(room(root), Some(0));
    }

    #[test]
    fn the_least_of_all_groups_above_counts() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(group_limits(root.path()), GroupLimits::default());
        write(root.path(), "proc/self/cgroup", "0::/a/b\n");
        write(root.path(), "sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
        write(root.path(), "sys/fs/cgroup/a/cpu.max", "150000 100000\n");
        write(root.path(), "sys/fs/cgroup/a/b/memory.max", "4096\n");
        write(root.path(), "sys/fs/cgroup/a/memory.max", "8192\n");
        write(root.path(), "sys/fs/cgroup/a/memory.current", "8000\n");
        let limits = GroupLimits { memory_bytes: Some(4096), room_bytes: Some(192), cpus: Some(1.5) };
        assert_eq!(group_limits(root.path()), limits);
        write(root.path(), "proc/self/cgroup", "2:cpu,cpuacct:/x\n3:memory:/x\n");
        write(root.path(), "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
        write(root.path(), "sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
        write(root.path(), "sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(group_limits(root.path()), GroupLimits::default());
        write(root.path(), "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "25000\n");
        assert_eq!(group_limits(root.path()).cpus, Some(0.25));
        for nonsense in ["", "max", "1", "1 0", "x y", "-1 100"] {
            write(root.path(), "sys/fs/cgroup/cpu/x/cpu.max", nonsense);
            assert_eq!(group_limits(root.path()).cpus, None, "{nonsense:?}");
        }
    }

    fn memory_folders(cgroup: &str) -> Vec<String> {
        let folders = folders(Path::new("/"), cgroup, "memory");
        folders.iter().map(|folder| folder.display().to_string()).collect()
    }

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

//! Control groups, by which Linux limits what processes may take: the memory and the processor time of the
//! one that this process is in, and of all those above it.

use std::path::Path;
use std::path::PathBuf;

use crate::fs::read_system_text;

/// What a control group allows, the least of all groups above a process.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GroupLimits {
    /// Most bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Bytes of it that are left.
    pub room_bytes: Option<u64>,
    /// Processors' worth of time: 1.5 is one and a half.
    pub cpus: Option<f64>,
}

/// The limits of the groups of this process, where `root` is `/`.
pub fn group_limits(root: &Path) -> GroupLimits {
    let Some(text) = read_system_text(&root.join("proc/self/cgroup")) else { return GroupLimits::default() };
    let of_memory = || folders(root, &text, "memory").into_iter();
    GroupLimits {
        memory_bytes: of_memory().filter_map(|folder| limit(&folder)).min(),
        room_bytes: of_memory().filter_map(|folder| room(&folder)).min(),
        cpus: folders(root, &text, "cpu").iter().filter_map(|folder| cpus(folder)).reduce(f64::min),
    }
}

/// The folders of the groups that a process is in, and all those above them, that have this controller.
fn folders(root: &Path, cgroup: &str, controller: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let all = root.join("sys/fs/cgroup");
    for line in cgroup.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        // Version 2 has one tree and no name for it; in version 1 each controller has its own.
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

/// Without a limit the file says `max`, which is no number, or about 2^63, which is more than any system has.
fn limit(folder: &Path) -> Option<u64> {
    const NONE: u64 = 1 << 62;
    let limit = number(folder, "memory.max").or_else(|| number(folder, "memory.limit_in_bytes"));
    limit.filter(|&limit| limit < NONE)
}

/// What a group may still take: its limit less what it uses, where pages of files that can be dropped do not
/// count.
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

/// Microseconds of processor time in a period of so many; `max` or -1 is as much as there is.
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
        let names = |text: &str| {
            let folders = folders(Path::new("/"), text, "memory");
            folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>()
        };
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
    fn the_least_of_all_groups_above_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(group_limits(root.path()), GroupLimits::default());
        write("proc/self/cgroup", "0::/a/b\n");
        write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
        write("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
        write("sys/fs/cgroup/a/b/memory.max", "4096\n");
        write("sys/fs/cgroup/a/memory.max", "8192\n");
        write("sys/fs/cgroup/a/memory.current", "8000\n");
        let limits = GroupLimits { memory_bytes: Some(4096), room_bytes: Some(192), cpus: Some(1.5) };
        assert_eq!(group_limits(root.path()), limits);
        write("proc/self/cgroup", "2:cpu,cpuacct:/x\n3:memory:/x\n");
        write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
        write("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
        write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(group_limits(root.path()), GroupLimits::default());
        write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "25000\n");
        assert_eq!(group_limits(root.path()).cpus, Some(0.25));
        for nonsense in ["", "max", "1", "1 0", "x y", "-1 100"] {
            write("sys/fs/cgroup/cpu/x/cpu.max", nonsense);
            assert_eq!(group_limits(root.path()).cpus, None, "{nonsense:?}");
        }
    }
}

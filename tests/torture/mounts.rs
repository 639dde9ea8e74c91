//! File systems of the driver's own: small disks that can be filled, copied while they are written to, and
//! cut off. Root alone may mount; `scripts/torture.sh` gives the driver mounts that nobody else sees.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::sitting::has_program;

/// A mounted file system; dropping it unmounts it.
pub(crate) struct Mount {
    point: PathBuf,
}

impl Mount {
    /// Mounts `what` at `point`, which is made, with these options.
    pub(crate) fn new(options: &[&str], what: &Path, point: &Path) -> Result<Self> {
        std::fs::create_dir_all(point)?;
        let paths = [what.as_os_str(), point.as_os_str()];
        tool(Command::new("mount").args(options).args(paths))?;
        Ok(Self { point: point.to_path_buf() })
    }

    /// A file system in memory of `mib` MiB.
    pub(crate) fn memory(mib: u64, point: &Path) -> Result<Self> {
        let size = format!("size={mib}m");
        Self::new(&["-t", "tmpfs", "-o", &size], Path::new("tmpfs"), point)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: a process that still sits there must not keep the others from being tidied away.
        let _ = tool(Command::new("umount").arg("-l").arg(&self.point));
    }
}

/// Runs a tool of the system; what it says is in the error.
pub(crate) fn tool(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Why this machine cannot mount what a row needs, if it cannot.
pub(crate) fn hindrance(point: &Path, tools: &[&str]) -> Option<String> {
    if let Err(e) = Mount::memory(1, point) {
        return Some(format!("nothing can be mounted here: {e:#}"));
    }
    let missing = tools.iter().find(|name| !has_tool(name))?;
    Some(format!("`{missing}` is missing"))
}

fn has_tool(name: &str) -> bool {
    let folders = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    folders.iter().any(|folder| Path::new(folder).join(name).exists()) || has_program(name)
}

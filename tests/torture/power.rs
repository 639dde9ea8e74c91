//! Row `power`: the power fails while a run writes. A live ext4 image lies on XFS and is copied there in one
//! instant (a reflink); the copy holds what had reached the disk, is mounted, and the run goes on in it.

use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::compare;
use crate::draw::{Draw, on_all_cores};
use crate::job::{Job, SAVE_STEPS};
use crate::mounts::{Mount, hindrance, tool};
use crate::place::{Bench, Place};
use crate::sitting::Sitting;
use crate::table::{Control, Outcome};

const TOOLS: [&str; 6] = ["mount", "umount", "mkfs.xfs", "mkfs.ext4", "sync", "strace"];

/// Copies of the disk made of one run.
const CUTS_OF_A_RUN: usize = 10;

/// As if the program never asked for anything to be durable.
const NO_FSYNC: [&str; 8] =
    ["strace", "-D", "-f", "-q", "-o", "/dev/null", "--seccomp-bpf", "--inject=fsync,fdatasync:retval=0"];

/// A copy of the disk, and how far the run had come before it was made.
struct Cut {
    image: PathBuf,
    place: String,
    last_step: u64,
    in_a_save: bool,
}

pub(crate) fn run(bench: &Bench, job: Job) -> Result<Outcome> {
    if let Some(why) = hindrance(&bench.fresh_path("probe-"), &TOOLS) {
        return Ok(Outcome::NotRun(why));
    }
    let disks = match Disks::new(&bench.fresh_path("disks-")) {
        Ok(disks) => disks,
        Err(e) => return Ok(Outcome::NotRun(format!("no disk in a file on XFS can be had: {e:#}"))),
    };
    let wanted = bench.count(10, 100);
    let (mut cuts, mut in_a_save, mut number, mut misses) = (0, 0, 0, Vec::new());
    while cuts < wanted || 3 * in_a_save < cuts {
        if number > wanted {
            bail!("runs end before they can be cut off");
        }
        let mut draw = Draw::new(bench.seed, "power", number);
        number += 1;
        let made = disks.cut(bench, job, &mut draw, None)?;
        (cuts, in_a_save) = (cuts + made.len(), in_a_save + made.iter().filter(|cut| cut.in_a_save).count());
        let faults = on_all_cores(made.len(), |cut| Disks::examine(bench, job, &made[cut], true))?;
        misses.extend(faults.into_iter().flatten());
    }
    let mut control = Control::default();
    let without = disks.cut(bench, job, &mut Draw::new(bench.seed, "power control", 0), Some(&NO_FSYNC))?;
    let faults = on_all_cores(without.len(), |cut| Disks::examine(bench, job, &without[cut], false))?;
    control.expect("no fsync", faults.into_iter().flatten().next().as_ref());
    let lost = misses.len();
    Ok(control.outcome(format!("{cuts} cuts, {in_a_save} in a save: {lost} lost or different"), misses))
}

/// An XFS in a file, and on it an ext4 in a file.
struct Disks {
    // They are unmounted in this order.
    _live: Mount,
    _below: Mount,
    folder: PathBuf,
}

impl Disks {
    fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let image = folder.join("xfs.img");
        File::create(&image)?.set_len(4 << 30)?;
        tool(Command::new("mkfs.xfs").args(["-q", "-m", "reflink=1"]).arg(&image))?;
        let below = Mount::new(&["-t", "xfs", "-o", "loop"], &image, &folder.join("below"))?;
        let disk = folder.join("below/disk.img");
        File::create(&disk)?.set_len(64 << 20)?;
        tool(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&disk))?;
        let live = Mount::new(&["-t", "ext4", "-o", "loop"], &disk, &folder.join("live"))?;
        Ok(Self { _live: live, _below: below, folder: folder.to_path_buf() })
    }

    /// Runs `job` on the live disk and copies it at moments of which half lie in a save.
    fn cut(&self, bench: &Bench, job: Job, draw: &mut Draw, under: Option<&[&str]>) -> Result<Vec<Cut>> {
        let name = bench.fresh_path("run-").file_name().context("a name")?.to_string_lossy().into_owned();
        let place = bench.place_at(&self.folder.join("live").join(&name))?;
        tool(Command::new("sync").arg("-f").arg(place.path("")))?;
        let command = match under {
            Some(under) => bench.command_under(under, job, &place, &[]),
            None => bench.command(job, &place, &[]),
        };
        let mut sitting = Sitting::start(command, &place)?;
        let mut cuts = Vec::new();
        while cuts.len() < CUTS_OF_A_RUN {
            let runs = if cuts.len() % 2 == 0 {
                // Not the one that is under way: each is to be hit anywhere.
                sitting.reach(|| !place.is_saving())?
                    && sitting.reach(|| place.is_saving())?
                    && sitting.wait(draw.duration(Duration::from_millis(6)))?
            } else {
                sitting.wait(draw.duration(Duration::from_millis(80)))?
            };
            if !runs {
                break;
            }
            let (last_step, in_a_save) = (place.last_step(), place.is_saving());
            let image = bench.fresh_path("cut-").file_name().context("a name")?.to_os_string();
            let image = self.folder.join("below").join(image);
            let disk = self.folder.join("below/disk.img");
            tool(Command::new("cp").arg("--reflink=always").args([&disk, &image]))?;
            cuts.push(Cut { image, place: name.clone(), last_step, in_a_save });
        }
        if under.is_some() {
            sitting.kill()?;
        } else {
            sitting.finish()?.ok()?;
        }
        Ok(cuts)
    }

    /// Mounts a copy, and says what is lost in it; then the run goes on to its end, if that is wanted.
    fn examine(bench: &Bench, job: Job, cut: &Cut, goes_on: bool) -> Result<Option<String>> {
        let point = bench.fresh_path("after-");
        let mount = Mount::new(&["-t", "ext4", "-o", "loop"], &cut.image, &point)?;
        let place = Place::at(&point.join(&cut.place));
        let mut fault = compare::loss(&place.run(), cut.last_step, SAVE_STEPS)?;
        if fault.is_none() && goes_on {
            fault = bench.finish(job, &place, &[])?.fault(&[0]);
            if fault.is_none() {
                fault = bench.reference(job)?.difference(&place);
            }
        }
        drop(mount);
        fs::remove_file(&cut.image)?;
        Ok(fault.map(|fault| format!("cut at step {}: {fault}", cut.last_step)))
    }
}

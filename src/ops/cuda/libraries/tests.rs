//! Tests of the search, with folders and files as users have them, in a temporary folder that serves as the
//! root of a machine.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{LIBRARIES, NCCL, Origin, Places, Surroundings};

/// Simulated machine: files below a temporary root, and environment variables.
struct Fake {
    root: TempDir,
    variables: HashMap<&'static str, OsString>,
    program: Option<PathBuf>,
}

impl Fake {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap(), variables: HashMap::new(), program: None }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn file(&self, path: &str, text: &str) -> PathBuf {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Creates all libraries in a folder.
    fn libraries(&self, folder: &str) {
        LIBRARIES
            .iter()
            .chain([&NCCL])
            .flat_map(|row| *row)
            .for_each(|name| drop(self.file(&format!("{folder}/{name}"), "")));
    }

    /// Sets a variable to a list of folders of this machine.
    fn set(&mut self, name: &'static str, folders: &[&str]) {
        let folders = folders.iter().map(|folder| self.root.path().join(folder));
        self.variables.insert(name, std::env::join_paths(folders).unwrap());
    }

    fn places(&self) -> Places {
        Places::new(&Surroundings {
            variable: &|name| self.variables.get(name).cloned(),
            program: self.program.clone(),
            root: self.root.path().to_path_buf(),
        })
    }

    /// Returns the one folder, relative to the root, that all libraries are taken from.
    fn folder(&self) -> Option<String> {
        let mut folders: Vec<PathBuf> = self
            .places()
            .found()
            .into_iter()
            .map(|(_, path)| path.and_then(|path| path.parent().map(Path::to_path_buf)).unwrap_or_default())
            .collect();
        folders.dedup();
        assert_eq!(folders.len(), 1, "{folders:?}");
        Some(folders[0].strip_prefix(self.root.path()).ok()?.display().to_string())
    }
}

/// Adds the libraries to one folder after the other, from the last in the order of the search to the first,
/// and checks each time that the new folder is used.
#[test]
fn every_place_is_found_in_the_order_of_the_search() {
    let mut fake = Fake::new();
    fake.program = Some(fake.path("opt/app/bin"));
    fake.set("LD_LIBRARY_PATH", &["none", "opt/cuda/lib"]);
    fake.set("VIRTUAL_ENV", &["venv"]);
    fake.set("CONDA_PREFIX", &["conda"]);
    fake.set("PATH", &["shims", "usr/bin"]);
    fake.set("HOME", &["home"]);
    fake.set("CUDA_HOME", &["opt/toolkit"]);
    fake.file("usr/bin/python3", "");
    fake.file("shims/python3", "");
    fake.file("etc/ld.so.conf", "# those of the system\ninclude ld.so.conf.d/*.conf\n/opt/old\n");
    fake.file("etc/ld.so.conf.d/nvidia.conf", "/opt/system/lib  # here\n");
    let target = format!("usr/local/cuda/targets/{}/lib", super::folders::TARGETS[0]);
    let system = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let in_order = [
        "opt/cuda/lib",
        "opt/app/bin",
        "opt/app/bin/lib",
        "opt/app/lib/mlmtrain",
        "venv/lib/python3.12/site-packages/nvidia/cu13/lib",
        "conda/lib/python3.11/site-packages/nvidia/cu13/lib",
        "conda/lib/python3.11/site-packages/nvidia/cublas/lib",
        "opt/app/lib/python3.10/site-packages/nvidia/cu13/lib",
        "versions/3.13.1/lib/python3.13/site-packages/nvidia/cu13/lib",
        "versions/3.9.2/lib/python3.9/site-packages/nvidia/cu13/lib",
        "usr/lib/python3/dist-packages/nvidia/cu13/lib",
        "usr/local/lib/python3.12/dist-packages/nvidia/cu13/lib",
        "home/.local/lib/python3.12/site-packages/nvidia/cu13/lib",
        "opt/toolkit/lib64",
        "usr/local/cuda/lib64",
        &target,
        "usr/local/cuda-13.10/lib64",
        "usr/local/cuda-13.2/lib64",
        "opt/system/lib",
        "opt/old",
        &system,
        "usr/lib64",
        "usr/lib",
    ];
    assert_eq!(fake.folder(), None, "nothing is there yet");
    for folder in in_order.iter().rev() {
        fake.libraries(folder);
        assert_eq!(fake.folder().as_deref(), Some(*folder));
    }
}

#[test]
fn the_packages_of_a_python_that_is_a_link_target_are_found() {
    let mut fake = Fake::new();
    let python = fake.file("opt/python/bin/python3.12", "");
    std::fs::create_dir_all(fake.path("venv/bin")).unwrap();
    std::os::unix::fs::symlink(python, fake.path("venv/bin/python3")).unwrap();
    fake.set("PATH", &["nowhere", "venv/bin"]);
    fake.libraries("opt/python/lib/python3.12/site-packages/nvidia/cu13/lib");
    let found = fake.places().found();
    assert!(found.iter().all(|(_, path)| path.is_some()), "{found:?}");
    fake.libraries("venv/lib/python3.12/site-packages/nvidia/cu13/lib");
    assert_eq!(fake.folder().as_deref(), Some("venv/lib/python3.12/site-packages/nvidia/cu13/lib"));
}

/// A cuBLAS may not work with the cuBLASLt of another release.
#[test]
fn a_group_of_libraries_is_taken_from_one_folder() {
    let mut fake = Fake::new();
    fake.set("LD_LIBRARY_PATH", &["half", "other"]);
    fake.file("half/libcublas.so.13", "");
    fake.libraries("usr/local/cuda-13.0/lib64");
    assert_eq!(fake.folder().as_deref(), Some("usr/local/cuda-13.0/lib64"));
    // If no folder has both, each is taken from where it is.
    std::fs::remove_file(fake.path("usr/local/cuda-13.0/lib64/libcublas.so.13")).unwrap();
    let found: HashMap<_, _> = fake.places().found().into_iter().collect();
    assert_eq!(found["libcublas.so.13"], Some(fake.path("half/libcublas.so.13")));
    assert_eq!(found["libcublasLt.so.13"], Some(fake.path("usr/local/cuda-13.0/lib64/libcublasLt.so.13")));
}

#[test]
fn the_driver_is_the_systems_own() {
    let mut fake = Fake::new();
    fake.set("VIRTUAL_ENV", &["venv"]);
    fake.file("venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcuda.so.1", "");
    assert_eq!(fake.places().driver(), None);
    let path = fake.file("usr/lib/libcuda.so.1", "");
    assert_eq!(fake.places().driver(), Some(path));
}

#[test]
fn the_message_names_every_searched_place() {
    let mut fake = Fake::new();
    fake.program = Some(fake.path("app"));
    fake.set("VIRTUAL_ENV", &["venv"]);
    fake.file("venv/lib/python3.12/site-packages/torch/lib/libtorch.so", "");
    fake.file("lib/libc.so", "");
    let words = fake.places().in_words().replace(&fake.root.path().display().to_string(), "");
    insta::assert_snapshot!(words, @"LD_LIBRARY_PATH (none); beside the program (/app, /app/lib, /lib/mlmtrain); Python's packages (/venv/lib/python3.12/site-packages/nvidia/*/lib); CUDA toolkits (/usr/local/cuda*/lib64); the system's folders (/lib)");
}

/// Circular links, a file that includes itself and files in place of folders cause no endless loop and no
/// error.
#[test]
fn circular_links_and_files_in_place_of_folders_are_ignored() {
    let mut fake = Fake::new();
    fake.set("LD_LIBRARY_PATH", &["file", ""]);
    fake.set("VIRTUAL_ENV", &["file"]);
    fake.set("PATH", &["bin"]);
    fake.file("file", "");
    std::fs::create_dir_all(fake.path("bin")).unwrap();
    std::os::unix::fs::symlink("python3", fake.path("bin/python3")).unwrap();
    fake.file("etc/ld.so.conf", "include /etc/ld.so.conf\ninclude [\ninclude\nlib\n/usr/lib/there\n");
    let places = fake.places();
    assert!(places.found().iter().all(|(_, path)| path.is_none()));
    let listed = places.iter().filter(|place| place.origin == Origin::System);
    assert_eq!(listed.count(), 0, "a folder that is not there is searched by nobody");
}

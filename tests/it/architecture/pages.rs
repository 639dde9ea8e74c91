//! Links between the Markdown pages: each names a file that is there, and a heading of it.

use std::path::{Path, PathBuf};

use super::read;

const FOLDERS: [&str; 9] = [
    "",
    ".github",
    "benches",
    "configs",
    "configs/guides",
    "configs/quickstart",
    "configs/tasks",
    "scripts",
    "scripts/vm",
];

#[test]
fn every_link_of_a_page_leads_to_a_file_and_a_heading() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages: Vec<PathBuf> = FOLDERS.iter().flat_map(|folder| pages_in(&root.join(folder))).collect();
    let mut links = 0;
    let mut broken = Vec::new();
    for page in &pages {
        for link in links_of(&read(page)) {
            links += 1;
            if !leads_somewhere(page, &link) {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(links > 60, "only {links} links in {} pages: are they still found?", pages.len());
}

#[test]
fn links_to_nowhere_are_found() {
    let folder = tempfile::tempdir().expect("is made");
    let page = folder.path().join("a.md");
    std::fs::write(&page, "# One `two`, three\n[x](#one-two-three) [y](#one) [z](b.md) [w](https://a.b/c)\n")
        .expect("is written");
    let broken: Vec<String> =
        links_of(&read(&page)).into_iter().filter(|link| !leads_somewhere(&page, link)).collect();
    assert_eq!(broken, ["#one", "b.md"]);
}

fn pages_in(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).expect("is a folder");
    let paths = files.map(|file| file.expect("can be read").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// The targets of `[text](target)` and `![text](target)`, without those on other hosts.
fn links_of(page: &str) -> Vec<String> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let targets = targets.map(|(target, _)| target.to_string());
    targets.filter(|target| !target.contains("://") && !target.contains(char::is_whitespace)).collect()
}

fn leads_somewhere(page: &Path, link: &str) -> bool {
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let target =
        if file.is_empty() { page.to_path_buf() } else { page.parent().expect("has a folder").join(file) };
    if heading.is_empty() {
        return target.exists();
    }
    target.is_file() && read(&target).lines().any(|line| anchor_of(line).as_deref() == Some(heading))
}

/// The anchor that GitHub gives a heading: lowercase, without punctuation, blanks as hyphens.
fn anchor_of(line: &str) -> Option<String> {
    let title = line.strip_prefix('#')?.trim_start_matches('#').trim();
    let kept = title.to_lowercase().replace(' ', "-");
    Some(kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect())
}

//! The cache, against a server that cuts, refuses and changes what it sends.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use mlmtrain::stores::{Cache, Event};
use mlmtrain::{config, error};

use crate::stores::server::{Server, status};

const WHOLE: usize = usize::MAX;

fn body(seed: u32) -> Vec<u8> {
    (0..100_000_u32).map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 24) as u8).collect()
}

fn stage_one(cache: &Cache, url: &str) -> Result<PathBuf> {
    Ok(cache.stage(&[url.to_string()], &[], &|_| {})?.remove(0))
}

fn objects(folder: &Path) -> Vec<u64> {
    let entries = fs::read_dir(folder.join("objects")).unwrap().flatten();
    let mut sizes: Vec<u64> =
        entries.map(|e| e.metadata().unwrap().len()).filter(|size| *size >= 1000).collect();
    sizes.sort_unstable();
    sizes
}

#[test]
fn what_is_cut_and_refused_for_a_while_comes_whole_and_is_counted_once() {
    let server = Server::start(|request| match request.number {
        0 | 3 => status("503 Slow Down", "later"),
        _ => request.answer(&body(1), "\"one\"", 30_000),
    });
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), 1 << 30).unwrap();
    let (total, got) = (Cell::new(0), Cell::new(0));
    let url = format!("http://{}/a%20folder/text.txt", server.host);
    let paths = cache.stage(std::slice::from_ref(&url), &[], &|event| match event {
        Event::Total(bytes) => total.set(bytes),
        Event::Got(bytes) => got.set(got.get() + bytes),
        Event::Note(_) => {}
    });
    let path = paths.unwrap().remove(0);
    assert!(fs::read(&path).unwrap() == body(1));
    assert!(path.ends_with(format!("http/{}/a folder/text.txt", server.host)), "{}", path.display());
    assert_eq!((total.get(), got.get()), (100_000, 100_000));
    // The same version is not brought again.
    let before = server.seen.lock().unwrap().len();
    stage_one(&cache, &url).unwrap();
    assert_eq!(server.seen.lock().unwrap().len(), before + 1);
}

#[test]
fn a_later_process_goes_on_where_an_earlier_one_stopped_and_says_why() {
    static IS_OPEN: AtomicBool = AtomicBool::new(true);
    let server = Server::start(|request| match (request.number, IS_OPEN.load(Ordering::Relaxed)) {
        (0 | 1, _) => request.answer(&body(2), "\"two\"", 40_000),
        (_, true) => status("403 Forbidden", "expired, says the server"),
        (_, false) => request.answer(&body(2), "\"two\"", WHOLE),
    });
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://ann:planted-word@{}/text.txt?signature=planted-sign", server.host);
    let shown = format!("http://***@{}/text.txt?***", server.host);
    let refused = stage_one(&Cache::open(folder.path(), 1 << 30).unwrap(), &url).unwrap_err();
    let told = error::render(&refused);
    assert!(told.contains("access is denied") && told.contains("hint: see to the credentials"), "{told}");
    assert!(
        told.contains(&format!("http://{}/text.txt", server.host)) && !told.contains("planted"),
        "{told}"
    );
    let sent = server.seen.lock().unwrap()[0].clone();
    assert!(sent.starts_with("GET /text.txt?signature=planted-sign "), "{sent}");
    assert!(sent.to_lowercase().contains("authorization: basic "), "{sent}");
    IS_OPEN.store(false, Ordering::Relaxed);
    let before = server.seen.lock().unwrap().len();
    let path = stage_one(&Cache::open(folder.path(), 1 << 30).unwrap(), &url).unwrap();
    assert!(fs::read(&path).unwrap() == body(2));
    let seen = server.seen.lock().unwrap()[before..].to_vec();
    assert_eq!(seen.len(), 2);
    assert!(seen[1].to_lowercase().contains("range: bytes=40000-"), "{seen:?}");
    // What is saved and told of the path is the URL, without its secrets.
    assert_eq!(mlmtrain::secrets::masked(&path.to_string_lossy()), shown);
    assert_eq!(config::saved(&[path])[0], shown);
}

#[test]
fn an_object_that_was_altered_in_the_cache_is_fetched_again() {
    let server = Server::start(|request| request.answer(&body(7), "\"one\"", WHOLE));
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), 1 << 30).unwrap();
    let url = format!("http://{}/a", server.host);
    let path = stage_one(&cache, &url).unwrap();
    let object = fs::canonicalize(&path).unwrap();
    // What is used again stays as long as it is the same.
    std::thread::sleep(std::time::Duration::from_millis(50));
    fs::write(&object, body(7)).unwrap();
    let looks = |count: usize| assert_eq!(server.seen.lock().unwrap().len(), count);
    stage_one(&cache, &url).unwrap();
    looks(3);
    for at in [0, 500, 99_999] {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let mut bytes = body(7);
        bytes[at] ^= 1;
        fs::write(&object, &bytes).unwrap();
        let notes = RefCell::new(Vec::new());
        let staged = cache.stage(std::slice::from_ref(&url), &[], &|event| {
            if let Event::Note(text) = event {
                notes.borrow_mut().push(text);
            }
        });
        assert!(fs::read(staged.unwrap().remove(0)).unwrap() == body(7), "byte {at}");
        assert!(notes.borrow().concat().contains("was altered in the cache"), "{:?}", notes.borrow());
    }
    looks(9);
}

#[test]
fn urls_that_differ_in_their_query_are_two_files() {
    let server = Server::start(|request| {
        let part = if request.head.contains("part=1") { 1 } else { 2 };
        request.answer(&body(part), &format!("\"{part}\""), WHOLE)
    });
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), 1 << 30).unwrap();
    let paths =
        [1, 2].map(|part| stage_one(&cache, &format!("http://{}/a?part={part}", server.host)).unwrap());
    assert!(fs::read(&paths[0]).unwrap() == body(1) && fs::read(&paths[1]).unwrap() == body(2));
}

#[test]
fn two_versions_are_never_mixed_and_a_lie_is_no_object() {
    // The object is replaced while it is read.
    let server = Server::start(|request| match request.number {
        0 | 1 => request.answer(&body(3), "\"old\"", 50_000),
        _ => request.answer(&body(4)[..90_000], "\"new\"", WHOLE),
    });
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(folder.path(), 1 << 30).unwrap();
    let path = stage_one(&cache, &format!("http://{}/a", server.host)).unwrap();
    assert!(fs::read(path).unwrap() == body(4)[..90_000]);
    assert_eq!(objects(folder.path()), [90_000], "the half of the old one is gone");
    // A server without versions and without parts: each attempt begins anew.
    let plain = Server::start(|request| {
        let whole = body(5);
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\nConnection: close\r\n\r\n";
        let most = if request.number < 3 { 70_000 } else { WHOLE };
        [head.as_bytes(), &whole[..whole.len().min(most)]].concat()
    });
    let path = stage_one(&cache, &format!("http://{}/b", plain.host)).unwrap();
    assert!(fs::read(path).unwrap() == body(5));
    // One that sends more than it said.
    let long = Server::start(|_| {
        let head = "HTTP/1.1 206 Partial Content\r\nETag: \"a\"\r\nContent-Range: bytes 0-99/100\r\n\
                    Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n1000\r\n";
        [head.as_bytes(), &body(7)[..4096], b"\r\n0\r\n\r\n"].concat()
    });
    assert!(stage_one(&cache, &format!("http://{}/d", long.host)).is_err());
    assert!(!objects(folder.path()).contains(&4096));
    // One that sends less than it said.
    let short =
        Server::start(|request| request.answer(&body(6)[..100_000 - 10 * request.number], "\"same\"", WHOLE));
    let error = stage_one(&cache, &format!("http://{}/c", short.host)).unwrap_err().to_string();
    assert!(error.contains("changes again and again"), "{error}");
    let error = stage_one(&cache, &format!("http://{}/*.txt", short.host)).unwrap_err().to_string();
    assert!(error.contains("is a pattern, and https lists nothing"), "{error}");
}

#[test]
fn what_was_not_used_for_longest_goes_and_what_is_in_use_stays() {
    let server = Server::start(|request| {
        let seed = request.head.as_bytes()[5].into();
        request.answer(&body(seed), &format!("\"{seed}\""), WHOLE)
    });
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("http://{}/{name}", server.host);
    let open = || Cache::open(folder.path(), 350_000).unwrap();
    let first = open();
    first.stage(&["a", "b", "c"].map(url), &[], &|_| {}).unwrap();
    // Another process at the same time takes nothing away.
    let notes = RefCell::new(Vec::new());
    let second = open();
    let note =
        |event| notes.borrow_mut().extend(if let Event::Note(text) = event { Some(text) } else { None });
    second.stage(&[url("d")], &[], &note).unwrap();
    assert!(notes.borrow()[0].contains("while all of it is in use"), "{notes:?}");
    assert_eq!(objects(folder.path()).len(), 4);
    drop(first);
    // `a` was used last of those that are free: `b` and `c` go.
    stage_one(&open(), &url("a")).unwrap();
    stage_one(&open(), &url("e")).unwrap();
    assert_eq!(objects(folder.path()).len(), 3);
    let before = server.seen.lock().unwrap().len();
    open().stage(&["a", "d", "e"].map(url), &[], &|_| {}).unwrap();
    assert_eq!(server.seen.lock().unwrap().len(), before + 3, "nothing but three looks");
}

//! The cache of objects on this disk.
//!
//! `objects/` has each version of an object, under a hash of its URL, tag and size. The modification time of
//! an object is the time of its last use. Next to it is the hash of its content, which is compared if the
//! object was written after it. `views/N/` belongs to one process and has links to the objects that it uses,
//! under their names. A view is locked while its process lives, and the objects in it are not deleted. So
//! there is no index that could disagree with the disk.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::ObjectMeta;

use crate::address::Address;
use crate::download::{Broken, download, is_versioned};
use crate::failure::explained;
use crate::runtime;
use base::error::Problem;
use base::fs::FolderLock;
use base::quantity::format_bytes;
use base::{fs, secrets};

/// Number of downloads at the same time.
const AT_ONCE: usize = 8;

/// Number of versions that are tried of an object that changes during its download.
const VERSIONS: usize = 3;

/// Time without a byte from a store after which a note says that the program is waiting.
const QUIET: Duration = Duration::from_secs(10);

/// The most bytes to read of the hash of an object.
const SUM_CAP_BYTES: u64 = 256;

/// Progress of the downloads.
pub enum Event {
    /// A note for the user.
    Note(String),
    /// Number of bytes that will be downloaded.
    Total(u64),
    /// Number of bytes that were downloaded since the last event.
    Got(u64),
}

/// A cache, with the view of this process. Objects in the view stay until this value is dropped.
pub struct Cache {
    folder: PathBuf,
    max_bytes: u64,
    view: PathBuf,
    _lock: FolderLock,
}

/// An object to download.
#[derive(Clone)]
struct Wanted {
    address: Arc<Address>,
    meta: ObjectMeta,
}

impl Wanted {
    /// Name of this version of the object in `objects/`.
    fn name(&self) -> String {
        let version = match &self.meta.e_tag {
            Some(tag) => tag.clone(),
            None if is_versioned(&self.meta) => self.meta.last_modified.to_rfc3339(),
            // The store does not distinguish versions, so each process downloads the object again.
            None => format!("{} {:?}", std::process::id(), SystemTime::now()),
        };
        let parts = [self.address.shown_of(&self.meta.location), version, self.meta.size.to_string()];
        fs::sha256_of(&[parts.join("\0").as_bytes()])
    }
}

impl Cache {
    /// Opens the cache in `folder`, which keeps at most `max_bytes` when nothing is in use.
    pub fn open(folder: &Path, max_bytes: u64) -> Result<Self> {
        let folder = std::path::absolute(folder).context("the folder of the cache has no path")?;
        let taken = (0..).find_map(|number: u64| {
            let view = folder.join("views").join(number.to_string());
            FolderLock::take_if_free(&view).transpose().map(|lock| Ok::<_, anyhow::Error>((view, lock?)))
        });
        let (view, lock) = taken.context("numbers do not end")??;
        // These are the links of a process that has ended.
        for old in fs::list(&view)?.into_iter().filter(|path| fs::is_folder(path)) {
            fs::remove_folder(&old)?;
        }
        Ok(Self { folder, max_bytes, view, _lock: lock })
    }

    /// Downloads all objects that `urls` name, and returns the path of each URL: a file, a folder, or a
    /// pattern of paths for a pattern. Of a folder behind https, it downloads those of `folder_files`. From
    /// here on, messages show these paths as URLs.
    pub fn stage(
        &self,
        urls: &[String],
        folder_files: &[&str],
        watch: &dyn Fn(Event),
    ) -> Result<Vec<PathBuf>> {
        let _filling = FolderLock::wait_for(&self.objects(), || {
            let place = self.folder.display();
            watch(Event::Note(format!("waiting for another process that fills the cache `{place}`")));
        })?;
        runtime::block_on(self.stage_all(urls, folder_files, watch))?
    }

    async fn stage_all(
        &self,
        urls: &[String],
        folder_files: &[&str],
        watch: &dyn Fn(Event),
    ) -> Result<Vec<PathBuf>> {
        let mut all = Vec::new();
        let mut paths = Vec::new();
        let mut addresses = Vec::new();
        for url in urls {
            let address = Arc::new(Address::parse(url)?);
            let found = address.find(folder_files);
            let found = patiently(found, &address.shown, &|| false, &|text| watch(Event::Note(text))).await?;
            if !address.left_out.is_empty() {
                watch(Event::Note(format!("{}: {}", address.shown, address.left_out)));
            }
            all.extend(found.into_iter().map(|meta| Wanted { address: Arc::clone(&address), meta }));
            let path = self.bucket_folder(&address).join(address.key.trim_end_matches('/'));
            self.show_as_url(&address, &path);
            paths.push(path);
            addresses.push(address);
        }
        let named: BTreeMap<String, Wanted> = all.into_iter().map(|wanted| (wanted.name(), wanted)).collect();
        let mut missing = Vec::new();
        for (name, wanted) in named {
            let object = self.objects().join(&name);
            if !fs::len_bytes(&object).is_ok_and(|bytes| bytes == wanted.meta.size) {
                missing.push((name, wanted));
            } else if self.is_unaltered(&name)? {
                fs::touch(&object)?;
                if fs::exists(&self.sum(&name)) {
                    fs::touch(&self.sum(&name))?;
                }
                self.link(&object, &wanted)?;
            } else {
                let shown = wanted.address.shown_of(&wanted.meta.location);
                watch(Event::Note(format!("{shown}: was altered in the cache, and is fetched again")));
                fs::remove_file(&object)?;
                missing.push((name, wanted));
            }
        }
        if missing.is_empty() {
            return Ok(paths);
        }
        let names = missing.iter().map(|(name, _)| name.clone()).collect();
        let bytes = missing.iter().map(|(name, wanted)| {
            wanted.meta.size.saturating_sub(fs::len_bytes(&self.part(name)).unwrap_or(0))
        });
        let bytes: u64 = bytes.sum();
        self.make_room(bytes, names, watch)?;
        watch(Event::Total(bytes));
        let has_moved = Cell::new(false);
        let got = |bytes| {
            has_moved.set(true);
            watch(Event::Got(bytes));
        };
        let fetched = missing.into_iter().map(|(name, wanted)| self.fetch(name, wanted, &got));
        let fetched = stream::iter(fetched).buffer_unordered(AT_ONCE).try_collect::<()>();
        let shown = addresses.first().map_or("", |address| address.shown.as_str());
        patiently(fetched, shown, &|| has_moved.replace(false), &|text| watch(Event::Note(text))).await?;
        let unsure = addresses.iter().filter_map(|address| address.unsure.note());
        unsure.for_each(|note| watch(Event::Note(note)));
        Ok(paths)
    }

    /// URL of a path in this cache's view; `None` for any other path.
    pub(super) fn url_of(&self, path: &Path) -> Option<String> {
        let mut parts = path.strip_prefix(&self.view).ok()?.to_str()?.splitn(3, '/');
        Some(format!("{}://{}/{}", parts.next()?, parts.next()?, parts.next()?))
    }

    /// Downloads an object and links to it. If the object changes during the download, starts again.
    async fn fetch(&self, mut name: String, mut wanted: Wanted, got: &dyn Fn(u64)) -> Result<()> {
        let shown = wanted.address.shown_of(&wanted.meta.location);
        for _ in 0..VERSIONS {
            match download(&wanted.address, &wanted.meta, &self.part(&name), got).await {
                Ok(()) => {
                    let object = self.objects().join(&name);
                    fs::rename(&self.part(&name), &object)?;
                    fs::write_bytes(&self.sum(&name), fs::content_hash(&object)?.as_bytes())?;
                    return self.link(&object, &wanted);
                }
                Err(Broken::Failed(error)) => return Err(error),
                Err(Broken::Changed) => {
                    fs::remove_file(&self.part(&name))?;
                    let now = wanted.address.look_at(&wanted.meta.location).await;
                    wanted.meta = now
                        .map_err(|e| explained(&e, &shown))?
                        .ok_or_else(|| Problem::new("was deleted while it was read").at(&shown))?;
                    name = wanted.name();
                }
            }
        }
        let hint = "start again when nothing writes it any more";
        Err(Problem::new("changes again and again while it is read").at(&shown).hint(hint).into())
    }

    /// Deletes the objects that were not used for the longest time, until there is room for `bytes` more.
    /// Objects that a process uses, and those in `names`, stay.
    fn make_room(&self, bytes: u64, names: BTreeSet<String>, watch: &dyn Fn(Event)) -> Result<()> {
        let mut in_use = names;
        for view in fs::list(&self.folder.join("views"))? {
            if view == self.view || FolderLock::take_if_free(&view)?.is_none() {
                in_use.extend(
                    fs::files_below(&view)?.iter().filter_map(|link| object_name(&fs::canonical(link))),
                );
            }
        }
        let mut oldest_first = Vec::new();
        for path in fs::list(&self.objects())? {
            // The lock file is not an object.
            if let Some(name) = object_name(&path).filter(|name| !name.is_empty()) {
                oldest_first.push((
                    fs::modified(&path)?,
                    fs::len_bytes(&path)?,
                    in_use.contains(&name),
                    path,
                ));
            }
        }
        oldest_first.sort();
        let mut total = oldest_first.iter().fold(bytes, |sum, (_, bytes, ..)| sum.saturating_add(*bytes));
        for (_, bytes, _, path) in oldest_first.into_iter().filter(|(_, _, is_used, _)| !is_used) {
            if total > self.max_bytes {
                fs::remove_file(&path)?;
                total -= bytes;
            }
        }
        if total > self.max_bytes {
            let total = format_bytes(total);
            let most = format_bytes(self.max_bytes);
            watch(Event::Note(format!("the cache takes {total}, and not {most}, while all of it is in use")));
        }
        let what = "there is no room for what is to be downloaded";
        Ok(fs::require_space(&self.folder, bytes, what).map_err(|problem| problem.hint("set `cache.dir`"))?)
    }

    fn objects(&self) -> PathBuf {
        self.folder.join("objects")
    }

    /// Returns true if an object still has the content that was downloaded. It is read again only if it was
    /// written after its hash; an object from an earlier version of the program has no hash and is trusted.
    fn is_unaltered(&self, name: &str) -> Result<bool> {
        let object = self.objects().join(name);
        let sum = self.sum(name);
        if !fs::exists(&sum) || fs::modified(&object)? <= fs::modified(&sum)? {
            return Ok(true);
        }
        Ok(fs::read_text_capped(&sum, SUM_CAP_BYTES)? == fs::content_hash(&object)?)
    }

    /// Path of the hash of an object's content.
    fn sum(&self, name: &str) -> PathBuf {
        self.objects().join(format!("{name}.sum"))
    }

    /// Path of an incomplete download.
    fn part(&self, name: &str) -> PathBuf {
        self.objects().join(format!("{name}.part"))
    }

    /// Folder in the view for the objects of a bucket.
    fn bucket_folder(&self, address: &Address) -> PathBuf {
        let place = self.view.join(address.scheme).join(&address.place);
        // `rows?part=1` and `rows?part=2` are two objects.
        if address.query_hash.is_empty() { place } else { place.join(&address.query_hash) }
    }

    fn link(&self, object: &Path, wanted: &Wanted) -> Result<()> {
        let link = self.bucket_folder(&wanted.address).join(wanted.meta.location.as_ref());
        fs::create_folder(&fs::parent_of(&link))?;
        fs::remove_file(&link)?;
        fs::link(object, &link)
    }

    /// Makes messages show the paths of an address as its URL.
    fn show_as_url(&self, address: &Address, path: &Path) {
        let bucket = self.bucket_folder(address);
        let start = format!("{}://{}", address.scheme, address.place);
        secrets::stand_for(&bucket.to_string_lossy(), &start);
        if format!("{start}/{}", address.key) != address.shown {
            secrets::stand_for(&path.to_string_lossy(), &address.shown);
        }
    }
}

/// Waits for the answer of a store, and reports once if nothing arrives for [`QUIET`]. `has_moved` returns
/// true if something arrived since its last call.
async fn patiently<T>(
    asked: impl Future<Output = T>,
    shown: &str,
    has_moved: &dyn Fn() -> bool,
    say: &dyn Fn(String),
) -> T {
    let mut asked = std::pin::pin!(asked);
    let mut was_reported = false;
    loop {
        if let Ok(answer) = tokio::time::timeout(QUIET, asked.as_mut()).await {
            return answer;
        }
        if !has_moved() && !was_reported {
            was_reported = true;
            say(format!("{shown}: nothing has come for {} s, and is still waited for", QUIET.as_secs()));
        }
    }
}

/// Name of the object that a file in `objects/` belongs to, as itself, as a part or as a hash; empty for the
/// lock file.
fn object_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    Some(name.split('.').next()?.to_string())
}

//! The cache of objects on this disk.
//!
//! `objects/` holds each version of an object under a hash of its URL, tag and size, marked as written when
//! it is used, and next to it the hash of its content, which is compared where the object was written since;
//! `views/N/` belongs to one process and has, as links to them, the objects that it uses by their names. A view
//! is locked while its process lives: what it links to is not deleted. So there is no index that could disagree
//! with the disk.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::time::SystemTime;

use anyhow::Context;
use anyhow::Result;
use futures_util::StreamExt;
use futures_util::TryStreamExt;
use futures_util::stream;
use object_store::ObjectMeta;

use crate::error::Problem;
use crate::fs;
use crate::fs::FolderLock;
use crate::quantity::format_bytes;
use crate::secrets;
use crate::stores::address::Address;
use crate::stores::download::Broken;
use crate::stores::download::download;
use crate::stores::download::is_versioned;
use crate::stores::failure::explained;
use crate::stores::runtime;

/// Downloads at once.
const AT_ONCE: usize = 8;

/// How often an object may change under a download before that is an error.
const VERSIONS: usize = 3;

/// Time without a byte from a store after which a note says that the program is waiting.
const QUIET: Duration = Duration::from_secs(10);

/// Most bytes of the hash of an object.
const SUM_CAP_BYTES: u64 = 256;

/// What is told while objects are brought here.
pub enum Event {
    /// Something worth a line.
    Note(String),
    /// So many bytes are to come.
    Total(u64),
    /// So many came.
    Got(u64),
}

/// A cache, with the view of this process. What it was asked for stays until it is dropped.
pub struct Cache {
    folder: PathBuf,
    max_bytes: u64,
    view: PathBuf,
    _lock: FolderLock,
}

/// An object that is asked for.
#[derive(Clone)]
struct Wanted {
    address: Arc<Address>,
    meta: ObjectMeta,
}

impl Wanted {
    /// The name of this version of it in `objects/`.
    fn name(&self) -> String {
        let version = match &self.meta.e_tag {
            Some(tag) => tag.clone(),
            None if is_versioned(&self.meta) => self.meta.last_modified.to_rfc3339(),
            // Nothing tells versions apart: each process gets it anew.
            None => format!("{} {:?}", std::process::id(), SystemTime::now()),
        };
        let parts = [self.address.shown_of(&self.meta.location), version, self.meta.size.to_string()];
        fs::sha256_of(&[parts.join("\0").as_bytes()])
    }
}

impl Cache {
    /// Opens the cache in `folder`, of which at most `max_bytes` stay when nothing uses them.
    pub fn open(folder: &Path, max_bytes: u64) -> Result<Self> {
        let folder = std::path::absolute(folder).context("the folder of the cache has no path")?;
        let taken = (0..).find_map(|number: u64| {
            let view = folder.join("views").join(number.to_string());
            FolderLock::take_if_free(&view).transpose().map(|lock| Ok::<_, anyhow::Error>((view, lock?)))
        });
        let (view, lock) = taken.context("numbers do not end")??;
        // Those of a process that has ended.
        for old in fs::list(&view)?.into_iter().filter(|path| fs::is_folder(path)) {
            fs::remove_folder(&old)?;
        }
        Ok(Self { folder, max_bytes, view, _lock: lock })
    }

    /// Brings all objects that `urls` name here, and gives the path of each URL: a file, a folder, or the
    /// same pattern as one of paths. Of a folder behind https it has those of `folder_files`. In whatever the
    /// program tells from here on, these paths are URLs again.
    pub fn stage(
        &self,
        urls: &[String],
        folder_files: &[&str],
        watch: &dyn Fn(Event),
    ) -> Result<Vec<PathBuf>> {
        let waiting = || {
            let place = self.folder.display();
            watch(Event::Note(format!("waiting for another process that fills the cache `{place}`")));
        };
        let _filling = FolderLock::wait_for(&self.objects(), waiting)?;
        runtime::block_on(self.stage_all(urls, folder_files, watch))?
    }

    async fn stage_all(
        &self,
        urls: &[String],
        folder_files: &[&str],
        watch: &dyn Fn(Event),
    ) -> Result<Vec<PathBuf>> {
        let (mut all, mut paths, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
        for url in urls {
            let address = Arc::new(Address::parse(url)?);
            let say = |text: String| watch(Event::Note(text));
            let found =
                patiently(address.find(folder_files), &address.shown, &|| false, &say).await?.into_iter();
            if !address.left_out.is_empty() {
                watch(Event::Note(format!("{}: {}", address.shown, address.left_out)));
            }
            all.extend(found.map(|meta| Wanted { address: Arc::clone(&address), meta }));
            let path = self.place(&address).join(address.key.trim_end_matches('/'));
            self.tell_as_url(&address, &path);
            paths.push(path);
            addresses.push(address);
        }
        let named: BTreeMap<String, Wanted> = all.into_iter().map(|wanted| (wanted.name(), wanted)).collect();
        let mut missing = Vec::new();
        for (name, wanted) in named {
            let object = self.objects().join(&name);
            if !fs::len_bytes(&object).is_ok_and(|bytes| bytes == wanted.meta.size) {
                missing.push((name, wanted));
            } else if self.is_as_it_came(&name)? {
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
        let part_bytes = |name: &String| fs::len_bytes(&self.part(name)).unwrap_or(0);
        let bytes: u64 =
            missing.iter().map(|(name, wanted)| wanted.meta.size.saturating_sub(part_bytes(name))).sum();
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

    /// What belongs at a path of this cache's view; none for any other path.
    pub(super) fn url_of(&self, path: &Path) -> Option<String> {
        let mut parts = path.strip_prefix(&self.view).ok()?.to_str()?.splitn(3, '/');
        Some(format!("{}://{}/{}", parts.next()?, parts.next()?, parts.next()?))
    }

    /// Downloads an object, links to it, and begins again where it changes meanwhile.
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
                    let gone = || Problem::new("was deleted while it was read").at(&shown);
                    wanted.meta = now.map_err(|e| explained(&e, &shown))?.ok_or_else(gone)?;
                    name = wanted.name();
                }
            }
        }
        let hint = "start again when nothing writes it any more";
        Err(Problem::new("changes again and again while it is read").at(&shown).hint(hint).into())
    }

    /// Deletes what was not used for longest until there is room for `bytes` more, but nothing that a process
    /// uses and none of `names`.
    fn make_room(&self, bytes: u64, names: BTreeSet<String>, watch: &dyn Fn(Event)) -> Result<()> {
        let mut in_use = names;
        for view in fs::list(&self.folder.join("views"))? {
            if view == self.view || FolderLock::take_if_free(&view)?.is_none() {
                in_use
                    .extend(fs::files_below(&view)?.iter().filter_map(|link| name_of(&fs::canonical(link))));
            }
        }
        let mut oldest_first = Vec::new();
        for path in fs::list(&self.objects())? {
            // The lock is no object.
            if let Some(name) = name_of(&path).filter(|name| !name.is_empty()) {
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
            let (total, most) = (format_bytes(total), format_bytes(self.max_bytes));
            watch(Event::Note(format!("the cache takes {total}, and not {most}, while all of it is in use")));
        }
        let what = "there is no room for what is to be downloaded";
        Ok(fs::require_space(&self.folder, bytes, what).map_err(|problem| problem.hint("set `cache.dir`"))?)
    }

    fn objects(&self) -> PathBuf {
        self.folder.join("objects")
    }

    /// Returns true if an object has the content that was downloaded. It is read again only if it was written after its
    /// hash; an object from an earlier version of the program has no hash and is trusted.
    fn is_as_it_came(&self, name: &str) -> Result<bool> {
        let (object, sum) = (self.objects().join(name), self.sum(name));
        if !fs::exists(&sum) || fs::modified(&object)? <= fs::modified(&sum)? {
            return Ok(true);
        }
        Ok(fs::read_text_capped(&sum, SUM_CAP_BYTES)? == fs::content_hash(&object)?)
    }

    fn sum(&self, name: &str) -> PathBuf {
        self.objects().join(format!("{name}.sum"))
    }

    fn part(&self, name: &str) -> PathBuf {
        self.objects().join(format!("{name}.part"))
    }

    /// Where the names of a bucket begin in the view.
    fn place(&self, address: &Address) -> PathBuf {
        let place = self.view.join(address.scheme).join(&address.place);
        // `rows?part=1` and `rows?part=2` are two objects.
        if address.query_hash.is_empty() { place } else { place.join(&address.query_hash) }
    }

    fn link(&self, object: &Path, wanted: &Wanted) -> Result<()> {
        let link = self.place(&wanted.address).join(wanted.meta.location.as_ref());
        fs::create_folder(&fs::parent_of(&link))?;
        fs::remove_file(&link)?;
        fs::link(object, &link)
    }

    fn tell_as_url(&self, address: &Address, path: &Path) {
        let (bucket, start) = (self.place(address), format!("{}://{}", address.scheme, address.place));
        secrets::stand_for(&bucket.to_string_lossy(), &start);
        if format!("{start}/{}", address.key) != address.shown {
            secrets::stand_for(&path.to_string_lossy(), &address.shown);
        }
    }
}

/// Waits for what is asked of a store, and says once that nothing comes; `has_moved` tells whether something came
/// since it was asked last.
async fn patiently<T>(
    asked: impl Future<Output = T>,
    shown: &str,
    has_moved: &dyn Fn() -> bool,
    say: &dyn Fn(String),
) -> T {
    let (mut asked, mut was_told) = (std::pin::pin!(asked), false);
    loop {
        if let Ok(answer) = tokio::time::timeout(QUIET, asked.as_mut()).await {
            return answer;
        }
        if !has_moved() && !was_told {
            was_told = true;
            say(format!("{shown}: nothing has come for {} s, and is still waited for", QUIET.as_secs()));
        }
    }
}

/// Whose file this is: the name of an object, also of a part of it; empty for what is none.
fn name_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    Some(name.split('.').next()?.to_string())
}

//! Tar archives: each member is read as a file of the kind that its name indicates; the number of the member
//! is reported as its location.
//!
//! The `tar` crate decodes the headers. The members are iterated here, since the iterator of the crate
//! borrows each member, so that none can be kept between two documents, and reads a long name of any length
//! into memory.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use tar::{Header, PaxExtensions};

use crate::corpus::Rejection;
use crate::corpus::read::Limits;
use crate::corpus::read::assembly::{Assembly, Records};
use crate::corpus::read::content::text_records;
use crate::corpus::read::files::{SourceFile, is_read, reading_of};
use crate::corpus::read::json_object::known_names;
use crate::corpus::read::reading::Reading;
use crate::corpus::read::window::Whole;
use base::error::Problem;
use base::fs;
use base::fs::TextFile;

const BLOCK_BYTES: u64 = 512;

/// Limit on the bytes of long names and other extensions of one member.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;

/// Name of the member as a `title_field`: the name is put before the text.
const NAME_FIELD: &str = "name";

/// Reads documents from the members of an archive.
pub(super) struct TarMembers {
    whole: Whole,
    file: SourceFile,
    limits: Limits,
    current: Option<Box<dyn Records + Send>>,
    /// Bytes from the end of the current member to the next block.
    padding: u64,
    /// Number of members so far, without folders.
    number: u64,
    /// Number of members that were read, not skipped.
    read: u64,
}

/// A member that is not a folder.
struct Member {
    name: Vec<u8>,
    size: u64,
    /// Kind of a member that is not a regular file.
    other: Option<&'static str>,
}

impl TarMembers {
    pub(super) fn new(text: TextFile, file: &SourceFile, limits: Limits) -> Self {
        let whole = Whole::new(text);
        Self { whole, file: file.clone(), limits, current: None, padding: 0, number: 0, read: 0 }
    }

    fn cannot_read(&self) -> String {
        format!("cannot read `{}`, member {}", self.file.path.display(), self.number + 1)
    }

    fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::new(message).at(format!("{}:{}", self.file.path.display(), self.number + 1))
    }

    /// Returns the next member; `None` after the last. Blocks of zeros end an archive, but another archive
    /// may follow.
    fn next_member(&mut self) -> Result<Option<Member>> {
        let mut long_name = None;
        let mut long_size = None;
        let mut extension_bytes = 0u64;
        loop {
            let mut block = [0; BLOCK_BYTES as usize];
            match self.whole.fill(&mut block).with_context(|| self.cannot_read())? {
                512 if block == [0; 512] => continue,
                512 => {}
                0 if extension_bytes == 0 => return Ok(None),
                _ => return Err(self.problem("the archive is cut off in the middle of a header").into()),
            }
            let header = Header::from_byte_slice(&block);
            if !has_right_checksum(header) {
                let message = "the header of a member is damaged: its checksum is wrong";
                return Err(self.problem(message).hint("is the file whole?").into());
            }
            let size = header
                .entry_size()
                .map_err(|e| self.problem(format!("the size of a member is wrong: {e}")))?;
            let kind = header.entry_type();
            if kind.is_gnu_longname()
                || kind.is_gnu_longlink()
                || kind.is_pax_local_extensions()
                || kind.is_pax_global_extensions()
            {
                extension_bytes = size.saturating_add(extension_bytes);
                if extension_bytes > EXTENSION_BYTES_MAX {
                    let message =
                        format!("the headers of a member have more than {EXTENSION_BYTES_MAX} bytes");
                    return Err(self.problem(message).into());
                }
                // One more byte, so that an extension without content counts too.
                extension_bytes += 1;
                let content = self.extension(size)?;
                if kind.is_gnu_longname() {
                    let end = content.iter().position(|byte| *byte == 0).unwrap_or(content.len());
                    long_name = Some(content[..end].to_vec());
                } else if kind.is_pax_local_extensions() {
                    self.extend(&content, &mut long_name, &mut long_size)?;
                }
                continue;
            }
            // The size of a link is that of its target, but it has no content.
            let size = if kind.is_hard_link() { 0 } else { long_size.take().unwrap_or(size) };
            let name = long_name.take().unwrap_or_else(|| header.path_bytes().into_owned());
            extension_bytes = 0;
            if kind.is_gnu_sparse() {
                return Err(self.sparse(&name).into());
            }
            self.padding = (BLOCK_BYTES - size % BLOCK_BYTES) % BLOCK_BYTES;
            if kind.is_dir() || name.ends_with(b"/") {
                self.whole.window(size);
                self.whole.skip_rest(self.padding).with_context(|| self.cannot_read())?;
                continue;
            }
            self.number += 1;
            let is_file = kind.is_file() || kind.is_contiguous();
            let is_link = kind.is_hard_link() || kind.is_symlink();
            let other = (!is_file).then_some(if is_link { "a link" } else { "no file" });
            return Ok(Some(Member { name, size, other }));
        }
    }

    /// Reads the content of a member that extends the next one.
    fn extension(&self, size: u64) -> Result<Vec<u8>> {
        let mut content = vec![0; size.next_multiple_of(BLOCK_BYTES) as usize];
        let filled = self.whole.fill(&mut content).with_context(|| self.cannot_read())?;
        if filled < content.len() {
            return Err(self.problem("the archive is cut off in the middle of a header").into());
        }
        content.truncate(size as usize);
        Ok(content)
    }

    /// Takes the fields that change how a member is read from the POSIX extensions in `content`.
    fn extend(&self, content: &[u8], name: &mut Option<Vec<u8>>, size: &mut Option<u64>) -> Result<()> {
        for extension in PaxExtensions::new(content) {
            let extension =
                extension.map_err(|e| self.problem(format!("the header of a member is wrong: {e}")))?;
            let value = extension.value_bytes();
            match extension.key_bytes() {
                b"path" => *name = Some(value.to_vec()),
                b"size" => {
                    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                    *size = Some(number.ok_or_else(|| self.problem("the size of a member is no number"))?);
                }
                key if key.starts_with(b"GNU.sparse.") => return Err(self.sparse(b"").into()),
                _ => {}
            }
        }
        Ok(())
    }

    fn sparse(&self, name: &[u8]) -> Problem {
        let name = String::from_utf8_lossy(name);
        self.problem(format!("the member {name} is stored with holes (`tar --sparse`), which is not read"))
            .hint("pack it again without `--sparse`")
    }

    /// Opens a member, or counts it as skipped.
    fn open(&mut self, member: &Member, out: &mut Assembly) -> Result<()> {
        let name = String::from_utf8_lossy(&member.name).into_owned();
        let shown: String = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let place: Arc<Path> = Path::new(&format!("{}:{shown}", self.file.path.display())).into();
        out.enter(self.number, Arc::clone(&place));
        let path = Path::new(&name);
        let is_hidden = path.components().any(|part| fs::is_hidden(Path::new(&part)));
        let hidden = is_hidden.then_some("hidden");
        let unknown = (!is_read(&self.file.settings, path)).then_some("its extension is none that is read");
        let text = self.whole.window(member.size);
        if let Some(why) = member.other.or(hidden).or(unknown) {
            let rejection = Rejection { reason: "passed_over", detail: format!("{shown}: {why}") };
            out.reject(1, member.size, rejection, shown.as_bytes());
            return self.end_member();
        }
        self.read += 1;
        let reading = reading_of(&self.file.settings, path);
        out.set_title(self.title(&reading, &shown, &place)?);
        let (text, kind) = text.sniffed(&place, self.file.settings.encoding)?;
        self.current = Some(text_records(text, kind, &place, &reading, self.limits)?);
        Ok(())
    }

    /// Returns the prefix of a member's text; objects and rows get their title from their own fields.
    fn title(&self, reading: &Reading, name: &str, place: &Path) -> Result<Option<String>> {
        match (&self.file.settings.title_field, reading) {
            (Some(field), Reading::Text(_)) if field == NAME_FIELD => Ok(Some(name.to_string())),
            (Some(field), Reading::Text(_)) => {
                let hint = known_names("title_field", "fields", [NAME_FIELD].into_iter());
                let problem = Problem::new(format!("field `{field}` is missing"));
                Err(problem.at(format!("{}:1", place.display())).hint(hint).into())
            }
            _ => Ok(None),
        }
    }

    fn end_member(&mut self) -> Result<()> {
        self.current = None;
        self.whole
            .skip_rest(self.padding)
            .with_context(|| format!("cannot read `{}`, member {}", self.file.path.display(), self.number))
    }
}

impl Records for TarMembers {
    fn advance(&mut self, out: &mut Assembly) -> Result<bool> {
        if let Some(current) = &mut self.current {
            if !current.advance(out)? {
                self.end_member()?;
            }
            return Ok(true);
        }
        if let Some(member) = self.next_member()? {
            self.open(&member, out)?;
            return Ok(true);
        }
        if self.read == 0 && self.number > 0 {
            let message =
                format!("holds no member to read: {} have other extensions or are hidden", self.number);
            let hint = "`format` says how to read members without a known extension";
            return Err(Problem::new(message).at(self.file.path.display()).hint(hint).into());
        }
        if self.number == 0 {
            out.reject_empty(1, 0);
        }
        Ok(false)
    }

    fn position_bytes(&self) -> u64 {
        self.whole.position_bytes()
    }
}

/// True if the checksum of a header is right. Old programs added up its bytes as signed numbers.
fn has_right_checksum(header: &Header) -> bool {
    let bytes = header.as_bytes().iter().enumerate();
    let all = bytes.map(|(at, byte)| if (148..156).contains(&at) { b' ' } else { *byte });
    let (unsigned, signed) = all.fold((0u32, 0i32), |(unsigned, signed), byte| {
        (unsigned + u32::from(byte), signed + i32::from(byte.cast_signed()))
    });
    header.cksum().is_ok_and(|sum| sum == unsigned || i32::try_from(sum) == Ok(signed))
}

//! Listings of buckets without the objects whose names cannot be names of files. One odd name (`d//x`, `..`,
//! a line break) would make `object_store` refuse the whole listing.
//!
//! The objects that are left out are counted, and the first of them named.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::client::{HttpError, HttpRequest, HttpResponse, HttpService};
use object_store::path::Path as Key;
use reqwest::header::CONTENT_LENGTH;
use reqwest::{Client, Method};

/// Number of names in a message.
const NAMED: usize = 3;

/// The longest part of a path that a disk accepts, in bytes.
const MOST_PART_BYTES: usize = 255;

/// Names of the objects of one store that were left out.
#[derive(Debug, Clone, Default)]
pub(super) struct LeftOut(Arc<Mutex<BTreeSet<String>>>);

impl LeftOut {
    pub(super) fn add(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_string());
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let shown: Vec<String> =
            names.iter().take(NAMED).map(|name| format!("`{}`", name.escape_debug())).collect();
        let more = if names.len() > NAMED { ", ..." } else { "" };
        write!(f, "{} left out, whose names no file can have: {}{more}", names.len(), shown.join(", "))
    }
}

impl LeftOut {
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// A client that leaves odd names out of listings.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) client: Client,
    pub(super) left_out: LeftOut,
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Listing {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> Answer<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let query = request.uri().query().unwrap_or_default();
            let is_listing = request.method() == Method::GET
                && query.split('&').any(|pair| ["list-type=2", "comp=list"].contains(&pair));
            let answer = HttpService::call(&self.client, request).await?;
            if !is_listing || !answer.status().is_success() {
                return Ok(answer);
            }
            let (mut head, body) = answer.into_parts();
            let bytes = body.bytes().await?;
            let Ok(text) = std::str::from_utf8(&bytes) else {
                return Ok(HttpResponse::from_parts(head, bytes.into()));
            };
            head.headers.remove(CONTENT_LENGTH);
            Ok(HttpResponse::from_parts(head, without_odd(text, &self.left_out).into()))
        })
    }
}

/// Removes the entries of objects with odd names from a listing in XML.
fn without_odd(text: &str, left_out: &LeftOut) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    // Tags in the listings of S3 and Google, and in those of Azure.
    let entries = [("<Contents>", "</Contents>", "Key"), ("<Blob>", "</Blob>", "Name")];
    while let Some((at, start, end, tag)) = entries
        .iter()
        .filter_map(|(start, end, tag)| Some((rest.find(start)?, start, end, tag)))
        .min_by_key(|(at, ..)| *at)
    {
        let Some(length) = rest[at..].find(end) else { break };
        let entry = &rest[at..at + length + end.len()];
        kept.push_str(&rest[..at]);
        match name_in(entry, tag).filter(|name| is_odd(name)) {
            Some(name) => left_out.add(&name),
            None => kept.push_str(entry),
        }
        rest = &rest[at + entry.len()..];
        debug_assert!(entry.starts_with(start), "an entry begins with its tag");
    }
    kept + rest
}

/// The name in an entry of a listing.
fn name_in(entry: &str, tag: &str) -> Option<String> {
    let start = format!("<{tag}>");
    let from = entry.find(&start)? + start.len();
    let length = entry[from..].find(&format!("</{tag}>"))?;
    Some(unescaped(&entry[from..from + length]))
}

/// Text of XML with its character references resolved.
fn unescaped(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let Some(length) = rest.find(';') else { break };
        let name = &rest[1..length];
        let number = name.strip_prefix('#').and_then(|number| match number.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => number.parse().ok(),
        });
        let named = [("amp", '&'), ("lt", '<'), ("gt", '>'), ("quot", '"'), ("apos", '\'')];
        let found = named.iter().find(|(known, _)| *known == name).map(|(_, character)| *character);
        plain.extend(found.or(number.and_then(char::from_u32)));
        rest = &rest[length + 1..];
    }
    plain + rest
}

/// Returns true if the name of an object cannot be the name of a file.
fn is_odd(name: &str) -> bool {
    let own = name.strip_suffix('/').unwrap_or(name);
    let is_key = Key::parse(name).is_ok_and(|key| key.as_ref() == own);
    let is_too_long = name.split('/').any(|part| part.len() > MOST_PART_BYTES);
    !is_key || name.chars().any(char::is_control) || is_too_long
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_hide_no_others_and_are_reported() {
        let odd =
            ["d//x", "/d/x", "d/../x", "d/./x", "..", "d/a&#10;b", "d/a&#x0;b", "d///", &"n".repeat(256)];
        let good = ["d/x", "d/a &amp; b", "d/ä.txt", "d/", "d/a..b", "d/&lt;mask&gt;"];
        let all: String = good.iter().chain(&odd).chain(&good[..1]).map(|name| entry(name)).collect();
        let left_out = LeftOut::default();
        let kept = without_odd(&format!("<L><Name>b//</Name>{all}<T>x</T></L>"), &left_out);
        let wanted: String = good.iter().chain(&good[..1]).map(|name| entry(name)).collect();
        assert_eq!(kept, format!("<L><Name>b//</Name>{wanted}<T>x</T></L>"));
        let shown = left_out.to_string();
        assert!(
            shown.starts_with("9 left out, whose names no file can have: `..`, `/d/x`, `d/../x`, ..."),
            "{shown}"
        );
        let azure = "<Blobs><Blob><Name>a//b</Name></Blob><Blob><Name>c</Name></Blob></Blobs>";
        assert_eq!(without_odd(azure, &left_out), "<Blobs><Blob><Name>c</Name></Blob></Blobs>");
    }

    #[test]
    fn broken_listings_are_handed_on() {
        for text in
            ["", "<Contents>", "<Contents><Key>a", "<Contents></Contents>", "<Key>&</Key>", "&#xfffffff;"]
        {
            assert_eq!(without_odd(text, &LeftOut::default()), text);
        }
        assert_eq!(unescaped("a&amp;b&#65;&unknown;c&"), "a&bAc&");
    }

    fn entry(name: &str) -> String {
        format!("<Contents><Key>{name}</Key><Size>1</Size></Contents>")
    }
}

//! Parses URLs: which store a URL names, with whose credentials, and which objects there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path as Key;
use object_store::{ClientConfigKey, ClientOptions, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig};
use reqwest::header::{AUTHORIZATION, HeaderValue};

use crate::connector::Connector;
use crate::failure::explained;
use crate::listing::LeftOut;
use crate::unsure::Unsure;
use crate::{environment, runtime};
use base::error::Problem;
use base::{fs, secrets};

const SCHEMES: [&str; 5] = ["s3", "gs", "az", "https", "http"];

/// Returns true if a text is the URL of an object, of a folder of objects or of a pattern, and not a path.
pub fn is_url(text: &str) -> bool {
    scheme_of(text).is_some()
}

fn scheme_of(text: &str) -> Option<(&'static str, &str)> {
    SCHEMES.iter().find_map(|scheme| Some((*scheme, text.strip_prefix(scheme)?.strip_prefix("://")?)))
}

/// A parsed URL.
pub(super) struct Address {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) scheme: &'static str,
    /// Name of the bucket, the container or the host.
    pub(super) place: String,
    /// Key of the object, folder or pattern there.
    pub(super) key: String,
    /// Hash of the query of an https URL, which may choose among objects; empty without a query.
    pub(super) query_hash: String,
    /// The URL without secrets, for messages.
    pub(super) shown: String,
    /// Names of objects that listings left out.
    pub(super) left_out: LeftOut,
    /// Names of objects that the store's checksum does not verify.
    pub(super) unsure: Unsure,
}

/// The most objects in a listing. More objects are neither a corpus nor a run, and their names alone would
/// fill the memory.
const MOST_OBJECTS: usize = 1_000_000;

/// The error for a listing with more than [`MOST_OBJECTS`] objects.
#[derive(Debug, thiserror::Error)]
#[error("the listing has more than {MOST_OBJECTS} objects: name a folder with fewer")]
struct Endless;

impl Address {
    /// Parses a URL. From here on, messages hide its password and its signed query.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let shown = secrets::url(url).into_owned();
        let (scheme, rest) = scheme_of(url)
            .ok_or_else(|| wrong(&shown, "is no URL of a store", "write `s3://bucket/folder`"))?;
        let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, place) =
            authority.rsplit_once('@').map_or((None, authority), |(user, place)| (Some(user), place));
        let is_http = scheme.starts_with("http");
        if place.is_empty() {
            return Err(wrong(&shown, "names no bucket", "write `s3://bucket/folder`").into());
        }
        if user.is_some() && !is_http {
            let hint =
                "leave it out: credentials come from the variables of the cloud (AWS_ACCESS_KEY_ID, ...)";
            return Err(wrong(&shown, "holds a user", hint).into());
        }
        if !environment::is_place(scheme, place) {
            let (what, hint) =
                if is_http { ("host", "see its name and its port") } else { ("bucket", "see its name") };
            return Err(wrong(&shown, &format!("names no {what} that there can be"), hint).into());
        }
        environment::require(scheme)?;
        if !is_http && (key.starts_with('/') || key.contains("//")) {
            return Err(wrong(
                &shown,
                "has an empty part in its path",
                "write one `/`; is a variable in it empty?",
            )
            .into());
        }
        let (key, query) =
            key.split_once('?').filter(|(_, query)| is_http || query.contains('=')).unwrap_or((key, ""));
        register_credentials(user.unwrap_or_default(), query);
        if !query.is_empty() && !is_http {
            let hint = "leave it out: a signature stands in AZURE_STORAGE_SAS_KEY";
            return Err(wrong(&shown, "holds a query", hint).into());
        }
        let decoded = if is_http {
            let decoded = Key::from_url_path(key);
            let decoded = decoded
                .map_err(|e| wrong(&shown, &format!("is no URL of an object: {e}"), "see its path"))?;
            decoded.to_string()
        } else {
            key.to_string()
        };
        let end = if is_http && key.ends_with('/') { "/" } else { "" };
        let left_out = LeftOut::default();
        let store = store_of(scheme, place, user, query, &left_out).map_err(|e| explained(&e, &shown))?;
        Ok(Self {
            store,
            scheme,
            place: place.to_string(),
            key: decoded + end,
            query_hash: if query.is_empty() {
                String::new()
            } else {
                fs::sha256_of(&[query.as_bytes()])[..16].to_string()
            },
            shown,
            left_out,
            unsure: Unsure::default(),
        })
    }

    pub(super) fn is_http(&self) -> bool {
        self.scheme.starts_with("http")
    }

    /// URL of an object in this store, for messages.
    pub(super) fn shown_of(&self, key: &Key) -> String {
        format!("{}://{}/{key}", self.scheme, self.place)
    }

    /// All objects that the URL names: the object of this name, those below it, or those that match the
    /// pattern. Servers behind https list nothing: for a folder there, these are the `folder_files` that
    /// exist in it.
    pub(super) async fn find(&self, folder_files: &[&str]) -> Result<Vec<ObjectMeta>> {
        let found = match self.key.find(['*', '?', '[']) {
            Some(_) if self.is_http() => {
                let hint = "name each file; only `s3://`, `gs://` and `az://` can be looked through";
                return Err(Problem::usage("is a pattern, and https lists nothing")
                    .at(&self.shown)
                    .hint(hint)
                    .into());
            }
            None if self.is_http() && self.key.ends_with('/') => {
                let mut found = Vec::new();
                for name in folder_files {
                    let key = Key::parse(format!("{}{name}", self.key)).context("names of files are keys")?;
                    found.extend(self.look_at(&key).await.map_err(|e| self.explain(&e))?);
                }
                found
            }
            Some(wild) => {
                let pattern = glob::Pattern::new(&self.key)
                    .map_err(|e| Problem::usage(format!("is not a pattern: {}", e.msg)).at(&self.shown))?;
                let options =
                    glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::default() };
                let above = self.key[..wild].rsplit_once('/').map_or("", |(above, _)| above);
                let mut found = self.below(above).await.map_err(|e| self.explain(&e))?;
                found.retain(|meta| pattern.matches_with(meta.location.as_ref(), options));
                found
            }
            None => {
                let key = Key::parse(&self.key).map_err(|e| self.explain(&e.into()))?;
                let one = if self.key.is_empty() {
                    None
                } else {
                    self.look_at(&key).await.map_err(|e| self.explain(&e))?
                };
                match one {
                    Some(meta) => vec![meta],
                    None if self.is_http() => Vec::new(),
                    None => self.below(&self.key).await.map_err(|e| self.explain(&e))?,
                }
            }
        };
        if found.is_empty() {
            let hint = "is the name right, and does it lie in this bucket?";
            return Err(Problem::usage("there is no such object").at(&self.shown).hint(hint).into());
        }
        Ok(found)
    }

    fn explain(&self, error: &object_store::Error) -> Problem {
        explained(error, &self.shown)
    }

    /// Metadata of one object; `None` if the object does not exist.
    pub(super) async fn look_at(&self, key: &Key) -> object_store::Result<Option<ObjectMeta>> {
        // A signed URL may permit only GET. The body of the answer is dropped unread.
        let meta = if self.is_http() {
            self.store.get(key).await.map(|got| got.meta)
        } else {
            self.store.head(key).await
        };
        match meta {
            Ok(meta) => Ok(Some(meta)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// All objects below a folder, sorted by name, without the empty objects that some consoles create as
    /// folders.
    pub(super) async fn below(&self, folder: &str) -> object_store::Result<Vec<ObjectMeta>> {
        let folder = Key::parse(folder)?;
        let mut all: Vec<ObjectMeta> = Vec::new();
        let mut listing = self.store.list(Some(&folder));
        while let Some(meta) = listing.try_next().await? {
            all.push(meta);
            if all.len() > MOST_OBJECTS {
                return Err(object_store::Error::Generic { store: "listing", source: Box::new(Endless) });
            }
        }
        all.sort_by(|a, b| a.location.cmp(&b.location));
        // Azure's listings return tags without the quotes that tags have everywhere else.
        for tag in all.iter_mut().filter_map(|meta| meta.e_tag.as_mut()).filter(|tag| !tag.ends_with('"')) {
            *tag = format!("\"{tag}\"");
        }
        let markers: BTreeSet<Key> = all
            .iter()
            .filter(|meta| meta.size == 0 && (meta.location == folder || has_objects_below(&all, meta)))
            .map(|meta| meta.location.clone())
            .collect();
        all.retain(|meta| !markers.contains(&meta.location));
        // On a disk, a file cannot be a folder at the same time.
        let both: Vec<bool> = all.iter().map(|meta| has_objects_below(&all, meta)).collect();
        for (meta, _) in all.iter().zip(&both).filter(|(_, is_both)| **is_both) {
            self.left_out.add(meta.location.as_ref());
        }
        let mut is_left = both.into_iter();
        all.retain(|_| !is_left.next().unwrap_or(false));
        Ok(all)
    }
}

fn wrong(shown: &str, message: &str, hint: &str) -> Problem {
    Problem::usage(message).at(shown).hint(hint)
}

/// Returns true if the name of `meta`, which is one of the `sorted` objects, is also that of a folder with
/// objects.
fn has_objects_below(sorted: &[ObjectMeta], meta: &ObjectMeta) -> bool {
    let inside = format!("{}/", meta.location);
    let next = sorted.partition_point(|other| other.location.as_ref() < inside.as_str());
    sorted.get(next).is_some_and(|other| other.location.as_ref().starts_with(&inside))
}

/// Registers secrets, so that messages hide them: parts of a URL, and values of the clouds' own variables,
/// which a server may repeat in its answers.
fn register_credentials(user: &str, query: &str) {
    let password = user.split_once(':').map_or("", |(_, password)| password);
    let values = query.split('&').filter_map(|pair| pair.split_once('='));
    let signed = values.filter(|(name, _)| *name == "sig" || secrets::is_named(&name.replace('-', "_")));
    let basic = if user.is_empty() { String::new() } else { BASE64_STANDARD.encode(user) };
    for part in [user, password, &basic, query].into_iter().chain(signed.map(|(_, value)| value)) {
        secrets::stand_for(part, "***");
    }
    for (name, value) in std::env::vars_os() {
        if let (Some(name), Some(value)) = (name.to_str(), value.to_str())
            && ["AWS_", "AZURE_", "GOOGLE_"].iter().any(|cloud| name.starts_with(cloud))
            && secrets::is_named(name)
        {
            secrets::hold(name, value);
        }
    }
}

fn uses_http(endpoint: Option<String>) -> bool {
    endpoint.is_some_and(|url| url.starts_with("http://"))
}

fn store_of(
    scheme: &str,
    place: &str,
    user: Option<&str>,
    query: &str,
    left_out: &LeftOut,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    runtime::choose_cryptography();
    // After a minute the download itself tries again, from where it stopped.
    let retry =
        RetryConfig { max_retries: 6, retry_timeout: Duration::from_secs(60), ..RetryConfig::default() };
    let is_http = scheme.starts_with("http");
    let left_out = left_out.clone();
    let mut connector = Connector {
        is_signed: !is_http || user.is_some() || !query.is_empty(),
        left_out,
        ..Connector::default()
    };
    Ok(match scheme {
        "s3" => {
            let builder = AmazonS3Builder::from_env().with_bucket_name(place).with_retry(retry);
            let is_plain = uses_http(builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
            let key = AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp);
            Arc::new(builder.with_config(key, is_plain.to_string()).with_http_connector(connector).build()?)
        }
        "gs" => {
            let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(place).with_retry(retry);
            let is_plain = uses_http(builder.get_config_value(&GoogleConfigKey::BaseUrl));
            let key = GoogleConfigKey::Client(ClientConfigKey::AllowHttp);
            Arc::new(builder.with_config(key, is_plain.to_string()).with_http_connector(connector).build()?)
        }
        "az" => {
            let builder = MicrosoftAzureBuilder::from_env().with_container_name(place).with_retry(retry);
            let is_plain = uses_http(builder.get_config_value(&AzureConfigKey::Endpoint));
            let key = AzureConfigKey::Client(ClientConfigKey::AllowHttp);
            Arc::new(builder.with_config(key, is_plain.to_string()).with_http_connector(connector).build()?)
        }
        _ => {
            if let Some(user) = user {
                let basic = format!("Basic {}", BASE64_STANDARD.encode(user));
                let value = HeaderValue::from_str(&basic).ok();
                connector.headers.extend(value.map(|value| (AUTHORIZATION, value)));
            }
            let options = ClientOptions::new().with_allow_http(scheme == "http");
            let query = if query.is_empty() { String::new() } else { format!("?{query}") };
            let builder =
                HttpBuilder::new().with_url(format!("{scheme}://{place}/{query}")).with_retry(retry);
            Arc::new(builder.with_client_options(options).with_http_connector(connector).build()?)
        }
    })
}

//! The HTTP client for requests: as `object_store` builds it, except for its rules on redirects.
//!
//! A signed request does not follow a redirect to another host, because its headers have secrets for the
//! first host (a session's token). No request has a `Referer` header, which may be a URL with a signature.

use std::time::Duration;

use object_store::client::{HttpClient, HttpConnector};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::header::HeaderMap;
use reqwest::redirect::{Attempt, Policy};
use reqwest::tls::Certificate;
use reqwest::{Client, ClientBuilder, NoProxy, Proxy};

use crate::listing::{LeftOut, Listing};

/// Time without a byte after which a request is abandoned and repeated.
pub(super) const SILENCE: Duration = Duration::from_secs(60);

/// Time limit of a whole request. The library's own limit is too short for a large object.
const WHOLE_REQUEST: Duration = Duration::from_secs(24 * 3600);

/// Time limit of connecting to the machine's own credential server, which answers at once or does not exist.
const NEAR: Duration = Duration::from_secs(1);

/// The most redirects that a request follows.
const MOST_REDIRECTS: usize = 10;

/// Builds clients for one store.
#[derive(Debug, Clone, Default)]
pub(super) struct Connector {
    /// True if requests carry a signature, a password or a token.
    pub(super) is_signed: bool,
    /// Names of objects that its listings leave out.
    pub(super) left_out: LeftOut,
    /// Headers of every request.
    pub(super) headers: HeaderMap,
}

/// A signed request that a server redirects to another host.
#[derive(Debug, thiserror::Error)]
#[error("the server sends on to another host, `{0}`, and a request with credentials does not follow")]
struct AnotherHost(String);

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = self.builder(options).and_then(ClientBuilder::build);
        let client =
            client.map_err(|e| object_store::Error::Generic { store: "HTTP client", source: Box::new(e) })?;
        Ok(HttpClient::new(Listing { client, left_out: self.left_out.clone() }))
    }
}

impl Connector {
    fn builder(&self, options: &ClientOptions) -> reqwest::Result<ClientBuilder> {
        let mut builder = Client::builder()
            .user_agent(concat!("mlmtrain/", env!("CARGO_PKG_VERSION")))
            .default_headers(self.headers.clone())
            .timeout(WHOLE_REQUEST)
            .read_timeout(SILENCE)
            .https_only(!is_on(options, ClientConfigKey::AllowHttp))
            .referer(false)
            .redirect(self.policy())
            // Compression would hide the size of an object.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate();
        if options.get_config_value(&ClientConfigKey::ConnectTimeout).is_some_and(|text| text == "1s") {
            builder = builder.connect_timeout(NEAR);
        }
        if let Some(url) = options.get_config_value(&ClientConfigKey::ProxyUrl) {
            let mut proxy = Proxy::all(url)?;
            if let Some(pem) = options.get_config_value(&ClientConfigKey::ProxyCaCertificate) {
                builder = builder.tls_certs_merge([Certificate::from_pem(pem.as_bytes())?]);
            }
            if let Some(hosts) = options.get_config_value(&ClientConfigKey::ProxyExcludes) {
                proxy = proxy.no_proxy(NoProxy::from_string(&hosts));
            }
            builder = builder.proxy(proxy);
        }
        if is_on(options, ClientConfigKey::AllowInvalidCertificates) {
            builder = builder.danger_accept_invalid_certs(true);
        }
        if is_on(options, ClientConfigKey::Http1Only) {
            builder = builder.http1_only();
        }
        Ok(builder)
    }

    fn policy(&self) -> Policy {
        let is_signed = self.is_signed;
        Policy::custom(move |attempt: Attempt<'_>| {
            let first = attempt.previous().first();
            let is_other = first.is_some_and(|first| origin(first) != origin(attempt.url()));
            if is_signed && is_other {
                let host = attempt.url().host_str().unwrap_or_default().to_string();
                return attempt.error(AnotherHost(host));
            }
            if attempt.previous().len() > MOST_REDIRECTS {
                attempt.error("too many redirects")
            } else {
                attempt.follow()
            }
        })
    }
}

fn is_on(options: &ClientOptions, key: ClientConfigKey) -> bool {
    options.get_config_value(&key).is_some_and(|value| value == "true")
}

/// Scheme, host and port of a URL.
fn origin(url: &reqwest::Url) -> (String, Option<String>, Option<u16>) {
    (url.scheme().to_string(), url.host_str().map(str::to_string), url.port_or_known_default())
}

//! Checks the clouds' environment variables before they are used: `object_store` panics on an endpoint that
//! is not a URL, and on text that cannot be part of a request.

use std::ffi::OsStr;

use object_store::aws::AmazonS3ConfigKey;
use object_store::azure::AzureConfigKey;
use object_store::gcp::GoogleConfigKey;
use reqwest::Url;

use base::error::Problem;

/// Kind of value that a variable needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// The URL of a server, without a query.
    Server,
    /// The path of a URL, with a `/` before it.
    UrlPath,
    /// A part of the name of a host.
    HostPart,
    /// Text that fits in a line of a request.
    Line,
    /// A path on this disk, or text that is read as JSON or PEM.
    Any,
}

/// Checks the environment variables that URLs with `scheme` use; an error names the first unusable one.
pub(super) fn require(scheme: &str) -> Result<(), Problem> {
    let (prefix, is_known): (&str, fn(&str) -> bool) = match scheme {
        "s3" => ("AWS_", |key| key.parse::<AmazonS3ConfigKey>().is_ok()),
        "gs" => ("GOOGLE_", |key| key.parse::<GoogleConfigKey>().is_ok()),
        "az" => ("AZURE_", |key| key.parse::<AzureConfigKey>().is_ok()),
        _ => return Ok(()),
    };
    for (name, value) in std::env::vars_os() {
        if let Some(name) = name.to_str().filter(|name| name.starts_with(prefix))
            && is_known(&name.to_ascii_lowercase())
        {
            check(name, &value)?;
        }
    }
    Ok(())
}

fn check(name: &str, value: &OsStr) -> Result<(), Problem> {
    let wanted = wanted(name);
    let Some(value) = value.to_str() else { return refuse(name, "is not UTF-8 text") };
    if wanted == Wanted::Any {
        return Ok(());
    }
    if value.trim().is_empty() {
        return refuse(name, "is empty");
    }
    if value.trim() != value || value.chars().any(|c| !c.is_ascii() || c.is_control()) {
        return refuse(name, "holds blanks at an end, control characters, or others than ASCII has");
    }
    match wanted {
        Wanted::Server if !is_server(value) => refuse(
            name,
            "is no URL of a server: it wants `https://`, a host, and a port of at most 65535 if any",
        ),
        Wanted::UrlPath if !value.starts_with('/') || value.contains(char::is_whitespace) => {
            refuse(name, "is no path of a URL, which begins with `/`")
        }
        Wanted::HostPart if !value.chars().all(is_of_host) => {
            refuse(name, "holds characters that no name of a host has")
        }
        _ => Ok(()),
    }
}

fn refuse(name: &str, message: &str) -> Result<(), Problem> {
    let hint = "correct the variable, or unset it; its value is not told here";
    Err(Problem::usage(message).at(name).hint(hint))
}

fn is_of_host(character: char) -> bool {
    character.is_ascii_alphanumeric() || ['-', '.', '_'].contains(&character)
}

/// The kind of value that the variable with this name needs.
fn wanted(name: &str) -> Wanted {
    let name = name.to_ascii_uppercase();
    if contains_any(&name, &["FILE", "SERVICE_ACCOUNT", "APPLICATION_CREDENTIALS", "CERTIFICATE", "PATH"]) {
        Wanted::Any
    } else if contains_any(&name, &["RELATIVE_URI"]) {
        Wanted::UrlPath
    } else if contains_any(&name, &["USE_FABRIC_ENDPOINT"]) {
        Wanted::Line
    } else if contains_any(&name, &["ENDPOINT", "FULL_URI", "_URL", "AUTHORITY_HOST"]) {
        Wanted::Server
    } else if contains_any(&name, &["REGION", "ACCOUNT_NAME", "WORKLOAD_HOST"]) {
        Wanted::HostPart
    } else {
        Wanted::Line
    }
}

fn contains_any(name: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| name.contains(part))
}

/// Returns true if a text is the URL of a server, without a query: requests add their own path.
fn is_server(text: &str) -> bool {
    let url = Url::parse(text).ok().filter(|url| ["http", "https"].contains(&url.scheme()));
    url.is_some_and(|url| url.has_host() && url.query().is_none() && url.fragment().is_none())
        // The parser of URLs repairs these characters, which the parser of requests refuses.
        && !text.contains([' ', '\\', '"', '<', '>', '{', '}', '|', '^', '`'])
        && text.contains("://")
}

/// Returns true if a text can be the name of a bucket or a container, or a host with its port.
pub(super) fn is_place(scheme: &str, place: &str) -> bool {
    if scheme.starts_with("http") {
        return is_server(&format!("{scheme}://{place}/"));
    }
    place.chars().all(|c| c.is_ascii_alphanumeric() || "._-$".contains(c)) && !place.starts_with('.')
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn unusable_values_are_errors_that_name_the_variable() {
        let bad = [
            "",
            " ",
            "localhost",
            "localhost:9000",
            "127.0.0.1",
            "//host",
            "http://",
            "https://:9000",
            "http://host:99999",
            "http://host:port",
            "ftp://host",
            "http:host",
            "http://ho st",
            "http://host ",
            "http://host\n",
            "http://hö",
            "http://host?x=1",
            "http://host#x",
            "http://host\\x",
            "http://[::1",
            "http://a\"b",
        ];
        for name in ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "GOOGLE_BASE_URL", "AZURE_STORAGE_ENDPOINT"] {
            for value in bad {
                let problem = check(name, OsStr::new(value)).expect_err(value);
                assert_eq!(problem.place.as_deref(), Some(name), "{value:?}");
            }
            for value in ["http://127.0.0.1:9000", "https://minio.example.org/", "http://[::1]:80/base"] {
                assert_eq!(check(name, OsStr::new(value)), Ok(()), "{value:?}");
            }
        }
        assert!(check("AWS_ENDPOINT", OsStr::from_bytes(b"http://\xff")).is_err());
        for (name, value, is_good) in [
            ("AWS_REGION", "eu-north-1", true),
            ("AWS_REGION", "eu north", false),
            ("AWS_REGION", "x/../y", false),
            ("AWS_SESSION_TOKEN", "abc=/+", true),
            ("AWS_SESSION_TOKEN", "abc\nHost: x", false),
            ("AWS_ACCESS_KEY_ID", "", false),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/tmp/ä b", true),
            ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/x", true),
            ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "v2 x", false),
            ("AZURE_STORAGE_ACCOUNT_NAME", "a b", false),
            ("GOOGLE_SERVICE_ACCOUNT_KEY", "{\n}", true),
        ] {
            assert_eq!(check(name, OsStr::new(value)).is_ok(), is_good, "{name} {value:?}");
        }
    }

    #[test]
    fn buckets_and_hosts_have_names_that_requests_can_hold() {
        for place in ["bucket", "my-bucket.example", "B_1", "$web"] {
            assert!(is_place("s3", place), "{place}");
        }
        for place in ["a b", "a\n", "ä", "a:b", "..", "a%20b", "a\\b", "a\"b"] {
            assert!(!is_place("s3", place), "{place}");
        }
        for (place, is_good) in
            [("host", true), ("host:8080", true), ("[::1]:80", true), ("ho st", false), ("host:99999", false)]
        {
            assert_eq!(is_place("https", place), is_good, "{place}");
        }
    }
}

//! Secrets that are never shown. Where text leaves the program, for people or for a file that records the
//! settings of a run, a secret from the environment is replaced by the name of its variable.
//!
//! This module does not look for secrets: `config` registers the values that a configuration takes from
//! variables.

use std::borrow::Cow;
use std::sync::Mutex;

/// Registered values with their replacements. The longest value comes first, so that a secret that contains
/// another one is replaced as a whole.
static REPLACEMENTS: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Endings that mark a word in the name of a variable as a word for a secret.
const ENDINGS: [&str; 20] = [
    "TOKEN",
    "TOKENS",
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWORDS",
    "PASSWD",
    "PASSPHRASE",
    "PASS",
    "KEY",
    "KEYS",
    "CREDENTIAL",
    "CREDENTIALS",
    "CREDS",
    "AUTH",
    "SIGNATURE",
    "COOKIE",
    "COOKIES",
    "WEBHOOK",
    "WEBHOOKS",
];

/// Whole words for a secret that other words end in as well.
const WORDS: [&str; 6] = ["PAT", "SAS", "JWT", "DSN", "PWD", "SESSION"];

/// Prefixes of tokens of well-known services, and of keys in files.
const BEGINNINGS: [&str; 12] = [
    "ghp_",
    "gho_",
    "github_pat_",
    "glpat-",
    "hf_",
    "sk-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "ASIA",
    "eyJ",
    "-----BEGIN ",
];

/// Length of the shortest text that counts as a token of a service.
const LEAST_TOKEN: usize = 16;

/// Length from which a secret is replaced everywhere in a text. A shorter secret is replaced only where it is
/// not a part of a word, because it would occur in many words by chance.
const SHORT: usize = 6;

/// Returns true if the name of a variable says that its value is a secret: one of its words is a word for a
/// secret (`HF_TOKEN`, `AWS_SECRET_ACCESS_KEY`, `PGPASSWORD`), also with a number at its end (`API_KEY1`). In
/// a name of a single word, such as `PWD`, only words that mean nothing else count.
pub fn is_named(variable: &str) -> bool {
    let words: Vec<String> =
        variable.split(['_', '-', '.']).map(str::to_uppercase).filter(|word| !word.is_empty()).collect();
    words.iter().any(|word| {
        let word = word.trim_end_matches(|c: char| c.is_ascii_digit());
        ENDINGS.iter().any(|ending| word.ends_with(ending)) || words.len() > 1 && WORDS.contains(&word)
    })
}

/// Returns true if a value looks like a secret, whatever the name of its variable: a URL with a user or a
/// password, or a token of a well-known service.
pub fn is_credential(value: &str) -> bool {
    let with_user = value.split_once("://").is_some_and(|(_, rest)| {
        let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        authority.rsplit_once('@').is_some_and(|(user, _)| !user.is_empty())
    });
    let is_token = value.len() >= LEAST_TOKEN && BEGINNINGS.iter().any(|start| value.starts_with(start));
    with_user || is_token
}

/// Registers a secret: from now on `value` is shown as the name of its variable, such as `${HF_TOKEN}`.
pub fn hold(variable: &str, value: &str) {
    stand_for(value, &format!("${{{variable}}}"));
}

/// Registers a replacement: from now on `value` is shown as `shown`. It also replaces a path by the URL that
/// its content came from.
pub fn stand_for(value: &str, shown: &str) {
    let Ok(mut replacements) = REPLACEMENTS.lock() else { return };
    if value.is_empty() || replacements.iter().any(|(known, _)| known == value) {
        return;
    }
    let at = replacements.partition_point(|(known, _)| known.len() >= value.len());
    replacements.insert(at, (value.to_string(), shown.to_string()));
}

/// Hides user, password and query of a URL; the query may contain a signature. In the URL of a bucket, `?`
/// may belong to a pattern, so that only a query with `=` is hidden. Any other text is returned unchanged.
pub fn url(text: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = text.split_once("://") else { return Cow::Borrowed(text) };
    let authority = &rest[..rest.find('/').unwrap_or(rest.len())];
    let rest = authority.rfind('@').map_or(rest.to_string(), |at| format!("***{}", &rest[at..]));
    let rest = match rest.split_once('?') {
        Some((before, query)) if scheme.starts_with("http") || query.contains('=') => format!("{before}?***"),
        _ => rest,
    };
    Cow::Owned(format!("{scheme}://{rest}"))
}

/// Replaces each registered value in a text, so that a secret is shown as the name of its variable.
pub fn masked(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    let Ok(replacements) = REPLACEMENTS.lock() else { return text };
    for (secret, name) in replacements.iter() {
        if let Some(without) = replaced(&text, secret, name) {
            text = Cow::Owned(without);
        }
    }
    text
}

/// Replaces `secret` in a text by `name`; `None` if nothing was replaced.
fn replaced(text: &str, secret: &str, name: &str) -> Option<String> {
    let mut safe = String::new();
    let mut copied = 0;
    for (at, _) in text.match_indices(secret).filter(|(at, _)| must_replace(text, secret, *at)) {
        safe.extend([&text[copied..at], name]);
        copied = at + secret.len();
    }
    (copied > 0).then(|| safe + &text[copied..])
}

/// Returns true if the `secret` found at byte `at` is long, or not a part of a word.
fn must_replace(text: &str, secret: &str, at: usize) -> bool {
    let before = text[..at].chars().next_back();
    let after = text[at + secret.len()..].chars().next();
    secret.len() >= SHORT || ![before, after].into_iter().flatten().any(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_secret() {
        for name in [
            "HF_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "PGPASSWORD",
            "api_key",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "API_KEY1",
            "DB_PASS1",
            "SENTRY_DSN",
            "GITHUB_PAT",
            "APP_JWT2",
            "AZURE_SAS",
            "SLACK_WEBHOOK",
            "MY_SESSION",
            "SITE_COOKIE",
            "DB_PWD",
            "TOKEN2",
            "OLD_API_KEYS",
            "hub-token",
            "AWS_CREDS",
        ] {
            assert!(is_named(name), "{name}");
        }
        for name in [
            "HOME",
            "PWD",
            "OLDPWD",
            "TOKENIZER_DIR",
            "KEYBOARD",
            "LR",
            "USER",
            "PATTERN",
            "DATA_PATH",
            "PAT",
            "SASH_DIR",
        ] {
            assert!(!is_named(name), "{name}");
        }
        let token = format!("hf_{}", "x".repeat(20));
        for value in ["postgres://ann:pw@db/x", "redis://:pw@host", "https://tok@host", token.as_str()] {
            assert!(is_credential(value), "{value}");
        }
        for value in [
            "s3://bucket/a@b",
            "https://host/a@b",
            "ann@host",
            "hf_data",
            "/data/sk-text",
            "https://host?x=a@b",
        ] {
            assert!(!is_credential(value), "{value}");
        }
    }

    #[test]
    fn a_secret_is_shown_as_its_name_even_if_it_contains_another() {
        hold("SECRETS_TEST_TOKEN", "planted-5f1d");
        hold("SECRETS_TEST_KEY", "planted-5f1d-and-more");
        hold("SECRETS_TEST_PASS", "q7");
        hold("SECRETS_TEST_NONE", "");
        assert_eq!(masked("a/planted-5f1d/b"), "a/${SECRETS_TEST_TOKEN}/b");
        assert_eq!(masked("planted-5f1d-and-more"), "${SECRETS_TEST_KEY}");
        assert_eq!(masked("q7 and aq7b"), "${SECRETS_TEST_PASS} and aq7b");
        assert!(matches!(masked("nothing of it"), Cow::Borrowed(_)));
    }
}

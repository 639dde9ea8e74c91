//! Values that are never told: a secret that came from the environment is shown by the name of its variable,
//! wherever text leaves the program for people or for a file that says what a run was told.
//!
//! It does not look for secrets: `config` names those that a configuration takes from variables.

use std::borrow::Cow;
use std::sync::Mutex;

/// Values with what stands for them, longest first, so that one that holds another is found whole.
static HELD: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// What the last word of a secret's name ends in.
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

/// Words for a secret that others end in as well.
const WORDS: [&str; 6] = ["PAT", "SAS", "JWT", "DSN", "PWD", "SESSION"];

/// What tokens of well-known services begin with, and keys in files.
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

/// Length of the shortest text that may be a token of a service.
const LEAST_TOKEN: usize = 16;

/// Shorter ones are hidden only where they stand by themselves: they would be found in every other word.
const SHORT: usize = 6;

/// Whether a variable of this name holds a secret: one of its words is a word for it (`HF_TOKEN`,
/// `AWS_SECRET_ACCESS_KEY`, `PGPASSWORD`), also with a number at its end (`API_KEY1`). A name that is one word, such as
/// `PWD`, is a secret's only by a word that means nothing else.
pub fn is_named(variable: &str) -> bool {
    let words: Vec<String> =
        variable.split(['_', '-', '.']).map(str::to_uppercase).filter(|word| !word.is_empty()).collect();
    words.iter().any(|word| {
        let word = word.trim_end_matches(|c: char| c.is_ascii_digit());
        ENDINGS.iter().any(|ending| word.ends_with(ending)) || words.len() > 1 && WORDS.contains(&word)
    })
}

/// Returns true if a value looks like a secret, whatever its variable is called: a URL with a password, or a token of
/// a well-known service.
pub fn is_credential(value: &str) -> bool {
    let with_user = value.split_once("://").is_some_and(|(_, rest)| {
        let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        authority.rsplit_once('@').is_some_and(|(user, _)| !user.is_empty())
    });
    let is_token = value.len() >= LEAST_TOKEN && BEGINNINGS.iter().any(|start| value.starts_with(start));
    with_user || is_token
}

/// From here on `value` is told as the name of the variable that it came from: `${HF_TOKEN}`.
pub fn hold(variable: &str, value: &str) {
    stand_for(value, &format!("${{{variable}}}"));
}

/// From here on `value` is told as `told`: also a path as the URL that its content came from.
pub fn stand_for(value: &str, told: &str) {
    let Ok(mut held) = HELD.lock() else { return };
    if value.is_empty() || held.iter().any(|(known, _)| known == value) {
        return;
    }
    let at = held.partition_point(|(known, _)| known.len() >= value.len());
    held.insert(at, (value.to_string(), told.to_string()));
}

/// A URL without its user and password and without its query, which may be signed; in a bucket, where `?` may
/// be of a pattern, one has a `=`. Any other text is as it was.
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

/// The text with the name of its variable in the place of each secret.
pub fn masked(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    let Ok(held) = HELD.lock() else { return text };
    for (secret, name) in held.iter() {
        if let Some(without) = replaced(&text, secret, name) {
            text = Cow::Owned(without);
        }
    }
    text
}

/// The text without `secret`; none where it is not in it.
fn replaced(text: &str, secret: &str, name: &str) -> Option<String> {
    let is_hidden = |at: usize| {
        let before = text[..at].chars().next_back();
        let after = text[at + secret.len()..].chars().next();
        secret.len() >= SHORT || ![before, after].into_iter().flatten().any(char::is_alphanumeric)
    };
    let (mut safe, mut told) = (String::new(), 0);
    for (at, _) in text.match_indices(secret).filter(|(at, _)| is_hidden(*at)) {
        safe.extend([&text[told..at], name]);
        told = at + secret.len();
    }
    (told > 0).then(|| safe + &text[told..])
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
    fn a_secret_is_told_by_its_name_also_where_one_holds_another() {
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

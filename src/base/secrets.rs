//! Values that are never told: a secret that came from the environment is shown by the name of its variable,
//! wherever text leaves the program for people or for a file that says what a run was told.
//!
//! It does not look for secrets: `config` names those that a configuration takes from variables.

use std::borrow::Cow;
use std::sync::Mutex;

/// Values with what stands for them, longest first, so that one that holds another is found whole.
static HELD: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// What the last word of a secret's name ends in.
const ENDINGS: [&str; 15] = [
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
    "AUTH",
    "SIGNATURE",
];

/// Shorter ones are hidden only where they stand by themselves: they would be found in every other word.
const SHORT: usize = 6;

/// Whether a variable of this name holds a secret: one of its words is a word for it (`HF_TOKEN`,
/// `AWS_SECRET_ACCESS_KEY`, `PGPASSWORD`).
pub fn is_named(variable: &str) -> bool {
    variable.split('_').any(|word| {
        let word = word.to_uppercase();
        ENDINGS.iter().any(|ending| word.ends_with(ending))
    })
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
        for name in
            ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "api_key", "GOOGLE_APPLICATION_CREDENTIALS"]
        {
            assert!(is_named(name), "{name}");
        }
        for name in ["HOME", "PWD", "TOKENIZER_DIR", "KEYBOARD", "LR", "USER"] {
            assert!(!is_named(name), "{name}");
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

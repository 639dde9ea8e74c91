//! Converts an error of a store into one that says what to do.

use std::error::Error as _;

use object_store::Error;

use base::error::Problem;
use base::secrets;

/// The most characters of a server's answer in a message: some servers send whole pages.
const MOST_CHARS: usize = 300;

const CREDENTIALS: &str = "see to the credentials in the environment (AWS_ACCESS_KEY_ID, \
                           GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_NAME, ... or the user in the URL): \
                           whether they are set, may do this, and have not expired";

/// The error for `url`, with a hint.
pub(super) fn explained(error: &Error, url: &str) -> Problem {
    let text = chain(error);
    let has_no_place = ["NoSuchBucket", "ContainerNotFound", "specified bucket does not exist"]
        .iter()
        .any(|answer| text.contains(answer));
    let problem = match error {
        _ if has_no_place => {
            Problem::usage("there is no such bucket").hint("are its name and its region right?")
        }
        Error::NotFound { .. } => Problem::usage("there is no such object").hint("is the name right?"),
        Error::PermissionDenied { .. } => Problem::new(format!("access is denied: {text}")).hint(CREDENTIALS),
        Error::Unauthenticated { .. } => {
            Problem::new(format!("who asks is not known: {text}")).hint(CREDENTIALS)
        }
        // Without credentials in the environment, the library asks a server that only machines in a cloud
        // have.
        _ if ["169.254.169.254", "metadata.google", "computeMetadata"].iter().any(|at| text.contains(at)) => {
            Problem::new(format!("there are no credentials: {text}")).hint(CREDENTIALS)
        }
        _ if text.contains("xpired") => Problem::new(text).hint(CREDENTIALS),
        _ => Problem::new(text)
            .hint("see to the network and the store; the same command goes on where this one stopped"),
    };
    problem.at(url)
}

/// An error and its causes in one line, without secrets, at most [`MOST_CHARS`] characters long.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    let line: Vec<&str> = text.split_whitespace().collect();
    // Secrets are hidden before the text is cut, because half of a secret would not be recognised.
    let line = secrets::masked(&line.join(" ")).into_owned();
    if line.chars().count() > MOST_CHARS {
        line.chars().take(MOST_CHARS).chain("...".chars()).collect()
    } else {
        line
    }
}

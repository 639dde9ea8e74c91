//! The only asynchronous runtime, in which requests run. It starts with the first request and ends with the
//! process.
//!
//! Nothing outside `stores` is asynchronous.

use std::future::Future;
use std::io;
use std::sync::OnceLock;

use anyhow::Result;
use tokio::runtime::{Builder, Runtime};

use base::error::Problem;
use base::quietly::quietly;

static RUNTIME: OnceLock<io::Result<Runtime>> = OnceLock::new();

/// Chooses the cryptography of TLS, which has to be done before a store is opened.
pub(super) fn choose_cryptography() {
    // An error means that it was chosen already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Waits for `future` on this thread. One more thread serves the connections.
pub(super) fn block_on<F: Future>(future: F) -> Result<F::Output> {
    let runtime = RUNTIME.get_or_init(|| {
        Builder::new_multi_thread().worker_threads(1).thread_name("stores").enable_all().build()
    });
    match runtime {
        Ok(runtime) => quietly(|| Ok::<_, String>(runtime.block_on(future))).map_err(|_| {
            let hint = "see to the URL and to the variables of the cloud (AWS_..., GOOGLE_..., AZURE_...)";
            Problem::new("the library that asks stores cannot make a request of what it was told")
                .hint(hint)
                .into()
        }),
        Err(e) => Err(Problem::new(format!("the thread for requests cannot be started: {e}")).into()),
    }
}

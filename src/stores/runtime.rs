//! The one runtime that requests run in: started with the first of them, gone with the process.
//!
//! Nothing outside `stores` is asynchronous.

use std::future::Future;
use std::io;
use std::sync::OnceLock;

use anyhow::Result;
use tokio::runtime::Builder;
use tokio::runtime::Runtime;

use crate::error::Problem;

static RUNTIME: OnceLock<io::Result<Runtime>> = OnceLock::new();

/// Chooses who encrypts, which has to be done before a store is opened.
pub(super) fn choose_cryptography() {
    // An error means that it is chosen already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Waits for `future` on this thread; connections are served by one thread beside it.
pub(super) fn block_on<F: Future>(future: F) -> Result<F::Output> {
    let start = || Builder::new_multi_thread().worker_threads(1).thread_name("stores").enable_all().build();
    match RUNTIME.get_or_init(start) {
        Ok(runtime) => Ok(runtime.block_on(future)),
        Err(e) => Err(Problem::new(format!("the thread for requests cannot be started: {e}")).into()),
    }
}

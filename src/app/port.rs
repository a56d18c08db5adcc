//! Files of memories, out and in.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use futures::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Worker;
use crate::auth::Grant;
use crate::engine::export::Write;
use crate::engine::import::Mode;
use crate::model::Scope;
use crate::port::line::Counts;
use crate::port::{self, Entry, Format, Plan, Report};

/// The most entries that are checked and written at a time, which is one transaction a scope.
const WINDOW: usize = 1_000;
/// And from how many bytes of the file on they are no more.
const WINDOW_BYTES: u64 = 4 * 1024 * 1024;

/// What to import.
#[derive(Debug)]
pub struct Import {
    /// The file, from its beginning on.
    pub file: File,
    /// Whose it is.
    pub format: Format,
    /// Where everything goes.
    pub scope: Option<Scope>,
    /// Whether anything is written.
    pub mode: Mode,
}

impl Worker {
    /// Writes what the patterns cover; see [`Engine::export`](crate::engine::Engine::export).
    ///
    /// # Errors
    /// When a part or the file fails.
    pub async fn export(&self, patterns: &[Grant], write: &mut Write<'_>) -> anyhow::Result<Counts> {
        self.engine().export(patterns, write).await
    }

    /// Reads a file and stores what it says, window by window; after each, `progress` is told what became of the entries and
    /// how many bytes were read. Once `stop` is cancelled, the window under way is the last.
    ///
    /// Reading, checking and writing go on at the same time, with a window each.
    ///
    /// # Errors
    /// When a part or the file fails; what was stored stays, and the same again goes on.
    pub async fn import(
        &self,
        import: Import,
        stop: &CancellationToken,
        mut progress: impl FnMut(&Report, u64),
    ) -> anyhow::Result<Report> {
        let plan = Plan { format: import.format, scope: import.scope, now: self.now() };
        let read = Arc::new(AtomicU64::new(0));
        let file = Counted { file: import.file, read: Arc::clone(&read) };
        let (give, take) = mpsc::channel(1);
        let reader = tokio::task::spawn_blocking(move || read_windows(file, &plan, &give));
        let windows = stream::unfold(take, |mut take| async { Some((take.recv().await?, take)) }).boxed();
        let mut checked = windows
            .map(|window: Vec<Entry>| {
                let engine = Arc::clone(self.engine());
                tokio::task::spawn_blocking(move || engine.check(window))
            })
            .buffered(2);
        let mut report = Report::default();
        while let Some(window) = checked.next().await {
            let (bundles, refused) = window?;
            for entry in refused {
                report.add(entry);
            }
            for (scope, bundle) in bundles {
                let landed = Box::pin(self.engine().import(&scope, bundle, import.mode)).await;
                let landed = landed.with_context(|| format!("scope {:?}", scope.as_str()))?;
                for entry in landed {
                    report.add(entry);
                }
            }
            progress(&report, read.load(Ordering::Relaxed));
            if stop.is_cancelled() {
                return Ok(report);
            }
        }
        drop(checked);
        reader.await?.context("cannot read the file")?;
        Ok(report)
    }
}

/// Reads the file in windows, until nobody takes them any more.
fn read_windows(file: Counted, plan: &Plan, give: &mpsc::Sender<Vec<Entry>>) -> io::Result<()> {
    let read = Arc::clone(&file.read);
    let (mut window, mut began) = (Vec::new(), 0);
    port::read(file, plan, &mut |entry| {
        window.push(entry);
        let at = read.load(Ordering::Relaxed);
        if window.len() < WINDOW && at - began < WINDOW_BYTES {
            return true;
        }
        began = at;
        give.blocking_send(std::mem::take(&mut window)).is_ok()
    })?;
    if !window.is_empty() {
        // Nobody is there any more where the import has failed.
        let _ = give.blocking_send(window);
    }
    Ok(())
}

/// A file with how much of it was read.
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

//! The two ends of the pipe, each in a thread of its own: a read of standard input can be taken back by nobody, and the
//! end of the process must not wait for it.

use std::io::{BufRead, Write};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

/// How many lines wait before whoever makes more has to wait.
const LINES: usize = 64;
/// How long the last lines may take to be written to a client that does not read.
const LAST_LINES: Duration = Duration::from_secs(5);

/// The lines of standard input.
pub(super) struct Reader(mpsc::Receiver<Vec<u8>>);

impl Reader {
    pub(super) fn start() -> Self {
        let (lines, reader) = mpsc::channel(LINES);
        std::thread::spawn(move || {
            let mut input = std::io::stdin().lock();
            loop {
                let mut line = Vec::new();
                // Bytes, not text: a line that is not UTF-8 is one wrong message and not the end.
                match input.read_until(b'\n', &mut line) {
                    Ok(0) => return,
                    Ok(_) if lines.blocking_send(line).is_ok() => {}
                    Ok(_) => return,
                    Err(error) => return tracing::warn!("cannot read standard input: {error}"),
                }
            }
        });
        Self(reader)
    }

    /// The next line; none at the end.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        self.0.recv().await
    }
}

/// Standard output.
pub(super) struct Writer {
    lines: Lines,
    ended: oneshot::Receiver<()>,
}

/// A way to standard output.
#[derive(Clone)]
pub(super) struct Lines(mpsc::Sender<Vec<u8>>);

impl Lines {
    /// Writes a message as a line. A client that has gone away is noticed by whoever reads from it.
    pub(super) async fn write(&self, message: &Value) {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        let _ = self.0.send(line).await;
    }
}

impl Writer {
    pub(super) fn start() -> Self {
        let (lines, mut waiting) = mpsc::channel::<Vec<u8>>(LINES);
        let (end, ended) = oneshot::channel();
        std::thread::spawn(move || {
            let mut output = std::io::stdout().lock();
            while let Some(line) = waiting.blocking_recv() {
                if let Err(error) = output.write_all(&line).and_then(|()| output.flush()) {
                    tracing::info!("the client reads no more: {error}");
                    break;
                }
            }
            drop(waiting);
            let _ = end.send(());
        });
        Self { lines: Lines(lines), ended }
    }

    pub(super) fn lines(&self) -> Lines {
        self.lines.clone()
    }

    pub(super) async fn write(&self, message: &Value) {
        self.lines.write(message).await;
    }

    /// Resolves when nothing can be written any more.
    pub(super) async fn closed(&self) {
        self.lines.0.closed().await;
    }

    /// Writes what waits. Every [`Lines`] has to be gone.
    pub(super) async fn finish(self) {
        drop(self.lines);
        let _ = tokio::time::timeout(LAST_LINES, self.ended).await;
    }
}

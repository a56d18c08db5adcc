//! `memser export`: everything that is stored, as a file.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use memser::app::Worker;
use memser::auth::Grant;
use memser::clock::Clock;
use memser::config::Config;
use memser::model::Action;
use memser::port::line::{Counts, Line};

/// What to write where.
#[derive(Args)]
pub(crate) struct ExportCommand {
    /// A scope, or the beginning of scopes with a '*' at the end; may be given more than once. Otherwise all.
    #[arg(long = "scope", value_name = "PATTERN", value_parser = pattern)]
    scopes: Vec<Grant>,
    /// The file, which appears when it is whole; otherwise standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn pattern(text: &str) -> Result<Grant, String> {
    let words = |_| "a scope, or the beginning of scopes with a '*' at the end".to_owned();
    format!("{text}={}", Action::Read).parse().map_err(words)
}

/// Writes the file; gives what to tell of it.
pub(crate) async fn run(
    command: ExportCommand,
    config: &Config,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<String> {
    if command.out.is_none() && io::stdout().is_terminal() {
        bail!("name a file with --out, or send standard output to one: memories are no text to look through");
    }
    let worker = Worker::start(config, Clock::System).await?;
    let written = tokio::select! {
        written = write(&command, &worker) => written,
        () = stop => Err(anyhow::anyhow!("stopped before its end; nothing was kept")),
    };
    worker.stop().await?;
    let counts = written?;
    let Some(path) = command.out else { return Ok(String::new()) };
    Ok(format!(
        "{}: {} memories and {} working memories of {} scopes\n",
        path.display(),
        counts.memories,
        counts.working,
        counts.scopes
    ))
}

async fn write(command: &ExportCommand, worker: &Worker) -> anyhow::Result<Counts> {
    let everything = [Grant::everything(Action::Read)];
    let scopes = if command.scopes.is_empty() { &everything[..] } else { &command.scopes };
    let Some(path) = &command.out else {
        let mut out = BufWriter::new(io::stdout());
        let counts = worker.export(scopes, &mut |line| put(&mut out, line)).await?;
        out.flush().context("cannot write to standard output")?;
        return Ok(counts);
    };
    let partial = Partial::create(path)?;
    let mut out = BufWriter::new(&partial.file);
    let counts = worker.export(scopes, &mut |line| put(&mut out, line)).await?;
    out.flush().with_context(|| format!("cannot write {}", path.display()))?;
    drop(out);
    partial.finish()?;
    Ok(counts)
}

fn put(out: &mut impl Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// A file beside the one that it is to become, so that there is never half of that.
struct Partial {
    file: File,
    path: PathBuf,
    target: PathBuf,
}

impl Partial {
    /// Readable by this user alone: it will hold memories. What is there is removed, never written into: a file would keep
    /// its owner and its mode, and a link would lead elsewhere.
    fn create(target: &Path) -> anyhow::Result<Self> {
        let path = target.with_added_extension("partial");
        let create = || {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)
        };
        let file = create().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { file, path, target: target.to_owned() })
    }

    /// Makes it the file that it is to become, durably.
    fn finish(self) -> anyhow::Result<()> {
        let folder = self.target.parent().filter(|folder| !folder.as_os_str().is_empty());
        let finish = || {
            self.file.sync_all()?;
            fs::rename(&self.path, &self.target)?;
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        };
        finish().with_context(|| format!("cannot write {}", self.target.display()))
    }
}

impl Drop for Partial {
    /// Where it became the file, there is nothing left to remove.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

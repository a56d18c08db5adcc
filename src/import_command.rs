//! `memser import`: what a file holds, stored.

use std::fs::File;
use std::io::{IsTerminal, Read, Seek};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use memser::app::{Import, Worker};
use memser::clock::Clock;
use memser::config::Config;
use memser::engine::import::Mode;
use memser::jobs::{Ran, Sweep};
use memser::model::Scope;
use memser::port::{self, Format, HEAD, Report};
use tokio_util::sync::CancellationToken;

/// How often it tells where it is, where nobody sees a bar.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// What to read.
#[derive(Args)]
pub(crate) struct ImportCommand {
    /// The file.
    file: PathBuf,
    /// Whose file it is: memser, mcp-memory, mem0, mcp-memory-service, claude or chatgpt; auto looks at its beginning.
    #[arg(long, default_value = "auto")]
    format: String,
    /// The scope that everything goes to; memser's own files and mem0's name scopes by themselves.
    #[arg(long, value_parser = scope)]
    scope: Option<Scope>,
    /// Say what would be stored, and store nothing.
    #[arg(long)]
    dry_run: bool,
}

fn scope(name: &str) -> Result<Scope, String> {
    Scope::parse(name).map_err(|error| format!("{error}. {}", error.hint()))
}

/// What came of it.
pub(crate) struct Outcome {
    /// For a person.
    pub(crate) report: String,
    /// Whether everything went in.
    pub(crate) is_whole: bool,
}

/// Reads the file and stores what it says.
pub(crate) async fn run(
    command: ImportCommand,
    config: &Config,
    told: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<Outcome> {
    let path = command.file.display().to_string();
    let (file, format, size) = open(&command).with_context(|| path.clone())?;
    ensure!(
        format.names_scopes() || command.scope.is_some(),
        "{path}: a file of {format} does not say whose memories it holds: name a scope, for example --scope user:42"
    );
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        told.await;
        stopping.cancel();
    });
    let mode = if command.dry_run { Mode::DryRun } else { Mode::Write };
    let worker = Worker::start(config, Clock::System).await?;
    let import = Import { file, format, scope: command.scope, mode };
    let mut progress = Progress::new(size);
    let imported = worker.import(import, &stop, |report, read| progress.tell(report, read)).await;
    progress.end();
    let outcome = match imported {
        Ok(report) => Ok(finish(&worker, &path, format, mode, &report, &stop).await),
        Err(error) => Err(error.context(format!("{path}: what was stored stays; the same command goes on"))),
    };
    worker.stop().await?;
    outcome
}

/// Opens the file and looks whose it is.
fn open(command: &ImportCommand) -> anyhow::Result<(File, Format, u64)> {
    let mut file = File::open(&command.file)?;
    let size = file.metadata()?.len();
    let mut head = Vec::with_capacity(HEAD);
    file.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
    file.rewind()?;
    let format = match command.format.as_str() {
        "auto" => port::detect(&head).map_err(anyhow::Error::msg)?,
        name => name.parse::<Format>().map_err(anyhow::Error::msg).context("--format")?,
    };
    Ok((file, format, size))
}

/// Has what was stored embedded, so that it is found by its meaning at once, and says what came of everything.
async fn finish(
    worker: &Worker,
    path: &str,
    format: Format,
    mode: Mode,
    report: &Report,
    stop: &CancellationToken,
) -> Outcome {
    let mut words = match mode {
        Mode::Write => format!("{path}: a file of {format}\n{report}"),
        Mode::DryRun => {
            format!("{path}: a file of {format}; nothing was stored, and of it would be\n{report}")
        }
    };
    let mut is_whole = report.refused == 0;
    if stop.is_cancelled() {
        words += "stopped before its end: the same command goes on\n";
        is_whole = false;
    } else if mode == Mode::Write && report.stored > 0 {
        words += match worker.run(Sweep::Embed, stop.cancelled()).await {
            Ran::Done => "everything is embedded: it is found by words and by meaning\n",
            Ran::Skipped => "it is found by words; the memser that runs embeds it just now\n",
            Ran::Stopped | Ran::Failed => {
                "it is found by words; the embed sweep of a memser that serves goes on with the vectors\n"
            }
        };
    }
    Outcome { report: words, is_whole }
}

/// Where it is: a bar on a terminal, a line every so often elsewhere.
enum Progress {
    Bar(ProgressBar),
    Lines { told: Instant, size: u64 },
}

impl Progress {
    fn new(size: u64) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines { told: Instant::now(), size };
        }
        let bar = ProgressBar::new(size);
        let form = "{bar:40} {percent} % {msg} ({eta} left)";
        if let Ok(style) = ProgressStyle::with_template(form) {
            bar.set_style(style);
        }
        Self::Bar(bar)
    }

    fn tell(&mut self, report: &Report, read: u64) {
        match self {
            Self::Bar(bar) => {
                bar.set_position(read);
                bar.set_message(format!("{} read, {} refused", report.read, report.refused));
            }
            Self::Lines { told, size } if told.elapsed() >= TELL_EVERY => {
                *told = Instant::now();
                let percent = (read * 100).checked_div(*size).unwrap_or(100);
                #[expect(clippy::print_stderr, reason = "a command's words to a person, who waits")]
                {
                    eprintln!("memser: {percent} %, {} read, {} refused", report.read, report.refused);
                }
            }
            Self::Lines { .. } => {}
        }
    }

    fn end(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

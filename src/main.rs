//! The `memser` command.

mod backup_command;
mod export_command;
mod import_command;
mod jobs_command;
mod stdio_command;
mod token_command;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use memser::app::{self, Welcome};
use memser::clock::Clock;
use memser::config::{Config, Source, Storage, reference};
use memser::db::embedded::Embedded;
use memser::db::schema::bring_up_to_date;
use memser::doctor::{self, Health};
use memser::error::with_causes;
use memser::telemetry;
use secrecy::ExposeSecret;
use tokio::signal::unix::{SignalKind, signal};

use backup_command::{BackupCommand, RestoreCommand};
use export_command::ExportCommand;
use import_command::ImportCommand;
use jobs_command::JobsCommand;
use stdio_command::StdioCommand;
use token_command::TokenCommand;

/// Memory-as-a-Service: durable, scoped memory for any MCP agent.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// A configuration file; otherwise the one that `MEMSER_CONFIG` names.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve MCP over HTTP (the default).
    Serve(ServeArgs),
    /// Serve MCP over standard input and output, for a client that starts a command.
    Stdio(StdioCommand),
    /// Bring the database's schema up to date and stop.
    Migrate,
    /// Write a backup of memser's own Postgres, also while a memser runs.
    Backup(BackupCommand),
    /// Make the database of memser's own Postgres from a backup, while no memser runs.
    Restore(RestoreCommand),
    /// Make, list and revoke tokens.
    #[command(subcommand)]
    Token(TokenCommand),
    /// List sweeps and run them by hand or from cron.
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// Write memories to a file, as JSON lines, with everything but vectors.
    Export(ExportCommand),
    /// Store the memories of a file: memser's own, or that of another memory server or of a chat service.
    Import(ImportCommand),
    /// Show the configuration in force and who set it, with secrets hidden; fails where it is wrong.
    Config(ConfigArgs),
    /// Look at everything that memser depends on and say what is not well; fails where memser cannot work.
    Doctor,
    /// Exit with 0 when the memser at the listen address is ready: for a container's health check.
    Healthcheck,
}

#[derive(Args, Default)]
struct ServeArgs {
    /// Refuse a database whose schema is behind instead of bringing it up to date, as with `MEMSER_MIGRATE=false`.
    #[arg(long)]
    no_migrate: bool,
}

#[derive(Args)]
#[group(multiple = false)]
struct ConfigArgs {
    /// Print a configuration file with every setting, explained and commented out.
    #[arg(long)]
    sample: bool,
    /// Print the reference of all settings as Markdown.
    #[arg(long)]
    reference: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match Box::pin(run(Cli::parse())).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(
                clippy::print_stderr,
                reason = "the one message that a person has to see, also without a log"
            )]
            {
                eprintln!("memser: {}", with_causes(error.as_ref()));
            }
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    let command = cli.command.unwrap_or_else(|| Command::Serve(ServeArgs::default()));
    match command {
        Command::Config(ConfigArgs { sample: true, .. }) => return print(&reference::sample()),
        Command::Config(ConfigArgs { reference: true, .. }) => return print(&reference::page()),
        _ => {}
    }
    let source = Source::from_process(cli.config.as_deref())?;
    let mut config = Config::parse(&source)?;
    match command {
        Command::Config(_) => {
            warn(&source.warnings);
            print(&reference::effective(&source))
        }
        Command::Serve(ServeArgs { no_migrate }) => {
            let telemetry = telemetry::start(&config.telemetry)?;
            config.migrates &= !no_migrate;
            let served = serve(config, &source).await;
            telemetry.stop().await;
            served
        }
        Command::Stdio(command) => {
            let telemetry = telemetry::start(&config.telemetry)?;
            log_warnings(&source);
            let served = stdio_command::run(command, &config, told_to_stop()?).await;
            telemetry.stop().await;
            served
        }
        Command::Jobs(command) => {
            let telemetry = telemetry::start(&config.telemetry)?;
            let ran = jobs_command::run(command, &config, told_to_stop()?).await;
            telemetry.stop().await;
            print(&ran?)
        }
        Command::Backup(command) => {
            let telemetry = telemetry::start(&config.telemetry)?;
            let backup = backup_command::backup(command, &config);
            let done = unless_stopped(backup).await;
            telemetry.stop().await;
            print(&done?)
        }
        Command::Restore(command) => {
            let telemetry = telemetry::start(&config.telemetry)?;
            let restore = backup_command::restore(command, &config);
            let done = unless_stopped(restore).await;
            telemetry.stop().await;
            print(&done?)
        }
        Command::Export(command) => {
            let telemetry = telemetry::start(&config.telemetry)?;
            let written = export_command::run(command, &config, told_to_stop()?).await;
            telemetry.stop().await;
            print(&written?)
        }
        Command::Import(command) => {
            let telemetry = telemetry::start(&config.telemetry)?;
            let imported = import_command::run(command, &config, told_to_stop()?).await;
            telemetry.stop().await;
            let outcome = imported?;
            print(&outcome.report)?;
            anyhow::ensure!(outcome.is_whole, "not everything went in");
            Ok(())
        }
        Command::Token(command) => print(&token_command::run(command, &config)?),
        Command::Migrate => migrate(config).await,
        Command::Doctor => examine(&config).await,
        Command::Healthcheck => healthcheck(&config).await,
    }
}

async fn serve(config: Config, source: &Source) -> anyhow::Result<()> {
    log_warnings(source);
    let mut stop = Box::pin(told_to_stop()?);
    // Before the start, which a hangup would end otherwise.
    let mut hangup = signal(SignalKind::hangup())?;
    let app = tokio::select! {
        built = app::build(config, Clock::System) => built?,
        // A start may wait long for a database. What has been started goes with the future.
        () = &mut stop => return Ok(()),
    };
    welcome(app.welcome());
    let auth = Arc::clone(app.auth());
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            auth.reload();
        }
    });
    app.run_until(stop).await
}

/// Does something as a whole, or undoes it at SIGTERM or Ctrl-C.
async fn unless_stopped<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let stop = told_to_stop()?;
    tokio::select! {
        done = work => done,
        () = stop => anyhow::bail!("it was stopped before its end, and changed nothing"),
    }
}

/// Resolves at SIGTERM or Ctrl-C.
fn told_to_stop() -> std::io::Result<impl Future<Output = ()> + Send> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Prints a whole text; whoever closes the pipe early has read enough.
fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn log_warnings(source: &Source) {
    for warning in &source.warnings {
        tracing::warn!("{warning}");
    }
}

#[expect(clippy::print_stderr, reason = "a command's words to a person, who has no log")]
fn warn(warnings: &[String]) {
    for warning in warnings {
        eprintln!("memser: warning: {warning}");
    }
}

async fn migrate(config: Config) -> anyhow::Result<()> {
    let name = app::database_name(&config.storage);
    let migrated = match config.storage {
        Storage::Embedded(settings) => {
            let embedded = Embedded::start(&settings).await?;
            let migrated = bring_up_to_date(&embedded.connect_options()).await;
            embedded.stop().await?;
            migrated
        }
        Storage::External(external) => bring_up_to_date(&external.direct).await,
    };
    migrated.context(name)
}

async fn examine(config: &Config) -> anyhow::Result<()> {
    let findings = doctor::examine(config).await;
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    print(&(lines.join("\n") + "\n"))?;
    let failures = findings.iter().filter(|finding| finding.health == Health::Failure).count();
    anyhow::ensure!(failures == 0, "{failures} of {} findings are failures", findings.len());
    Ok(())
}

async fn healthcheck(config: &Config) -> anyhow::Result<()> {
    // An address that means "all of them" is reached over loopback.
    let mut address = config.bind;
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() {
            [127, 0, 0, 1].into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        });
    }
    // Plain HTTP to this machine: no proxy, and no certificate authorities, which an image need not have.
    let client =
        reqwest::Client::builder().timeout(Duration::from_secs(4)).no_proxy().tls_certs_only([]).build()?;
    let answer =
        client.get(format!("http://{address}/readyz")).send().await.context("memser does not answer")?;
    anyhow::ensure!(answer.status().is_success(), "memser is not ready: {}", answer.status());
    Ok(())
}

/// Tells how to connect a client. The token itself is shown once, at the start that made it.
fn welcome(welcome: &Welcome) {
    let url = &welcome.mcp_url;
    println!("memser serves MCP at {url}");
    println!("Embeddings: {}", welcome.embedder);
    let token = match (&welcome.first_token, &welcome.token_file) {
        (Some(token), Some(path)) => {
            println!();
            println!(
                "This first start made a token with every right; it is shown once and kept in {}:",
                path.display()
            );
            println!("  {}", token.expose_secret());
            token.expose_secret().to_owned()
        }
        (_, Some(path)) => format!("$(cat {})", path.display()),
        _ => "YOUR_TOKEN".to_owned(),
    };
    println!();
    println!("Claude Code:");
    println!("  claude mcp add --transport http memser {url} --header \"Authorization: Bearer {token}\"");
    println!();
    println!("Clients with a JSON configuration:");
    let shown = welcome.first_token.as_ref().map_or("YOUR_TOKEN", ExposeSecret::expose_secret);
    println!(
        r#"  {{"mcpServers": {{"memser": {{"type": "http", "url": "{url}", "headers": {{"Authorization": "Bearer {shown}"}}}}}}}}"#
    );
    println!();
    println!("curl:");
    println!("  curl -s {url} -H \"Authorization: Bearer {token}\" -H 'Content-Type: application/json' \\");
    println!(r#"    -d '{{"jsonrpc":"2.0","id":1,"method":"tools/list"}}'"#);
    println!();
}

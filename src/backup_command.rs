//! `memser backup` and `memser restore`.

use std::path::PathBuf;

use clap::Args;
use memser::app;
use memser::clock::Clock;
use memser::config::Config;

/// Where to.
#[derive(Args)]
pub(crate) struct BackupCommand {
    /// A file that does not exist yet, or a folder, in which the file is named by the time.
    #[arg(value_name = "FILE|FOLDER")]
    to: PathBuf,
}

/// Where from.
#[derive(Args)]
pub(crate) struct RestoreCommand {
    /// A file that `memser backup` wrote.
    file: PathBuf,
    /// Put a database that is in the data folder aside.
    #[arg(long)]
    replace: bool,
}

/// Writes a backup; gives what to print.
pub(crate) async fn backup(command: BackupCommand, config: &Config) -> anyhow::Result<String> {
    let file = app::backup(config, &command.to, Clock::System.now()).await?;
    Ok(format!("{}\n", file.display()))
}

/// Restores a backup; gives what to print.
pub(crate) async fn restore(command: RestoreCommand, config: &Config) -> anyhow::Result<String> {
    let RestoreCommand { file, replace } = command;
    let former = app::restore(config, &file, replace, Clock::System.now()).await?;
    let former = former.map_or_else(String::new, |former| {
        format!("the database before it is in {}: remove it when you need it no more\n", former.display())
    });
    Ok(format!("{} is restored\n{former}", file.display()))
}

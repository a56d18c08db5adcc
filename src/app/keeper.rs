//! Who keeps the database running: somebody else, or this process.
//!
//! Of several memsers on one data folder, the one that holds its lock runs Postgres and the others use it. When that one
//! ends, the next one that gets the lock runs Postgres in its place, on the same socket, so that connections come back.

use std::time::{Duration, Instant};

use anyhow::bail;
use sqlx::postgres::PgConnectOptions;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, External, Storage};
use crate::db::Pooler;
use crate::db::embedded::{Embedded, EmbeddedSettings, Held};

/// How often a memser that uses another one's Postgres looks whether that one has ended: no event tells it of a lock.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long another memser may take until its Postgres can be used: a first start makes a database cluster.
const OTHERS_START: Duration = Duration::from_mins(1);

/// Who keeps the database running.
#[derive(Debug)]
pub(super) enum Keeper {
    /// Somebody else.
    Other,
    /// This process.
    This(Embedded),
    /// Another memser, and after it this process.
    Heir {
        /// Cancelled, the task ends.
        stop: CancellationToken,
        /// Gives the Postgres that it started, if it came to that.
        task: JoinHandle<Option<Embedded>>,
    },
}

impl Keeper {
    /// Stops what this process runs.
    ///
    /// # Errors
    /// When the private Postgres does not stop.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        match self {
            Self::Other => Ok(()),
            Self::This(embedded) => embedded.stop().await,
            Self::Heir { stop, task } => {
                stop.cancel();
                match task.await? {
                    Some(embedded) => embedded.stop().await,
                    None => Ok(()),
                }
            }
        }
    }
}

/// The database of a memser that goes on when others on its data folder have ended.
///
/// # Errors
/// Those of [`share`]; also where another memser runs Postgres and the next one could not be reached as this one is.
pub(super) async fn share_for_good(config: &Config) -> anyhow::Result<(Keeper, External)> {
    let (keeper, database) = share(config).await?;
    if let (Keeper::Heir { .. }, Storage::Embedded(settings)) = (&keeper, &config.storage)
        && let Some(socket) = database.options.get_socket()
        && !settings.keeps_socket(socket)?
    {
        let folder = settings.resolve_data_dir()?;
        keeper.stop().await?;
        bail!(
            "another memser runs Postgres in {folder}, whose path is too long for a socket, so that this one would lose \
             Postgres when that one ends: stop it, or move the folder to a shorter path (MEMSER_DATA_DIR)",
            folder = folder.display()
        );
    }
    Ok((keeper, database))
}

/// The database of a memser that shares its data folder with others.
pub(super) async fn share(config: &Config) -> anyhow::Result<(Keeper, External)> {
    let settings = match &config.storage {
        Storage::External(external) => return Ok((Keeper::Other, (**external).clone())),
        Storage::Embedded(settings) => settings,
    };
    let started = Instant::now();
    loop {
        // The lock is asked first: a Postgres without a memser that holds it was left behind by a crash.
        let held = match Embedded::start(settings).await {
            Ok(embedded) => return Ok(kept(embedded)),
            Err(error) if error.is::<Held>() => error,
            Err(error) => return Err(error),
        };
        if let Some(options) = Embedded::running(settings)?
            && Embedded::is_ready(&options).await
        {
            let stop = CancellationToken::new();
            let task = tokio::spawn(inherit(settings.clone(), stop.clone()));
            return Ok((Keeper::Heir { stop, task }, private(options)));
        }
        if started.elapsed() > OTHERS_START {
            bail!("{held:#}; its Postgres cannot be used from here");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Waits for the data folder and then runs its Postgres.
async fn inherit(settings: EmbeddedSettings, stop: CancellationToken) -> Option<Embedded> {
    let mut told = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        match Embedded::start(&settings).await {
            Ok(embedded) => {
                tracing::info!("the memser that ran Postgres has ended; this one runs it now");
                return Some(embedded);
            }
            Err(error) if error.is::<Held>() => {}
            Err(error) if !told => {
                tracing::error!("cannot run Postgres in place of the memser that has ended: {error:#}");
                told = true;
            }
            Err(_) => {}
        }
    }
}

fn kept(embedded: Embedded) -> (Keeper, External) {
    let options = embedded.connect_options();
    (Keeper::This(embedded), private(options))
}

/// The way to a private Postgres, as to any other.
fn private(options: PgConnectOptions) -> External {
    External { direct: options.clone(), options, pooler: Pooler::None }
}

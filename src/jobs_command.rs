//! `memser jobs`: sweeps by hand, from cron or from a Kubernetes `CronJob`.

use std::fmt::Write;

use anyhow::{bail, ensure};
use chrono::SecondsFormat;
use clap::{Args, Subcommand};
use memser::api::JobsAnswer;
use memser::app::Worker;
use memser::clock::Clock;
use memser::config::Config;
use memser::jobs::{Ran, Sweep};

/// What to do with the jobs.
#[derive(Subcommand)]
pub(crate) enum JobsCommand {
    /// List the jobs: whether they run, how they ended last, when they run next, which scopes are parked.
    List,
    /// Run a job now, unless a replica runs it; fails where the job does.
    Run(RunJob),
}

/// Which job.
#[derive(Args)]
pub(crate) struct RunJob {
    /// Its name: consolidate, decay, embed or prune.
    name: Sweep,
    /// With consolidate: first give scopes that are parked another chance.
    #[arg(long)]
    retry_parked: bool,
    /// With consolidate: look at every memory again, and not only at new ones.
    #[arg(long)]
    afresh: bool,
}

/// Carries a command out and gives what to print.
pub(crate) async fn run(
    command: JobsCommand,
    config: &Config,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<String> {
    if let JobsCommand::Run(run) = &command {
        ensure!(
            !run.retry_parked || run.name == Sweep::Consolidate,
            "--retry-parked: only consolidate parks scopes"
        );
        ensure!(
            !run.afresh || run.name == Sweep::Consolidate,
            "--afresh: only consolidate notes which memories it has looked at"
        );
    }
    let worker = Worker::start(config, Clock::System).await?;
    let outcome = carry_out(&command, &worker, stop).await;
    worker.stop().await?;
    outcome
}

async fn carry_out(
    command: &JobsCommand,
    worker: &Worker,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<String> {
    let RunJob { name, retry_parked, afresh } = match command {
        JobsCommand::List => return Ok(table(&worker.overview().await?)),
        JobsCommand::Run(run) => run,
    };
    let mut words = String::new();
    if *retry_parked {
        writeln!(words, "{} scopes that had failed get another chance", worker.unpark().await?)?;
    }
    if *afresh {
        writeln!(words, "{} memories are looked at again", worker.look_again().await?)?;
    }
    let ran = worker.run(*name, stop).await;
    let detail = worker.overview().await.ok().and_then(|overview| {
        let job = overview.jobs.into_iter().find(|job| job.name == name.name())?;
        Some(job.runs.into_iter().next()?.detail.to_string())
    });
    let detail = detail.unwrap_or_default();
    match ran {
        Ran::Done => writeln!(words, "{name}: done {detail}")?,
        Ran::Skipped => writeln!(words, "{name}: skipped, because another memser runs it now")?,
        Ran::Stopped => bail!("{words}{name}: stopped before its end; what was done stays done {detail}"),
        Ran::Failed => bail!("{words}{name}: failed; the log above says why {detail}"),
    }
    Ok(words)
}

fn table(overview: &JobsAnswer) -> String {
    let time = |at: chrono::DateTime<chrono::Utc>| at.to_rfc3339_opts(SecondsFormat::Secs, true);
    let mut text = String::new();
    for job in &overview.jobs {
        let every = job.interval_seconds.map_or_else(
            || "only when asked for".to_owned(),
            |seconds| format!("every {}", humanised(seconds)),
        );
        let last = match (job.running, job.runs.first()) {
            (true, _) => "running now".to_owned(),
            (false, None) => "never ran".to_owned(),
            (false, Some(run)) => format!("{} at {}", run.outcome, time(run.started_at)),
        };
        let next = job.next_at.map_or_else(|| "-".to_owned(), time);
        let _ = writeln!(text, "{:<12} {every:<20} last: {last:<32} next: {next}", job.name);
    }
    for parked in &overview.parked {
        let (scope, reason) = (&parked.scope, &parked.reason);
        let _ = writeln!(
            text,
            "parked: {scope:?} after {} failures ({reason}), tried again at {}",
            parked.tries,
            time(parked.retry_at)
        );
    }
    text
}

fn humanised(seconds: f64) -> String {
    match seconds {
        hours if hours >= 3_600.0 && hours % 3_600.0 == 0.0 => format!("{} h", hours / 3_600.0),
        minutes if minutes >= 60.0 && minutes % 60.0 == 0.0 => format!("{} min", minutes / 60.0),
        seconds => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_shown_in_the_largest_whole_unit() {
        let shown = [86_400.0, 3_600.0, 600.0, 15.0, 1.2].map(humanised);
        assert_eq!(shown, ["24 h", "1 h", "10 min", "15 s", "1.2 s"]);
    }
}

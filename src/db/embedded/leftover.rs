//! A server that a killed memser left running on the data.
//!
//! The caller holds the data folder's lock, so that no memser owns what is found here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::remove_file;

/// How long a fast shutdown may take: it ends with a checkpoint, slow on a busy disk.
pub(super) const FAST_SHUTDOWN: Duration = Duration::from_mins(1);
/// An immediate shutdown writes nothing; its data is recovered from the log at the next start.
pub(super) const IMMEDIATE_SHUTDOWN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// Stops a server that still runs on the cluster in `pg`, and removes a pid file that would keep the next one away.
///
/// A process is signalled only when it is a Postgres at work in exactly this folder: the pid in the file may have
/// been given to somebody else since.
pub(super) fn stop(pg: &Path) -> anyhow::Result<()> {
    let file = pg.join("postmaster.pid");
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    let recorded = postmaster_pid(&text);
    if let Some(pid) = recorded
        && works_in(pid, pg)
    {
        tracing::warn!("Stopping the Postgres (pid {pid}) that an earlier memser left running");
        signal(pid, Signal::SIGINT)?;
        if !wait_until(FAST_SHUTDOWN, || !works_in(pid, pg)) {
            signal(pid, Signal::SIGQUIT)?;
            if !wait_until(IMMEDIATE_SHUTDOWN, || !works_in(pid, pg)) {
                bail!(
                    "the Postgres (pid {pid}) left running on {} does not stop: end it by hand",
                    pg.display()
                );
            }
        }
    }
    // Processes of a server whose postmaster was killed go by themselves as soon as they notice. Two servers on one
    // cluster would destroy it, so this one waits for them.
    if !wait_until(IMMEDIATE_SHUTDOWN, || workers(pg).is_empty()) {
        bail!(
            "processes of an earlier Postgres still work in {}: end them by hand: {:?}",
            pg.display(),
            workers(pg)
        );
    }
    // Postgres itself takes any live process with the recorded pid for a server of this cluster and refuses to start.
    // It can be no such thing here, where every process's folder is known.
    if proc_is_there() && recorded.is_none_or(is_alive) {
        remove_file(&file)?;
    }
    Ok(())
}

/// The pid in the first line of a `postmaster.pid`; negative for a stand-alone backend.
fn postmaster_pid(text: &str) -> Option<Pid> {
    let pid: i32 = text.lines().next()?.trim().parse().ok()?;
    // 0 and 1 would signal a whole group or init; -1 everybody.
    let pid = pid.checked_abs()?;
    (pid > 1).then(|| Pid::from_raw(pid))
}

/// Whether a process is a Postgres whose working folder is `pg`, as every process of that server has it.
fn works_in(pid: Pid, pg: &Path) -> bool {
    if proc_is_there() {
        let link = |name| fs::read_link(format!("/proc/{pid}/{name}")).unwrap_or_default();
        // Linux appends " (deleted)" where the binaries were updated meanwhile.
        let is_postgres = link("exe").file_name().is_some_and(|exe| {
            let exe = exe.to_string_lossy();
            exe == "postgres" || exe == "postgres (deleted)"
        });
        return is_postgres && link("cwd") == pg;
    }
    // Without /proc (macOS): the postmaster's command line names its folder.
    let output = Command::new("ps").args(["-o", "command=", "-p", &pid.to_string()]).output();
    output.is_ok_and(|output| {
        let command = String::from_utf8_lossy(&output.stdout);
        command.contains("postgres") && command.contains(&format!("-D {}", pg.display()))
    })
}

/// Every Postgres process at work in `pg`; none where the system does not tell.
fn workers(pg: &Path) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
        .filter(|&pid| works_in(pid, pg))
        .collect()
}

fn proc_is_there() -> bool {
    PathBuf::from("/proc/self/exe").exists()
}

fn is_alive(pid: Pid) -> bool {
    kill(pid, None) != Err(Errno::ESRCH)
}

fn signal(pid: Pid, signal: Signal) -> anyhow::Result<()> {
    match kill(pid, signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| {
            format!(
                "cannot stop the Postgres (pid {pid}) that another user's memser left running on this data"
            )
        }),
    }
}

/// Waits for a condition of another process, which no event reports to a process that is not its parent.
fn wait_until(limit: Duration, condition: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pid_is_the_first_line() {
        let text =
            "4711\n/var/lib/memser/pg\n1767225600\n5432\n/var/lib/memser/run\n\n  5432001  3\nready   \n";
        assert_eq!(postmaster_pid(text), Some(Pid::from_raw(4711)));
        assert_eq!(postmaster_pid("-4711\n"), Some(Pid::from_raw(4711)));
        for text in ["", "\n", "x", "0", "1", "-1", "-2147483648", "99999999999"] {
            assert_eq!(postmaster_pid(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_process_that_is_no_postgres_of_this_folder_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let pg = folder.path().canonicalize().unwrap();
        let mut stranger = Command::new("sleep").arg("600").current_dir(&pg).spawn().unwrap();
        let file = pg.join("postmaster.pid");
        fs::write(&file, format!("{}\n{}\n", stranger.id(), pg.display())).unwrap();

        stop(&pg).unwrap();

        assert!(stranger.try_wait().unwrap().is_none(), "the stranger was signalled");
        assert_eq!(file.exists(), !proc_is_there(), "Postgres would refuse to start because of the stranger");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}

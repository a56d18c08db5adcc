//! The system account that Postgres runs as, and what that account may reach.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use nix::unistd::{Gid, Uid, User, geteuid};

/// Variables that a child keeps. Everything else is dropped: `PGDATA`, `PGHOST`, `PGOPTIONS`, `LC_*` and the like
/// would otherwise steer `initdb` and the server.
const KEPT_VARIABLES: [&str; 2] = ["PATH", "LD_LIBRARY_PATH"];

/// Who Postgres runs as: memser's own user, or another one where memser is root, which Postgres refuses to be.
#[derive(Debug, Clone)]
pub(super) struct Account {
    /// Name in the system's user table.
    pub(super) name: String,
    uid: Uid,
    gid: Gid,
    /// Whether memser is root and has to change to this account.
    is_switched: bool,
}

impl Account {
    /// The account for this process; `pg_user` counts only where memser runs as root.
    pub(super) fn choose(pg_user: &str) -> anyhow::Result<Self> {
        if geteuid().is_root() {
            let user = User::from_name(pg_user)?.with_context(|| {
                format!(
                    "memser runs as root, which Postgres refuses to do, and there is no user {pg_user:?} to run it as: \
                     set MEMSER_PG_USER to an existing user that is not root"
                )
            })?;
            if user.uid.is_root() {
                bail!(
                    "MEMSER_PG_USER={pg_user} is root, which Postgres refuses to run as: name an existing user that is not root"
                );
            }
            return Ok(Self { name: user.name, uid: user.uid, gid: user.gid, is_switched: true });
        }
        let user = memser_user()?;
        Ok(Self { name: user.name, uid: user.uid, gid: user.gid, is_switched: false })
    }

    /// A command that runs as this account.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = clean_command(program);
        if self.is_switched {
            // Setting the uid as root also drops the supplementary groups.
            command.uid(self.uid.as_raw()).gid(self.gid.as_raw());
        }
        command
    }

    /// Makes this account the owner of `path`, which is not followed if it is a link.
    pub(super) fn give(&self, path: &Path) -> anyhow::Result<()> {
        if self.is_switched {
            lchown(path, Some(self.uid.as_raw()), Some(self.gid.as_raw()))
                .with_context(|| format!("cannot give {} to user {}", path.display(), self.name))?;
        }
        Ok(())
    }

    /// Whether this account owns a file with this metadata.
    pub(super) fn owns(&self, metadata: &Metadata) -> bool {
        metadata.uid() == self.uid.as_raw()
    }

    /// The first folder on the way to `path` (itself included) that this account may not pass through.
    ///
    /// Judged by mode bits, for the primary group alone. An access list that says otherwise is not seen.
    pub(super) fn barrier(&self, path: &Path) -> std::io::Result<Option<PathBuf>> {
        let path = path.canonicalize()?;
        let mut folders: Vec<_> = path.ancestors().filter(|folder| folder.is_dir()).collect();
        folders.reverse();
        for folder in folders {
            let metadata = folder.metadata()?;
            if !may_pass(
                metadata.mode(),
                metadata.uid(),
                metadata.gid(),
                self.uid.as_raw(),
                self.gid.as_raw(),
            ) {
                return Ok(Some(folder.to_owned()));
            }
        }
        Ok(None)
    }

    /// Whether memser is root and runs Postgres as this other user.
    pub(super) fn is_switched(&self) -> bool {
        self.is_switched
    }
}

/// A command that runs as memser's user, with a clean environment, no input, and a process group of its own, so that
/// Ctrl-C in a terminal reaches memser alone and memser stops Postgres in its own order.
pub(super) fn clean_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    for name in KEPT_VARIABLES {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.env("LC_ALL", "C").current_dir("/").stdin(Stdio::null()).process_group(0);
    command
}

/// The user that memser itself runs as. Postgres looks users up by id, both to start and to let one in.
pub(super) fn memser_user() -> anyhow::Result<User> {
    let uid = geteuid();
    User::from_uid(uid)?.with_context(|| {
        format!(
            "user id {uid} has no name on this system, and Postgres refuses to run for it: add it to /etc/passwd, \
             run memser as a user that has a name, or name a database with DATABASE_URL"
        )
    })
}

/// The execute bit that counts for `uid` with the one group `gid`.
fn may_pass(mode: u32, owner: u32, group: u32, uid: u32, gid: u32) -> bool {
    let shift = if uid == owner {
        6
    } else if gid == group {
        3
    } else {
        0
    };
    mode >> shift & 0o1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_bit_of_the_nearest_class_counts() {
        assert!(may_pass(0o700, 5, 6, 5, 9));
        assert!(!may_pass(0o700, 5, 6, 7, 6));
        assert!(may_pass(0o710, 5, 6, 7, 6));
        assert!(may_pass(0o701, 5, 6, 7, 9));
        // A closed nearer class is not opened by a wider one.
        assert!(!may_pass(0o077, 5, 6, 5, 6));
        assert!(!may_pass(0o701, 5, 6, 7, 6));
    }

    #[test]
    fn children_inherit_no_postgres_variables() {
        let account = Account { name: "x".into(), uid: geteuid(), gid: Gid::current(), is_switched: false };
        let output = account.command("env").output().unwrap();
        let names: Vec<_> = std::str::from_utf8(&output.stdout)
            .unwrap()
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, _)| name)
            .filter(|name| !KEPT_VARIABLES.contains(name))
            .collect();
        assert_eq!(names, ["LC_ALL"]);
    }
}

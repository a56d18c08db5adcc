//! The folder of the server's socket: short enough for the system, closed to everybody else.

use std::fs::{self, DirBuilder};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nix::unistd::geteuid;

use super::account::Account;
use super::remove_file;

/// The number in the socket's name; nothing listens on this port.
pub(super) const PORT: u16 = 5432;
/// A socket's full path must fit into 104 bytes on macOS and 108 on Linux, its end mark included.
const LONGEST_PATH: usize = 103;

/// An existing private folder for the socket.
#[derive(Debug)]
pub(super) struct SocketFolder {
    pub(super) path: PathBuf,
    /// Whether it lies outside the data folder, where nobody else would clean up.
    is_temporary: bool,
}

impl SocketFolder {
    /// The folder that every server on this data has, where the path is not too long.
    pub(super) fn near(data_dir: &Path) -> PathBuf {
        data_dir.join("run")
    }

    /// Opens `<data>/run`, or makes a folder with a random name in the runtime folder where that path is too long.
    pub(super) fn open(account: &Account, data_dir: &Path) -> anyhow::Result<Self> {
        let near = Self::near(data_dir);
        if fits(&near) {
            // Only memser's user can write to the data folder, so that what is there was put there by memser.
            if near.symlink_metadata().is_err() {
                create(&near)?;
            }
            let metadata = near.symlink_metadata()?;
            if !metadata.is_dir() || !(account.owns(&metadata) || metadata.uid() == geteuid().as_raw()) {
                bail!("{} is not a folder of memser's: remove it", near.display());
            }
            fs::set_permissions(&near, fs::Permissions::from_mode(0o700))?;
            account.give(&near)?;
            return Ok(Self { path: near, is_temporary: false });
        }
        let parents =
            runtime_folders(account.is_switched(), std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from));
        for parent in &parents {
            let path = parent.join(format!("memser-{:08x}", rand::random::<u32>()));
            // `mkdir` neither follows a link nor takes a folder that somebody put there before.
            if fits(&path) && create(&path).is_ok() {
                account.give(&path)?;
                return Ok(Self { path, is_temporary: true });
            }
        }
        bail!(
            "the data folder's path is too long for a socket ({}), and none can be made in {parents:?}: \
             set MEMSER_DATA_DIR to a shorter path",
            data_dir.display()
        )
    }

    /// Removes the socket of a server that was killed, so that the folder is free for the next one.
    ///
    /// Only while no server runs on the data. Postgres itself takes any process with the pid in the socket's lock file
    /// for that server, be it a dead one that nobody has waited for, and refuses to start.
    pub(super) fn clear(&self) -> anyhow::Result<()> {
        // Never recursive: the folder belongs to Postgres' user, who could have put anything there.
        for name in [format!(".s.PGSQL.{PORT}"), format!(".s.PGSQL.{PORT}.lock")] {
            remove_file(&self.path.join(name))?;
        }
        Ok(())
    }
}

impl Drop for SocketFolder {
    fn drop(&mut self) {
        if self.is_temporary {
            let _ = self.clear();
            let _ = fs::remove_dir(&self.path);
        }
    }
}

fn create(path: &Path) -> anyhow::Result<()> {
    DirBuilder::new().mode(0o700).create(path).with_context(|| format!("cannot create {}", path.display()))
}

/// Whether the socket's path in this folder is short enough.
fn fits(folder: &Path) -> bool {
    folder.join(format!(".s.PGSQL.{PORT}")).as_os_str().as_bytes().len() <= LONGEST_PATH
}

/// Where short-lived folders go, best first. Root prefers `/run`, where no other user can write.
fn runtime_folders(is_root: bool, xdg_runtime_dir: Option<PathBuf>) -> Vec<PathBuf> {
    let own =
        if is_root { Some(PathBuf::from("/run")) } else { xdg_runtime_dir.filter(|path| path.is_absolute()) };
    own.into_iter().chain([PathBuf::from("/tmp")]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_fits_up_to_the_byte() {
        let socket = "/.s.PGSQL.5432".len();
        assert!(fits(&PathBuf::from(format!("/{}", "x".repeat(LONGEST_PATH - socket - 1)))));
        assert!(!fits(&PathBuf::from(format!("/{}", "x".repeat(LONGEST_PATH - socket)))));
        // Bytes count, not characters.
        assert!(!fits(&PathBuf::from(format!("/{}", "ä".repeat(LONGEST_PATH / 2)))));
    }

    #[test]
    fn runtime_folders_by_user() {
        let xdg = Some(PathBuf::from("/run/user/1000"));
        assert_eq!(runtime_folders(false, xdg.clone()), [Path::new("/run/user/1000"), Path::new("/tmp")]);
        assert_eq!(runtime_folders(true, xdg), [Path::new("/run"), Path::new("/tmp")]);
        assert_eq!(runtime_folders(false, Some("relative".into())), [Path::new("/tmp")]);
    }

    #[test]
    fn what_somebody_else_put_there_is_not_taken() {
        let account = Account::choose("nobody").unwrap();
        let data = tempfile::tempdir().unwrap();
        let victim = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(victim.path(), data.path().join("run")).unwrap();
        let error = SocketFolder::open(&account, data.path()).unwrap_err().to_string();
        assert!(error.contains("is not a folder of memser's"), "{error}");
    }

    #[test]
    fn a_folder_outside_the_data_is_private_and_goes_with_its_owner() {
        let account = Account::choose("nobody").unwrap();
        let data = PathBuf::from(format!("/{}", "x".repeat(200)));
        let folder = SocketFolder::open(&account, &data).unwrap();
        let metadata = folder.path.symlink_metadata().unwrap();
        assert_eq!(metadata.mode() & 0o777, 0o700);
        assert!(account.owns(&metadata));
        let path = folder.path.clone();
        drop(folder);
        assert!(!path.exists());
    }
}

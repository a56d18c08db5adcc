//! The token file as `memser token` changes it: a person's comments stay, and a half-written file is never seen.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use chrono::{DateTime, SecondsFormat, Utc};
use nix::fcntl::{Flock, FlockArg};
use rand::RngExt;
use secrecy::{ExposeSecret, SecretString};
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use super::grant::Grant;
use super::tokens::{StaticToken, check_name, parse, sha256};

/// A new token: 256 random bits.
#[must_use]
pub fn random_token() -> SecretString {
    SecretString::from(format!("memser_{}", hex::encode(rand::rng().random::<[u8; 32]>())))
}

/// A token file that is to be changed; as long as this lives, no other `memser token` changes it.
#[derive(Debug)]
pub struct TokensOnDisk {
    path: PathBuf,
    document: DocumentMut,
    _turn: Flock<File>,
}

impl TokensOnDisk {
    /// Opens the file, which need not be there yet.
    ///
    /// # Errors
    /// When it or its folder cannot be read, or an entry is wrong.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let path = linked(path);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = File::open(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let turn = Flock::lock(folder, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        parse(&text).with_context(|| format!("the token file {}", path.display()))?;
        Ok(Self { document: text.parse()?, path, _turn: turn })
    }

    /// The tokens in it.
    ///
    /// # Errors
    /// When an entry is wrong.
    pub fn tokens(&self) -> anyhow::Result<Vec<StaticToken>> {
        parse(&self.document.to_string())
    }

    /// Makes a token and adds it to the file. The token itself is nowhere but in the answer.
    ///
    /// # Errors
    /// When the name is wrong or taken, there is no grant, or the file cannot be written.
    pub fn add(
        &mut self,
        name: &str,
        grants: &[Grant],
        expires_at: Option<DateTime<Utc>>,
    ) -> anyhow::Result<SecretString> {
        check_name(name)?;
        ensure!(!grants.is_empty(), "a token needs a grant, for example user:42=write");
        ensure!(
            self.tokens()?.iter().all(|known| known.name != name),
            "there is a token {name:?} already: revoke it, or choose another name"
        );
        let token = random_token();
        let mut table = Table::new();
        table["name"] = value(name);
        table["sha256"] = value(hex::encode(sha256(token.expose_secret())));
        table["grants"] = value(grants.iter().map(ToString::to_string).collect::<toml_edit::Array>());
        if let Some(expiry) = expires_at {
            let expiry: toml_edit::Datetime = expiry.to_rfc3339_opts(SecondsFormat::Secs, true).parse()?;
            table["expires_at"] = value(expiry);
        }
        self.entries()?.push(table);
        self.write()?;
        Ok(token)
    }

    /// Takes a token out of the file.
    ///
    /// # Errors
    /// When there is none of that name, or the file cannot be written.
    pub fn revoke(&mut self, name: &str) -> anyhow::Result<()> {
        let entries = self.entries()?;
        let at = entries.iter().position(|table| table.get("name").and_then(Item::as_str) == Some(name));
        let at = at.with_context(|| format!("there is no token {name:?}"))?;
        let above = entries.get(at).and_then(|table| table.decor().prefix()?.as_str()).unwrap_or_default();
        // A comment right above the entry is about it; one with an empty line below is about more.
        let stays = above.rfind("\n\n").map_or(String::new(), |end| above[..end + 2].to_owned());
        entries.remove(at);
        if let Some(next) = entries.get_mut(at) {
            let own = next.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
            let both = stays + own.trim_start_matches('\n');
            next.decor_mut().set_prefix(both);
        } else {
            let end = self.document.trailing().as_str().unwrap_or_default();
            let both = stays + end;
            self.document.set_trailing(both);
        }
        self.write()
    }

    fn entries(&mut self) -> anyhow::Result<&mut ArrayOfTables> {
        let entries = self.document.entry("token").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
        entries
            .as_array_of_tables_mut()
            .context("token is an inline array: write each entry as a [[token]] table")
    }

    /// Written beside and renamed, for memser alone, or with the owner and the mode that the file had.
    fn write(&self) -> anyhow::Result<()> {
        let mut text = self.document.to_string();
        if text.is_empty() {
            // A memser that serves takes a file without a byte for one that is being written.
            "# No token is accepted.\n".clone_into(&mut text);
        }
        if let Err(error) = parse(&text) {
            bail!("the changed file would be wrong: {error:#}");
        }
        let partial = self.path.with_extension("partial");
        let failed = || format!("cannot write {}", partial.display());
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&partial)
            .with_context(failed)?;
        if let Ok(before) = fs::metadata(&self.path) {
            let made = file.metadata().with_context(failed)?;
            if (made.uid(), made.gid()) != (before.uid(), before.gid()) {
                fchown(&file, Some(before.uid()), Some(before.gid())).with_context(failed)?;
            }
            file.set_permissions(fs::Permissions::from_mode(before.mode() & 0o777)).with_context(failed)?;
        }
        file.write_all(text.as_bytes()).with_context(failed)?;
        file.sync_all().with_context(failed)?;
        fs::rename(&partial, &self.path).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// The file itself: a link stays a link to it, also where it is not there yet.
fn linked(path: &Path) -> PathBuf {
    let target = || {
        let target = fs::read_link(path).ok()?;
        Some(path.parent()?.join(target))
    };
    fs::canonicalize(path).ok().or_else(target).unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_and_go_and_comments_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        let grants: Vec<Grant> = vec!["user:42=write".parse().unwrap(), "team:*=read".parse().unwrap()];
        let expiry = "2027-01-31T00:00:00Z".parse().unwrap();
        let token = TokensOnDisk::open(&path).unwrap().add("bot", &grants, Some(expiry)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(token.expose_secret()), "{text}");
        let known = parse(&text).unwrap();
        assert_eq!(
            (known[0].name.as_str(), &known[0].grants, known[0].expires_at),
            ("bot", &grants, Some(expiry))
        );

        fs::write(&path, format!("# whose tokens these are\n\n# the bot\n{text}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let mut file = TokensOnDisk::open(&path).unwrap();
        assert!(file.add("bot", &grants, None).is_err());
        assert!(file.add("first", &grants, None).is_err());
        assert!(file.add("other", &[], None).is_err());
        file.add("other", &grants, None).unwrap();
        file.revoke("bot").unwrap();
        assert!(file.revoke("bot").is_err());
        drop(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# whose tokens these are\n\n[[token]]"), "{text}");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        let names: Vec<String> = parse(&text).unwrap().into_iter().map(|token| token.name).collect();
        assert_eq!(names, ["other"]);
        fs::write(&path, &text[text.find("[[").unwrap()..]).unwrap();
        TokensOnDisk::open(&path).unwrap().revoke("other").unwrap();
        assert!(fs::metadata(&path).unwrap().size() > 0);
    }

    #[test]
    fn of_many_that_add_at_once_none_is_lost() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        let linked = directory.path().join("linked.toml");
        std::os::unix::fs::symlink(&path, &linked).unwrap();
        let grants: Vec<Grant> = vec!["user:1=write".parse().unwrap()];
        std::thread::scope(|threads| {
            for number in 0..32 {
                let (by, grants) = (if number % 2 == 0 { &path } else { &linked }, &grants);
                threads.spawn(move || {
                    TokensOnDisk::open(by).unwrap().add(&format!("bot-{number}"), grants, None).unwrap();
                });
            }
        });
        assert_eq!(TokensOnDisk::open(&path).unwrap().tokens().unwrap().len(), 32);
        assert!(fs::symlink_metadata(&linked).unwrap().is_symlink());
    }
}

//! Bearer token -> [`Caller`]: who calls and which scopes it may touch.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, bail};
use chrono::{DateTime, Utc};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::error::{Error, Result};
use crate::model::{Action, Scope};

/// A scope pattern with what may be done there, written `user:42=write` or `team:*=read`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pattern: Pattern,
    action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Exact(Scope),
    Prefix(String),
}

impl Grant {
    /// The grant on every scope.
    #[must_use]
    pub fn everything(action: Action) -> Self {
        Self { pattern: Pattern::Prefix(String::new()), action }
    }

    fn covers(&self, scope: &Scope) -> bool {
        match &self.pattern {
            Pattern::Exact(exact) => exact == scope,
            Pattern::Prefix(prefix) => scope.as_str().starts_with(prefix.as_str()),
        }
    }
}

impl FromStr for Grant {
    type Err = anyhow::Error;

    /// The action stands behind the last `=`, so that a scope may hold one.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (pattern, action) = text
            .rsplit_once('=')
            .with_context(|| format!("the grant {text:?} is not of the form scope=action"))?;
        let action =
            action.trim().parse::<Action>().map_err(|error| anyhow::anyhow!("grant {text:?}: {error}"))?;
        let pattern = pattern.trim();
        let pattern = match pattern.strip_suffix('*') {
            Some("") => Pattern::Prefix(String::new()),
            Some(prefix) => Pattern::Prefix(scope_of_grant(text, prefix)?.as_str().to_owned()),
            None => Pattern::Exact(scope_of_grant(text, pattern)?),
        };
        Ok(Self { pattern, action })
    }
}

fn scope_of_grant(grant: &str, name: &str) -> anyhow::Result<Scope> {
    Scope::parse(name).map_err(|error| {
        anyhow::anyhow!("grant {grant:?}: {error}; '*' may stand only at the end of a pattern")
    })
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            Pattern::Exact(scope) => write!(f, "{}={}", scope.as_str(), self.action),
            Pattern::Prefix(prefix) => write!(f, "{prefix}*={}", self.action),
        }
    }
}

/// Who calls, for one request. Made by [`Auth::identify`] alone.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The token's name: what the audit log shows.
    pub subject: String,
    /// What it may touch.
    pub grants: Vec<Grant>,
    /// The id of the request that it makes.
    pub request_id: String,
}

impl Caller {
    /// Checks that the caller may do `action` in `scope`.
    ///
    /// # Errors
    /// `scope_not_granted` when no grant covers the scope, `action_not_granted` when one does, but for less.
    pub fn authorise(&self, scope: &Scope, action: Action) -> Result<()> {
        match self.grants.iter().filter(|grant| grant.covers(scope)).map(|grant| grant.action).max() {
            Some(granted) if granted >= action => Ok(()),
            Some(_) => Err(Error::ActionNotGranted { scope: scope.clone(), action }),
            None => Err(Error::ScopeNotGranted { scope: scope.clone() }),
        }
    }

    /// Whether some grant allows `action` somewhere.
    #[must_use]
    pub fn may_somewhere(&self, action: Action) -> bool {
        self.grants.iter().any(|grant| grant.action >= action)
    }

    /// Whether some grant allows `action` on every scope.
    #[must_use]
    pub fn may_everywhere(&self, action: Action) -> bool {
        let everything =
            |grant: &Grant| matches!(&grant.pattern, Pattern::Prefix(prefix) if prefix.is_empty());
        self.grants.iter().any(|grant| everything(grant) && grant.action >= action)
    }

    /// The scope that a call without one means: the only grant's, where that names one exactly.
    #[must_use]
    pub fn sole_scope(&self) -> Option<&Scope> {
        match self.grants.as_slice() {
            [Grant { pattern: Pattern::Exact(scope), .. }] => Some(scope),
            _ => None,
        }
    }
}

/// A token as the server knows it: never the token itself.
#[derive(Clone, Debug)]
struct StaticToken {
    name: String,
    sha256: [u8; 32],
    grants: Vec<Grant>,
    expires_at: Option<DateTime<Utc>>,
}

/// Every token that is accepted.
#[derive(Clone, Debug, Default)]
pub struct Auth {
    tokens: Vec<StaticToken>,
}

/// The token file's shape; unknown keys are refused, so that a misspelt `expires_at` cannot make a token eternal.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFile {
    #[serde(default)]
    token: Vec<TokenEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenEntry {
    name: String,
    sha256: String,
    grants: Vec<String>,
    expires_at: Option<toml::value::Datetime>,
}

impl Auth {
    /// Accepts `token` with the given grants under `name`.
    pub fn add_token(&mut self, name: &str, token: &SecretString, grants: Vec<Grant>) {
        self.tokens.push(StaticToken {
            name: name.to_owned(),
            sha256: sha256(token.expose_secret()),
            grants,
            expires_at: None,
        });
    }

    /// Accepts the tokens of a TOML file of `[[token]]` tables.
    ///
    /// # Errors
    /// When the file cannot be read or an entry is wrong; the message names the entry.
    pub fn add_file(&mut self, path: &Path) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("MEMSER_TOKENS_FILE: cannot read {}", path.display()))?;
        // The file's text is left out of the message: a line of it may hold a token that was pasted by mistake.
        let file: TokenFile = toml::from_str(&text)
            .map_err(|error| anyhow::anyhow!("MEMSER_TOKENS_FILE {}: {}", path.display(), error.message()))?;
        for entry in file.token {
            let name = entry.name.clone();
            let token = StaticToken::try_from(entry)
                .with_context(|| format!("MEMSER_TOKENS_FILE {}: token {name:?}", path.display()))?;
            if self.tokens.iter().any(|known| known.name == token.name) {
                bail!("MEMSER_TOKENS_FILE {}: the name {name:?} stands twice", path.display());
            }
            self.tokens.push(token);
        }
        Ok(())
    }

    /// Whether no token is accepted at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Who a bearer token stands for, at `now`. Every known token is compared, in constant time.
    #[must_use]
    pub fn identify(&self, token: &str, request_id: String, now: DateTime<Utc>) -> Option<Caller> {
        let presented = sha256(token);
        let mut found = None;
        for known in &self.tokens {
            if bool::from(known.sha256.ct_eq(&presented)) {
                found = Some(known);
            }
        }
        found.filter(|known| known.expires_at.is_none_or(|expiry| now < expiry)).map(|known| Caller {
            subject: known.name.clone(),
            grants: known.grants.clone(),
            request_id,
        })
    }
}

impl TryFrom<TokenEntry> for StaticToken {
    type Error = anyhow::Error;

    fn try_from(entry: TokenEntry) -> anyhow::Result<Self> {
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

fn sha256(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(grants: &[&str]) -> Caller {
        Caller {
            subject: "test".to_owned(),
            grants: grants.iter().map(|grant| grant.parse().unwrap()).collect(),
            request_id: "r".to_owned(),
        }
    }

    fn scope(name: &str) -> Scope {
        Scope::parse(name).unwrap()
    }

    #[test]
    fn a_grant_covers_its_scope_or_its_prefix_and_nothing_else() {
        let caller = caller(&["user:42=write", "team:*=read"]);
        assert!(caller.authorise(&scope("user:42"), Action::Write).is_ok());
        assert!(caller.authorise(&scope("team:a"), Action::Read).is_ok());
        assert_eq!(
            caller.authorise(&scope("user:421"), Action::Read).unwrap_err().code(),
            "scope_not_granted"
        );
        assert_eq!(
            caller.authorise(&scope("team:a"), Action::Write).unwrap_err().code(),
            "action_not_granted"
        );
    }

    #[test]
    fn the_strongest_of_several_grants_counts() {
        let caller = caller(&["*=read", "user:1=admin"]);
        assert!(caller.authorise(&scope("user:1"), Action::Review).is_ok());
        assert!(caller.authorise(&scope("user:2"), Action::Write).is_err());
    }

    #[test]
    fn only_a_single_exact_grant_stands_for_an_omitted_scope() {
        assert_eq!(caller(&["user:42=write"]).sole_scope(), Some(&scope("user:42")));
        assert_eq!(caller(&["user:*=write"]).sole_scope(), None);
        assert_eq!(caller(&["a=read", "b=read"]).sole_scope(), None);
    }

    #[test]
    fn malformed_grants_are_refused() {
        for grant in ["user:42", "user:42=", "=read", "a*b=read", "user:42=owner"] {
            assert!(grant.parse::<Grant>().is_err(), "{grant}");
        }
        assert_eq!("a=b=read".parse::<Grant>().unwrap().to_string(), "a=b=read");
    }

    #[test]
    fn a_token_file_gives_callers_until_they_expire() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        let digest = hex::encode(sha256("t1"));
        std::fs::write(
            &path,
            format!("[[token]]\nname='bot'\nsha256='{digest}'\ngrants=['user:1=write']\nexpires_at=2030-01-01T00:00:00Z"),
        )
        .unwrap();
        let mut auth = Auth::default();
        auth.add_file(&path).unwrap();
        let before = "2029-12-31T23:59:59Z".parse().unwrap();
        let after = "2030-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(auth.identify("t1", String::new(), before).unwrap().subject, "bot");
        assert!(auth.identify("t2", String::new(), before).is_none());
        assert!(auth.identify("t1", String::new(), after).is_none());
    }

    #[test]
    fn a_wrong_token_file_names_the_entry_and_never_shows_a_line_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        for (text, expected) in [
            ("[[token]]\nname='bot'\nsha256='secret-token'\ngrants=['a=read']", "64 hexadecimal digits"),
            ("[[token]]\nname='bot'\nsha256='00'\ngrants=[]", "64 hexadecimal digits"),
            ("[[token]]\nname='bot'\nsha256='x'\ngrant='secret-token'", "unknown field"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = format!("{:#}", Auth::default().add_file(&path).unwrap_err());
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("secret-token"), "{error}");
        }
    }
}

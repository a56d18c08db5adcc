//! Bearer token -> [`Caller`]: who calls and which scopes it may touch.

mod edit;
mod grant;
mod jwks;
mod jwt;
mod standing;
mod tokens;

use std::num::NonZeroU32;
use std::path::Path;

use chrono::{DateTime, Utc};
use secrecy::SecretString;

pub use edit::{TokensOnDisk, random_token};
pub use grant::Grant;
pub use jwt::{JwtSettings, KeySource, SECRET_MIN_BYTES, ScopeTemplate};
pub use standing::Standing;
pub use tokens::StaticToken;

use crate::error::{Error, Result};
use crate::model::{Action, Scope};
use jwt::Verifier;
use tokens::TokenFile;

/// Who calls, for one request. Made by [`Auth::identify`] alone.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The static token's name, or `jwt:` and the JWT's `sub`: what the audit log shows.
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
        match self.granted(scope) {
            Some(granted) if granted >= action => Ok(()),
            Some(_) => Err(Error::ActionNotGranted { scope: scope.clone(), action }),
            None => Err(Error::ScopeNotGranted { scope: scope.clone() }),
        }
    }

    /// The most that some grant allows in `scope`.
    #[must_use]
    pub fn granted(&self, scope: &Scope) -> Option<Action> {
        self.grants.iter().filter(|grant| grant.covers(scope)).map(Grant::action).max()
    }

    /// Whether some grant allows `action` somewhere.
    #[must_use]
    pub fn may_somewhere(&self, action: Action) -> bool {
        self.grants.iter().any(|grant| grant.action() >= action)
    }

    /// Whether some grant allows `action` on every scope.
    #[must_use]
    pub fn may_everywhere(&self, action: Action) -> bool {
        self.grants.iter().any(|grant| grant.covers_everything() && grant.action() >= action)
    }

    /// The scope that a call without one means: the only grant's, where that names one exactly.
    #[must_use]
    pub fn sole_scope(&self) -> Option<&Scope> {
        match self.grants.as_slice() {
            [grant] => grant.exact_scope(),
            _ => None,
        }
    }
}

/// What a token may ask for; counted for each subject, in each process by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenLimits {
    /// Requests a second.
    pub per_second: Option<NonZeroU32>,
    /// How many may come at once after a rest, where more than one second's.
    pub burst: Option<NonZeroU32>,
    /// Requests that are being answered at one time.
    pub at_once: Option<NonZeroU32>,
}

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is unknown, expired, or not meant for memser.
    Invalid,
    /// The issuer's keys are not to be had, so that nobody can say.
    Unavailable,
}

/// Every token that is accepted.
#[derive(Debug, Default)]
pub struct Auth {
    tokens: Vec<StaticToken>,
    file: Option<TokenFile>,
    jwt: Option<Verifier>,
}

impl Auth {
    /// Accepts `token` with the given grants under `name`.
    pub fn add_token(&mut self, name: &str, token: &SecretString, grants: Vec<Grant>) {
        self.tokens.push(StaticToken::new(name, token, grants));
    }

    /// Accepts the tokens of a TOML file of `[[token]]` tables, as it is at any time. It need not be there yet.
    ///
    /// # Errors
    /// When the file cannot be read or an entry is wrong; the message names the entry.
    pub fn add_file(&mut self, path: &Path, now: DateTime<Utc>) -> anyhow::Result<()> {
        self.file = Some(TokenFile::open(path, now)?);
        Ok(())
    }

    /// Accepts the JWTs of an issuer.
    ///
    /// # Errors
    /// When its key cannot be read.
    pub fn add_issuer(&mut self, settings: JwtSettings) -> anyhow::Result<()> {
        self.jwt = Some(Verifier::new(settings)?);
        Ok(())
    }

    /// Whether nobody could call now.
    #[must_use]
    pub fn is_empty(&self, now: DateTime<Utc>) -> bool {
        let is_empty = |file: &TokenFile| file.tokens(now).is_empty();
        self.tokens.is_empty() && self.jwt.is_none() && self.file.as_ref().is_none_or(is_empty)
    }

    /// Fetches the issuer's keys, where there are any to fetch, before they are needed.
    ///
    /// # Errors
    /// When the issuer does not give them; the first JWT tries again.
    pub async fn warm_up(&self, now: DateTime<Utc>) -> anyhow::Result<()> {
        match &self.jwt {
            Some(verifier) => verifier.warm_up(now).await,
            None => Ok(()),
        }
    }

    /// Reads the token file again. A wrong one changes nothing and is logged.
    pub fn reload(&self) {
        if let Some(file) = &self.file {
            file.reload();
        }
    }

    /// Who a bearer token stands for, at `now`.
    ///
    /// # Errors
    /// When it is not accepted.
    pub async fn identify(
        &self,
        token: &str,
        request_id: String,
        now: DateTime<Utc>,
    ) -> std::result::Result<Caller, Refusal> {
        let filed = self.file.as_ref().map(|file| file.tokens(now));
        let known = self.tokens.iter().chain(filed.as_deref().into_iter().flatten());
        if let Some(known) = tokens::find(token, known) {
            let caller = Caller { subject: known.name.clone(), grants: known.grants.clone(), request_id };
            return if known.is_expired(now) { Err(Refusal::Invalid) } else { Ok(caller) };
        }
        let verifier = self.jwt.as_ref().ok_or(Refusal::Invalid)?;
        let (subject, grants) = verifier.verify(token, now).await?;
        Ok(Caller { subject, grants, request_id })
    }
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

    #[tokio::test]
    async fn a_token_of_the_file_stands_for_its_caller_until_it_expires() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        let digest = hex::encode(tokens::sha256("t1"));
        std::fs::write(
            &path,
            format!("[[token]]\nname='bot'\nsha256='{digest}'\ngrants=['user:1=write']\nexpires_at=2030-01-01T00:00:00Z"),
        )
        .unwrap();
        let before = "2029-12-31T23:59:59Z".parse().unwrap();
        let after = "2030-01-01T00:00:00Z".parse().unwrap();
        let mut auth = Auth::default();
        auth.add_file(&path, before).unwrap();
        assert_eq!(auth.identify("t1", String::new(), before).await.unwrap().subject, "bot");
        assert_eq!(auth.identify("t2", String::new(), before).await.unwrap_err(), Refusal::Invalid);
        assert_eq!(auth.identify("t1", String::new(), after).await.unwrap_err(), Refusal::Invalid);
    }
}

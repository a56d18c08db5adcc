//! What a token may do where.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, ensure};

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

    /// The grant on one scope.
    #[must_use]
    pub const fn exactly(scope: Scope, action: Action) -> Self {
        Self { pattern: Pattern::Exact(scope), action }
    }

    /// What it allows where it covers.
    #[must_use]
    pub const fn action(&self) -> Action {
        self.action
    }

    /// The one scope that it names, where it names one exactly.
    #[must_use]
    pub const fn exact_scope(&self) -> Option<&Scope> {
        match &self.pattern {
            Pattern::Exact(scope) => Some(scope),
            Pattern::Prefix(_) => None,
        }
    }

    /// What the names of the scopes that it covers begin with: all of the name, where it names one exactly.
    #[must_use]
    pub fn prefix(&self) -> &str {
        match &self.pattern {
            Pattern::Exact(scope) => scope.as_str(),
            Pattern::Prefix(prefix) => prefix,
        }
    }

    /// Whether it covers every scope.
    #[must_use]
    pub fn covers_everything(&self) -> bool {
        matches!(&self.pattern, Pattern::Prefix(prefix) if prefix.is_empty())
    }

    /// Whether it covers this scope.
    #[must_use]
    pub fn covers(&self, scope: &Scope) -> bool {
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
            Some(prefix) => {
                let parsed = scope_of_grant(text, prefix)?;
                // Trimmed, the prefix would cover more than it says.
                ensure!(parsed.as_str() == prefix, "grant {text:?}: white space, or no NFC, before the '*'");
                Pattern::Prefix(prefix.to_owned())
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_grants_are_refused() {
        for grant in [
            "user:42",
            "user:42=",
            "=read",
            "a*b=read",
            "**=read",
            "user:42=owner",
            "a\u{200b}*=read",
            "a *=read",
        ] {
            assert!(grant.parse::<Grant>().is_err(), "{grant}");
        }
        assert_eq!("a=b=read".parse::<Grant>().unwrap().to_string(), "a=b=read");
    }
}

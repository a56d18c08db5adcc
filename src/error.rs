//! The one error of the engine: what a caller can do about it.

use std::time::Duration;

use sqlx::postgres::{PgDatabaseError, PgSeverity};

use crate::model::{Action, Scope};

/// The result of every engine call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call was not carried out, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An argument that cannot be accepted; sending it again unchanged fails again.
    #[error("{message}")]
    Invalid {
        /// The argument's name as the caller wrote it.
        field: String,
        /// What is wrong with it.
        message: String,
        /// What would be accepted.
        hint: String,
    },
    /// No grant of the token covers the scope.
    #[error("this token has no grant for scope {:?}", scope.as_str())]
    ScopeNotGranted {
        /// The scope asked for.
        scope: Scope,
    },
    /// The scope is granted, but not for this action.
    #[error("this token lacks the {action} grant on scope {:?}", scope.as_str())]
    ActionNotGranted {
        /// The scope asked for.
        scope: Scope,
        /// The action that the call needs.
        action: Action,
    },
    /// No such memory in the scope. A foreign id and an absent one give the same answer.
    #[error("no such memory in this scope")]
    NotFound,
    /// The memory is not in a state in which the call makes sense.
    #[error("{message}")]
    Conflict {
        /// What stands in the way.
        message: String,
        /// The way out.
        hint: String,
    },
    /// The idempotency key was used for another body.
    #[error("this idempotency_key was used before with other arguments")]
    IdempotencyMismatch,
    /// A quota or cap is reached; nothing was stored.
    #[error("{message}")]
    LimitExceeded {
        /// The argument that went over, where it is one.
        field: Option<String>,
        /// Which limit, with its number.
        message: String,
    },
    /// Too many requests from this token.
    #[error("too many requests")]
    RateLimited {
        /// When the next one will be taken.
        retry_after: Duration,
    },
    /// A part that the call cannot do without is down.
    #[error("{part} is unavailable")]
    Unavailable {
        /// The part's name as `/readyz` gives it.
        part: &'static str,
        /// The cause, for the log alone.
        #[source]
        source: anyhow::Error,
    },
    /// The call took longer than the server allows and was stopped.
    #[error("the call took longer than {} s and was stopped", limit.as_secs())]
    Timeout {
        /// The limit.
        limit: Duration,
    },
    /// The client went away, which ends the call. For the audit log: nobody reads the answer.
    #[error("the client went away")]
    Cancelled,
    /// A fault of memser; the cause goes to the log, never to the caller.
    #[error("internal error")]
    Internal(#[source] anyhow::Error),
}

impl Error {
    /// An argument that cannot be accepted.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), message: message.into(), hint: hint.into() }
    }

    /// A fault of memser, said in one sentence for the log.
    #[must_use]
    pub fn internal(message: &'static str) -> Self {
        Self::Internal(anyhow::anyhow!(message))
    }

    /// The stable name that clients match on.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "invalid_argument",
            Self::ScopeNotGranted { .. } => "scope_not_granted",
            Self::ActionNotGranted { .. } => "action_not_granted",
            Self::NotFound => "not_found",
            Self::Conflict { .. } => "conflict",
            Self::IdempotencyMismatch => "idempotency_mismatch",
            Self::LimitExceeded { .. } => "limit_exceeded",
            Self::RateLimited { .. } => "rate_limited",
            Self::Unavailable { .. } => "unavailable",
            Self::Timeout { .. } => "timeout",
            Self::Cancelled => "cancelled",
            Self::Internal(_) => "internal",
        }
    }

    /// The argument at fault, where one is.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Invalid { field, .. } => Some(field),
            Self::ScopeNotGranted { .. } | Self::ActionNotGranted { .. } => Some("scope"),
            Self::IdempotencyMismatch => Some("idempotency_key"),
            Self::LimitExceeded { field, .. } => field.as_deref(),
            _ => None,
        }
    }

    /// What the caller can do next.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Invalid { hint, .. } | Self::Conflict { hint, .. } => hint.clone(),
            Self::ScopeNotGranted { .. } => {
                "Use a scope that this token is granted, or ask the operator for a grant.".to_owned()
            }
            Self::ActionNotGranted { action, .. } => {
                format!("Ask the operator for a grant that includes {action} on this scope.")
            }
            Self::NotFound => "list_memories shows the ids of this scope.".to_owned(),
            Self::IdempotencyMismatch => {
                "Use a new key for new content, or send the first call's arguments again.".to_owned()
            }
            Self::LimitExceeded { field: Some(field), .. } if field == "scope" => {
                "Use a scope that exists, or ask the operator to raise MEMSER_MAX_SCOPES_PER_TOKEN."
                    .to_owned()
            }
            Self::LimitExceeded { .. } => {
                "Shorten it, forget what is no longer needed, or ask the operator for more.".to_owned()
            }
            Self::RateLimited { retry_after } => {
                format!("Try again in {} s.", retry_after.as_secs().max(1))
            }
            // A call that is cut off may have been just about to commit.
            Self::Unavailable { part: "memser", .. } | Self::Timeout { .. } | Self::Cancelled => {
                "Nothing was half-written; try again, with an idempotency_key where you store.".to_owned()
            }
            Self::Unavailable { .. } => "Nothing was changed; try again in a moment.".to_owned(),
            Self::Internal(_) => {
                "Try again; the operator finds the cause in the log by the request id.".to_owned()
            }
        }
    }
}

/// An error with its causes, for the log and for whoever runs memser. A cause that an error repeats at its end is said once.
#[must_use]
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut words = String::new();
    for cause in anyhow::Chain::new(error).map(ToString::to_string) {
        if words.is_empty() {
            words = cause;
        } else if !words.ends_with(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

impl From<sqlx::Error> for Error {
    /// Connection trouble is the caller's cue to try again; everything else is a fault of memser.
    fn from(error: sqlx::Error) -> Self {
        if database_is_down(&error) {
            Self::Unavailable { part: "postgres", source: error.into() }
        } else {
            Self::Internal(error.into())
        }
    }
}

fn database_is_down(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => true,
        // A session that could not be opened, or is gone, whatever the reason: a role that may not log in is one.
        sqlx::Error::Database(database) if is_fatal(database.as_ref()) => true,
        // Class 08 connection exception, 53 insufficient resources, 57P0x shutdown and crash, 25006 read-only standby.
        sqlx::Error::Database(database) => database.code().is_some_and(|code| {
            code.starts_with("08") || code.starts_with("53") || code.starts_with("57P") || code == "25006"
        }),
        _ => false,
    }
}

fn is_fatal(error: &dyn sqlx::error::DatabaseError) -> bool {
    let error = error.try_downcast_ref::<PgDatabaseError>();
    error.is_some_and(|error| matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_connections_are_unavailable_and_other_faults_internal() {
        assert_eq!(Error::from(sqlx::Error::PoolTimedOut).code(), "unavailable");
        assert_eq!(Error::from(sqlx::Error::RowNotFound).code(), "internal");
    }

    #[test]
    fn causes_are_told_in_order_and_none_of_them_twice() {
        let refused = anyhow::anyhow!("no such host").context("cannot connect: no such host");
        let error = Error::Unavailable { part: "postgres", source: refused };
        assert_eq!(with_causes(&error), "postgres is unavailable: cannot connect: no such host");
        assert_eq!(with_causes(&Error::NotFound), "no such memory in this scope");
    }

    #[test]
    fn the_cause_of_an_internal_error_is_not_its_text() {
        let error = Error::Internal(anyhow::anyhow!("select secret from memories"));
        assert_eq!(error.to_string(), "internal error");
        assert!(!error.hint().contains("select"));
    }
}

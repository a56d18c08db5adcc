//! `memser token`: the token file, for a person.

use std::path::PathBuf;

use anyhow::{Context, bail};
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use clap::{Args, Subcommand};
use memser::auth::{Grant, StaticToken, TokensOnDisk};
use memser::clock::Clock;
use memser::config::Config;
use secrecy::ExposeSecret;

/// What to do with the token file.
#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token, print it once, and add its digest to the token file.
    New(NewToken),
    /// List the tokens: name, expiry, grants.
    List(Which),
    /// Take a token out of the file; a memser that serves refuses it within a second.
    Revoke {
        /// The token's name.
        name: String,
        #[command(flatten)]
        which: Which,
    },
}

/// Which file.
#[derive(Args)]
pub(crate) struct Which {
    /// The token file; otherwise `MEMSER_TOKENS_FILE`, or `tokens.toml` in the data folder.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// A token to make.
#[derive(Args)]
pub(crate) struct NewToken {
    /// Whose it is: what logs and the audit log show.
    #[arg(long)]
    name: String,
    /// What it may do where: `user:42=write`, `team:*=read`. Several are given one by one.
    #[arg(long = "grant", required = true, value_name = "SCOPE=ACTION")]
    grants: Vec<Grant>,
    /// When it expires: in so many minutes, hours, days or weeks (`90d`), or at a time (`2027-01-31T00:00:00Z`).
    #[arg(long, value_name = "WHEN", value_parser = expiry)]
    expires: Option<Expiry>,
    #[command(flatten)]
    which: Which,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    After(TimeDelta),
    At(DateTime<Utc>),
}

fn expiry(text: &str) -> anyhow::Result<Expiry> {
    if let Ok(at) = DateTime::parse_from_rfc3339(text) {
        return Ok(Expiry::At(at.into()));
    }
    let hint = "a span such as 90d (m, h, d or w), or a time such as 2027-01-31T00:00:00Z";
    let unit = text.chars().last().context(hint)?;
    let number = text.strip_suffix(unit).and_then(|number| number.parse::<u32>().ok()).map(i64::from);
    let minutes = match unit {
        'm' => 1,
        'h' => 60,
        'd' => 24 * 60,
        'w' => 7 * 24 * 60,
        _ => bail!(hint),
    };
    let span =
        number.filter(|&number| number > 0).and_then(|number| TimeDelta::try_minutes(number * minutes));
    Ok(Expiry::After(span.context(hint)?))
}

/// Carries the command out; gives what to print.
///
/// # Errors
/// When there is no file to work on, or it cannot be read or written.
pub(crate) fn run(command: TokenCommand, config: &Config) -> anyhow::Result<String> {
    let open = |which: Which| {
        let path = which.file.map_or_else(|| config.tokens_path(), |path| Ok(Some(path)))?;
        let path = path.context("which file? Set MEMSER_TOKENS_FILE as the server has it, or give --file")?;
        TokensOnDisk::open(&path)
    };
    let now = Clock::System.now();
    match command {
        TokenCommand::New(new) => {
            let expires_at = match new.expires {
                None => None,
                Some(Expiry::At(at)) => Some(at),
                Some(Expiry::After(span)) => now.checked_add_signed(span),
            };
            let token = open(new.which)?.add(&new.name, &new.grants, expires_at)?;
            Ok(format!("{}\n", token.expose_secret()))
        }
        TokenCommand::List(which) => {
            Ok(open(which)?.tokens()?.iter().map(|token| line(token, now)).collect())
        }
        TokenCommand::Revoke { name, which } => {
            open(which)?.revoke(&name)?;
            Ok(format!("{name} is revoked\n"))
        }
    }
}

fn shown(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn line(token: &StaticToken, now: DateTime<Utc>) -> String {
    let expiry = match token.expires_at {
        None => "never expires".to_owned(),
        Some(at) if token.is_expired(now) => format!("expired {}", shown(at)),
        Some(at) => format!("expires {}", shown(at)),
    };
    let grants: Vec<String> = token.grants.iter().map(ToString::to_string).collect();
    format!("{}\t{expiry}\t{}\n", token.name, grants.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_is_a_span_or_a_time() {
        assert_eq!(expiry("90d").unwrap(), Expiry::After(TimeDelta::days(90)));
        assert_eq!(expiry("2w").unwrap(), Expiry::After(TimeDelta::weeks(2)));
        let at = "2027-01-31T00:00:00Z".parse().unwrap();
        assert_eq!(expiry("2027-01-31T01:00:00+01:00").unwrap(), Expiry::At(at));
        for text in ["", "d", "0d", "-1d", "90", "90x", "1é", "99999999999d", "tomorrow"] {
            assert!(expiry(text).is_err(), "{text}");
        }
    }
}

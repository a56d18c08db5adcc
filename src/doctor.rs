//! `memser doctor`: what is well and what is not, with the way out.

mod address;
mod database;
mod disk;
mod models;
mod redis;

use crate::auth::Auth;
use crate::clock::Clock;
use crate::config::Config;
use crate::error::with_causes;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How it is.
    pub health: Health,
    /// What was found and, where it is not well, how to mend it; in one line.
    pub text: String,
}

/// How well a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// As it should be.
    Well,
    /// It works, but not as well or as safely as it could.
    Warning,
    /// memser cannot work like this.
    Failure,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = match self.health {
            Health::Well => "ok     ",
            Health::Warning => "warning",
            Health::Failure => "FAILED ",
        };
        write!(f, "{mark} {}", self.text)
    }
}

const fn well(text: String) -> Finding {
    Finding { health: Health::Well, text }
}

const fn warning(text: String) -> Finding {
    Finding { health: Health::Warning, text }
}

const fn failure(text: String) -> Finding {
    Finding { health: Health::Failure, text }
}

/// Looks at everything that the configuration names, and changes nothing.
pub async fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = match examine_tokens(config).await {
        Ok(texts) => texts.into_iter().map(well).collect(),
        Err(error) => vec![failure(format!("tokens: {}", with_causes(error.as_ref())))],
    };
    if let Err(error) = database::examine(config, &mut findings).await {
        findings.push(failure(format!("database: {}", with_causes(error.as_ref()))));
    }
    if let Some(url) = &config.redis_url {
        findings.extend(redis::examine(url).await);
    }
    findings.extend(models::examine(config).await);
    findings.extend(address::examine(config).await);
    findings
}

async fn examine_tokens(config: &Config) -> anyhow::Result<Vec<String>> {
    let (mut auth, now, mut texts) = (Auth::default(), Clock::System.now(), Vec::new());
    if let Some(path) = config.tokens_path()?.filter(|path| path.exists()) {
        auth.add_file(&path, now)?;
        texts.push(format!("tokens: {} can be read", path.display()));
    }
    if let Some(issuer) = &config.issuer {
        let name = issuer.issuer.clone();
        auth.add_issuer(issuer.clone())?;
        auth.warm_up(now).await?;
        texts.push(format!("tokens: the keys of {name} are there"));
    }
    Ok(texts)
}

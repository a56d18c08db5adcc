//! `memser doctor`: what is well and what is not, with the way out.

use anyhow::Context;
use secrecy::ExposeSecret;

use crate::auth::Auth;
use crate::clock::Clock;
use crate::config::{Config, External, Storage};
use crate::db::embedded::Embedded;
use crate::db::schema::{inspect, last_migration};
use crate::db::space::{self, Progress, State};
use crate::db::{Db, Pooler};
use crate::working::Working;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How it is.
    pub health: Health,
    /// What was found, in one line.
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

/// Looks at everything that the configuration names, and changes nothing.
pub async fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    match examine_tokens(config).await {
        Ok(texts) => findings.extend(texts.into_iter().map(|text| Finding { health: Health::Well, text })),
        Err(error) => findings.push(Finding { health: Health::Failure, text: format!("tokens: {error:#}") }),
    }
    if let Err(error) = examine_database(config, &mut findings).await {
        findings.push(Finding { health: Health::Failure, text: format!("database: {error:#}") });
    }
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

async fn examine_database(config: &Config, findings: &mut Vec<Finding>) -> anyhow::Result<()> {
    let mut note = |health, text| findings.push(Finding { health, text });
    let (options, direct, pooler) = match &config.storage {
        Storage::External(external) => {
            let External { options, direct, pooler } = (**external).clone();
            (options, direct, pooler)
        }
        Storage::Embedded(settings) => {
            let Some(options) = Embedded::running(settings)? else {
                let folder = settings.resolve_data_dir()?;
                let text = format!(
                    "database: no memser runs its own Postgres in {}: start it to have its database looked at",
                    folder.display()
                );
                note(Health::Warning, text);
                return Ok(());
            };
            (options.clone(), options, Pooler::None)
        }
    };
    let found = inspect(&direct).await?;
    if let Some(objection) = found.objection {
        note(Health::Failure, format!("database: {objection}"));
        return Ok(());
    }
    let pgvector = found.pgvector.as_deref().unwrap_or("not yet added");
    note(Health::Well, format!("database: PostgreSQL {}, pgvector {pgvector}", found.postgres));
    let (last, applied) = (last_migration(), found.migration.unwrap_or_default());
    if applied < last {
        let text =
            format!("schema: at migration {applied} of {last}; the next start, or memser migrate, goes on");
        note(Health::Warning, text);
        return Ok(());
    }
    note(Health::Well, format!("schema: up to date (migration {applied})"));

    let db = Db::new(options, 1, pooler);
    if db.has_second_wall().await? {
        note(Health::Well, "role: row-level security binds it".to_owned());
    } else {
        let text =
            "role: row-level security does not bind it; use one without SUPERUSER and BYPASSRLS".to_owned();
        note(Health::Warning, text);
    }
    let census = space::census(&db).await?;
    for space in &census.spaces {
        let (health, text) = describe(space, census.episodic + census.semantic);
        note(health, text);
    }
    if let Some(url) = &config.redis_url {
        let pinged = async {
            let working = Working::redis(url.expose_secret(), db.installation().await?, config.working_cap)?;
            working.ping().await.context("REDIS_URL")
        };
        match pinged.await {
            Ok(()) => note(Health::Well, "Redis: answers".to_owned()),
            Err(error) => note(Health::Failure, format!("Redis: {error:#}")),
        }
    }
    db.close().await;
    Ok(())
}

/// How full a space is.
fn describe(space: &Progress, memories: i64) -> (Health, String) {
    let Progress { known, vectors, .. } = space;
    let name = format!("{} {} ({} dimensions)", known.provider, known.model, known.space.dimensions);
    let share = if memories > 0 { vectors * 100 / memories } else { 100 };
    let fill = format!("{vectors} of {memories} memories have their vector ({share} %)");
    match space.state {
        State::Building => (Health::Warning, format!("embeddings: {name} is being filled: {fill}")),
        State::Retired => {
            (Health::Well, format!("embeddings: {name} is no longer used; {vectors} vectors are kept"))
        }
        State::Active if *vectors < memories => (
            Health::Warning,
            format!("embeddings: {name} is in use: {fill}; the others wait for the embed sweep"),
        ),
        State::Active if known.space.is_indexed() && !space.has_index => (
            Health::Warning,
            format!("embeddings: {name} is in use: {fill}; its index waits for the embed sweep"),
        ),
        State::Active => (Health::Well, format!("embeddings: {name} is in use: {fill}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::space::{Known, Space};

    fn space(state: State, vectors: i64, has_index: bool) -> Progress {
        let known = Known {
            space: Space { id: 1, dimensions: 8 },
            provider: "hash".to_owned(),
            model: "hash".to_owned(),
        };
        Progress { known, state, vectors, has_index }
    }

    #[test]
    fn a_space_is_described_by_what_it_lacks() {
        let (health, text) = describe(&space(State::Building, 25, false), 200);
        assert_eq!(health, Health::Warning);
        assert!(
            text.contains("being filled") && text.contains("25 of 200") && text.contains("12 %"),
            "{text}"
        );
        assert_eq!(describe(&space(State::Active, 200, true), 200).0, Health::Well);
        assert_eq!(describe(&space(State::Active, 0, true), 0).0, Health::Well);
        assert!(describe(&space(State::Active, 199, true), 200).1.contains("the others wait"));
        assert!(describe(&space(State::Active, 200, false), 200).1.contains("its index waits"));
        assert_eq!(describe(&space(State::Retired, 3, false), 200).0, Health::Well);
    }
}

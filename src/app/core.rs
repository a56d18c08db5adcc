//! What a memser has whether it serves or runs one job: the database, the engine, the jobs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use secrecy::ExposeSecret;
use tokio_cron_scheduler::JobScheduler;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{database_name, embedding};
use crate::clock::Clock;
use crate::config::{Config, Decisions, External};
use crate::db::feed::Feed;
use crate::db::schema::{bring_up_to_date, expect_up_to_date};
use crate::db::{Db, Pooler};
use crate::engine::sweep::Sweeps;
use crate::engine::{Engine, Settings, Sieve};
use crate::jobs::Jobs;
use crate::metrics::Metrics;
use crate::provider::chat::Chat;
use crate::working::Working;

/// How long sweeps may take to end once they were told to, and then the connections that are still in use.
const SWEEPS_END: Duration = Duration::from_secs(5);

/// The parts.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) db: Db,
    pub(super) engine: Arc<Engine>,
    pub(super) jobs: Jobs,
    pub(super) embedder_name: String,
}

impl Core {
    pub(super) async fn start(config: &Config, clock: Clock, database: External) -> anyhow::Result<Self> {
        let External { options, direct, pooler } = database;
        let schema =
            if config.migrates { bring_up_to_date(&direct).await } else { expect_up_to_date(&direct).await };
        schema.context(match pooler {
            Pooler::None => database_name(&config.storage),
            Pooler::Transaction => "DATABASE_DIRECT_URL",
        })?;
        let db = Db::new(options, config.max_connections, pooler);
        if !db.has_second_wall().await.context(database_name(&config.storage))? {
            tracing::warn!(
                "memser's database role bypasses row-level security, so that the second wall between scopes is missing: \
                 use a role without SUPERUSER and BYPASSRLS (docs/security.md)"
            );
        }
        let working = match &config.redis_url {
            Some(url) => Working::redis(url.expose_secret(), db.installation().await?, config.working_cap)?,
            None => Working::postgres(db.clone(), config.working_cap),
        };
        let metrics = Metrics::default();
        let models = embedding::models(config, &db, &clock, &metrics).await?;
        let embedder_name = models.name();
        let settings = settings(&config.decisions, &config.sweeps, &clock, &metrics)?;
        let shutdown = CancellationToken::new();
        let feed = Feed::new(db.clone(), direct.clone(), shutdown.clone());
        let engine = Engine::start(db.clone(), feed, models, working, clock.clone(), settings, metrics);
        let engine = Arc::new(engine);
        let jobs = Jobs {
            engine: Arc::clone(&engine),
            db: db.clone(),
            connect: direct,
            clock,
            shutdown,
            under_way: TaskTracker::new(),
        };
        Ok(Self { db, engine, jobs, embedder_name })
    }

    /// Starts what runs the sweeps, unless they are turned off. The caller shuts it down.
    pub(super) async fn schedule(&self) -> anyhow::Result<Option<JobScheduler>> {
        if self.engine.sweeps().enabled {
            return Ok(Some(self.jobs.schedule().await?));
        }
        tracing::info!("ENABLE_SCHEDULER=false: this replica runs no sweeps by itself");
        Ok(None)
    }

    /// Lets sweeps come to an end, writes what waits to be written and closes the connections.
    pub(super) async fn stop(self) {
        self.jobs.shutdown.cancel();
        self.jobs.under_way.close();
        // Bounded: each note of a sweep's end is one statement, and the database may be gone.
        let _ = tokio::time::timeout(SWEEPS_END, self.jobs.under_way.wait()).await;
        self.engine.flush().await;
        let _ = tokio::time::timeout(SWEEPS_END, self.db.close()).await;
    }
}

fn settings(
    decisions: &Decisions,
    sweeps: &Sweeps,
    clock: &Clock,
    metrics: &Metrics,
) -> anyhow::Result<Settings> {
    let llm = decisions.llm.as_ref().map(|settings| Chat::new(settings, clock.clone())).transpose()?;
    let llm = llm.map(|llm| Arc::new(llm.counted_in(metrics.clone())));
    let (arbiter, summariser) =
        (llm.clone().filter(|_| decisions.llm_judges), llm.filter(|_| decisions.llm_summarises));
    let judge = arbiter.as_deref().map_or("rules", Chat::model);
    let summaries = summariser.as_deref().map_or("extractive", Chat::model);
    tracing::info!(judge, summaries, "memories are judged and summarised");
    Ok(Settings {
        arbiter,
        summariser,
        llm_max_tokens: decisions.llm_max_tokens,
        max_content_bytes: decisions.max_content_bytes,
        quota: decisions.quota,
        max_scopes_per_token: decisions.max_scopes_per_token,
        sieve: Sieve::new(decisions.secret_policy)?,
        conflict_rule: decisions.conflict_rule,
        conflict_policy: decisions.conflict_policy,
        bm25: decisions.bm25,
        recency_half_life_days: decisions.recency_half_life_days,
        sweeps: sweeps.clone(),
    })
}

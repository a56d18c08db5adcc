//! The environment, parsed into types that cannot be wrong.
//!
//! `docs/configuration.md` explains each name. An empty value counts as none, so that a compose file may pass on what
//! is not set.

use std::fmt::Display;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use secrecy::SecretString;
use sqlx::postgres::PgConnectOptions;
use url::Url;

use crate::db::embedded::EmbeddedSettings;
use crate::engine::judge::ConflictRule;
use crate::engine::score::Weights;
use crate::model::ConflictPolicy;
use crate::provider::local;
use crate::provider::openai::OpenAiSettings;

/// Everything that an operator can set.
#[derive(Debug)]
pub struct Config {
    /// Where to listen.
    pub bind: SocketAddr,
    /// Where clients reach memser; the listen address if none is set.
    pub public_url: Option<Url>,
    /// Further host names that requests may name.
    pub allowed_hosts: Vec<String>,
    /// Origins of browsers that may call.
    pub allowed_origins: Vec<String>,
    /// One token with admin on every scope.
    pub token: Option<SecretString>,
    /// A file of tokens.
    pub tokens_file: Option<PathBuf>,
    /// Requests a second that one token may make.
    pub rate_limit: Option<NonZeroU32>,
    /// The longest that a tool call may take.
    pub call_timeout: Duration,
    /// The durable store.
    pub storage: Storage,
    /// The most connections to it.
    pub max_connections: u32,
    /// The working tier's Redis; Postgres holds that tier without one.
    pub redis_url: Option<SecretString>,
    /// The most working memories of a scope.
    pub working_cap: u32,
    /// What embeds texts.
    pub embedder: EmbedderSettings,
    /// What the engine decides by.
    pub decisions: Decisions,
    /// When sweeps run.
    pub sweeps: Sweeps,
    /// What is logged, as `tracing` filters write it.
    pub log: String,
    /// One JSON object a line instead of text.
    pub log_json: bool,
}

/// The durable store.
#[derive(Debug)]
pub enum Storage {
    /// A private Postgres in a data folder.
    Embedded(EmbeddedSettings),
    /// A Postgres that somebody else runs.
    External(Box<PgConnectOptions>),
}

/// What embeds texts.
#[derive(Debug)]
pub enum EmbedderSettings {
    /// An OpenAI-compatible endpoint.
    OpenAi(OpenAiSettings),
    /// A sentence transformer in this process.
    Local {
        /// The folder that holds it.
        dir: PathBuf,
    },
    /// Feature hashing of this width.
    Hash {
        /// Dimensions.
        dimensions: usize,
    },
}

/// What the engine decides by; `None` leaves it to the embedder's measured default.
#[derive(Debug)]
pub struct Decisions {
    /// The longest content, in bytes.
    pub max_content_bytes: usize,
    /// Cosine from which two memories may say the same.
    pub duplicate_threshold: Option<f32>,
    /// Cosine from which two memories may contradict each other.
    pub conflict_threshold: Option<f32>,
    /// Whether similarity alone makes a conflict.
    pub conflict_rule: ConflictRule,
    /// What a store does about a conflict.
    pub conflict_policy: ConflictPolicy,
    /// What counts how much, where set.
    pub weights: PartialWeights,
    /// When a memory's recency has halved.
    pub recency_half_life_days: f64,
    /// How alike memories of one cluster are.
    pub consolidation_similarity: Option<f32>,
}

/// The weights that an operator set.
#[derive(Clone, Copy, Debug, Default)]
pub struct PartialWeights {
    vector: Option<f32>,
    lexical: Option<f32>,
    neighbour: Option<f32>,
    recency: Option<f32>,
    frequency: Option<f32>,
    confidence: Option<f32>,
}

impl PartialWeights {
    /// The weights that are set, over `defaults`.
    #[must_use]
    pub fn over(self, defaults: Weights) -> Weights {
        Weights {
            vector: self.vector.unwrap_or(defaults.vector),
            lexical: self.lexical.unwrap_or(defaults.lexical),
            neighbour: self.neighbour.unwrap_or(defaults.neighbour),
            recency: self.recency.unwrap_or(defaults.recency),
            frequency: self.frequency.unwrap_or(defaults.frequency),
            confidence: self.confidence.unwrap_or(defaults.confidence),
        }
    }
}

/// When sweeps run.
#[derive(Clone, Copy, Debug)]
pub struct Sweeps {
    /// Whether this replica runs any.
    pub enabled: bool,
    /// Between two consolidations.
    pub consolidation_interval: Duration,
    /// A scope with fewer memories to consolidate waits.
    pub consolidation_min_episodic: u32,
    /// Between two decays.
    pub decay_interval: Duration,
    /// Memories untouched for so long decay.
    pub decay_after_days: u32,
}

/// Where values come from: the environment, or a test's table.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Config {
    /// Reads the environment of this process.
    ///
    /// # Errors
    /// When a value is wrong; the message names the variable and never shows a secret.
    pub fn from_env() -> anyhow::Result<Self> {
        Self::from_lookup(&|name| std::env::var(name).ok())
    }

    /// Reads values by name.
    ///
    /// # Errors
    /// As [`Self::from_env`].
    pub fn from_lookup(lookup: Lookup<'_>) -> anyhow::Result<Self> {
        let get =
            |name: &str| lookup(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let env = Env { get: &get };
        let threshold = |name| -> anyhow::Result<Option<f32>> { env.within(name, 0.0, 1.0) };
        let weight = |name| -> anyhow::Result<Option<f32>> { env.within(name, 0.0, 10.0) };
        let config = Self {
            bind: env.parsed("MEMSER_BIND")?.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8080))),
            public_url: env.parsed("MEMSER_PUBLIC_URL")?.map(checked_public_url).transpose()?,
            allowed_hosts: env.list("MEMSER_ALLOWED_HOSTS"),
            allowed_origins: env.list("MEMSER_ALLOWED_ORIGINS"),
            token: get("MEMSER_TOKEN").map(checked_token).transpose()?,
            tokens_file: get("MEMSER_TOKENS_FILE").map(PathBuf::from),
            rate_limit: env.parsed("MEMSER_RATE_LIMIT")?,
            call_timeout: Duration::from_secs(
                env.within("MEMSER_CALL_TIMEOUT_SECONDS", 1, 3_600)?.unwrap_or(60),
            ),
            storage: storage(&env)?,
            max_connections: env.within("DATABASE_MAX_CONNECTIONS", 2, 1_000)?.unwrap_or(20),
            redis_url: get("REDIS_URL").map(SecretString::from),
            working_cap: env.within("WORKING_MAX_PER_SCOPE", 1, 100_000)?.unwrap_or(1_000),
            embedder: embedder(&env)?,
            decisions: Decisions {
                max_content_bytes: env.within("MEMSER_MAX_CONTENT_BYTES", 1, 1_048_576)?.unwrap_or(65_536),
                duplicate_threshold: threshold("DUPLICATE_THRESHOLD")?,
                conflict_threshold: threshold("CONFLICT_THRESHOLD")?,
                conflict_rule: env
                    .one_of(
                        "CONFLICT_RULE",
                        &[("guarded", ConflictRule::Guarded), ("similarity", ConflictRule::Similarity)],
                    )?
                    .unwrap_or_default(),
                conflict_policy: env
                    .one_of(
                        "CONFLICT_POLICY",
                        &[
                            ("newest_wins", ConflictPolicy::NewestWins),
                            ("flag", ConflictPolicy::Flag),
                            ("keep_both", ConflictPolicy::KeepBoth),
                        ],
                    )?
                    .unwrap_or_default(),
                weights: PartialWeights {
                    vector: weight("WEIGHT_VECTOR")?,
                    lexical: weight("WEIGHT_LEXICAL")?,
                    neighbour: weight("WEIGHT_NEIGHBOUR")?,
                    recency: weight("WEIGHT_RECENCY")?,
                    frequency: weight("WEIGHT_FREQUENCY")?,
                    confidence: weight("WEIGHT_CONFIDENCE")?,
                },
                recency_half_life_days: env.within("RECENCY_HALF_LIFE_DAYS", 0.01, 36_500.0)?.unwrap_or(30.0),
                consolidation_similarity: threshold("CONSOLIDATION_SIMILARITY")?,
            },
            sweeps: Sweeps {
                enabled: env
                    .one_of(
                        "ENABLE_SCHEDULER",
                        &[("true", true), ("1", true), ("false", false), ("0", false)],
                    )?
                    .unwrap_or(true),
                consolidation_interval: minutes(
                    env.within("CONSOLIDATION_INTERVAL_MINUTES", 1, 525_600)?.unwrap_or(60),
                ),
                consolidation_min_episodic: env
                    .within("CONSOLIDATION_MIN_EPISODIC", 2, 1_000_000)?
                    .unwrap_or(50),
                decay_interval: minutes(env.within("DECAY_INTERVAL_MINUTES", 1, 525_600)?.unwrap_or(1_440)),
                decay_after_days: env.within("DECAY_AFTER_DAYS", 1, 36_500)?.unwrap_or(30),
            },
            log: get("MEMSER_LOG").unwrap_or_else(|| DEFAULT_LOG.to_owned()),
            log_json: env.one_of("MEMSER_LOG_FORMAT", &[("text", false), ("json", true)])?.unwrap_or(false),
        };
        Ok(config)
    }

    /// Where clients reach memser.
    ///
    /// # Errors
    /// When the listen address makes no URL, which no address does.
    pub fn public_url(&self, listening: SocketAddr) -> anyhow::Result<Url> {
        match &self.public_url {
            Some(url) => Ok(url.clone()),
            None => Url::parse(&format!("http://{listening}")).context("the listen address makes no URL"),
        }
    }
}

fn storage(env: &Env<'_>) -> anyhow::Result<Storage> {
    let Some(url) = (env.get)("DATABASE_URL") else {
        return Ok(Storage::Embedded(EmbeddedSettings {
            data_dir: (env.get)("MEMSER_DATA_DIR").map(PathBuf::from),
            pg_bin: (env.get)("MEMSER_PG_BIN").map(PathBuf::from),
            pg_user: (env.get)("MEMSER_PG_USER").unwrap_or_else(|| "nobody".to_owned()),
        }));
    };
    // The parser's own message may show the URL, and with it the password.
    let Ok(options) = url.parse() else {
        bail!("DATABASE_URL is no Postgres URL: postgres://user:password@host:5432/database");
    };
    Ok(Storage::External(Box::new(options)))
}

#[derive(Clone, Copy)]
enum Provider {
    OpenAi,
    Local,
    Hash,
}

fn embedder(env: &Env<'_>) -> anyhow::Result<EmbedderSettings> {
    let key = (env.get)("OPENAI_API_KEY");
    let dimensions = env.within("EMBEDDING_DIMENSIONS", 1, 16_000)?;
    let named = env.one_of(
        "EMBEDDER",
        &[("openai", Provider::OpenAi), ("local", Provider::Local), ("hash", Provider::Hash)],
    )?;
    let folder = (env.get)("EMBEDDING_MODEL_DIR").map(PathBuf::from).or_else(model_folder);
    match (named, key.is_some(), folder) {
        (Some(Provider::OpenAi), ..) | (None, true, _) => {}
        (Some(Provider::Local) | None, _, Some(dir)) => return Ok(EmbedderSettings::Local { dir }),
        (Some(Provider::Local), _, None) => bail!(
            "EMBEDDER=local: there is no model in {MODEL_FOLDER}; set EMBEDDING_MODEL_DIR, or get one with: make model"
        ),
        (Some(Provider::Hash), ..) | (None, ..) => {
            return Ok(EmbedderSettings::Hash { dimensions: dimensions.unwrap_or(HASH_DIMENSIONS) });
        }
    }
    let url = (env.get)("EMBEDDING_URL").unwrap_or_else(|| "https://api.openai.com/v1".to_owned());
    let model = (env.get)("EMBEDDING_MODEL").unwrap_or_else(|| "text-embedding-3-small".to_owned());
    let mut settings = OpenAiSettings::new(url, model);
    settings.dimensions = dimensions;
    settings.key = key.map(SecretString::from);
    Ok(EmbedderSettings::OpenAi(settings))
}

/// Where a model is looked for: as `make model` leaves it in the working directory, or beside the executable.
fn model_folder() -> Option<PathBuf> {
    let executable = std::env::current_exe().ok();
    let beside = executable.as_deref().and_then(Path::parent).map(|folder| folder.join(MODEL_BESIDE));
    [Some(PathBuf::from(MODEL_FOLDER)), beside]
        .into_iter()
        .flatten()
        .find(|folder| local::find(folder).is_some())
}

const MODEL_FOLDER: &str = ".models/all-MiniLM-L6-v2";
const MODEL_BESIDE: &str = "models/all-MiniLM-L6-v2";

/// The crates below say nothing at `info` that helps an operator, and rmcp says it for every request.
const DEFAULT_LOG: &str = "info,rmcp=warn,sqlx=warn,tokio_cron_scheduler=warn";

/// Wide enough that the features of one memory rarely meet in a bucket; 4 KiB a vector.
const HASH_DIMENSIONS: usize = 1_024;

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

fn checked_public_url(url: Url) -> anyhow::Result<Url> {
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        bail!(
            "MEMSER_PUBLIC_URL is no http or https URL with a host, for example https://memory.example.com"
        );
    }
    if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
        bail!(
            "MEMSER_PUBLIC_URL has a user, a query or a fragment: only scheme, host, port and path belong there"
        );
    }
    Ok(url)
}

fn checked_token(token: String) -> anyhow::Result<SecretString> {
    if token.len() < 16 || token.chars().any(|c| !c.is_ascii_graphic()) {
        bail!(
            "MEMSER_TOKEN is shorter than 16 characters or has one that no header carries; try: openssl rand -hex 32"
        );
    }
    Ok(SecretString::from(token))
}

struct Env<'a> {
    get: Lookup<'a>,
}

impl Env<'_> {
    fn parsed<T: FromStr>(&self, name: &str) -> anyhow::Result<Option<T>>
    where
        T::Err: Display,
    {
        (self.get)(name)
            .map(|value| value.parse().map_err(|error| anyhow::anyhow!("{name}={value:?}: {error}")))
            .transpose()
    }

    fn within<T: Copy + FromStr + PartialOrd + Display>(
        &self,
        name: &str,
        least: T,
        most: T,
    ) -> anyhow::Result<Option<T>>
    where
        T::Err: Display,
    {
        let value: Option<T> = self.parsed(name)?;
        match value {
            // A NaN is in no range.
            Some(value) if !(value >= least && value <= most) => {
                bail!("{name}={value}: from {least} to {most}")
            }
            value => Ok(value),
        }
    }

    fn one_of<T: Copy>(&self, name: &str, known: &[(&str, T)]) -> anyhow::Result<Option<T>> {
        let Some(value) = (self.get)(name) else {
            return Ok(None);
        };
        if let Some((_, meaning)) = known.iter().find(|(word, _)| value.eq_ignore_ascii_case(word)) {
            Ok(Some(*meaning))
        } else {
            let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
            bail!("{name}={value:?}: one of {}", words.join(", "))
        }
    }

    fn list(&self, name: &str) -> Vec<String> {
        let value = (self.get)(name).unwrap_or_default();
        value.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests;

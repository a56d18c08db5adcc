//! The configuration, parsed into types that cannot be wrong.
//!
//! [`key`] says what a setting is and `keys` names them all, [`source`] reads the environment and the file, and
//! [`mod@reference`] writes the pages about them.

mod issuer;
pub mod key;
mod keys;
pub mod reference;
pub mod source;
mod storage;
mod sweeps;
mod telemetry;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use secrecy::SecretString;
use url::Url;

use crate::auth::{JwtSettings, TokenLimits};
use crate::db::embedded::EmbeddedSettings;
use crate::engine::judge::ConflictRule;
use crate::engine::score::{Bm25, Weights};
use crate::engine::sweep::Sweeps;
use crate::engine::{Quota, SecretPolicy};
use crate::model::ConflictPolicy;
use crate::provider::chat::ChatSettings;
use crate::provider::local::{self, HubName};
use crate::provider::openai::OpenAiSettings;

use source::Origin;
pub use source::Source;
use storage::storage;
pub use storage::{External, Storage};
use sweeps::sweeps;
use telemetry::telemetry;

/// Everything that an operator can set.
#[derive(Debug)]
pub struct Config {
    /// Where to listen.
    pub bind: SocketAddr,
    /// Where `/metrics` is shown without a token.
    pub metrics_bind: Option<SocketAddr>,
    /// Where clients reach memser; the listen address if none is set.
    pub public_url: Option<Url>,
    /// Further host names that requests may name.
    pub allowed_hosts: Vec<String>,
    /// Origins of browsers that may call.
    pub allowed_origins: Vec<String>,
    /// One token with admin on every scope.
    pub token: Option<SecretString>,
    /// The token that `memser stdio --url` sends.
    pub client_token: Option<SecretString>,
    /// A file of tokens.
    pub tokens_file: Option<PathBuf>,
    /// The issuer whose JWTs are accepted; without an audience where the public address is meant.
    pub issuer: Option<JwtSettings>,
    /// Where OAuth clients get tokens, where there is such a place.
    pub authorization_server: Option<String>,
    /// How much one token may ask for.
    pub token_limits: TokenLimits,
    /// Whether the tools that hosted connectors look for are offered.
    pub connector_tools: bool,
    /// The longest that a tool call may take.
    pub call_timeout: Duration,
    /// How long calls under way may go on at shutdown.
    pub shutdown_timeout: Duration,
    /// The durable store.
    pub storage: Storage,
    /// The most connections to it.
    pub max_connections: u32,
    /// Whether a start brings its schema up to date, or only checks it.
    pub migrates: bool,
    /// The working tier's Redis; Postgres holds that tier without one.
    pub redis_url: Option<SecretString>,
    /// The most working memories of a scope.
    pub working_cap: u32,
    /// What embeds texts.
    pub embedder: EmbedderSettings,
    /// What else could embed.
    pub alternatives: Alternatives,
    /// The most bytes of vectors that are remembered in memory.
    pub embedding_cache_bytes: u64,
    /// What the engine decides by.
    pub decisions: Decisions,
    /// When sweeps run and what they go by.
    pub sweeps: Sweeps,
    /// What is logged, and where traces go.
    pub telemetry: crate::telemetry::Settings,
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
        /// The hub and the model to fetch into that folder first.
        fetch: Option<(Url, HubName)>,
    },
    /// Feature hashing of this width.
    Hash {
        /// Dimensions.
        dimensions: usize,
    },
}

/// How embedders can be reached that are not the chosen one: the one before it may still be needed.
#[derive(Clone, Debug)]
pub struct Alternatives {
    /// The endpoint, where one is named or has a key.
    pub endpoint: Option<OpenAiSettings>,
    /// The model's folder, where one is named or found.
    pub model_dir: Option<PathBuf>,
}

/// What the engine decides by; `None` leaves it to the embedder's measured default.
#[derive(Debug)]
pub struct Decisions {
    /// The longest content, in bytes.
    pub max_content_bytes: usize,
    /// How much a scope may hold.
    pub quota: Quota,
    /// How many scopes a token may make.
    pub max_scopes_per_token: u64,
    /// What becomes of text that looks like a credential.
    pub secret_policy: SecretPolicy,
    /// Cosine from which two memories may say the same.
    pub duplicate_threshold: Option<f32>,
    /// Cosine from which two memories may contradict each other.
    pub conflict_threshold: Option<f32>,
    /// Whether similarity alone makes a conflict.
    pub conflict_rule: ConflictRule,
    /// What a store does about a conflict.
    pub conflict_policy: ConflictPolicy,
    /// The language model, where one is used.
    pub llm: Option<ChatSettings>,
    /// Whether it judges borderline pairs.
    pub llm_judges: bool,
    /// Whether it writes summaries.
    pub llm_summarises: bool,
    /// The most tokens of a summary's question and answer.
    pub llm_max_tokens: usize,
    /// What counts how much, where set.
    pub weights: PartialWeights,
    /// How words are weighed.
    pub bm25: Bm25,
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
    subject: Option<f32>,
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
            subject: self.subject.unwrap_or(defaults.subject),
            recency: self.recency.unwrap_or(defaults.recency),
            frequency: self.frequency.unwrap_or(defaults.frequency),
            confidence: self.confidence.unwrap_or(defaults.confidence),
        }
    }
}

impl Config {
    /// Parses what was read.
    ///
    /// # Errors
    /// When a value is wrong; the message names the setting and never shows a secret.
    pub fn parse(source: &Source) -> anyhow::Result<Self> {
        let seconds = |name| source.set(name).map(Duration::from_secs);
        let (issuer, alternatives) = (issuer::issuer(source)?, alternatives(source)?);
        Ok(Self {
            bind: source.set("MEMSER_BIND")?,
            metrics_bind: source.maybe("MEMSER_METRICS_BIND")?,
            public_url: source.maybe("MEMSER_PUBLIC_URL")?.map(checked_public_url).transpose()?,
            allowed_hosts: source.list("MEMSER_ALLOWED_HOSTS"),
            allowed_origins: source.list("MEMSER_ALLOWED_ORIGINS"),
            token: source.text("MEMSER_TOKEN").map(checked_token).transpose()?,
            client_token: source.text("MEMSER_CLIENT_TOKEN").map(SecretString::from),
            tokens_file: source.maybe("MEMSER_TOKENS_FILE")?,
            authorization_server: issuer.as_ref().and_then(issuer::authorization_server),
            issuer,
            token_limits: TokenLimits {
                per_second: source.maybe("MEMSER_RATE_LIMIT")?,
                burst: source.maybe("MEMSER_RATE_BURST")?,
                at_once: source.maybe("MEMSER_MAX_CONCURRENT")?,
            },
            connector_tools: source.set("MEMSER_CONNECTOR_TOOLS")?,
            call_timeout: seconds("MEMSER_CALL_TIMEOUT_SECONDS")?,
            shutdown_timeout: seconds("MEMSER_SHUTDOWN_SECONDS")?,
            storage: storage(source)?,
            max_connections: source.set("DATABASE_MAX_CONNECTIONS")?,
            migrates: source.set("MEMSER_MIGRATE")?,
            redis_url: source.text("REDIS_URL").map(SecretString::from),
            working_cap: source.set("WORKING_MAX_PER_SCOPE")?,
            embedder: embedder(source, &alternatives)?,
            alternatives,
            embedding_cache_bytes: source.set::<u64>("EMBEDDING_CACHE_MIB")? * 1024 * 1024,
            decisions: decisions(source)?,
            sweeps: sweeps(source)?,
            telemetry: telemetry(source)?,
        })
    }

    /// The token file: the one that is named, or the data folder's.
    ///
    /// # Errors
    /// When the data folder is not known.
    pub fn tokens_path(&self) -> anyhow::Result<Option<PathBuf>> {
        match (&self.tokens_file, &self.storage) {
            (Some(path), _) => Ok(Some(path.clone())),
            (None, Storage::Embedded(embedded)) => Ok(Some(embedded.resolve_data_dir()?.join("tokens.toml"))),
            (None, Storage::External(_)) => Ok(None),
        }
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

fn embedder(source: &Source, alternatives: &Alternatives) -> anyhow::Result<EmbedderSettings> {
    let hub: Option<HubName> = source.maybe("EMBEDDING_HUB_MODEL")?;
    match (source.text("EMBEDDER"), &alternatives.model_dir) {
        (Some("openai"), _) => Ok(EmbedderSettings::OpenAi(endpoint(source)?)),
        (None, _) if source.text("OPENAI_API_KEY").is_some() => {
            Ok(EmbedderSettings::OpenAi(endpoint(source)?))
        }
        (Some("local") | None, Some(dir)) => {
            let hub = hub.filter(|_| local::find(dir).is_none());
            let fetch = hub.map(|name| source.set("EMBEDDING_HUB_URL").map(|url| (url, name))).transpose()?;
            Ok(EmbedderSettings::Local { dir: dir.clone(), fetch })
        }
        (Some("local"), None) => bail!(
            "EMBEDDER=local: there is no model in {MODEL_FOLDER}; set EMBEDDING_MODEL_DIR or EMBEDDING_HUB_MODEL, or get \
             one with: make model"
        ),
        _ => Ok(EmbedderSettings::Hash {
            dimensions: source.maybe("EMBEDDING_DIMENSIONS")?.unwrap_or(HASH_DIMENSIONS),
        }),
    }
}

fn alternatives(source: &Source) -> anyhow::Result<Alternatives> {
    // The default of the URL is no leave to send texts there.
    let is_named =
        ["OPENAI_API_KEY", "EMBEDDING_URL"].iter().any(|name| source.origin(name) != Origin::Default);
    Ok(Alternatives {
        endpoint: is_named.then(|| endpoint(source)).transpose()?,
        model_dir: match source.maybe("EMBEDDING_MODEL_DIR")?.or_else(model_folder) {
            Some(dir) => Some(dir),
            None => source.maybe("EMBEDDING_HUB_MODEL")?.map(|name| fetched(source, &name)).transpose()?,
        },
    })
}

/// Where a model is fetched to when no folder is named: into the data folder.
fn fetched(source: &Source, name: &HubName) -> anyhow::Result<PathBuf> {
    let settings =
        EmbeddedSettings { data_dir: source.maybe("MEMSER_DATA_DIR")?, ..EmbeddedSettings::default() };
    Ok(settings.resolve_data_dir()?.join("models").join(name.folder()))
}

fn endpoint(source: &Source) -> anyhow::Result<OpenAiSettings> {
    let (url, model): (String, String) = (source.set("EMBEDDING_URL")?, source.set("EMBEDDING_MODEL")?);
    let mut settings = OpenAiSettings::new(url, model);
    settings.dimensions = source.maybe("EMBEDDING_DIMENSIONS")?;
    settings.max_text_bytes = source.set("EMBEDDING_MAX_TEXT_BYTES")?;
    settings.key = source.text("OPENAI_API_KEY").map(SecretString::from);
    Ok(settings)
}

fn decisions(source: &Source) -> anyhow::Result<Decisions> {
    let llm_judges = source.text("JUDGE") == Some("llm");
    let llm_summarises = summarises(source);
    Ok(Decisions {
        max_content_bytes: source.set("MEMSER_MAX_CONTENT_BYTES")?,
        quota: Quota {
            memories: source.maybe("MEMSER_MAX_MEMORIES_PER_SCOPE")?,
            bytes: source.maybe("MEMSER_MAX_BYTES_PER_SCOPE")?,
        },
        max_scopes_per_token: source.set("MEMSER_MAX_SCOPES_PER_TOKEN")?,
        secret_policy: match source.text("SECRET_POLICY") {
            Some("allow") => SecretPolicy::Allow,
            Some("refuse") => SecretPolicy::Refuse,
            _ => SecretPolicy::Redact,
        },
        duplicate_threshold: source.maybe("DUPLICATE_THRESHOLD")?,
        conflict_threshold: source.maybe("CONFLICT_THRESHOLD")?,
        conflict_rule: match source.text("CONFLICT_RULE") {
            Some("similarity") => ConflictRule::Similarity,
            _ => ConflictRule::Guarded,
        },
        conflict_policy: match source.text("CONFLICT_POLICY") {
            Some("flag") => ConflictPolicy::Flag,
            Some("keep_both") => ConflictPolicy::KeepBoth,
            _ => ConflictPolicy::NewestWins,
        },
        llm: if llm_judges || llm_summarises { Some(llm(source)?) } else { None },
        llm_judges,
        llm_summarises,
        llm_max_tokens: source.set("LLM_MAX_TOKENS")?,
        weights: PartialWeights {
            vector: source.maybe("WEIGHT_VECTOR")?,
            lexical: source.maybe("WEIGHT_LEXICAL")?,
            neighbour: source.maybe("WEIGHT_NEIGHBOUR")?,
            subject: source.maybe("WEIGHT_SUBJECT")?,
            recency: source.maybe("WEIGHT_RECENCY")?,
            frequency: source.maybe("WEIGHT_FREQUENCY")?,
            confidence: source.maybe("WEIGHT_CONFIDENCE")?,
        },
        bm25: Bm25 { k1: source.set("BM25_K1")?, b: source.set("BM25_B")? },
        recency_half_life_days: source.set("RECENCY_HALF_LIFE_DAYS")?,
        consolidation_similarity: source.maybe("CONSOLIDATION_SIMILARITY")?,
    })
}

/// Whether a language model writes summaries: where it is told to, or where there is one and nobody says otherwise.
fn summarises(source: &Source) -> bool {
    match source.text("SUMMARIES") {
        Some("llm") => true,
        Some("extractive") => false,
        _ => source.text("LLM_URL").is_some() && source.text("LLM_MODEL").is_some(),
    }
}

/// The language model, where a setting needs it.
fn llm(source: &Source) -> anyhow::Result<ChatSettings> {
    let needed = |name: &str| {
        let value = source.text(name).map(str::to_owned);
        value.with_context(|| {
            format!("JUDGE=llm and SUMMARIES=llm need {name}; set it, or leave these to JUDGE=rules and SUMMARIES=extractive")
        })
    };
    let key = source.text("LLM_API_KEY").or_else(|| source.text("OPENAI_API_KEY"));
    Ok(ChatSettings {
        base_url: needed("LLM_URL")?,
        model: needed("LLM_MODEL")?,
        key: key.map(SecretString::from),
        timeout: Duration::from_secs(source.set("LLM_TIMEOUT_SECONDS")?),
    })
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

/// Wide enough that the features of one memory rarely meet in a bucket; 4 KiB a vector.
const HASH_DIMENSIONS: usize = 1_024;

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

fn checked_token(token: &str) -> anyhow::Result<SecretString> {
    if token.len() < 16 || token.chars().any(|c| !c.is_ascii_graphic()) {
        bail!(
            "MEMSER_TOKEN is shorter than 16 characters or has one that no header carries; try: openssl rand -hex 32"
        );
    }
    Ok(SecretString::from(token))
}

#[cfg(test)]
mod tests;

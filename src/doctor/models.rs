//! The models that memser asks: whether each of them answers.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Finding, failure, warning, well};
use crate::clock::Clock;
use crate::config::{Config, EmbedderSettings};
use crate::provider::chat::{Chat, ChatError, ChatSettings, Message, Role};
use crate::provider::embed::{EmbedError, Embedder};
use crate::provider::local::{Local, LocalSettings, find};
use crate::provider::openai::OpenAi;

/// What the language model is to answer.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Ready {
    #[expect(dead_code, reason = "that it comes is all there is to know")]
    ready: bool,
}

pub(super) async fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = vec![examine_embedder(&config.embedder).await];
    if let Some(settings) = &config.decisions.llm {
        findings.push(examine_llm(settings).await);
    }
    findings
}

async fn examine_embedder(settings: &EmbedderSettings) -> Finding {
    let embedder = match settings {
        EmbedderSettings::Hash { .. } => {
            return well(
                "embedder: feature hashing, which knows words and not what they mean (make model gets one that does)"
                    .to_owned(),
            );
        }
        EmbedderSettings::Local { dir, fetch: Some((hub, name)) } if find(dir).is_none() => {
            return warning(format!(
                "embedder: the next start fetches {name} from {hub} into {}",
                dir.display()
            ));
        }
        EmbedderSettings::Local { dir, .. } => {
            Local::start(&LocalSettings::new(dir)).map(|local| Embedder::local(local, 0))
        }
        EmbedderSettings::OpenAi(settings) => {
            OpenAi::new(settings, Clock::System).map(|openai| Embedder::openai(openai, 0))
        }
    };
    match embedder {
        Ok(embedder) => judge_embedder(embedder.model(), embedder.check().await.err().as_ref()),
        Err(error) => failure(format!("embedder: {error}. {}", error.hint())),
    }
}

fn judge_embedder(model: &str, fault: Option<&EmbedError>) -> Finding {
    let Some(fault) = fault else {
        return well(format!("embedder: {model} answers"));
    };
    warning(format!(
        "embedder: {fault}: check EMBEDDING_URL, EMBEDDING_MODEL, EMBEDDING_DIMENSIONS and OPENAI_API_KEY; until then \
         memories wait for their vectors and recall goes by words"
    ))
}

async fn examine_llm(settings: &ChatSettings) -> Finding {
    match Chat::new(settings, Clock::System) {
        Ok(llm) => judge_llm(llm.model(), ask(&llm).await.err().as_ref()),
        Err(error) => failure(format!("llm: {error}. {}", error.hint())),
    }
}

async fn ask(llm: &Chat) -> std::result::Result<Ready, ChatError> {
    let message =
        Message { role: Role::User, content: "Say that you are ready: {\"ready\": true}".to_owned() };
    llm.ask("ready", &[message], None).await
}

fn judge_llm(model: &str, fault: Option<&ChatError>) -> Finding {
    let Some(fault) = fault else {
        return well(format!("llm: {model} answers"));
    };
    warning(format!(
        "llm: {fault}: check LLM_URL, LLM_MODEL and LLM_API_KEY; until then rules judge, and clusters wait for their \
         summaries"
    ))
}

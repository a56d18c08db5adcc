//! Prompts: what a person can start from a menu instead of explaining it.

use rmcp::ErrorData as McpError;
use rmcp::model::{
    CompleteRequestParams, CompleteResult, CompletionInfo, GetPromptResult, JsonObject, Prompt,
    PromptArgument, PromptMessage, Reference, Role,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::resources::TEMPLATE;
use super::{protocol_error, text};
use crate::api::{ConflictsArgs, RecallArgs, ScopesArgs};
use crate::args::{self, schema};
use crate::auth::Caller;
use crate::engine::Engine;
use crate::model::Action;

/// Conflicts shown at once.
const CONFLICTS_SHOWN: u32 = 20;

/// A prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PromptName {
    RecallContext,
    SaveSession,
    ReviewConflicts,
}

/// Arguments of `recall_context`.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["topic"]))]
struct RecallContext {
    /// What the conversation will be about.
    topic: String,
    /// Whose memories. May be left out by a token that is granted exactly one scope.
    #[schemars(with = "String")]
    scope: Option<String>,
}

/// Arguments of `save_session` and `review_conflicts`.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct InScope {
    /// Whose memories. May be left out by a token that is granted exactly one scope.
    #[schemars(with = "String")]
    scope: Option<String>,
}

impl PromptName {
    const ALL: [Self; 3] = [Self::RecallContext, Self::SaveSession, Self::ReviewConflicts];

    const fn as_str(self) -> &'static str {
        match self {
            Self::RecallContext => "recall_context",
            Self::SaveSession => "save_session",
            Self::ReviewConflicts => "review_conflicts",
        }
    }

    const fn needs(self) -> Action {
        match self {
            Self::RecallContext => Action::Read,
            Self::SaveSession => Action::Write,
            Self::ReviewConflicts => Action::Review,
        }
    }

    fn define(self) -> Prompt {
        let (title, description, arguments) = match self {
            Self::RecallContext => (
                "Recall what is known",
                "Put what memory holds about a topic into the conversation.",
                arguments_of::<RecallContext>(),
            ),
            Self::SaveSession => (
                "Save this session",
                "Store what of this conversation will matter later.",
                arguments_of::<InScope>(),
            ),
            Self::ReviewConflicts => (
                "Review conflicts",
                "Go through memories that contradict each other and decide.",
                arguments_of::<InScope>(),
            ),
        };
        Prompt::new(self.as_str(), Some(description), Some(arguments)).with_title(title)
    }
}

/// The prompts that the caller can use.
pub(super) fn shown_to(caller: &Caller) -> Vec<Prompt> {
    let usable = PromptName::ALL.into_iter().filter(|prompt| caller.may_somewhere(prompt.needs()));
    usable.map(PromptName::define).collect()
}

/// The messages of a prompt.
pub(super) async fn get(
    engine: &Engine,
    caller: &Caller,
    name: &str,
    arguments: JsonObject,
) -> Result<GetPromptResult, McpError> {
    let prompts = PromptName::ALL.into_iter().filter(|prompt| caller.may_somewhere(prompt.needs()));
    let prompt = prompts.into_iter().find(|prompt| prompt.as_str() == name);
    let prompt =
        prompt.ok_or_else(|| McpError::invalid_params("unknown prompt; prompts/list has them", None))?;
    let failed = |error| protocol_error(&error);
    let words = match prompt {
        PromptName::RecallContext => {
            let RecallContext { topic, scope } = read(arguments)?;
            let args = RecallArgs { query: topic.clone(), scope, ..RecallArgs::default() };
            let recalled = engine.recall(caller, args).await.map_err(failed)?;
            format!(
                "I want to talk about {topic:?}. This is what memory holds about it; use it as background, weigh it by its \
                 source and time, and say so where it does not answer.\n\n{}",
                text::recall(&recalled)
            )
        }
        PromptName::SaveSession => {
            let InScope { scope } = read(arguments)?;
            let place = scope.map_or_else(String::new, |scope| format!(" in scope {scope:?}"));
            format!(
                "Go through this conversation and store{place} what will matter later: decisions and their reasons, \
                 preferences, facts about people and projects, outcomes, open questions. Recall first what is known, so \
                 that a change is stored as a new statement of the same thing. One self-contained statement a call of \
                 store_memory, with names and dates spelled out, and with `source` and `occurred_at` where known. No \
                 secrets, no small talk. Then list what you stored, and what superseded or contradicted something."
            )
        }
        PromptName::ReviewConflicts => {
            let InScope { scope } = read(arguments)?;
            let args = ConflictsArgs { scope, limit: Some(CONFLICTS_SHOWN), ..ConflictsArgs::default() };
            let listed = engine.conflicts(caller, args).await.map_err(failed)?;
            format!(
                "These memories contradict each other. For each pair, tell me which one you would keep and why, ask where \
                 it is not clear, and call resolve_conflict only with what I agree to.\n\n{}",
                text::conflicts(&listed)
            )
        }
    };
    let message = PromptMessage::new_text(Role::User, words);
    Ok(GetPromptResult::new(vec![message]))
}

/// Completes `scope`, the one argument with known values: from the scopes that the caller may read.
pub(super) async fn complete(
    engine: &Engine,
    caller: &Caller,
    request: &CompleteRequestParams,
) -> Result<CompleteResult, McpError> {
    match &request.r#ref {
        Reference::Prompt(prompt) if PromptName::ALL.iter().any(|known| known.as_str() == prompt.name) => {}
        Reference::Resource(template) if template.uri == TEMPLATE => {}
        _ => return Err(McpError::invalid_params("nothing of that name has arguments to complete", None)),
    }
    if request.argument.name != "scope" {
        return Ok(CompleteResult::default());
    }
    let begun = request.argument.value.as_str();
    let most = u32::try_from(CompletionInfo::MAX_VALUES).ok();
    let args = ScopesArgs { prefix: Some(begun.to_owned()), limit: most, ..ScopesArgs::default() };
    let known = engine.scopes(caller, args).await.map_err(|error| protocol_error(&error))?;
    // One that is granted by name can be named before anything is stored in it.
    let granted =
        caller.grants.iter().filter_map(|grant| grant.exact_scope()).map(|scope| scope.as_str().to_owned());
    let mut values: Vec<String> = known.scopes.into_iter().map(|scope| scope.scope).collect();
    values.extend(granted.filter(|scope| scope.starts_with(begun)));
    values.sort_unstable();
    values.dedup();
    let has_more = known.next_cursor.is_some() || values.len() > CompletionInfo::MAX_VALUES;
    values.truncate(CompletionInfo::MAX_VALUES);
    let completion = CompletionInfo::with_pagination(values, None, has_more)
        .map_err(|message| McpError::internal_error(message, None))?;
    Ok(CompleteResult::new(completion))
}

fn read<T: DeserializeOwned + JsonSchema>(arguments: JsonObject) -> Result<T, McpError> {
    args::parse(arguments).map_err(|error| protocol_error(&error))
}

/// A prompt's arguments, from the schema by which they are read.
fn arguments_of<T: JsonSchema>() -> Vec<PromptArgument> {
    let schema = schema::input::<T>();
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    properties
        .map(|(name, property)| {
            let description = property["description"].as_str().unwrap_or_default();
            PromptArgument::new(name)
                .with_description(description)
                .with_required(required.iter().any(|required| required == name))
        })
        .collect()
}

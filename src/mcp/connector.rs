//! `search` and `fetch`, read-only, for clients that can use no other tools: the connectors and the deep research of
//! `ChatGPT` prescribe these names and shapes.
//!
//! Neither takes a scope. A search looks into every scope that the token may read; the id of a result is the memory's URI,
//! which holds the scope, and whether the caller may read it is asked again when it is fetched.

use serde_json::Value;

use super::resources;
use super::tools::ToolName;
use crate::api::{FetchAnswer, FetchArgs, Found, RecallArgs, RecalledMemory, SearchAnswer, SearchArgs};
use crate::auth::Caller;
use crate::engine::{Engine, check_query};
use crate::error::{Error, Result};

/// The most results of a search.
const RESULTS: u32 = 10;
/// The most scopes that one search looks into, each with a recall of its own.
const SCOPES: u32 = 20;

/// Recalls in every scope that the caller may read, and gives the best of all. A score is made for the order within one
/// recall, whose best is its measure, so that between scopes the order is a rough one.
pub(super) async fn search(engine: &Engine, caller: &Caller, args: SearchArgs) -> Result<SearchAnswer> {
    // Asked here as well, because there may be no scope to recall in.
    check_query(&args.query)
        .inspect_err(|error| engine.deny(caller, ToolName::Search.as_str(), error.code(), None))?;
    let scopes = match caller.sole_scope() {
        Some(sole) => vec![sole.as_str().to_owned()],
        None => engine.readable_scopes(caller, SCOPES + 1).await?,
    };
    if scopes.len() > SCOPES as usize {
        return Err(Error::Conflict {
            message: format!("this token may read more than {SCOPES} scopes, too many for one search"),
            hint: "Use a token that is granted fewer scopes, or recall_memory with a scope.".to_owned(),
        });
    }
    let mut found: Vec<(String, RecalledMemory)> = Vec::new();
    let mut degraded: Vec<String> = Vec::new();
    for scope in scopes {
        let args = RecallArgs {
            query: args.query.clone(),
            scope: Some(scope.clone()),
            k: Some(RESULTS),
            ..RecallArgs::default()
        };
        let answer = Box::pin(engine.recall(caller, args)).await?;
        found.extend(answer.memories.into_iter().map(|memory| (scope.clone(), memory)));
        degraded.extend(answer.degraded);
    }
    degraded.sort_unstable();
    degraded.dedup();
    found.sort_by(|(_, one), (_, other)| other.score.total_cmp(&one.score));
    found.truncate(RESULTS as usize);
    let results = found.into_iter().map(|(scope, RecalledMemory { memory, .. })| {
        let uri = resources::uri_of(&scope, &memory.id.to_string());
        Found { id: uri.clone(), title: resources::title(&memory.content), url: uri }
    });
    Ok(SearchAnswer { results: results.collect(), degraded })
}

/// One memory in full. A foreign memory, an absent one and an id that is none are answered alike.
pub(super) async fn fetch(engine: &Engine, caller: &Caller, args: FetchArgs) -> Result<FetchAnswer> {
    let memory = resources::find(engine, caller, &args.id).await?;
    let Value::Object(mut metadata) =
        serde_json::to_value(&memory).map_err(|error| Error::Internal(error.into()))?
    else {
        return Err(Error::internal("a memory is no object"));
    };
    metadata.remove("id");
    metadata.remove("content");
    Ok(FetchAnswer {
        title: resources::title(&memory.content),
        text: memory.content,
        url: args.id.clone(),
        id: args.id,
        metadata,
    })
}

//! `consolidate_memories`: memories of one thing become one fact; the originals stay as its history.

mod fact;
mod gather;
mod rival;
mod summary;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use self::fact::{Made, Outcome};
use self::gather::Chunk;
use self::summary::{Part, Summary, Writer};
use super::models::Model;
use super::{Call, Engine};
use crate::api::{ClusterView, ConsolidateAnswer, ConsolidateArgs, SkippedCluster};
use crate::auth::Caller;
use crate::db::{ScopeId, Tx, scope};
use crate::error::Result;
use crate::model::{Action, Scope};
use crate::provider::chat::ChatError;

/// Clusters described in an answer.
const DESCRIBED: usize = 100;
/// How long a sweep stays with one scope before it looks at its lock and at the shutdown.
const TURN: Duration = Duration::from_secs(5);
/// How many times as long as a chunk took a sweep rests after it: it takes a fifth of the time, so that even the slowest of
/// twenty recalls hardly meets it (docs/benchmarks.md, "Recall while sweeps run").
const REST_TIMES: u32 = 4;
/// The longest that a sweep rests after a chunk. What a language model took of a chunk's time was no load on the database.
const REST: Duration = Duration::from_secs(1);

/// How far a consolidation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Memories looked at so far.
    pub done: u64,
    /// Memories to look at, as far as was known at the beginning.
    pub total: u64,
    /// Facts made so far.
    pub facts: usize,
}

/// How one goes through a scope.
#[derive(Clone, Copy)]
struct Manner {
    /// Changes nothing.
    is_dry: bool,
    /// When to leave the rest to another call.
    until: Instant,
    /// Nobody waits for it: it rests after each chunk, and leaves the machine to recalls.
    rests: bool,
}

/// One call's way through a scope.
struct Run<'a> {
    call: &'a Call,
    scope: ScopeId,
    model: &'a Model,
    manner: Manner,
    /// What a dry run would have made facts of.
    taken: HashSet<Uuid>,
    answer: ConsolidateAnswer,
    /// Why the language model was no help, where it was not.
    failed: Option<ChatError>,
}

impl Engine {
    /// Brings a scope's memories of the same things together, cluster by cluster, each in one transaction with its audit row.
    /// What was not reached by `until` waits for the next call: the answer says so. Running it again without new memories
    /// changes nothing. `steps` hears how far it is.
    ///
    /// # Errors
    /// `scope_not_granted`, `action_not_granted`, `unavailable`. Clusters finished before an error stay finished.
    pub async fn consolidate(
        &self,
        caller: &Caller,
        args: ConsolidateArgs,
        until: Instant,
        steps: UnboundedSender<Step>,
    ) -> Result<ConsolidateAnswer> {
        let call = self.authorise(
            caller,
            "consolidate_memories",
            Action::Write,
            args.scope.as_deref(),
            args.actor.clone(),
        )?;
        let manner = Manner { is_dry: args.dry_run, until, rests: false };
        let result = Box::pin(self.consolidate_scope(&call, manner, Some(steps))).await;
        self.audit_failure(&call, &result);
        result
    }

    /// The same for a sweep, which no caller asked for: a turn of a few seconds. Where the answer is not `complete`, another
    /// turn goes on.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn consolidate_for_sweep(&self, scope: Scope) -> Result<ConsolidateAnswer> {
        let call = Call {
            subject: "memser".to_owned(),
            request_id: "sweep".to_owned(),
            actor: None,
            tool: "consolidate_memories",
            scope,
            at: self.clock.now(),
        };
        let manner = Manner { is_dry: false, until: Instant::now() + TURN, rests: true };
        Box::pin(self.consolidate_scope(&call, manner, None)).await
    }

    /// Whether the language model works, where one writes summaries: asks it, even while it is left alone.
    pub async fn is_summariser_up(&self) -> bool {
        self.writer().is_served().await
    }

    async fn consolidate_scope(
        &self,
        call: &Call,
        manner: Manner,
        steps: Option<UnboundedSender<Step>>,
    ) -> Result<ConsolidateAnswer> {
        let dry_run = manner.is_dry;
        let Some(scope) = self.scope_id(&call.scope).await? else {
            return Ok(ConsolidateAnswer { dry_run, ..ConsolidateAnswer::default() });
        };
        let model = self.models.current().clone();
        let answer = ConsolidateAnswer { dry_run, ..ConsolidateAnswer::default() };
        let taken = HashSet::new();
        let mut run = Run { call, scope, model: &model, manner, taken, answer, failed: None };
        let total = self.unconsolidated(scope).await?;
        let (mut after, mut done) = (Uuid::nil(), 0);
        loop {
            let started = Instant::now();
            let Some(chunk) = self.next_chunk(scope, &model, after, &run.taken).await? else { break };
            after = chunk.seeds.last().copied().unwrap_or(Uuid::max());
            done += chunk.seeds.len() as u64;
            let went_on = self.consolidate_chunk(&mut run, chunk).await?;
            if let Some(steps) = &steps {
                // Nobody has to listen.
                let _ = steps.send(Step { done, total: total.max(done), facts: run.answer.created.len() });
            }
            if manner.rests {
                tokio::time::sleep((started.elapsed() * REST_TIMES).min(REST)).await;
            }
            if !went_on {
                run.answer.complete = false;
                break;
            }
        }
        let Run { mut answer, failed, .. } = run;
        answer.remaining = self.unconsolidated(scope).await?;
        if !model.embedder.is_up() {
            answer.degraded.push("embedder".to_owned());
        }
        if failed.is_some() {
            answer.degraded.push("llm".to_owned());
        }
        if !self.models.is_whole() {
            answer.degraded.push("embeddings".to_owned());
        }
        let detail = json!({
            "created": answer.created.len(),
            "updated": answer.updated.len(),
            "superseded": answer.superseded.len(),
            "skipped": answer.skipped.len(),
            "remaining": answer.remaining,
            "dry_run": dry_run,
        });
        self.journal.audit(call.audit("ok", None, detail));
        Ok(answer)
    }

    async fn unconsolidated(&self, scope: ScopeId) -> Result<u64> {
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        let todo = scope::unconsolidated(&mut tx, scope).await?;
        tx.commit().await?;
        Ok(todo)
    }

    /// Makes facts of a chunk's groups and notes what was looked at. Answers whether there is time and reason to go on.
    async fn consolidate_chunk(&self, run: &mut Run<'_>, chunk: Chunk) -> Result<bool> {
        let writer = self.writer();
        let mut open: HashSet<Uuid> = HashSet::new();
        let mut made = Vec::new();
        let mut went_on = true;
        for mut part in chunk.parts {
            went_on = went_on && Instant::now() < run.manner.until;
            if !went_on {
                open.extend(part.group.fresh_ids());
                continue;
            }
            part.group.near_facts.extend(made.iter().cloned());
            let done = self.consolidate_part(run, &writer, &part).await?;
            match done {
                Done::Made(fact) => made.extend(fact),
                Done::Open => open.extend(part.group.fresh_ids()),
            }
            went_on = run.failed != Some(ChatError::LeftAlone);
        }
        if !run.manner.is_dry {
            let seen: Vec<Uuid> = chunk.seeds.into_iter().filter(|seed| !open.contains(seed)).collect();
            self.note_looked_at(run.call, run.scope, &seen, &chunk.lone).await?;
        }
        Ok(went_on && Instant::now() < run.manner.until)
    }

    async fn consolidate_part(&self, run: &mut Run<'_>, writer: &Writer<'_>, part: &Part) -> Result<Done> {
        let group = &part.group;
        let members = group.fresh_ids();
        let (text, by, note) = match writer.write(part).await {
            Summary::Made { text, by, note } => (text, by, note),
            Summary::Failed(error) => {
                if run.failed.is_none() {
                    tracing::warn!(error = %error, "the LLM failed; memories wait for their summaries");
                }
                run.failed = Some(error);
                run.skip(members, format!("{error}; the memories stay as they are"));
                return Ok(Done::Open);
            }
        };
        let mut view = ClusterView {
            members: members.clone(),
            updates: group.fact.as_ref().map(|fact| fact.id),
            summary: text,
            summary_by: by.to_owned(),
            note: note.map(str::to_owned),
            id: None,
        };
        if run.manner.is_dry {
            run.taken.extend(members);
            run.describe(view);
            return Ok(Done::Made(None));
        }
        match self.derive(run.call, run.scope, run.model, group, &view.summary).await? {
            Outcome::Done { made, superseded } => {
                run.answer.superseded.extend(superseded);
                let fact = match made {
                    Made::New(fact) => {
                        view.id = Some(fact.id);
                        run.answer.created.push(fact.id);
                        Some(fact)
                    }
                    Made::Joined(id) => {
                        view.id = Some(id);
                        run.answer.updated.push(id);
                        None
                    }
                };
                run.describe(view);
                Ok(Done::Made(fact))
            }
            Outcome::Changed => {
                run.skip(members, "a member changed meanwhile; the next run looks again".to_owned());
                Ok(Done::Open)
            }
            Outcome::Said => {
                run.skip(members, "another memory that stays has the same text".to_owned());
                Ok(Done::Made(None))
            }
        }
    }

    fn writer(&self) -> Writer<'_> {
        let (chat, max_tokens) = (self.settings.summariser.as_deref(), self.settings.llm_max_tokens);
        Writer { chat, max_tokens }
    }
}

/// What became of a group.
enum Done {
    /// It was dealt with, and this fact is new.
    Made(Option<crate::db::consolidation::Member>),
    /// It waits for another run.
    Open,
}

impl Run<'_> {
    fn describe(&mut self, cluster: ClusterView) {
        if self.answer.clusters.len() < DESCRIBED {
            self.answer.clusters.push(cluster);
        }
    }

    fn skip(&mut self, members: Vec<Uuid>, reason: String) {
        if self.answer.skipped.len() < DESCRIBED {
            self.answer.skipped.push(SkippedCluster { members, reason });
        }
    }
}

//! `recall_memory`: SQL picks candidates by words and by meaning, `score` ranks them.

mod lend;

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use serde_json::json;
use uuid::Uuid;

use self::lend::{Lending, lend_to_facts};
use super::models::Model;
use super::score::{Bm25, Candidate, Posting, Scored, Weights, collapse_near_identical, idf, is_about, rank};
use super::{Call, Engine, view, view_of};
use crate::api::{MemoryView, RecallAnswer, RecallArgs, RecalledMemory, WhyParts};
use crate::auth::Caller;
use crate::db::memory::{StoredMemory, fetch_related};
use crate::db::recall::{Asked, Filter, Hit, ScopeSize, by_meaning, by_words};
use crate::db::{ScopeId, Tx};
use crate::error::{Error, Result, with_causes};
use crate::model::{Action, Memory, TagsMatch, Tier, check_label, check_tags, check_time};
use crate::text;
use crate::working::Working;

/// Candidates of each arm: twenty lose nothing at k <= 20, fifty are exact (measured on LoCoMo).
const POOL: i64 = 50;
/// Memories returned when the call does not say.
const DEFAULT_K: u32 = 10;
/// The most memories of one answer.
const MAX_K: u32 = 100;

/// The longest query, in bytes: whole documents are asked with. By default a request may not even be that long.
const QUERY_MAX_BYTES: usize = 1024 * 1024;

/// A checked request.
struct Question {
    query: String,
    /// What it asks for, each with its spellings.
    words: Vec<Vec<String>>,
    k: usize,
    filter: Filter,
    tiers: Vec<Tier>,
    min_score: f32,
    max_chars: Option<usize>,
}

impl Question {
    /// Whether a memory counts: the same conditions that SQL applies, for the arms that SQL does not see. A fact is of the
    /// sources and times of its originals, too.
    fn admits(&self, memory: &Memory, lending: &Lending) -> bool {
        let filter = &self.filter;
        let valid = match filter.as_of {
            Some(at) => memory.valid_from <= at && memory.valid_to.is_none_or(|end| at < end),
            None => filter.superseded || memory.valid_to.is_none(),
        };
        valid
            && memory.carries(&filter.tags, filter.any_tag)
            && (self.tiers.is_empty() || self.tiers.contains(&memory.tier))
            && (self.asks_for(memory) || lending.is_asked_for(memory.id))
    }

    /// Whether a memory is of the source and of the time that is asked for.
    fn asks_for(&self, memory: &Memory) -> bool {
        let filter = &self.filter;
        let happened = memory.occurred_at.unwrap_or(memory.created_at);
        filter.source.as_ref().is_none_or(|source| memory.source.as_ref() == Some(source))
            && filter.occurred_after.is_none_or(|after| happened >= after)
            && filter.occurred_before.is_none_or(|before| happened < before)
    }

    fn wants(&self, tier: Tier) -> bool {
        self.tiers.is_empty() || self.tiers.contains(&tier)
    }
}

/// The raw signals of one candidate.
#[derive(Clone, Copy, Default)]
struct Signals {
    vector: Option<f32>,
    lexical: Option<f32>,
}

impl Signals {
    fn raise(&mut self, other: Self) {
        let stronger = |a: Option<f32>, b: Option<f32>| a.into_iter().chain(b).reduce(f32::max);
        self.vector = stronger(self.vector, other.vector);
        self.lexical = stronger(self.lexical, other.lexical);
    }
}

/// Everything that may be an answer.
#[derive(Default)]
struct Pool {
    signals: HashMap<Uuid, Signals>,
    durable: HashMap<Uuid, StoredMemory>,
    working: HashMap<Uuid, Memory>,
    lending: Lending,
}

impl Engine {
    /// Finds memories, best first.
    ///
    /// # Errors
    /// `scope_not_granted`, `action_not_granted`; `invalid_argument` with the field; `unavailable` when the database
    /// is down. Other parts that are down are named in `degraded`.
    pub async fn recall(&self, caller: &Caller, args: RecallArgs) -> Result<RecallAnswer> {
        let call =
            self.authorise(caller, "recall_memory", Action::Read, args.scope.as_deref(), args.actor.clone())?;
        let result = async { self.answer(&call, &check_recall(args)?).await }.await;
        match &result {
            Ok(answer) => {
                self.metrics.degraded(&answer.degraded);
                let detail = json!({ "returned": answer.memories.len(), "degraded": answer.degraded });
                self.journal.audit(call.audit("ok", None, detail));
            }
            Err(_) => self.audit_failure(&call, &result),
        }
        result
    }

    async fn answer(&self, call: &Call, question: &Question) -> Result<RecallAnswer> {
        let mut degraded = Vec::new();
        let Some(scope) = self.scope_id(&call.scope).await? else {
            return Ok(RecallAnswer { memories: Vec::new(), degraded, left_out: None });
        };
        // Where they are in the database, the statement for the words reads them as well.
        let working = if question.wants(Tier::Working) && !self.working.is_in_database() {
            self.working.list(scope, call.at).await.unwrap_or_else(|error| {
                tracing::warn!(error = with_causes(&error), "the working tier failed; recalling without it");
                degraded.push("working".to_owned());
                Vec::new()
            })
        } else {
            Vec::new()
        };
        let durable = question.wants(Tier::Episodic) || question.wants(Tier::Semantic);
        let (model, pool) = loop {
            let model = self.models.current().clone();
            let vector = if durable { model.embed(&question.query).await } else { None };
            // None where the model changed meanwhile: then the question needs a vector of the new one.
            if let Some(pool) =
                self.gather(scope, call.at, question, &model, vector.as_deref(), &working).await?
            {
                if durable && vector.is_none() {
                    degraded.push("embedder".to_owned());
                }
                break (model, pool);
            }
        };
        if durable && !self.models.is_whole() {
            degraded.push("embeddings".to_owned());
        }
        let ranked = self.rank(&pool, &question.words, &model.tuning.weights, call.at);
        let answer = choose(question, pool, &ranked, degraded);
        let recalled = answer.memories.iter().filter(|hit| hit.memory.tier != Tier::Working);
        self.journal.recalled(scope, recalled.map(|hit| hit.memory.id).collect(), call.at);
        Ok(answer)
    }

    /// Collects the candidates of every arm, their neighbours, and the facts that originals speak for. `None` where the
    /// vector is not of the space that turns out to be the one to look in.
    async fn gather(
        &self,
        scope: ScopeId,
        now: DateTime<Utc>,
        question: &Question,
        model: &Model,
        vector: Option<&[f32]>,
        working: &[Memory],
    ) -> Result<Option<Pool>> {
        let limit = POOL.max(i64::try_from(question.k).unwrap_or(POOL));
        let (terms, numbers) = numbered(&question.words);
        let asked =
            Asked { terms: &terms, words: &numbers, k1: self.settings.bm25.k1, b: self.settings.bm25.b };
        let durable = question.wants(Tier::Episodic) || question.wants(Tier::Semantic);
        let mut pool = Pool::default();
        let mut tx = Tx::for_recall(&self.db, scope).await?;
        let alive_at = (question.wants(Tier::Working) && self.working.is_in_database()).then_some(now);
        let found =
            by_words(&mut tx, scope, asked, alive_at, &question.filter, if durable { limit } else { 0 })
                .await?;
        self.models.note_active(found.active);
        if vector.is_some() && self.models.current().space != model.space {
            return Ok(None);
        }
        if durable {
            let near = match vector {
                Some(vector) => {
                    by_meaning(&mut tx, scope, model.space, vector, found.size, &question.filter, limit)
                        .await?
                }
                None => Vec::new(),
            };
            for Hit { id, score } in found.hits {
                pool.signals.entry(id).or_default().lexical = Some(score);
            }
            for Hit { id, score } in near {
                pool.signals.entry(id).or_default().vector = Some(score);
            }
            let ids: Vec<Uuid> = pool.signals.keys().copied().collect();
            lend_to_facts(&mut pool, fetch_related(&mut tx, scope, &ids).await?, question);
        }
        tx.commit().await?;
        let beside = Working::read(found.working)?;
        score_working(
            &mut pool,
            if alive_at.is_some() { &beside } else { working },
            &question.words,
            &found.frequencies,
            found.size,
            self.settings.bm25,
        );
        let Pool { durable, working, lending, .. } = &mut pool;
        durable.retain(|_, stored| question.admits(&stored.memory, lending));
        working.retain(|_, memory| question.admits(memory, lending));
        Ok(Some(pool))
    }

    fn rank(&self, pool: &Pool, words: &[Vec<String>], weights: &Weights, now: DateTime<Utc>) -> Vec<Scored> {
        let age_days = |at: DateTime<Utc>| (now - at).as_seconds_f64().max(0.0) / 86_400.0;
        let durable = pool.durable.values().map(|stored| {
            let signals = pool.signals.get(&stored.memory.id).copied().unwrap_or_default();
            Candidate {
                id: stored.memory.id,
                vector: signals.vector,
                lexical: signals.lexical,
                beside: pool.lending.beside(stored),
                is_about: is_about(&stored.memory.content, words) || pool.lending.is_about(stored.memory.id),
                age_days: age_days(stored.memory.occurred_at.unwrap_or(stored.memory.created_at)),
                access_count: stored.access_count,
                confidence: stored.memory.confidence,
            }
        });
        let working = pool.working.values().map(|memory| {
            let signals = pool.signals.get(&memory.id).copied().unwrap_or_default();
            Candidate {
                id: memory.id,
                vector: signals.vector,
                lexical: signals.lexical,
                beside: Vec::new(),
                is_about: is_about(&memory.content, words),
                age_days: age_days(memory.occurred_at.unwrap_or(memory.created_at)),
                access_count: 0,
                confidence: memory.confidence,
            }
        });
        let candidates: Vec<Candidate> = durable.chain(working).collect();
        rank(&candidates, weights, self.settings.recency_half_life_days)
    }
}

/// Whether something can be looked for.
///
/// # Errors
/// `invalid_argument`.
pub fn check_query(query: &str) -> Result<()> {
    if query.trim().is_empty() {
        return Err(Error::invalid(
            "query",
            "query is empty",
            "Say what to look for; list_memories lists everything.",
        ));
    }
    if query.len() > QUERY_MAX_BYTES {
        return Err(Error::LimitExceeded {
            field: Some("query".to_owned()),
            message: format!("query has {} bytes; the limit is {QUERY_MAX_BYTES}", query.len()),
        });
    }
    if query.contains('\0') {
        return Err(Error::invalid("query", "query has a NUL character", "Send plain text."));
    }
    Ok(())
}

fn check_recall(args: RecallArgs) -> Result<Question> {
    check_query(&args.query)?;
    let k = args.k.unwrap_or(DEFAULT_K);
    if !(1..=MAX_K).contains(&k) {
        return Err(Error::invalid("k", format!("k is {k}"), "From 1 to 100."));
    }
    let min_score = args.min_score.unwrap_or(0.0);
    if !(0.0..=1.0).contains(&min_score) {
        return Err(Error::invalid("min_score", "min_score is out of range", "From 0 to 1."));
    }
    if args.max_chars == Some(0) {
        return Err(Error::invalid("max_chars", "max_chars is 0", "At least 1."));
    }
    // Each once, however often it is named.
    let tiers: Vec<Tier> = Tier::ALL.into_iter().filter(|tier| args.tiers.contains(tier)).collect();
    let durable = tiers.iter().filter(|tier| **tier != Tier::Working);
    let time = |field, at: Option<DateTime<Utc>>| at.map(|at| check_time(field, at)).transpose();
    Ok(Question {
        filter: Filter {
            tags: check_tags(args.tags)?,
            any_tag: args.tags_match == Some(TagsMatch::Any),
            source: check_label("source", args.source)?,
            tiers: durable.map(|tier| tier.as_str().to_owned()).collect(),
            occurred_after: time("occurred_after", args.occurred_after)?,
            occurred_before: time("occurred_before", args.occurred_before)?,
            as_of: time("as_of", args.as_of)?,
            superseded: args.include_superseded,
            originals: true,
        },
        words: text::query_words(&args.query),
        query: args.query,
        k: k as usize,
        tiers,
        min_score,
        max_chars: args.max_chars.map(|chars| chars as usize),
    })
}

/// Spellings side by side with the number of their word.
fn numbered(words: &[Vec<String>]) -> (Vec<String>, Vec<i32>) {
    let numbered = words
        .iter()
        .zip(0..)
        .flat_map(|(spellings, number)| spellings.iter().map(move |spelling| (spelling.clone(), number)));
    numbered.unzip()
}

/// Working memories have no postings: their words are weighed by the frequencies of the scope's durable memories.
fn score_working(
    pool: &mut Pool,
    working: &[Memory],
    words: &[Vec<String>],
    frequencies: &[(i32, i64)],
    size: ScopeSize,
    bm25: Bm25,
) {
    let documents = u64::try_from(size.memories).unwrap_or(0) + working.len() as u64;
    let frequency = |word: i32| frequencies.iter().find(|(known, _)| *known == word).map_or(0, |(_, df)| *df);
    #[expect(clippy::cast_possible_truncation, reason = "an average length is far below 2^24")]
    let average = size.average_tokens as f32;
    for memory in working {
        let analysis = text::analyse(&memory.content);
        let postings = words.iter().zip(0..).filter_map(|(spellings, word)| {
            let tf =
                analysis.terms.iter().filter(|(term, _)| spellings.contains(term)).map(|(_, tf)| tf).sum();
            let df = u64::try_from(frequency(word)).unwrap_or(0);
            (tf > 0).then(|| Posting { tf, idf: idf(documents, df) })
        });
        let score = bm25.score(postings, analysis.tokens, average);
        if score > 0.0 {
            pool.signals.entry(memory.id).or_default().lexical = Some(score);
            pool.working.insert(memory.id, memory.clone());
        }
    }
}

/// Takes the best of the ranking within the caller's limits.
fn choose(question: &Question, mut pool: Pool, ranked: &[Scored], degraded: Vec<String>) -> RecallAnswer {
    let enough = ranked.iter().filter(|scored| scored.score >= question.min_score);
    let texts = enough.clone().filter_map(|scored| {
        let durable = pool.durable.get(&scored.id).map(|stored| &stored.memory);
        durable.or_else(|| pool.working.get(&scored.id)).map(|memory| (scored.id, memory.content.as_str()))
    });
    // Only as many as could be returned are compared with each other: two of three may be near-identical.
    let kept: HashSet<Uuid> =
        collapse_near_identical(texts.take(question.k.saturating_mul(3))).into_iter().collect();
    let chosen: Vec<Scored> =
        enough.filter(|scored| kept.contains(&scored.id)).take(question.k).copied().collect();
    let (found, mut room) = (chosen.len(), question.max_chars.unwrap_or(usize::MAX));
    let mut memories = Vec::with_capacity(found);
    for scored in chosen {
        let Some(memory) = take_view(&mut pool, scored.id) else {
            continue;
        };
        let Some(left) = room.checked_sub(memory.content.chars().count()) else {
            break;
        };
        room = left;
        memories.push(RecalledMemory {
            memory,
            score: scored.score,
            why: WhyParts {
                vector: scored.why.vector,
                lexical: scored.why.lexical,
                neighbour: scored.why.neighbour,
                subject: scored.why.subject,
                recency: scored.why.recency,
                frequency: scored.why.frequency,
                confidence: scored.why.confidence,
            },
        });
    }
    let left_out = u32::try_from(found - memories.len()).ok().filter(|left_out| *left_out > 0);
    RecallAnswer { memories, degraded, left_out }
}

fn take_view(pool: &mut Pool, id: Uuid) -> Option<MemoryView> {
    pool.durable.remove(&id).map(view).or_else(|| pool.working.remove(&id).map(view_of))
}

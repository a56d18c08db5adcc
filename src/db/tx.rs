//! The only way into a scoped table: a transaction that says which scope it may see.

use sqlx::{AssertSqlSafe, PgConnection, Postgres, Transaction};
use tracing::{Span, debug_span};
use uuid::Uuid;

use super::change::Changes;
use super::{Db, Pooler, ScopeId};
use crate::error::Result;

/// Has Postgres plan every further execution for its values: the plan that it would keep knows neither how large the scope
/// is nor which filters are in use, and was seen to join memories by a full scan.
pub(super) const PLAN_FOR_VALUES: &str =
    "set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_seqscan', 'on', true)";

/// Has Postgres keep one plan, made of lookups in indexes also while a table is still empty. For statements that leave no
/// other choice for values to make.
const KEEP_PLAN: &str =
    "set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true)";

/// A transaction behind the second wall. Rolled back unless committed.
#[derive(Debug)]
pub struct Tx {
    transaction: Transaction<'static, Postgres>,
    changes: Changes,
    db: Db,
    /// From the wait for a connection to the end.
    span: Span,
}

impl Tx {
    /// Sees one scope: whatever a statement forgets to filter, other scopes stay invisible and unwritable.
    ///
    /// # Errors
    /// `unavailable` when no connection is to be had.
    pub async fn for_scope(db: &Db, scope: ScopeId) -> Result<Self> {
        Self::open(db, &scope.0.to_string(), PLAN_FOR_VALUES).await
    }

    /// As [`for_scope`](Self::for_scope), but its first statement is to be [`by_words`](super::recall::by_words), whose
    /// plan is kept from one recall to the next. Planning it takes as long as running it does in a small scope.
    ///
    /// # Errors
    /// `unavailable` when no connection is to be had.
    pub async fn for_recall(db: &Db, scope: ScopeId) -> Result<Self> {
        Self::open(db, &scope.0.to_string(), KEEP_PLAN).await
    }

    /// Sees every scope: for jobs, for administration, and for finding a scope's id by its name.
    ///
    /// # Errors
    /// `unavailable` when no connection is to be had.
    pub async fn all_scopes(db: &Db) -> Result<Self> {
        Self::open(db, "*", PLAN_FOR_VALUES).await
    }

    /// Sees every scope as it is at the first statement, for as long as the transaction lasts, and writes nothing.
    ///
    /// # Errors
    /// `unavailable` when no connection is to be had.
    pub async fn snapshot(db: &Db) -> Result<Self> {
        Self::open_as(db, "isolation level repeatable read read only", "*", PLAN_FOR_VALUES).await
    }

    /// Sees no scope: for tables that belong to none.
    ///
    /// # Errors
    /// `unavailable` when no connection is to be had.
    pub async fn of_no_scope(db: &Db) -> Result<Self> {
        Self::open(db, "", PLAN_FOR_VALUES).await
    }

    /// Begin and settings travel together. `seen` is a number, `*` or nothing, so that it needs no quoting.
    ///
    /// Vector indexes are scanned on until enough rows pass the filter, in an order that is only nearly right: a strict
    /// one leaves out what turns up later than something farther away. Postgres takes these settings before it loads the
    /// extension, too.
    ///
    /// Behind a pooler of transactions, the session may have prepared statements of another client under the names that
    /// this one is about to give.
    async fn open(db: &Db, seen: &str, planning: &str) -> Result<Self> {
        Self::open_as(db, "", seen, planning).await
    }

    /// [`open`](Self::open) with a mode of transactions, as `begin` takes it.
    async fn open_as(db: &Db, mode: &str, seen: &str, planning: &str) -> Result<Self> {
        let clear = match db.pooler {
            Pooler::None => "",
            Pooler::Transaction => "deallocate all;",
        };
        let begin = format!(
            "begin {mode}; {clear} select set_config('memser.scope_id', '{seen}', true), \
                           {planning}, \
                           set_config('hnsw.iterative_scan', 'relaxed_order', true), \
                           set_config('hnsw.ef_search', '100', true)"
        );
        let span = span();
        let transaction = db.pool.begin_with(AssertSqlSafe(begin)).await?;
        Ok(Self { transaction, changes: Changes::default(), db: db.clone(), span })
    }

    /// From here on sees `scope` alone.
    ///
    /// # Errors
    /// When the connection is lost.
    pub async fn narrow_to(&mut self, scope: ScopeId) -> Result<()> {
        sqlx::query!("select set_config('memser.scope_id', $1, true)", scope.0.to_string())
            .fetch_one(self.conn())
            .await?;
        Ok(())
    }

    /// Waits for the scope's lock, which is held until the end of the transaction: of all transactions that judge and
    /// change a scope, one at a time.
    ///
    /// # Errors
    /// When the connection is lost.
    pub async fn lock_scope(&mut self, scope: ScopeId) -> Result<()> {
        sqlx::query!("select pg_advisory_xact_lock($1)", scope.0).fetch_one(self.conn()).await?;
        Ok(())
    }

    /// The connection, for one statement.
    pub fn conn(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }

    /// Notes that memories come into use or go out of it, for those who are told after the commit.
    pub(super) fn listed(&mut self, scope: ScopeId, ids: &[Uuid]) {
        self.changes.note(scope, true, ids);
    }

    /// Notes that memories are changed and stay in use, or out of it.
    pub(super) fn changed(&mut self, scope: ScopeId, ids: &[Uuid]) {
        self.changes.note(scope, false, ids);
    }

    /// Makes everything durable, and lets every replica know soon what changed.
    ///
    /// # Errors
    /// When the commit fails; nothing is kept then.
    pub async fn commit(self) -> Result<()> {
        if self.changes.is_empty() {
            self.transaction.commit().await?;
        } else {
            self.db.commit(self.transaction, self.changes).await?;
        }
        self.span.record("committed", true);
        Ok(())
    }
}

/// A transaction within somebody's work. One that is nobody's, such as the journal's every second, is no trace of its own.
fn span() -> Span {
    if Span::current().is_none() {
        return Span::none();
    }
    debug_span!("transaction", otel.kind = "client", db.system.name = "postgresql", committed = false)
}

//! Everything that is stored, as lines of a file.

use anyhow::Context;
use serde_json::json;
use uuid::Uuid;

use super::Engine;
use crate::auth::Grant;
use crate::db::audit::AuditRow;
use crate::db::export::{self, Listed};
use crate::db::{ScopeId, Tx};
use crate::error::Result;
use crate::model::Scope;
use crate::port::line::{Counts, FORMAT, Header, Line, ScopeLine, VERSION, WorkingLine};

/// Rows of one page: with the longest contents some dozen megabytes.
const PAGE: i64 = 500;

/// Takes a line.
pub type Write<'a> = dyn FnMut(&Line) -> std::io::Result<()> + Send + 'a;

impl Engine {
    /// Writes every scope that one of the patterns covers, from the header to the counts. What is durable is that of one
    /// moment; working memories are those of the moment at which their scope comes. Each scope is noted in the audit log.
    ///
    /// # Errors
    /// When the database, the working tier or the file fails.
    pub async fn export(&self, patterns: &[Grant], write: &mut Write<'_>) -> anyhow::Result<Counts> {
        let (exact, prefixes): (Vec<&Grant>, Vec<&Grant>) =
            patterns.iter().partition(|pattern| pattern.exact_scope().is_some());
        let names =
            |of: Vec<&Grant>| of.iter().map(|pattern| pattern.prefix().to_owned()).collect::<Vec<_>>();
        let (exact, prefixes) = (names(exact), names(prefixes));
        let mut file = File { write, counts: Counts::default() };
        let mut tx = Tx::snapshot(&self.db).await?;
        let mut last = String::new();
        let header = Header { format: FORMAT.to_owned(), version: VERSION, exported_at: self.clock.now() };
        file.put(&Line::Header(header))?;
        loop {
            let scopes = export::scopes(&mut tx, &exact, &prefixes, &last, PAGE).await?;
            let Some(end) = scopes.last() else { break };
            end.name.clone_into(&mut last);
            for scope in &scopes {
                let before = file.counts.memories;
                self.export_scope(&mut tx, scope, &mut file)
                    .await
                    .with_context(|| format!("scope {:?}", scope.name))?;
                self.note_export(scope, file.counts.memories - before);
            }
        }
        tx.commit().await?;
        let counts = file.counts;
        file.put(&Line::End(counts))?;
        Ok(counts)
    }

    async fn export_scope(&self, tx: &mut Tx, of: &Listed, file: &mut File<'_, '_>) -> anyhow::Result<()> {
        file.put(&Line::Scope(ScopeLine {
            scope: of.name.clone(),
            created_at: of.created_at,
            created_by: of.created_by.clone(),
        }))?;
        let (scope, name) = (of.id, of.name.as_str());
        let mut after = Uuid::nil();
        loop {
            let page = export::memories(tx, scope, name, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.id;
            file.put_all(page.into_iter().map(|line| Line::Memory(Box::new(line))))?;
        }
        after = Uuid::nil();
        loop {
            let page = export::superseded(tx, scope, name, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.id;
            file.put_all(page.into_iter().map(Line::Superseded))?;
        }
        let mut after_pair = (Uuid::nil(), Uuid::nil());
        loop {
            let page = export::origins(tx, scope, name, after_pair, PAGE).await?;
            let Some(last) = page.last() else { break };
            after_pair = (last.id, last.origin);
            file.put_all(page.into_iter().map(Line::Origin))?;
        }
        after = Uuid::nil();
        loop {
            let page = export::conflicts(tx, scope, name, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.id;
            file.put_all(page.into_iter().map(Line::Conflict))?;
        }
        file.put_all(self.working_lines(scope, name).await?.into_iter().map(Line::Working))
    }

    /// The living working memories, oldest first.
    async fn working_lines(&self, scope: ScopeId, name: &str) -> Result<Vec<WorkingLine>> {
        let now = self.clock.now();
        let mut memories = self.working.list(scope, now).await?;
        memories.reverse();
        let lines = memories.into_iter().map(|memory| WorkingLine {
            scope: name.to_owned(),
            id: memory.id,
            content: memory.content,
            tags: memory.tags,
            source: memory.source,
            actor: memory.actor,
            metadata: memory.metadata,
            support: memory.support,
            created_at: memory.created_at,
            occurred_at: memory.occurred_at,
            expires_at: memory.expires_at.unwrap_or(now),
        });
        Ok(lines.collect())
    }

    fn note_export(&self, scope: &Listed, memories: u64) {
        let scope = Scope::parse(&scope.name).ok();
        self.journal.audit(AuditRow {
            at: self.clock.now(),
            request_id: String::new(),
            subject: "memser".to_owned(),
            actor: None,
            action: "export",
            scope: scope.map(|scope| scope.as_str().to_owned()),
            memory_id: None,
            outcome: "ok",
            detail: json!({ "memories": memories }),
        });
    }
}

/// What is written, counted.
struct File<'w, 'f> {
    write: &'w mut Write<'f>,
    counts: Counts,
}

impl File<'_, '_> {
    fn put(&mut self, line: &Line) -> anyhow::Result<()> {
        self.counts.add(line);
        (self.write)(line).context("cannot write the file")
    }

    fn put_all(&mut self, lines: impl Iterator<Item = Line>) -> anyhow::Result<()> {
        for line in lines {
            self.put(&line)?;
        }
        Ok(())
    }
}

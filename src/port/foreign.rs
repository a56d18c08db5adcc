//! What other systems know of a memory, as a line of memser's own format.

use std::collections::BTreeMap;

use chrono::{DateTime, DurationRound, NaiveDateTime, TimeDelta, Utc};
use serde_json::Value;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::line::{Line, MemoryLine};
use super::{Format, Plan};
use crate::model::{FIRST_CONFIDENCE, Tier};

/// A record of another system.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    /// What tells it from all others of its system: its id there, or what it says.
    pub(super) key: String,
    /// Whose it is, as a scope, where the record says so.
    pub(super) owner: Option<String>,
    pub(super) content: String,
    pub(super) tags: Vec<String>,
    pub(super) source: Option<String>,
    pub(super) metadata: BTreeMap<String, Value>,
    /// When it was stored there.
    pub(super) created_at: Option<DateTime<Utc>>,
    /// When what it tells happened.
    pub(super) occurred_at: Option<DateTime<Utc>>,
}

impl Foreign {
    /// The line. The same record gives the same id in the same scope every time, so that it is stored once.
    ///
    /// # Errors
    /// Where nobody says which scope it goes to.
    pub(super) fn into_line(self, plan: &Plan) -> Result<Line, String> {
        let scope = plan.scope.as_ref().map(|scope| scope.as_str().to_owned()).or(self.owner);
        let scope = scope.ok_or("it does not say whose it is: name a scope with --scope")?;
        let id = id(&scope, plan.format, &self.key, self.created_at);
        let created_at = self.created_at.map_or(plan.now, |at| at.min(plan.now));
        Ok(Line::Memory(Box::new(MemoryLine {
            scope,
            id,
            tier: Tier::Episodic,
            content: self.content,
            tags: self.tags,
            sources: BTreeMap::from([(self.source.clone().unwrap_or_default(), 1)]),
            source: self.source,
            seq: None,
            actor: None,
            metadata: self.metadata,
            confidence: FIRST_CONFIDENCE,
            support: 1,
            created_at,
            occurred_at: self.occurred_at,
            valid_from: self.occurred_at.unwrap_or(created_at),
            valid_to: None,
            superseded_reason: None,
            access_count: 0,
            last_accessed_at: None,
            restated_at: None,
            decayed_at: None,
            kept_apart: false,
            looked_at: false,
        })))
    }
}

/// A UUID v8: the milliseconds of the record's own time, as far as it has one, before a hash. So ids sort by time, as
/// memser's own do.
fn id(scope: &str, format: Format, key: &str, at: Option<DateTime<Utc>>) -> Uuid {
    let mut hash = Sha256::new();
    for part in [scope, format.name(), key] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    let milliseconds = at.map_or(0, |at| at.timestamp_millis().max(0)).to_be_bytes();
    bytes[..6].copy_from_slice(&milliseconds[2..]);
    Uuid::new_v8(bytes)
}

/// Reads a time: RFC 3339, without a zone as UTC, or seconds since 1970; beyond what seconds could mean, milliseconds.
///
/// # Errors
/// Where it is none.
pub(super) fn time(field: &str, value: Option<&Value>) -> Result<Option<DateTime<Utc>>, String> {
    let at = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(number)) => number.as_f64().and_then(of_number),
        Some(Value::String(text)) => of_text(text.trim()),
        Some(_) => None,
    };
    let whole = at.and_then(|at| at.duration_trunc(TimeDelta::microseconds(1)).ok());
    whole.map(Some).ok_or_else(|| format!("{field} is no time"))
}

fn of_number(number: f64) -> Option<DateTime<Utc>> {
    let milliseconds = if number.abs() > 1e11 { number } else { number * 1e3 };
    #[expect(clippy::cast_possible_truncation, reason = "saturates, and what is out of range is no time")]
    DateTime::from_timestamp_micros((milliseconds * 1e3).round() as i64)
}

fn of_text(text: &str) -> Option<DateTime<Utc>> {
    let zoned = DateTime::parse_from_rfc3339(text).map(DateTime::<Utc>::from);
    zoned.ok().or_else(|| {
        let forms = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"];
        let naive = forms.iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok());
        naive.map(|naive| naive.and_utc())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_of_all_kinds_are_read() {
        let at = |value: Value| time("created_at", Some(&value)).unwrap().unwrap().to_rfc3339();
        for value in [
            json!("2025-01-02T03:04:05Z"),
            json!("2025-01-02T04:04:05+01:00"),
            json!("2025-01-02T03:04:05.000000"),
            json!("2025-01-02 03:04:05"),
            json!(1_735_787_045),
            json!(1_735_787_045.0),
            json!(1_735_787_045_000_i64),
        ] {
            assert_eq!(at(value.clone()), "2025-01-02T03:04:05+00:00", "{value}");
        }
        assert_eq!(time("created_at", Some(&Value::Null)), Ok(None));
        for value in [json!("yesterday"), json!([]), json!(1e300), json!(true)] {
            assert_eq!(time("created_at", Some(&value)), Err("created_at is no time".to_owned()), "{value}");
        }
    }

    #[test]
    fn an_id_is_that_of_scope_format_and_record_and_sorts_by_time() {
        let at = |seconds| DateTime::from_timestamp(seconds, 0);
        let first = id("user:1", Format::Mem0, "a", at(1_000));
        assert_eq!(first, id("user:1", Format::Mem0, "a", at(1_000)));
        assert_eq!(first.get_version_num(), 8);
        for other in [
            id("user:2", Format::Mem0, "a", at(1_000)),
            id("user:1", Format::Claude, "a", at(1_000)),
            id("user:1", Format::Mem0, "b", at(1_000)),
            id("user:1m", Format::Mem0, "a", at(1_000)),
        ] {
            assert_ne!(first, other);
        }
        assert!(id("z", Format::Mem0, "z", at(1)) < first && first < id("a", Format::Mem0, "a", at(2_000)));
        assert!(id("z", Format::Mem0, "z", None) < first);
    }
}

//! What a person who looks after a database wants to know of it, beside its schema.

use chrono::{DateTime, Utc};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};

use super::pooler::keeps_session;
use super::{Db, Tx};
use crate::error::Result;

/// Names of memser's indexes that no statement uses, because making them was broken off.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn unusable_indexes(db: &Db) -> Result<Vec<String>> {
    let mut tx = Tx::of_no_scope(db).await?;
    let names = sqlx::query_scalar!(
        r#"select i.relname as "name!"
             from pg_index x join pg_class i on i.oid = x.indexrelid
             join pg_class t on t.oid = x.indrelid
            where not (x.indisvalid and x.indisready)
              and t.relnamespace = (select relnamespace from pg_class where oid = to_regclass('memories')::oid)
            order by 1"#
    )
    .fetch_all(tx.conn())
    .await?;
    tx.commit().await?;
    Ok(names)
}

/// The server's time.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn time(db: &Db) -> Result<DateTime<Utc>> {
    let mut tx = Tx::of_no_scope(db).await?;
    let time = sqlx::query_scalar!(r#"select clock_timestamp() as "time!""#).fetch_one(tx.conn()).await?;
    tx.commit().await?;
    Ok(time)
}

/// Whether a connection made with these options keeps its session between transactions: behind a pooler of
/// transactions it does not.
///
/// # Errors
/// `unavailable` when there is no connection to be had.
pub async fn has_session(options: &PgConnectOptions) -> Result<bool> {
    let mut connection = options.connect().await?;
    let keeps = keeps_session(&mut connection, options).await?;
    connection.close().await?;
    Ok(keeps)
}

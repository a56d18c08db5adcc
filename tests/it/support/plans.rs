//! What Postgres did for each statement, as Postgres itself says it: `auto_explain` sends every plan as a notice, and
//! sqlx makes a tracing event of each notice.

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex};

use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection};
use tracing::Dispatch;
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// A statement that was executed, with its plan.
#[derive(Debug)]
pub struct Executed {
    pub statement: String,
    pub plan: Value,
}

/// Listens to this thread while it lives, and so to everything that a single-threaded runtime does.
pub struct Plans {
    heard: Arc<Mutex<Vec<Executed>>>,
    _guard: DefaultGuard,
}

/// Lets all connections that are opened from now on tell their plans. `connection` is a superuser's.
pub async fn tell(connection: &mut PgConnection) {
    let database: String =
        sqlx::query_scalar("select current_database()").fetch_one(&mut *connection).await.unwrap();
    for setting in [
        "session_preload_libraries = 'auto_explain'",
        "auto_explain.log_level = 'notice'",
        "auto_explain.log_min_duration = 0",
        "auto_explain.log_analyze = on",
        "auto_explain.log_buffers = on",
        "auto_explain.log_timing = off",
        "auto_explain.log_format = 'json'",
        "auto_explain.log_parameter_max_length = 0",
    ] {
        let statement = format!("alter database {database} set {setting}");
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *connection).await.unwrap();
    }
}

/// What is heard of an event is decided where it first happens. While there is one subscriber and it is another thread's,
/// `tracing` takes that for nobody, for good. This one is everybody's, does nothing, and wants to hear all.
static SECOND: LazyLock<Dispatch> =
    LazyLock::new(|| Dispatch::new(tracing_subscriber::registry().with(Listener(Arc::default()))));

impl Plans {
    pub fn listen() -> Self {
        LazyLock::force(&SECOND);
        let heard = Arc::default();
        let subscriber = tracing_subscriber::registry().with(Listener(Arc::clone(&heard)));
        Self { heard, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// What was executed since the last time, in order.
    pub fn take(&self) -> Vec<Executed> {
        std::mem::take(&mut *self.heard.lock().unwrap())
    }
}

struct Listener(Arc<Mutex<Vec<Executed>>>);

impl<S: tracing::Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != "sqlx::postgres::notice" {
            return;
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        let Some((_, plan)) = message.0.split_once("plan:\n") else { return };
        let plan: Value = serde_json::from_str(plan).unwrap();
        let statement = plan["Query Text"].as_str().unwrap().to_owned();
        self.0.lock().unwrap().push(Executed { statement, plan: plan["Plan"].clone() });
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.0);
        }
    }
}

/// Every node of a plan, the root first.
pub fn nodes(plan: &Value) -> Vec<&Value> {
    let mut all = vec![plan];
    let mut at = 0;
    while at < all.len() {
        all.extend(all[at]["Plans"].as_array().into_iter().flatten());
        at += 1;
    }
    all
}

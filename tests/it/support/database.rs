//! A database for each test, owned by a role that row-level security binds.

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use tokio::sync::OnceCell;
use uuid::Uuid;

/// The role that memser uses: no superuser.
const ROLE: &str = "memser_test";

#[derive(Clone, Debug)]
pub struct TestDatabase {
    /// As memser's own role.
    pub url: String,
    /// As the server's superuser.
    pub superuser: PgConnectOptions,
}

impl TestDatabase {
    /// An empty database with the schema.
    pub async fn create() -> Self {
        static TEMPLATE: OnceCell<String> = OnceCell::const_new();
        let template = TEMPLATE.get_or_init(make_template).await;
        let name = format!("test_{}", Uuid::new_v4().simple());
        let mut server = server().connect().await.unwrap();
        run(&mut server, format!("create database {name} template {template} owner {ROLE}")).await;
        let database = Self::named(&name);
        // A copy is an installation of its own here: all tests share one Redis.
        let mut connection = database.connect().await;
        run(&mut connection, "update installation set installation_id = gen_random_uuid()".to_owned()).await;
        connection.close().await.unwrap();
        database
    }

    /// A database of memser's role with nothing in it but pgvector, as an operator provides it.
    pub async fn provided() -> Self {
        let database = Self::bare(ROLE).await;
        let mut connection = database.connect().await;
        run(&mut connection, "create extension vector".to_owned()).await;
        connection.close().await.unwrap();
        database
    }

    /// A database of `owner` with nothing in it.
    pub async fn bare(owner: &str) -> Self {
        Self::create().await;
        let name = format!("test_{}", Uuid::new_v4().simple());
        let mut server = server().connect().await.unwrap();
        run(&mut server, format!("create database {name} owner {owner}")).await;
        Self::named(&name)
    }

    fn named(name: &str) -> Self {
        let superuser = server().database(name);
        let url =
            format!("postgres://{ROLE}:{ROLE}@{}:{}/{name}", superuser.get_host(), superuser.get_port());
        Self { url, superuser }
    }

    /// The settings by which a memser reaches it through the tests' pooler of transactions.
    pub fn through_pooler(&self) -> [(&'static str, String); 2] {
        let pooler = std::env::var("MEMSER_TEST_POOLER").expect("run by scripts/test-services.sh");
        let server = format!("{}:{}", self.superuser.get_host(), self.superuser.get_port());
        [("DATABASE_URL", self.url.replace(&server, &pooler)), ("DATABASE_DIRECT_URL", self.url.clone())]
    }

    /// The settings by which a memser reaches it: past the pooler, unless all tests are to go through it.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        match std::env::var("MEMSER_TEST_THROUGH_POOLER") {
            Ok(_) => self.through_pooler().to_vec(),
            Err(_) => vec![("DATABASE_URL", self.url.clone())],
        }
    }

    /// A connection that sees everything.
    pub async fn connect(&self) -> PgConnection {
        self.superuser.connect().await.unwrap()
    }

    /// A connection as memser's own role.
    pub async fn connect_as_memser(&self) -> PgConnection {
        self.url.parse::<PgConnectOptions>().unwrap().connect().await.unwrap()
    }
}

fn server() -> PgConnectOptions {
    let url = std::env::var("MEMSER_TEST_DATABASE_URL").expect("run by scripts/test-services.sh");
    url.parse().unwrap()
}

/// The tables whose rows belong to scopes.
pub async fn scoped_tables(connection: &mut PgConnection) -> Vec<String> {
    sqlx::query_scalar(
        "select c.relname::text from pg_class c join pg_attribute a on a.attrelid = c.oid
          where c.relkind in ('r', 'p') and c.relnamespace = 'public'::regnamespace
            and a.attname = 'scope_id' and not a.attisdropped order by 1",
    )
    .fetch_all(connection)
    .await
    .unwrap()
}

async fn run(connection: &mut PgConnection, statement: String) {
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await.unwrap();
}

/// Migrated once; every test's database is a copy.
async fn make_template() -> String {
    let name = format!("template_{}", Uuid::new_v4().simple());
    let mut server = server().connect().await.unwrap();
    run(
        &mut server,
        format!(
            "do $$ begin create role {ROLE} login nosuperuser password '{ROLE}';
                   exception when duplicate_object or unique_violation then null; end $$"
        ),
    )
    .await;
    run(&mut server, format!("create database {name} owner {ROLE}")).await;
    let database = TestDatabase::named(&name);
    let mut connection = database.connect().await;
    run(&mut connection, "create extension vector".to_owned()).await;
    connection.close().await.unwrap();
    let mut connection = database.connect_as_memser().await;
    memser::db::MIGRATOR.run(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    name
}

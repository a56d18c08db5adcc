//! `memser stdio`, as a client that starts a command uses it: on the store itself, and on a memser elsewhere. With others on
//! one data folder: tests/it/sharing.rs.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::process::{Running, complaint, memser, output};
use crate::support::stdio::Piped;
use crate::support::{ADMIN, TestApp, TestDatabase};

/// When something that ought to happen is not going to.
const PATIENCE: Duration = Duration::from_mins(1);

/// On a database that the test can look into.
fn on(database: &TestDatabase, arguments: &[&str], variables: &[(&str, &str)]) -> Piped {
    let arguments = [&["stdio"], arguments].concat();
    let mut command = memser(&arguments, variables);
    command.env("DATABASE_URL", &database.url);
    Piped::start(command)
}

/// On a memser elsewhere.
fn bridge(url: &str, token: &str) -> Piped {
    Piped::start(memser(&["stdio", "--url", url], &[("MEMSER_CLIENT_TOKEN", token)]))
}

fn contents(answer: &Value) -> Vec<&str> {
    answer["memories"].as_array().unwrap().iter().map(|memory| memory["content"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_client_that_starts_it_can_store_and_recall_without_naming_a_scope() {
    let database = TestDatabase::create().await;
    let mut piped = on(&database, &[], &[]);
    let result = piped.shake_hands();
    assert_eq!(
        (&result["serverInfo"]["name"], &result["protocolVersion"]),
        (&json!("memser"), &json!("2025-06-18"))
    );
    assert!(result["instructions"].as_str().unwrap().contains("user:me=admin"), "{result}");
    let tools = piped.rpc("tools/list", &json!({}));
    assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 6);
    let stored = piped.ok("store_memory", &json!({ "content": "Anna plays the cello." }));
    let found = piped.ok("recall_memory", &json!({ "query": "Who plays the cello?" }));
    assert_eq!(contents(&found), ["Anna plays the cello."]);
    let uri = format!("memory:///user%3Ame/{}", stored["id"].as_str().unwrap());
    let read = piped.rpc("resources/read", &json!({ "uri": uri }));
    assert_eq!(read["result"]["contents"][0]["uri"], uri, "{read}");
    let refused = piped.call("recall_memory", &json!({ "query": "cello", "scope": "user:2" }));
    assert_eq!(refused["result"]["structuredContent"]["error"]["code"], "scope_not_granted");
    piped.close();
    let (code, rest, log) = piped.end();
    assert_eq!((code, rest), (Some(0), vec![]), "{log}");
    assert!(!log.contains("cello") && log.contains("/mcp"), "{log}");

    let mut piped = on(&database, &["--grant", "user:*=read", "--grant", "team:a=write"], &[]);
    piped.shake_hands();
    let found = piped.ok("recall_memory", &json!({ "query": "cello", "scope": "user:me" }));
    assert_eq!(contents(&found), ["Anna plays the cello."]);
    let refused = piped.call("store_memory", &json!({ "content": "x", "scope": "user:me" }));
    assert_eq!(refused["result"]["structuredContent"]["error"]["code"], "action_not_granted");
    piped.close();
    assert_eq!(piped.end().0, Some(0));
}

#[tokio::test]
async fn the_newest_protocol_needs_no_handshake() {
    let database = TestDatabase::create().await;
    let mut piped = on(&database, &[], &[]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let discovered = piped.rpc("server/discover", &json!({ "_meta": meta }));
    assert!(discovered["result"]["supportedVersions"].to_string().contains("2026-07-28"), "{discovered}");
    let arguments = json!({ "content": "Ravi prefers tea." });
    let stored =
        piped.rpc("tools/call", &json!({ "name": "store_memory", "arguments": arguments, "_meta": meta }));
    assert_eq!(stored["result"]["structuredContent"]["outcome"], "stored", "{stored}");
    let absent = piped.rpc("resources/read", &json!({ "uri": "memory:///ü/x", "_meta": meta }));
    assert_eq!(absent["error"]["message"], "no such memory", "{absent}");
    piped.close();
    assert_eq!(piped.end().0, Some(0));
}

#[tokio::test]
async fn what_is_no_message_is_answered_and_does_no_harm() {
    let database = TestDatabase::create().await;
    let mut piped = on(&database, &[], &[]);
    for (line, code) in [
        (&b"{nope"[..], -32700),
        (b"\xff\xfe", -32700),
        (br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
        (b"null", -32600),
        (br#"{"jsonrpc":"2.0"}"#, -32600),
    ] {
        piped.line(line);
        let answer = piped.next();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(code)), "{answer}");
    }
    piped.line(b"  ");
    piped.line(br#"{"jsonrpc":"2.0","id":"x","result":{}}"#);
    let unknown = piped.rpc("no/such/method", &json!({}));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    let huge = "x".repeat(2_000_000);
    let refused = piped.call("store_memory", &json!({ "content": huge }));
    assert!(refused["error"]["message"].as_str().unwrap().contains("larger than"), "{refused}");
    piped.shake_hands();
    piped.close();
    let (code, rest, _) = piped.end();
    assert_eq!((code, rest), (Some(0), vec![]));
}

/// Makes every store on the database wait for the test.
async fn held_up(database: &TestDatabase) -> sqlx::PgConnection {
    let mut connection = database.connect().await;
    sqlx::raw_sql(
        "create function wait() returns trigger language plpgsql as
            $$ begin perform pg_advisory_xact_lock(77); return new; end $$;
         create trigger wait before insert on memories for each row execute function wait();
         select pg_advisory_lock(77)",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    connection
}

async fn wait_for(connection: &mut sqlx::PgConnection, waiting: i64) {
    let count = "select count(*) from pg_locks l join pg_database d on d.oid = l.database
                  where locktype = 'advisory' and objid = 77 and not granted and datname = current_database()";
    let reached = async {
        while sqlx::query_scalar::<_, i64>(count).fetch_one(&mut *connection).await.unwrap() != waiting {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, reached).await.expect("as many calls wait");
}

#[tokio::test]
async fn a_call_under_way_is_answered_after_the_end_of_input() {
    let database = TestDatabase::create().await;
    let mut piped = on(&database, &[], &[]);
    piped.shake_hands();
    let mut test = held_up(&database).await;
    let arguments = json!({ "name": "store_memory", "arguments": { "content": "Anna plays the cello." } });
    let id = piped.ask("tools/call", &arguments);
    wait_for(&mut test, 1).await;
    piped.close();
    sqlx::raw_sql("select pg_advisory_unlock(77)").execute(&mut test).await.unwrap();
    let (code, rest, log) = piped.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!((rest.len(), &rest[0]["id"]), (1, &json!(id)));
    assert_eq!(rest[0]["result"]["structuredContent"]["outcome"], "stored", "{rest:?}");
}

#[tokio::test]
async fn a_signal_ends_it_with_an_answer_to_what_takes_too_long() {
    let database = TestDatabase::create().await;
    let mut piped = on(&database, &[], &[("MEMSER_SHUTDOWN_SECONDS", "1")]);
    piped.shake_hands();
    let mut test = held_up(&database).await;
    let arguments = json!({ "name": "store_memory", "arguments": { "content": "Anna plays the cello." } });
    let id = piped.ask("tools/call", &arguments);
    wait_for(&mut test, 1).await;
    // Standard input stays open.
    piped.signal(Signal::SIGTERM);
    let answer = piped.next();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(-32000)), "{answer}");
    let (code, rest, log) = piped.end();
    assert_eq!((code, rest), (Some(0), vec![]), "{log}");
}

#[tokio::test]
async fn a_call_that_is_cancelled_is_stopped_and_not_answered() {
    let database = TestDatabase::create().await;
    let mut piped = on(&database, &[], &[]);
    piped.shake_hands();
    let mut test = held_up(&database).await;
    let arguments = json!({ "name": "store_memory", "arguments": { "content": "Anna plays the cello." } });
    let id = piped.ask("tools/call", &arguments);
    wait_for(&mut test, 1).await;
    piped.notify("notifications/cancelled", &json!({ "requestId": id }));
    let listed = piped.ok("list_memories", &json!({}));
    assert!(contents(&listed).is_empty(), "{listed}");
    sqlx::raw_sql("select pg_advisory_unlock(77)").execute(&mut test).await.unwrap();
    wait_for(&mut test, 0).await;
    piped.close();
    let (code, rest, log) = piped.end();
    assert_eq!((code, rest), (Some(0), vec![]), "{log}");
    let stored: i64 = sqlx::query_scalar("select count(*) from memories").fetch_one(&mut test).await.unwrap();
    assert_eq!(stored, 0, "a cancelled call stored");
}

#[tokio::test]
async fn sweeps_run_for_whoever_has_nothing_but_stdio() {
    let app = TestApp::builder().consolidating().start().await;
    for number in 0..3 {
        let content = format!("The backup of the wiki runs every night on host alpha, as run {number} shows");
        app.admin().store("user:me", &content).await;
    }
    let settings = [
        ("CONSOLIDATION_INTERVAL_MINUTES", "0.05"),
        ("CONSOLIDATION_MIN_EPISODIC", "2"),
        ("CONSOLIDATION_SIMILARITY", "0.7"),
    ];
    let mut piped = on(&app.database, &[], &settings);
    piped.shake_hands();
    let mut connection = app.database.connect().await;
    let facts = "select count(*) from memories where tier = 'semantic'";
    let swept = async {
        while sqlx::query_scalar::<_, i64>(facts).fetch_one(&mut connection).await.unwrap() == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, swept).await.expect("a sweep makes a fact");
    piped.close();
    assert_eq!(piped.end().0, Some(0));
    app.stop().await;
}

#[tokio::test]
async fn a_bridge_passes_messages_to_a_memser_elsewhere_and_outlives_its_restart() {
    let database = TestDatabase::create().await;
    let serve = |bind: &str| {
        let mut command = memser(&["serve"], &[("MEMSER_TOKEN", ADMIN)]);
        command.env("DATABASE_URL", &database.url).env("MEMSER_BIND", bind);
        Running::run(command)
    };
    let running = serve("127.0.0.1:0");
    let mut piped = bridge(&running.url, ADMIN);
    assert_eq!(piped.shake_hands()["serverInfo"]["name"], "memser");
    piped.ok("store_memory", &json!({ "scope": "user:1", "content": "Anna plays the cello." }));
    piped.line(b"{nope");
    assert_eq!(piped.next()["error"]["code"], -32700);

    let address = running.url.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap().to_owned();
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().await.0, Some(0));
    let down = piped.call("list_memories", &json!({ "scope": "user:1" }));
    assert_eq!(down["error"]["code"], -32000, "{down}");
    let words = down["error"]["message"].as_str().unwrap();
    assert!(words.contains("does not answer") && words.contains(&address), "{words}");
    piped.notify("notifications/roots/list_changed", &json!({}));

    let running = serve(&address);
    let found = piped.ok("recall_memory", &json!({ "scope": "user:1", "query": "Who plays the cello?" }));
    assert_eq!(contents(&found), ["Anna plays the cello."]);
    piped.close();
    let (code, rest, log) = piped.end();
    assert_eq!((code, rest), (Some(0), vec![]), "{log}");
    assert!(!log.contains(ADMIN), "{log}");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().await.0, Some(0));
}

/// On several threads, because the test waits for lines while its memser serves.
#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_tells_why_it_cannot() {
    let app = TestApp::builder().token("reader-0123456789", &["user:1=read"]).start().await;
    let url = app.url("/mcp");
    let mut piped = bridge(&url, "wrong-token-0123456789");
    let refused = piped.rpc("tools/list", &json!({}));
    assert_eq!(refused["error"]["data"]["code"], "unauthorised", "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("Check MEMSER_CLIENT_TOKEN"), "{refused}");
    let mut piped = bridge(&url, "reader-0123456789");
    let refused = piped.call("store_memory", &json!({ "content": "x" }));
    assert_eq!(refused["error"]["data"]["code"], "action_not_granted", "{refused}");
    let mut piped = bridge(&app.url("/elsewhere"), ADMIN);
    let lost = piped.rpc("tools/list", &json!({}));
    assert_eq!(lost["error"]["data"]["code"], "not_found", "{lost}");
    app.stop().await;

    let words = complaint(&["stdio", "--url", &url], &[]);
    assert!(words.contains("set MEMSER_CLIENT_TOKEN"), "{words}");
    let words = complaint(&["stdio", "--url", "ftp://here/mcp"], &[("MEMSER_CLIENT_TOKEN", ADMIN)]);
    assert!(words.contains("no http or https URL"), "{words}");
    let both = output(&["stdio", "--url", &url, "--grant", "user:1=read"], &[]);
    assert_eq!(both.status.code(), Some(2), "{both:?}");
    let wrong = output(&["stdio", "--grant", "user:1=rule"], &[]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
}

/// The variable of a client's environment, which may well be a server's too.
#[test]
fn a_clients_token_in_the_environment_keeps_no_command_from_starting() {
    let shown = output(&["config"], &[("MEMSER_CLIENT_TOKEN", "0123456789abcdef-client")]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    let words = String::from_utf8(shown.stdout).unwrap();
    assert!(words.contains("MEMSER_CLIENT_TOKEN") && !words.contains("0123456789abcdef-client"), "{words}");
}

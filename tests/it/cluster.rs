//! The cluster of `make cluster`: real processes, each of which is killed while callers store.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::Client;
use crate::support::client::contents;
use crate::support::load::{Failure, Load, scopes};
use crate::support::proxy::answered;

/// Calls that have to succeed before and after each kill.
const CALLS: usize = 20;
/// How often to look whether something has happened: with `LOOK_EVERY`, for a minute.
const LOOKS: u32 = 3_000;
const LOOK_EVERY: Duration = Duration::from_millis(20);
const NAMES: [&str; 5] = ["postgres", "redis", "memser-1", "memser-2", "caddy"];

struct Cluster {
    script: Child,
    url: String,
    token: String,
    folder: PathBuf,
    memsers: [(&'static str, u16); 2],
    http: reqwest::Client,
}

impl Cluster {
    /// Starts it and reads what it tells a person.
    fn start() -> Self {
        let mut command = Command::new("scripts/cluster.sh");
        command.current_dir(env!("CARGO_MANIFEST_DIR")).env("CLUSTER_PROGRAM", env!("CARGO_BIN_EXE_memser"));
        let mut script = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut told = String::new();
        let mut lines = BufReader::new(script.stdout.take().unwrap()).lines();
        for line in lines.by_ref() {
            told += &(line.unwrap() + "\n");
            if told.contains("Ctrl-C") {
                break;
            }
        }
        // What it says later has to go somewhere.
        std::thread::spawn(move || lines.for_each(drop));
        let find = |what: &str| {
            let line =
                told.lines().find_map(|line| line.split_once(what)).unwrap_or_else(|| panic!("{told}"));
            line.1.trim().to_owned()
        };
        let certificate = fs::read(find("NODE_EXTRA_CA_CERTS): ")).unwrap();
        let certificate = reqwest::Certificate::from_pem(&certificate).unwrap();
        let http = reqwest::Client::builder().tls_certs_only([certificate]).build().unwrap();
        let folder = PathBuf::from(find("Logs and pids: "));
        let memsers = ["memser-1", "memser-2"].map(|name| {
            let process = find(&format!("  {name} pid "));
            (name, process.rsplit_once(' ').unwrap().1.parse().unwrap())
        });
        Self { script, url: find("serves MCP at "), token: find("Token: "), folder, memsers, http }
    }

    fn pid(&self, name: &str) -> Pid {
        let pid = fs::read_to_string(self.folder.join(format!("{name}.pid"))).unwrap();
        Pid::from_raw(pid.trim().parse().unwrap())
    }

    /// Kills one of the processes, keeps it from being started again while `meanwhile` runs, and waits until it is.
    async fn without(&self, name: &str, meanwhile: impl AsyncFnOnce()) {
        self.signal(Signal::SIGSTOP);
        let killed = self.pid(name);
        kill(killed, Signal::SIGKILL).unwrap();
        meanwhile().await;
        self.signal(Signal::SIGCONT);
        wait_until("it is started again", async || {
            let text = fs::read_to_string(self.folder.join(format!("{name}.pid"))).unwrap();
            text.trim().parse().is_ok_and(|pid: i32| pid != killed.as_raw())
        })
        .await;
    }

    /// To the script, which starts again what ends.
    fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.script.id().try_into().unwrap()), signal);
    }

    fn client(&self) -> Client {
        Client::over(self.http.clone(), self.url.clone(), &self.token)
    }
}

impl Drop for Cluster {
    /// A test that fails leaves nothing running.
    fn drop(&mut self) {
        self.signal(Signal::SIGINT);
        self.signal(Signal::SIGCONT);
        let _ = self.script.wait();
    }
}

async fn wait_until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..LOOKS {
        if is_so().await {
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    panic!("never: {what}");
}

/// Every text that is there, whether it has become part of a fact or not.
async fn texts(client: &Client) -> BTreeSet<String> {
    let mut texts = BTreeSet::new();
    for scope in scopes() {
        for status in ["active", "superseded"] {
            let mut page = json!({ "scope": scope, "status": status, "limit": 100 });
            loop {
                let listed = client.ok("list_memories", page.clone()).await;
                texts.extend(contents(&listed));
                let Some(cursor) = listed["next_cursor"].as_str() else { break };
                page["cursor"] = json!(cursor);
            }
        }
    }
    texts
}

/// Stores a working memory; the code of the error, where there is one.
async fn keep_for_a_while(client: &Client) -> Option<Value> {
    let note = json!({ "scope": "user:1", "content": "A note.", "ttl_seconds": 600 });
    let outcome = client.call("store_memory", note).await;
    outcome.is_error.then(|| outcome.structure["error"]["code"].clone())
}

#[tokio::test]
async fn any_process_of_a_cluster_may_be_killed() {
    let mut cluster = tokio::task::spawn_blocking(Cluster::start).await.unwrap();
    let client = cluster.client();
    assert_eq!(keep_for_a_while(&client).await, None);
    let load = Load::on(&cluster.http, &cluster.url, &cluster.token);
    for (name, port) in cluster.memsers {
        load.more(CALLS).await;
        cluster.without(name, async || load.more(CALLS).await).await;
        wait_until("it serves again", async || answered(port, &cluster.token).await > 0).await;
    }

    // Nobody notices who needs no working memory.
    cluster
        .without("redis", async || {
            assert_eq!(keep_for_a_while(&client).await, Some(json!("unavailable")));
            load.more(CALLS).await;
        })
        .await;
    wait_until("there are working memories again", async || keep_for_a_while(&client).await.is_none()).await;
    assert_eq!(load.failures(), []);

    // The only ones of their kind: calls fail with what is so, and succeed again by themselves.
    cluster.without("postgres", async || load.failure().await).await;
    let failures = load.recovered(CALLS).await;
    let unavailable = Failure::Refused("unavailable".to_owned());
    assert!(failures.iter().all(|failure| *failure == unavailable), "without Postgres: {failures:?}");
    cluster.without("caddy", async || load.failure().await).await;
    let failures = load.recovered(CALLS).await;
    let unreached = [Failure::Unanswered, Failure::Proxy(StatusCode::SERVICE_UNAVAILABLE)];
    assert!(failures.iter().all(|failure| unreached.contains(failure)), "without Caddy: {failures:?}");

    let (stored, repeated) = load.end().await;
    println!("{} calls succeeded, {repeated} were sent twice", stored.len());
    let there = texts(&client).await;
    let lost: Vec<_> = stored.iter().filter(|text| !there.contains(*text)).collect();
    assert!(lost.is_empty(), "of {} are lost: {lost:?}", stored.len());

    let pids = NAMES.map(|name| cluster.pid(name));
    cluster.signal(Signal::SIGINT);
    let script = &mut cluster.script;
    wait_until("Ctrl-C ends it", async || script.try_wait().unwrap().is_some()).await;
    for (name, pid) in NAMES.iter().zip(pids) {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{name} is left");
    }
    assert!(!cluster.folder.exists(), "its folder is left");
}

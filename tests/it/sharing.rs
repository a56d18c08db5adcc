//! Several memsers on one data folder: one runs its Postgres, the others use it, and who stays takes over.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::support::process::{Running, complaint, data_folder, memser, postmaster};
use crate::support::stdio::Piped;
use crate::support::{ADMIN, Client};

/// When something that ought to happen is not going to.
const PATIENCE: Duration = Duration::from_mins(2);
const CELLO: &str = "Anna plays the cello.";
const TEA: &str = "Ravi prefers tea.";
const TRAIN: &str = "The train to the coast leaves at nine.";

fn stdio(data: &Path) -> Piped {
    let mut command = memser(&["stdio"], &[]);
    command.env("MEMSER_DATA_DIR", data);
    let mut piped = Piped::start(command);
    piped.shake_hands();
    piped
}

fn serve(data: &Path) -> Running {
    Running::start(data, &[("MEMSER_TOKEN", ADMIN)])
}

/// The process that runs Postgres; none while that changes.
fn owner(data: &Path) -> Option<u32> {
    fs::read_to_string(data.join("lock")).unwrap().parse().ok()
}

fn runs(pid: Pid) -> bool {
    kill(pid, None).is_ok()
}

/// What a call gave that was made `since` then: it may fail as unavailable for a while, and in no other way.
fn succeeds(answer: &Value, since: Instant) -> bool {
    if answer["isError"] == false {
        return true;
    }
    assert_eq!(answer["structuredContent"]["error"]["code"], "unavailable", "{answer}");
    assert!(since.elapsed() < PATIENCE, "it stays unavailable");
    false
}

/// Stores a text as soon as that is possible again.
fn store_by_stdio(piped: &mut Piped, content: &str) {
    let since = Instant::now();
    while !succeeds(&piped.call("store_memory", &json!({ "content": content }))["result"], since) {}
}

async fn store(client: &Client, content: &str) {
    let arguments = json!({ "scope": "user:me", "content": content });
    let call = json!({ "name": "store_memory", "arguments": arguments });
    let since = Instant::now();
    while !succeeds(&client.rpc("tools/call", call.clone()).await["result"], since) {}
}

fn sorted(listed: &Value) -> Vec<String> {
    let mut contents = crate::support::client::contents(listed);
    contents.sort_unstable();
    contents
}

fn listed_by_stdio(piped: &mut Piped) -> Vec<String> {
    sorted(&piped.ok("list_memories", &json!({})))
}

async fn listed(client: &Client) -> Vec<String> {
    sorted(&client.ok("list_memories", json!({ "scope": "user:me" })).await)
}

async fn stop(running: Running) {
    running.signal(Signal::SIGTERM);
    let (code, _, log) = running.end().await;
    assert_eq!(code, Some(0), "{log}");
}

fn close(mut piped: Piped) {
    piped.close();
    let (code, _, log) = piped.end();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn two_that_start_at_once_share_the_memories_and_the_one_that_stays_takes_over() {
    let data = data_folder();
    // On nothing: one of them makes the database.
    let start = || {
        let mut command = memser(&["stdio"], &[]);
        command.env("MEMSER_DATA_DIR", data.path());
        Piped::start(command)
    };
    let (mut first, mut second) = (start(), start());
    first.shake_hands();
    second.shake_hands();
    store_by_stdio(&mut first, CELLO);
    assert_eq!(listed_by_stdio(&mut second), [CELLO]);
    if owner(data.path()) == Some(second.pid()) {
        std::mem::swap(&mut first, &mut second);
    }
    close(first);
    store_by_stdio(&mut second, TEA);
    assert_eq!(listed_by_stdio(&mut second), [CELLO, TEA]);
    assert_eq!(owner(data.path()), Some(second.pid()));
    let postgres = postmaster(data.path());
    second.close();
    let (code, _, log) = second.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("this one runs it now"), "{log}");
    assert!(!runs(postgres), "Postgres still runs");
}

#[tokio::test]
async fn one_that_serves_and_one_that_does_not_come_and_go_in_any_order() {
    let data = data_folder();
    let running = serve(data.path());
    store(&running.client(ADMIN), CELLO).await;
    let mut piped = stdio(data.path());
    assert_eq!(listed_by_stdio(&mut piped), [CELLO]);
    assert_eq!(owner(data.path()), Some(running.child.id()));
    stop(running).await;
    store_by_stdio(&mut piped, TEA);
    assert_eq!(owner(data.path()), Some(piped.pid()));
    // On the other one's Postgres.
    let running = serve(data.path());
    assert_eq!(listed(&running.client(ADMIN)).await, [CELLO, TEA]);
    assert_eq!(owner(data.path()), Some(piped.pid()));
    close(piped);
    store(&running.client(ADMIN), TRAIN).await;
    assert_eq!(listed(&running.client(ADMIN)).await, [CELLO, TEA, TRAIN]);
    assert_eq!(owner(data.path()), Some(running.child.id()));
    let mut piped = stdio(data.path());
    assert_eq!(listed_by_stdio(&mut piped), [CELLO, TEA, TRAIN]);
    close(piped);
    let postgres = postmaster(data.path());
    stop(running).await;
    assert!(!runs(postgres), "Postgres still runs");
}

#[tokio::test]
async fn a_kill_of_either_leaves_the_other_with_every_memory() {
    let data = data_folder();
    let mut piped = stdio(data.path());
    let running = serve(data.path());
    store(&running.client(ADMIN), CELLO).await;
    // The one that uses Postgres.
    running.signal(Signal::SIGKILL);
    running.end().await;
    store_by_stdio(&mut piped, TEA);
    // The one that runs it, which it leaves behind.
    let running = serve(data.path());
    let postgres = postmaster(data.path());
    piped.signal(Signal::SIGKILL);
    piped.end();
    store(&running.client(ADMIN), TRAIN).await;
    let since = Instant::now();
    while owner(data.path()) != Some(running.child.id()) {
        assert!(since.elapsed() < PATIENCE, "it does not take over");
        tokio::task::yield_now().await;
    }
    store(&running.client(ADMIN), TRAIN).await;
    assert_eq!(listed(&running.client(ADMIN)).await, [CELLO, TEA, TRAIN]);
    assert_ne!(postmaster(data.path()), postgres, "it uses the Postgres that was left behind");
    stop(running).await;
}

#[tokio::test]
async fn two_that_serve_share_the_first_token() {
    let data = data_folder();
    let start = || {
        let data = data.path().to_owned();
        spawn_blocking(move || Running::start(&data, &[]))
    };
    let (one, other) = tokio::join!(start(), start());
    let both = [one.unwrap(), other.unwrap()];
    let token = fs::read_to_string(data.path().join("token")).unwrap().trim().to_owned();
    let mut shown = 0;
    for running in &both {
        assert_eq!(running.client(&token).post("tools/list", json!({})).await.status(), 200);
    }
    for running in both {
        running.signal(Signal::SIGTERM);
        let (code, printed, log) = running.end().await;
        assert_eq!(code, Some(0), "{log}");
        shown += usize::from(printed.contains(&token));
    }
    assert_eq!(shown, 1);
    let names = fs::read_dir(data.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with("token.")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_folder_whose_socket_would_change_is_shared_by_nobody() {
    let data = data_folder();
    let long = data.path().join("x".repeat(120));
    let running = serve(&long);
    for command in ["serve", "stdio"] {
        let words =
            complaint(&[command], &[("MEMSER_DATA_DIR", long.to_str().unwrap()), ("MEMSER_TOKEN", ADMIN)]);
        assert!(words.contains("path is too long") && words.contains("shorter path"), "{words}");
    }
    store(&running.client(ADMIN), CELLO).await;
    stop(running).await;
}

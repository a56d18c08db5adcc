//! Static tokens while memser runs: `memser token`, a changed file, SIGHUP.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::database::TestDatabase;
use crate::support::issuer::{KeySet, SigningKey};
use crate::support::process::{Running, complaint, data_folder, memser, output};
use crate::support::{ADMIN, TestApp};

fn printed(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let output = output(arguments, variables);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn tokens_come_and_go_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.toml");
    let settings = [("MEMSER_TOKENS_FILE", path.to_str().unwrap()), ("DATABASE_URL", "postgres://unused")];
    let first = printed(&["token", "new", "--name", "first-bot", "--grant", "user:1=write"], &settings);
    let app = TestApp::builder().set("MEMSER_TOKENS_FILE", path.to_str().unwrap()).start().await;
    app.client(first.trim()).store("user:1", "Stored by a static token").await;

    let grants = ["token", "new", "--name", "reader", "--grant", "user:1=read", "--grant", "user:2=read"];
    let reader = printed(&[&grants[..], &["--expires", "5200w"]].concat(), &settings);
    let reader = app.client(reader.trim());
    assert_eq!(reader.post("tools/list", json!({})).await.status(), 401, "not looked at yet");
    app.clock.advance(Duration::from_secs(1));
    assert_eq!(reader.recall("user:1", "token").await, ["Stored by a static token"]);

    let listed = printed(&["token", "list"], &settings);
    assert!(listed.contains("first-bot\tnever expires\tuser:1=write\n"), "{listed}");
    assert!(listed.contains("\tuser:1=read, user:2=read\n"), "{listed}");
    printed(&["token", "revoke", "first-bot"], &settings);
    app.clock.advance(Duration::from_secs(1));
    assert_eq!(app.client(first.trim()).post("tools/list", json!({})).await.status(), 401);
    assert_eq!(reader.post("tools/list", json!({})).await.status(), 200);

    std::fs::write(&path, "[[token]]\nname = 'half").unwrap();
    app.clock.advance(Duration::from_secs(1));
    assert_eq!(reader.post("tools/list", json!({})).await.status(), 200, "a wrong file changes nothing");
    std::fs::remove_file(&path).unwrap();
    app.clock.advance(Duration::from_secs(1));
    assert_eq!(reader.post("tools/list", json!({})).await.status(), 200, "nor does one that is gone");
    std::fs::write(&path, "# nobody\n").unwrap();
    app.clock.advance(Duration::from_secs(1));
    assert_eq!(reader.post("tools/list", json!({})).await.status(), 401, "no token is in it");
    app.stop().await;
}

#[test]
fn the_command_says_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.toml");
    let settings = [("MEMSER_TOKENS_FILE", path.to_str().unwrap()), ("DATABASE_URL", "postgres://unused")];
    assert!(complaint(&["token", "revoke", "nobody"], &settings).contains("there is no token \"nobody\""));
    printed(&["token", "new", "--name", "bot", "--grant", "a=read"], &settings);
    let again = complaint(&["token", "new", "--name", "bot", "--grant", "a=read"], &settings);
    assert!(again.contains("already"), "{again}");
    let nowhere = complaint(&["token", "list"], &[("DATABASE_URL", "postgres://unused")]);
    assert!(nowhere.contains("MEMSER_TOKENS_FILE") && nowhere.contains("--file"), "{nowhere}");
    for arguments in [
        &["token", "new", "--name", "b"][..],
        &["token", "new", "--name", "b", "--grant", "a*b=read"],
        &["token", "new", "--name", "b", "--grant", "a=owner"],
        &["token", "new", "--name", "b", "--grant", "a=read", "--expires", "soon"],
    ] {
        assert_eq!(output(arguments, &settings).status.code(), Some(2), "{arguments:?}");
    }
}

#[tokio::test]
async fn the_doctor_looks_at_the_token_file_and_at_the_issuer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.toml");
    let database = TestDatabase::create().await;
    let (key, issuer) = (SigningKey::p256("k1"), KeySet::of(&[]).await);
    let url = issuer.url();
    let settings = [
        ("MEMSER_TOKENS_FILE", path.to_str().unwrap()),
        ("DATABASE_URL", database.url.as_str()),
        ("JWKS_URL", url.as_str()),
        ("JWT_ISSUER", "https://login.example.com"),
    ];
    let examine = || async {
        // The key set is served by this very thread.
        let mut command = tokio::process::Command::from(memser(&["doctor"], &settings));
        String::from_utf8(command.output().await.unwrap().stdout).unwrap()
    };
    let found = examine().await;
    assert!(found.contains("FAILED  tokens: JWKS_URL: the issuer's keys cannot be fetched"), "{found}");
    issuer.rotate(&[&key]);
    printed(&["token", "new", "--name", "bot", "--grant", "a=read"], &settings);
    let found = examine().await;
    assert!(
        found.contains("tokens.toml can be read") && found.contains("the keys of https://login"),
        "{found}"
    );
    std::fs::write(&path, "[[token]]").unwrap();
    let found = examine().await;
    assert!(found.contains("FAILED  tokens: the token file"), "{found}");
}

#[tokio::test]
async fn a_hangup_reads_the_file_and_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.toml");
    let database = TestDatabase::create().await;
    let settings = [("MEMSER_TOKENS_FILE", path.to_str().unwrap()), ("DATABASE_URL", database.url.as_str())];
    let token = printed(&["token", "new", "--name", "bot", "--grant", "user:1=write"], &settings);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o620)).unwrap();
    let running = Running::run(memser(&[], &settings));
    running.client(token.trim()).store("user:1", "Before the signal").await;
    for _ in 0..50 {
        running.signal(Signal::SIGHUP);
    }
    running.client(token.trim()).store("user:1", "After the signals, in the same process").await;
    running.signal(Signal::SIGTERM);
    let (status, _, logged) = running.end().await;
    assert_eq!(status, Some(0), "{logged}");
    assert!(logged.contains("was read again: 1 tokens"), "{logged}");
    assert!(logged.contains("tokens.toml can be changed by other users"), "{logged}");
}

#[tokio::test]
async fn a_hangup_does_not_complain_of_a_file_that_nobody_made() {
    let data = data_folder();
    let running = Running::start(data.path(), &[("MEMSER_TOKEN", ADMIN)]);
    running.signal(Signal::SIGHUP);
    running.client(ADMIN).store("user:1", "Without a file").await;
    running.signal(Signal::SIGTERM);
    let (status, _, logged) = running.end().await;
    assert!(status == Some(0) && logged.contains("there is no /"), "{logged}");
    assert!(!logged.contains("is gone"), "{logged}");
}

//! The `memser` command in a process of its own, with nothing of the environment but what a test sets.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::Client;

/// A first start makes a database cluster.
const START: Duration = Duration::from_mins(2);
const STOP: Duration = Duration::from_secs(20);
/// Longer than any command takes, on any machine.
const COMMAND: Duration = Duration::from_mins(5);

/// A data folder that Postgres' user can reach.
pub fn data_folder() -> TempDir {
    tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap()
}

/// The command with no variable of memser but these.
pub fn memser(arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memser"));
    command.args(arguments).env_clear();
    for name in ["PATH", "HOME", "MEMSER_PG_BIN", "MEMSER_PG_USER"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.env("MEMSER_BIND", "127.0.0.1:0").env("EMBEDDER", "hash").envs(variables.iter().copied());
    command
}

/// What a command says that ends by itself. One that serves where it should refuse would not: it is killed in the end.
pub fn output(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = memser(arguments, variables);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let process = Pid::from_raw(child.id().try_into().unwrap());
    let (ended, end) = channel::<()>();
    let watch = std::thread::spawn(move || {
        if end.recv_timeout(COMMAND) == Err(RecvTimeoutError::Timeout) {
            let _ = kill(process, Signal::SIGKILL);
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(ended);
    watch.join().unwrap();
    output
}

/// What a command that fails tells a person.
pub fn complaint(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let output = output(arguments, variables);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A memser that serves.
pub struct Running {
    pub child: Child,
    pub url: String,
    printed: Option<JoinHandle<String>>,
    logged: Option<JoinHandle<String>>,
}

impl Running {
    /// On its private Postgres in `data`.
    pub fn start(data: &Path, variables: &[(&str, &str)]) -> Self {
        let mut command = memser(&[], variables);
        command.env("MEMSER_DATA_DIR", data);
        Self::run(command)
    }

    /// Starts the command and waits until it serves.
    pub fn run(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (found, url): (_, Receiver<String>) = channel();
        let mut stderr = child.stderr.take().unwrap();
        let logged = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        });
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let printed = std::thread::spawn(move || {
            let mut text = String::new();
            for line in stdout.lines() {
                let line = line.unwrap();
                if let Some(url) = line.strip_prefix("memser serves MCP at ") {
                    found.send(url.to_owned()).unwrap();
                }
                text += &line;
                text += "\n";
            }
            text
        });
        let Ok(url) = url.recv_timeout(START) else {
            child.kill().unwrap();
            panic!("memser did not start: {}", logged.join().unwrap());
        };
        Self { child, url, printed: Some(printed), logged: Some(logged) }
    }

    pub fn client(&self, token: &str) -> Client {
        Client::new(self.url.clone(), token)
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Waits for the end: whether it was in order, and everything printed and logged.
    pub async fn end(mut self) -> (Option<i32>, String, String) {
        let asked = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if asked.elapsed() > STOP {
                self.child.kill().unwrap();
                panic!("memser did not stop");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let (printed, logged) = (self.printed.take().unwrap(), self.logged.take().unwrap());
        tokio::task::spawn_blocking(move || (status.code(), printed.join().unwrap(), logged.join().unwrap()))
            .await
            .unwrap()
    }
}

impl Drop for Running {
    /// A test that fails leaves nothing running.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The pid of the private Postgres.
pub fn postmaster(data: &Path) -> Pid {
    let text = fs::read_to_string(data.join("pg/postmaster.pid")).unwrap();
    Pid::from_raw(text.lines().next().unwrap().parse().unwrap())
}

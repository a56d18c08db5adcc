//! `memser stdio` as a client starts it: a process whose standard output holds JSON-RPC messages and nothing else.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// A first start makes a database cluster.
const ANSWER: Duration = Duration::from_mins(2);
const STOP: Duration = Duration::from_secs(30);

pub struct Piped {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Value>,
    reading: Option<JoinHandle<()>>,
    logged: Option<JoinHandle<String>>,
    requests: u64,
}

impl Piped {
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (found, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let reading = std::thread::spawn(move || {
            for line in stdout.lines() {
                let line = line.unwrap();
                let message: Value =
                    serde_json::from_str(&line).unwrap_or_else(|_| panic!("no message: {line}"));
                assert_eq!(message["jsonrpc"], "2.0", "{line}");
                // Nobody may look any more.
                let _ = found.send(message);
            }
        });
        let mut stderr = child.stderr.take().unwrap();
        let logged = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        });
        let input = child.stdin.take();
        Self { child, input, lines, reading: Some(reading), logged: Some(logged), requests: 0 }
    }

    /// Writes a line, whatever it is.
    pub fn line(&mut self, line: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line).and_then(|()| input.write_all(b"\n")).and_then(|()| input.flush()).unwrap();
    }

    /// Sends a request; gives its id.
    pub fn ask(&mut self, method: &str, params: &Value) -> u64 {
        self.requests += 1;
        let message = json!({ "jsonrpc": "2.0", "id": self.requests, "method": method, "params": params });
        self.line(message.to_string().as_bytes());
        self.requests
    }

    pub fn notify(&mut self, method: &str, params: &Value) {
        self.line(json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string().as_bytes());
    }

    /// The next message.
    pub fn next(&self) -> Value {
        self.lines.recv_timeout(ANSWER).expect("nothing is written")
    }

    /// Sends a request and gives its answer.
    pub fn rpc(&mut self, method: &str, params: &Value) -> Value {
        let id = self.ask(method, params);
        let answer = self.next();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub fn shake_hands(&mut self) -> Value {
        let client = json!({ "name": "test", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        let answer = self.rpc("initialize", &hello);
        self.notify("notifications/initialized", &json!({}));
        answer["result"].clone()
    }

    /// What a tool's call answers.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.rpc("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// The structure of a call that has to succeed.
    pub fn ok(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self.call(tool, arguments);
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        answer["result"]["structuredContent"].clone()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends standard input.
    pub fn close(&mut self) {
        self.input = None;
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Waits for the end: the exit code, the messages that nobody looked at, and the log.
    pub fn end(mut self) -> (Option<i32>, Vec<Value>, String) {
        let asked = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(asked.elapsed() < STOP, "memser stdio did not stop");
            std::thread::sleep(Duration::from_millis(20));
        };
        self.reading.take().unwrap().join().unwrap();
        let logged = self.logged.take().unwrap().join().unwrap();
        (status.code(), self.lines.try_iter().collect(), logged)
    }
}

impl Drop for Piped {
    /// A test that fails leaves nothing running.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

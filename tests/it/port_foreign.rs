//! Files of other memory servers and of chat services, in the shapes that docs/import.md names.

use memser::engine::import::Mode;
use memser::port::{Format, Report, detect};
use serde_json::{Value, json};

use crate::port::{export, import, worker};
use crate::support::TestApp;

/// Imports a file twice into one scope; gives the first report and the memories with their lines' fields, in the order of
/// their places and texts.
async fn imported(format: Format, scope: Option<&str>, file: &str) -> (Report, Vec<Value>) {
    Box::pin(import_twice(format, scope, file)).await
}

async fn import_twice(format: Format, scope: Option<&str>, file: &str) -> (Report, Vec<Value>) {
    assert_eq!(detect(file.as_bytes()), Ok(format), "{file}");
    let app = TestApp::start().await;
    let worker = worker(&app, &[]).await;
    let report = import(&worker, format, scope, Mode::Write, file).await;
    let first = export(&worker, &["*"]).await;
    let again = import(&worker, format, scope, Mode::Write, file).await;
    assert_eq!((again.stored, again.there), (0, report.stored), "{again}");
    assert_eq!(again.refused, report.refused);
    assert_eq!(export(&worker, &["*"]).await, first);
    worker.stop().await.unwrap();
    app.stop().await;
    let lines = first.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut memories: Vec<Value> = lines.filter(|line| line["type"] == "memory").collect();
    let key = |memory: &Value| {
        (memory["source"].to_string(), memory["seq"].as_i64(), memory["content"].to_string())
    };
    memories.sort_by_key(key);
    (report, memories)
}

fn texts(memories: &[Value]) -> Vec<&str> {
    memories.iter().map(|memory| memory["content"].as_str().unwrap()).collect()
}

const SCOPE: Option<&str> = Some("user:me");

#[tokio::test]
async fn the_official_servers_graph_becomes_its_observations_and_relations() {
    let lines = [
        r#"{"type":"entity","name":"Ann","entityType":"person","observations":["lives in Bergen","plays the cello"]}"#,
        r#"{"type":"entity","name":"Acme","entityType":"company","observations":[]}"#,
        r#"{"type":"entity","name":"Zephyrine","observations":["no kind"]}"#,
        "not json",
        r#"{"type":"picture","name":"x"}"#,
        r#"{"type":"relation","from":"Ann","to":"Acme","relationType":"works_at"}"#,
    ];
    let (report, memories) = imported(Format::McpMemory, SCOPE, &lines.join("\n")).await;
    let expected = ["Acme: company", "Ann: lives in Bergen", "Ann: plays the cello", "Ann works at Acme"];
    assert_eq!(texts(&memories), expected);
    let reasons: Vec<(u64, &str)> = report.reasons.iter().map(|(line, why)| (*line, why.as_str())).collect();
    assert_eq!(
        reasons,
        [
            (3, "entityType is missing"),
            (4, "it is no JSON"),
            (5, "type: a kind that the format does not have")
        ]
    );
    assert_eq!(memories[1]["tags"], json!(["person"]));
    assert_eq!(memories[3]["metadata"], json!({ "from": "Ann", "relationType": "works_at", "to": "Acme" }));

    let graph = r#"{"entities": [
        {"name": "Ann", "entityType": "person", "observations": ["lives in Bergen", "plays the cello"]},
        {"name": "Acme", "entityType": "company", "observations": []}, 7
      ], "relations": [{"from": "Ann", "to": "Acme", "relationType": "works_at"}]}"#;
    let (report, memories) = imported(Format::McpMemory, SCOPE, graph).await;
    assert_eq!(texts(&memories), expected);
    assert_eq!((report.refused, report.reasons[0].0), (1, 3), "{report}");
}

#[tokio::test]
async fn mem0s_memories_go_to_the_scopes_of_their_users() {
    let file = json!({ "results": [
        { "id": "892db2ae", "memory": "Likes to play cricket", "hash": "a1", "metadata": { "type": "hobby" },
          "categories": ["sport"], "created_at": "2024-07-26T10:29:36.630547-07:00", "updated_at": null, "user_id": "alex" },
        { "id": "2", "memory": "Prefers morning meetings", "created_at": "2024-07-26T10:29:36Z", "agent_id": "planner" },
        { "id": "3", "memory": "Whose is this?" },
        { "id": "4", "hash": "no memory" },
        { "id": "5", "memory": "Long gone", "state": "deleted", "user_id": "alex" },
        { "id": "6", "memory": "When?", "user_id": "alex", "created_at": "Zephyrine" },
    ] });
    let file = serde_json::to_string_pretty(&file).unwrap();
    let (report, memories) = imported(Format::Mem0, None, &file).await;
    assert_eq!(texts(&memories), ["Likes to play cricket", "Prefers morning meetings"]);
    assert_eq!(
        (&memories[0]["scope"], &memories[1]["scope"]),
        (&json!("user:alex"), &json!("agent:planner"))
    );
    assert_eq!(memories[0]["created_at"], "2024-07-26T17:29:36.630547Z");
    assert_eq!(memories[0]["tags"], json!(["sport"]));
    let kept = json!({ "type": "hobby", "mem0": { "hash": "a1", "id": "892db2ae", "user_id": "alex" } });
    assert_eq!(memories[0]["metadata"], kept);
    let reasons: Vec<&str> = report.reasons.iter().map(|(_, why)| why.as_str()).collect();
    assert!(reasons[0].contains("--scope"), "{report}");
    assert_eq!(reasons[1..], ["memory is missing", "it was deleted there", "created_at is no time"]);

    // OpenMemory's backup, a record a line.
    let lines = [
        r#"{"id":"1","content":"Drinks tea","metadata":{},"created_at":"2025-01-01T00:00:00+00:00","state":"active","app":"cursor","categories":["food"]}"#,
        r#"{"id":"2","content":"Drank coffee","metadata":{},"state":"deleted","app":null,"categories":[]}"#,
    ];
    let (report, memories) = imported(Format::Mem0, SCOPE, &lines.join("\n")).await;
    assert_eq!((texts(&memories), report.refused), (vec!["Drinks tea"], 1));
    assert_eq!(memories[0]["metadata"]["mem0"], json!({ "app": "cursor", "id": "1", "state": "active" }));
}

#[tokio::test]
async fn mcp_memory_services_export_keeps_tags_types_and_times() {
    let file = json!({
        "export_metadata": { "source_machine": "laptop", "total_memories": 3 },
        "memories": [
            { "content": "The deployment runs on Buildkite", "content_hash": "h1", "tags": ["ci", "ops"],
              "created_at": 1_735_787_045.5, "updated_at": 1_735_787_046.0, "memory_type": "note",
              "metadata": { "a": 1 }, "export_source": "laptop", "embedding": [0.1, 0.2] },
            { "content": "Rollbacks take a minute", "content_hash": "h2", "tags": "ci, ops", "created_at": 1_735_787_045,
              "memory_type": null, "metadata": null },
            { "content_hash": "h3" },
        ],
    });
    let (report, memories) = imported(Format::McpMemoryService, SCOPE, &file.to_string()).await;
    assert_eq!(texts(&memories), ["The deployment runs on Buildkite", "Rollbacks take a minute"]);
    assert_eq!(memories[0]["created_at"], "2025-01-02T03:04:05.500Z");
    assert_eq!((&memories[0]["tags"], &memories[1]["tags"]), (&json!(["ci", "ops"]), &json!(["ci", "ops"])));
    let kept = &memories[0]["metadata"]["mcp-memory-service"];
    assert_eq!((&kept["memory_type"], &kept["embedding"]), (&json!("note"), &Value::Null));
    assert_eq!((report.refused, report.reasons[0].1.as_str()), (1, "content is missing"), "{report}");
}

#[tokio::test]
async fn chatgpts_conversations_become_what_was_said_on_the_branch_that_was_shown() {
    let said = |role: &str, text: &str, at: f64| {
        json!({ "author": { "role": role }, "create_time": at, "recipient": "all", "metadata": {},
                "content": { "content_type": "text", "parts": [text] } })
    };
    let node = |message: Value, parent: Option<&str>| json!({ "message": message, "parent": parent, "children": [] });
    let mut hidden = said("user", "hidden", 3.0);
    hidden["metadata"]["is_visually_hidden_from_conversation"] = json!(true);
    let mut tool = said("assistant", "search(x)", 3.0);
    tool["recipient"] = json!("browser");
    let picture = json!({ "author": { "role": "user" }, "create_time": null, "content": { "content_type": "multimodal_text",
                          "parts": [{ "asset_pointer": "file-service://x" }, "What is this?"] } });
    let file = json!([
        { "title": "Trips", "conversation_id": "c1", "create_time": 1_735_787_045.0, "current_node": "n6", "mapping": {
            "n0": node(Value::Null, None),
            "n1": node(said("system", "You are", 1.0), Some("n0")),
            "n2": node(said("user", "I fly to Oslo in May", 1_735_787_045.25), Some("n1")),
            "other": node(said("assistant", "An answer that was replaced", 2.0), Some("n2")),
            "n3": node(tool, Some("n2")),
            "n4": node(hidden, Some("n3")),
            "n5": node(said("assistant", "Oslo is light in May", 1_735_787_050.0), Some("n4")),
            "n6": node(picture, Some("n5")),
        } },
        { "title": "Circle", "id": "c2", "current_node": "a", "mapping": {
            "a": node(said("user", "Round", 1.0), Some("b")), "b": node(said("user", "and round", 1.0), Some("a")) } },
        { "title": "Broken", "id": "c3", "mapping": [] },
    ]);
    let (report, memories) =
        imported(Format::ChatGpt, SCOPE, &serde_json::to_string_pretty(&file).unwrap()).await;
    let expected = [
        "User: I fly to Oslo in May",
        "Assistant: Oslo is light in May",
        "User: What is this?",
        "User: and round",
        "User: Round",
    ];
    assert_eq!(texts(&memories), expected);
    assert_eq!(memories[0]["occurred_at"], "2025-01-02T03:04:05.250Z");
    assert_eq!(memories[0]["source"], "chatgpt:c1");
    assert_eq!(memories[1]["tags"], json!(["chatgpt", "assistant"]));
    assert_eq!(memories[2]["occurred_at"], "2025-01-02T03:04:05Z", "the conversation's own");
    assert_eq!((report.refused, report.reasons[0].1.starts_with("mapping")), (1, true), "{report}");
}

#[tokio::test]
async fn claudes_conversations_memories_and_projects_come_in() {
    let conversations = json!([
        { "uuid": "u1", "name": "Garden", "created_at": "2025-03-01T10:00:00.000000Z", "account": { "uuid": "a" },
          "chat_messages": [
            { "uuid": "m1", "sender": "human", "text": "The roses need lime", "content": [], "created_at": "2025-03-01T10:00:01Z" },
            { "uuid": "m2", "sender": "assistant", "text": "old form", "created_at": "2025-03-01T10:00:02Z", "content": [
                { "type": "thinking", "thinking": "hm" }, { "type": "text", "text": "A handful each" },
                { "type": "tool_use", "name": "search", "input": {} }, { "type": "text", "text": "in spring" }] },
            { "uuid": "m3", "sender": "human", "text": "", "content": [], "files": [{ "file_name": "a.png" }] },
          ] },
        { "uuid": "u2", "name": "No messages" },
        { "uuid": "u3", "name": "Bad time", "created_at": "Zephyrine", "chat_messages": [] },
    ]);
    let (report, memories) = imported(Format::Claude, SCOPE, &conversations.to_string()).await;
    assert_eq!(texts(&memories), ["User: The roses need lime", "Assistant: A handful each\nin spring"]);
    assert_eq!(memories[0]["metadata"], json!({ "conversation": "u1", "message": "m1", "title": "Garden" }));
    // A project without anything to say is none of the two.
    assert_eq!((report.refused, report.reasons[0].1.as_str()), (1, "created_at is no time"), "{report}");

    let memory =
        "**Work context**\n\nAnn builds bridges.\n\nShe likes short answers.\n\n## Home\n\nTwo cats.";
    for memories_file in [
        json!([{ "conversations_memory": memory, "project_memories": { "p1": "Needs tests." }, "account_uuid": "a" }]),
        json!({ "conversations_memory": memory, "project_memories": { "p1": "Needs tests." } }),
    ] {
        let (_, memories) =
            imported(Format::Claude, SCOPE, &serde_json::to_string_pretty(&memories_file).unwrap()).await;
        let expected = [
            "Work context: Ann builds bridges.",
            "Work context: She likes short answers.",
            "Home: Two cats.",
            "Needs tests.",
        ];
        assert_eq!(texts(&memories), expected);
    }

    let projects = json!([{ "uuid": "p1", "name": "Bridge", "description": "Over the fjord", "prompt_template": "Be brief",
                            "created_at": "2025-01-01T00:00:00Z", "docs": [{ "filename": "a.md", "content": "text" }] }]);
    let (_, memories) = imported(Format::Claude, SCOPE, &projects.to_string()).await;
    assert_eq!(texts(&memories), ["Bridge: Over the fjord", "Bridge: Be brief"]);
}

#[tokio::test]
async fn a_document_that_breaks_off_gives_what_came_before() {
    let app = TestApp::start().await;
    let worker = worker(&app, &[]).await;
    for (scope, file, line, why) in [
        (
            "user:1",
            "{\"results\":[\n{\"memory\":\"First\"},\n{\"memory\":\"Sec",
            3,
            "the file ends in the middle",
        ),
        ("user:2", "[{\"memory\":\"First\"},\n{\"memory\": nothing}]", 2, "it is no JSON from here on"),
        ("user:3", "[{\"memory\":\"First\"}]\n\nand more", 3, "it is no JSON from here on"),
        ("user:4", "{\"memories\":[{\"memory\":\"First\"}],\"results\":7}", 1, "not of the kind"),
    ] {
        let report = import(&worker, Format::Mem0, Some(scope), Mode::Write, file).await;
        assert_eq!((report.stored, report.refused), (1, 1), "{file}: {report}");
        assert_eq!(report.reasons[0].0, line, "{file}: {report}");
        assert!(report.reasons[0].1.contains(why), "{file}: {report}");
    }
    let deep = "[".repeat(100_000);
    for file in [deep.as_str(), "", "7", "\"text\"", "null", "{}"] {
        let report = import(&worker, Format::ChatGpt, Some("user:5"), Mode::Write, file).await;
        assert_eq!((report.stored, report.refused), (0, u64::from(file != "{}")), "{report}");
    }
    worker.stop().await.unwrap();
    app.stop().await;
}

/// A document that is made while it is read.
struct Endless {
    made: std::rc::Rc<std::cell::Cell<usize>>,
    left: usize,
    rest: Vec<u8>,
}

impl std::io::Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.rest.is_empty() && self.left > 0 {
            let first = if self.made.get() == 0 { "[" } else { "," };
            self.made.set(self.made.get() + 1);
            self.left -= 1;
            let end = if self.left == 0 { "]" } else { "" };
            let text = "x".repeat(2_000);
            self.rest =
                format!("{first}\n{{\"id\":\"{}\",\"memory\":\"{text}\"}}{end}", self.left).into_bytes();
        }
        let length = into.len().min(self.rest.len());
        into[..length].copy_from_slice(&self.rest[..length]);
        self.rest.drain(..length);
        Ok(length)
    }
}

#[test]
fn a_list_of_any_length_is_never_held_as_a_whole() {
    let made = std::rc::Rc::new(std::cell::Cell::new(0));
    let file = Endless { made: std::rc::Rc::clone(&made), left: 20_000, rest: Vec::new() };
    let plan = memser::port::Plan {
        format: Format::Mem0,
        scope: memser::model::Scope::parse("user:1").ok(),
        now: crate::support::start_of_time(),
    };
    let (mut given, mut ahead) = (0, 0);
    memser::port::read(file, &plan, &mut |entry| {
        given += 1;
        assert!(entry.what.is_ok() && entry.line == given as u64 + 1, "{entry:?}");
        ahead = ahead.max(made.get() - given);
        true
    })
    .unwrap();
    // What the buffer holds, and no more.
    assert_eq!(given, 20_000);
    assert!(ahead <= memser::port::HEAD / 2_000 + 1, "{ahead} records were read ahead");
}

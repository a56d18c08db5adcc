//! `list_memories`.

use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::client::contents;

#[tokio::test]
async fn pages_stay_stable_while_others_store() {
    let app = TestApp::start().await;
    let client = app.admin();
    let names = ["heron", "bread", "kettle", "violin", "granite", "lemon", "harbour"];
    for name in names {
        client.store("user:1", name).await;
        app.clock.advance(std::time::Duration::from_secs(1));
    }
    for order in ["newest", "oldest"] {
        let mut expected: Vec<String> = contents(
            &client.ok("list_memories", json!({ "scope": "user:1", "order": order, "limit": 100 })).await,
        );
        let (mut seen, mut cursor) = (Vec::new(), Value::Null);
        loop {
            let page = json!({ "scope": "user:1", "order": order, "limit": 3, "cursor": cursor });
            let page = client.ok("list_memories", page).await;
            assert!(contents(&page).len() <= 3);
            seen.extend(contents(&page));
            cursor = page["next_cursor"].clone();
            if cursor.is_null() {
                break;
            }
            client
                .store(
                    "user:1",
                    &format!(
                        "{order} newcomer {}",
                        ["zebra", "quartz", "umbrella", "fjord", "tulip"][seen.len() % 5]
                    ),
                )
                .await;
            app.clock.advance(std::time::Duration::from_secs(1));
        }
        if order == "oldest" {
            // Newcomers belong to the end of this order.
            seen.truncate(expected.len());
        }
        expected.truncate(seen.len());
        assert_eq!(seen, expected, "{order}");
        assert!(seen.len() >= names.len());
    }
    app.stop().await;
}

#[tokio::test]
async fn a_list_refuses_what_is_no_page_and_makes_no_scope() {
    let app = TestApp::start().await;
    let client = app.admin();
    let empty = client.ok("list_memories", json!({ "scope": "user:1" })).await;
    assert_eq!(empty, json!({ "memories": [] }));
    let mut connection = app.database.connect().await;
    let scopes: i64 =
        sqlx::query_scalar("select count(*) from scopes").fetch_one(&mut connection).await.unwrap();
    assert_eq!(scopes, 0);
    for (arguments, field) in [
        (json!({ "cursor": "nonsense" }), "cursor"),
        (json!({ "limit": 0 }), "limit"),
        (json!({ "limit": 101 }), "limit"),
    ] {
        let mut arguments = arguments;
        arguments["scope"] = "user:1".into();
        let error = client.refused("list_memories", arguments).await;
        assert_eq!((&error["code"], &error["field"]), (&json!("invalid_argument"), &json!(field)));
    }
    app.stop().await;
}

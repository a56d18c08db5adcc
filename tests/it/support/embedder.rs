//! An embeddings endpoint whose vectors a test chooses.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use super::{TestApp, TestAppBuilder};

/// An endpoint that gives each text the vector that `vector` makes of it.
pub async fn endpoint(vector: impl Fn(&str) -> Vec<f32> + Send + Sync + 'static) -> MockServer {
    let server = MockServer::start().await;
    answer_with(&server, vector).await;
    server
}

/// Lets an endpoint that was down, or answered otherwise, give these vectors from now on.
pub async fn answer_with(server: &MockServer, vector: impl Fn(&str) -> Vec<f32> + Send + Sync + 'static) {
    server.reset().await;
    let respond = move |request: &Request| {
        let body: Value = request.body_json().unwrap();
        let texts = body["input"].as_array().unwrap().iter();
        let data: Vec<Value> = texts
            .enumerate()
            .map(|(index, text)| json!({ "index": index, "embedding": vector(text.as_str().unwrap()) }))
            .collect();
        ResponseTemplate::new(200).set_body_json(json!({ "data": data }))
    };
    Mock::given(method("POST")).respond_with(respond).mount(server).await;
}

/// An endpoint that tells when it is asked and then says nothing for longer than any test waits.
pub async fn silent() -> (MockServer, UnboundedReceiver<()>) {
    let server = MockServer::start().await;
    let (asked, heard) = mpsc::unbounded_channel();
    let respond = move |_: &Request| {
        asked.send(()).unwrap();
        ResponseTemplate::new(200).set_delay(Duration::from_secs(30))
    };
    Mock::given(method("POST")).respond_with(respond).mount(&server).await;
    (server, heard)
}

/// A memser that asks the endpoint at `url` for vectors of this length.
pub fn asking(url: &str, dimensions: usize) -> TestAppBuilder {
    TestApp::builder()
        .set("EMBEDDER", "openai")
        .set("EMBEDDING_URL", url)
        .set("EMBEDDING_DIMENSIONS", dimensions.to_string())
}

//! What memser takes from an embeddings endpoint, and what it refuses.

use std::time::Duration;

use http::StatusCode;
use memser::clock::Clock;
use memser::provider::embed::{EmbedError, Embedder};
use memser::provider::openai::{OpenAi, OpenAiSettings};
use serde_json::{Value, json};
use wiremock::matchers::{body_partial_json, header, method, path};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

const KEY: &str = "sk-very-secret";
const TEXT: &str = "private text 0";

fn settings(server: &MockServer) -> OpenAiSettings {
    OpenAiSettings {
        dimensions: Some(2),
        key: Some(KEY.into()),
        request_timeout: Duration::from_millis(300),
        call_timeout: Duration::from_secs(1),
        ..OpenAiSettings::new(format!("{}/v1", server.uri()), "tiny")
    }
}

fn embedder(server: &MockServer) -> Embedder {
    with(&settings(server))
}

fn with(settings: &OpenAiSettings) -> Embedder {
    Embedder::openai(OpenAi::new(settings, Clock::System).unwrap(), 0)
}

/// What a sweep gets for texts that all go well.
async fn all(embedder: &Embedder, texts: &[String]) -> Vec<Vec<f32>> {
    embedder.embed_each(texts).await.into_iter().collect::<Result<_, _>>().unwrap()
}

/// A server that always answers so.
async fn answering(answer: ResponseTemplate) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(method("POST")).respond_with(answer).mount(&server).await;
    server
}

fn vectors(vectors: &[Value]) -> Value {
    let data: Vec<Value> = vectors
        .iter()
        .enumerate()
        .map(|(index, vector)| json!({ "object": "embedding", "index": index, "embedding": vector }))
        .collect();
    json!({ "object": "list", "data": data, "model": "tiny", "usage": { "prompt_tokens": 1, "total_tokens": 1 } })
}

fn texts(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("private text {n}")).collect()
}

async fn refusal(answer: ResponseTemplate) -> EmbedError {
    let server = answering(answer).await;
    embedder(&server).embed(TEXT).await.unwrap_err()
}

async fn requests(server: &MockServer) -> usize {
    server.received_requests().await.unwrap().len()
}

fn near(actual: &[f32], expected: &[f32]) -> bool {
    actual.len() == expected.len() && actual.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6)
}

#[tokio::test]
async fn vectors_come_back_in_the_texts_order_and_of_length_one() {
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .and(path("/v1/embeddings"))
        .and(header("authorization", format!("Bearer {KEY}").as_str()))
        .and(body_partial_json(json!({ "model": "tiny", "dimensions": 2, "input": texts(2) })))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({ "data": [
            { "index": 1, "embedding": [0.0, 5.0] },
            { "index": 0, "embedding": [3.0, 4.0] },
        ] })))
        .mount(&server)
        .await;
    let embedder = embedder(&server);
    assert_eq!((embedder.provider(), embedder.model(), embedder.dimensions()), ("openai", "tiny", 2));
    let vectors = all(&embedder, &texts(2)).await;
    assert!(near(&vectors[0], &[0.6, 0.8]) && near(&vectors[1], &[0.0, 1.0]), "{vectors:?}");
}

#[tokio::test]
async fn many_texts_go_out_in_batches_and_come_back_in_order() {
    let server = MockServer::start().await;
    // Each vector's direction tells which text it is for.
    let answer = |request: &Request| {
        let body: Value = request.body_json().unwrap();
        let vectors_of: Vec<Value> = body["input"]
            .as_array()
            .unwrap()
            .iter()
            .map(|text| json!([text.as_str().unwrap()[13..].parse::<f32>().unwrap(), 1.0]))
            .collect();
        ResponseTemplate::new(200).set_body_json(vectors(&vectors_of))
    };
    Mock::given(method("POST")).respond_with(answer).mount(&server).await;
    let vectors = all(&embedder(&server), &texts(300)).await;
    assert_eq!((vectors.len(), requests(&server).await), (300, 10));
    for (n, vector) in (0_u16..).zip(&vectors) {
        let ratio = vector[0] / vector[1];
        assert!((ratio - f32::from(n)).abs() < 0.01, "{n}: {ratio}");
    }
}

#[tokio::test]
async fn no_text_needs_no_request() {
    let server = MockServer::start().await;
    assert!(embedder(&server).embed_each(&[]).await.is_empty());
    assert_eq!(requests(&server).await, 0);
}

#[tokio::test]
async fn a_busy_endpoint_is_asked_again() {
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .respond_with(ResponseTemplate::new(429).insert_header("retry-after", "0"))
        .up_to_n_times(1)
        .mount(&server)
        .await;
    Mock::given(method("POST"))
        .respond_with(ResponseTemplate::new(200).set_body_json(vectors(&[json!([1.0, 0.0])])))
        .mount(&server)
        .await;
    assert_eq!(embedder(&server).embed(TEXT).await.unwrap(), [1.0, 0.0]);
    assert_eq!(requests(&server).await, 2);
}

#[tokio::test]
async fn a_wait_longer_than_the_budget_is_not_waited_for() {
    let server = answering(ResponseTemplate::new(429).insert_header("retry-after", "60")).await;
    let error = embedder(&server).embed(TEXT).await.unwrap_err();
    let retry_after = Some(Duration::from_mins(1));
    assert_eq!(error, EmbedError::Status { status: StatusCode::TOO_MANY_REQUESTS, retry_after });
    assert_eq!(requests(&server).await, 1);
}

#[tokio::test]
async fn a_failing_endpoint_is_given_up_in_time() {
    let server = answering(ResponseTemplate::new(500)).await;
    let error = embedder(&server).embed(TEXT).await.unwrap_err();
    assert!(error.is_transient());
    assert!(requests(&server).await > 1);
}

#[tokio::test]
async fn a_silent_endpoint_is_given_up_in_time() {
    let server = answering(ResponseTemplate::new(200).set_delay(Duration::from_secs(30))).await;
    assert_eq!(embedder(&server).embed(TEXT).await.unwrap_err(), EmbedError::Timeout);
}

#[tokio::test]
async fn an_absent_endpoint_is_unreachable() {
    let settings = OpenAiSettings {
        call_timeout: Duration::from_millis(500),
        ..OpenAiSettings::new("http://127.0.0.1:1/v1", "text-embedding-3-small")
    };
    let embedder = with(&settings);
    assert_eq!(embedder.embed(TEXT).await.unwrap_err(), EmbedError::Unreachable);
}

#[tokio::test]
async fn a_refusal_is_final_and_its_words_are_not_repeated() {
    let words = format!("Incorrect API key provided: {KEY}, for 'private text 0'");
    let server = answering(ResponseTemplate::new(401).set_body_string(words)).await;
    let embedder = embedder(&server);
    let error = embedder.embed(TEXT).await.unwrap_err();
    assert!(!error.is_transient());
    assert_eq!(requests(&server).await, 1);
    let said = format!("{error} {error:?} {embedder:?} {:?}", settings(&server));
    assert!(!said.contains(KEY) && !said.contains("private"), "{said}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let error = refusal(ResponseTemplate::new(307).insert_header("location", "http://127.0.0.1:1/")).await;
    assert_eq!(error, EmbedError::Status { status: StatusCode::TEMPORARY_REDIRECT, retry_after: None });
}

#[tokio::test]
async fn a_wrong_dimension_is_refused() {
    let error = refusal(ResponseTemplate::new(200).set_body_json(vectors(&[json!([1.0, 0.0, 0.0])]))).await;
    assert_eq!(error, EmbedError::Dimensions { expected: 2, actual: 3 });
}

#[tokio::test]
async fn unusable_answers_are_refused() {
    let one = json!([1.0, 0.0]);
    let bodies = [
        ("NaN, which JSON writes as null", vectors(&[json!([null, 1.0])]).to_string()),
        ("beyond f32", vectors(&[json!([1e39, 1.0])]).to_string()),
        ("all zeros", vectors(&[json!([0.0, 0.0])]).to_string()),
        ("too many", vectors(&[one.clone(), one.clone()]).to_string()),
        ("none", vectors(&[]).to_string()),
        ("a wrong index", json!({ "data": [{ "index": 1, "embedding": one }] }).to_string()),
        ("truncated", vectors(std::slice::from_ref(&one)).to_string()[..30].to_owned()),
        ("no JSON", "<html>".to_owned()),
    ];
    for (what, body) in bodies {
        let error = refusal(ResponseTemplate::new(200).set_body_string(body)).await;
        assert!(matches!(error, EmbedError::Unusable(_)), "{what}: {error:?}");
        assert!(!error.is_transient(), "{what}");
    }
}

#[test]
fn settings_that_cannot_work_are_refused_by_name() {
    let field = |settings: OpenAiSettings| {
        OpenAi::new(&settings, Clock::System).unwrap_err().field().map(str::to_owned)
    };
    let known = |url: &str| OpenAiSettings::new(url, "text-embedding-3-large");
    let url = "https://example.org/v1";
    assert_eq!(field(OpenAiSettings::new(url, "unheard-of")).as_deref(), Some("EMBEDDING_DIMENSIONS"));
    let none = OpenAiSettings { dimensions: Some(0), ..known(url) };
    assert_eq!(field(none).as_deref(), Some("EMBEDDING_DIMENSIONS"));
    for url in ["", "example.org", "ftp://example.org", "https://me:pass@example.org/v1"] {
        assert_eq!(field(known(url)).as_deref(), Some("EMBEDDING_URL"), "{url}");
    }
    let key = OpenAiSettings { key: Some("sk\n1".into()), ..known(url) };
    assert_eq!(field(key).as_deref(), Some("OPENAI_API_KEY"));
    assert_eq!(with(&known(url)).dimensions(), 3072);
}

#[tokio::test]
async fn hashing_needs_no_network() {
    let embedder = Embedder::hash(64);
    let vectors = all(&embedder, &texts(2)).await;
    assert_eq!(vectors.iter().map(Vec::len).collect::<Vec<_>>(), [64, 64]);
    assert_eq!(vectors[0], embedder.embed(TEXT).await.unwrap());
}

//! What a vector costs with each embedder: alone, as in a store or a recall, and in a sweep's batch of 64.
//!
//! ```sh
//! cargo bench --bench embedders
//! ```
//!
//! `local` is measured where `make model` has put a model. `openai` asks a server in this process that answers at once:
//! that is memser's own share, on top of which comes whatever an endpoint takes.

#![expect(clippy::expect_used, reason = "a bench has nobody to tell")]

use std::hint::black_box;
use std::path::Path;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use memser::clock::Clock;
use memser::provider::embed::Embedder;
use memser::provider::local::{Local, LocalSettings};
use memser::provider::openai::{OpenAi, OpenAiSettings};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

/// As long as a usual memory: 18 words. The number makes each another text.
fn texts(count: usize) -> Vec<String> {
    let text = |number| {
        format!(
            "Anna told us on day {number} that the review moves to Thursday, because the release needs more time."
        )
    };
    (0..count).map(text).collect()
}

async fn endpoint() -> MockServer {
    let server = MockServer::start().await;
    let vector: Vec<f32> = (0_u8..=255).cycle().take(1_536).map(f32::from).collect();
    let answer = move |request: &Request| {
        let body: Value = request.body_json().unwrap_or_default();
        let count = body["input"].as_array().map_or(0, Vec::len);
        let data: Vec<Value> =
            (0..count).map(|index| json!({ "index": index, "embedding": vector })).collect();
        ResponseTemplate::new(200).set_body_json(json!({ "data": data }))
    };
    Mock::given(any()).respond_with(answer).mount(&server).await;
    server
}

fn embedders(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(endpoint());
    let settings = OpenAiSettings::new(server.uri(), "text-embedding-3-small");
    let openai = OpenAi::new(&settings, Clock::System).expect("settings of our own");
    // Nothing is remembered: what is measured is the making.
    let mut embedders = vec![("hash", Embedder::hash(1_024)), ("openai", Embedder::openai(openai, 0))];
    let model = Path::new(".models/all-MiniLM-L6-v2");
    if model.exists() {
        let local = Local::start(&LocalSettings::new(model)).expect("the model of make model");
        embedders.push(("local", Embedder::local(local, 0)));
    }
    let mut group = criterion.benchmark_group("embed");
    for (name, embedder) in &embedders {
        for count in [1, 64] {
            let texts = texts(count);
            group.throughput(Throughput::Elements(count as u64));
            group.sample_size(if *name == "local" { 10 } else { 50 });
            group.bench_with_input(BenchmarkId::new(*name, count), &texts, |bencher, texts| {
                bencher.to_async(&runtime).iter(|| async {
                    if let [text] = texts.as_slice() {
                        black_box(embedder.embed(text).await.is_ok());
                    } else {
                        black_box(embedder.embed_each(texts).await.len());
                    }
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, embedders);
criterion_main!(benches);

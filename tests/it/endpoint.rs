//! How memser lives with an embeddings endpoint: when it is left alone, what becomes of texts that it does not take, and
//! what is not asked for twice.

use std::time::Duration;

use futures::future::join_all;
use memser::clock::{Clock, FixedClock};
use memser::provider::embed::{EmbedError, Embedder};
use memser::provider::openai::{OpenAi, OpenAiSettings};
use serde_json::{Value, json};
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use crate::support::start_of_time;

/// What memser sends of its own to see whether an endpoint works.
const HARMLESS: &str = "ready?";
const CACHE_BYTES: u64 = 1 << 20;

struct Endpoint {
    server: MockServer,
    clock: FixedClock,
    embedder: Embedder,
}

impl Endpoint {
    async fn start(cache_bytes: u64, change: impl FnOnce(&mut OpenAiSettings)) -> Self {
        let server = MockServer::start().await;
        let clock = FixedClock::at(start_of_time());
        let mut settings = OpenAiSettings::new(server.uri(), "tiny");
        settings.dimensions = Some(2);
        change(&mut settings);
        let openai = OpenAi::new(&settings, Clock::Fixed(clock.clone())).unwrap();
        Self { server, clock, embedder: Embedder::openai(openai, cache_bytes) }
    }

    /// From now on every request is answered by what `answer` makes of its texts.
    async fn answers(&self, answer: impl Fn(&[String]) -> ResponseTemplate + Send + Sync + 'static) {
        self.server.reset().await;
        let respond = move |request: &Request| answer(&inputs(request));
        Mock::given(method("POST")).respond_with(respond).mount(&self.server).await;
    }

    /// The texts of every request since the answers were set.
    async fn asked(&self) -> Vec<Vec<String>> {
        self.server.received_requests().await.unwrap().iter().map(inputs).collect()
    }

    async fn sweep(&self, texts: &[&str]) -> Vec<Result<Vec<f32>, EmbedError>> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        self.embedder.embed_each(&texts).await
    }

    /// An endpoint of which three answers have opened the breaker.
    async fn down() -> Self {
        let endpoint = Self::start(0, |_| {}).await;
        endpoint.answers(|_| status(500)).await;
        let error = endpoint.embedder.embed("one").await.unwrap_err();
        assert!(matches!(error, EmbedError::Status { status, .. } if status == 500), "{error:?}");
        assert_eq!(endpoint.asked().await, [["one"], ["one"], [HARMLESS]]);
        assert!(!endpoint.embedder.is_up());
        endpoint
    }
}

fn inputs(request: &Request) -> Vec<String> {
    let body: Value = request.body_json().unwrap();
    serde_json::from_value(body["input"].clone()).unwrap()
}

fn status(status: u16) -> ResponseTemplate {
    ResponseTemplate::new(status)
}

/// The vector of every text: its length, and 1.
fn vectors(texts: &[String]) -> ResponseTemplate {
    let vectors = texts.iter().enumerate().map(|(index, text)| {
        let bytes = u32::try_from(text.len()).unwrap();
        json!({ "index": index, "embedding": [bytes, 1] })
    });
    status(200).set_body_json(json!({ "data": vectors.collect::<Vec<_>>() }))
}

/// Whether a vector is that of this text.
fn is_of(vector: &[f32], text: &str) -> bool {
    let bytes = f32::from(u16::try_from(text.len()).unwrap());
    (vector[0] / vector[1] - bytes).abs() < 0.01
}

#[tokio::test]
async fn an_endpoint_that_fails_is_left_alone_until_its_time() {
    let endpoint = Endpoint::down().await;
    endpoint.answers(vectors).await;
    assert_eq!(endpoint.embedder.embed("two").await, Err(EmbedError::LeftAlone));
    assert_eq!(endpoint.sweep(&["two"]).await, [Err(EmbedError::LeftAlone)]);
    assert!(endpoint.asked().await.is_empty());
    endpoint.clock.advance(Duration::from_secs(5));
    assert!(endpoint.embedder.embed("three").await.is_ok());
    assert_eq!(endpoint.asked().await, [[HARMLESS], ["three"]]);
    assert!(endpoint.embedder.is_up());
    assert!(endpoint.embedder.embed("four").await.is_ok());
    assert_eq!(endpoint.asked().await.len(), 3);
}

#[tokio::test]
async fn of_many_calls_one_finds_out_and_each_time_later() {
    let endpoint = Endpoint::down().await;
    let moment = Duration::from_millis(1);
    for wait in [4_999, 9_999, 19_999] {
        endpoint.answers(|_| status(503)).await;
        endpoint.clock.advance(Duration::from_millis(wait));
        assert_eq!(endpoint.embedder.embed("early").await, Err(EmbedError::LeftAlone));
        endpoint.clock.advance(moment);
        let calls = join_all(["a", "b", "c", "d"].map(|text| endpoint.embedder.embed(text))).await;
        let alone = calls.iter().filter(|call| **call == Err(EmbedError::LeftAlone)).count();
        assert_eq!((alone, endpoint.asked().await.len()), (3, 1), "{calls:?}");
    }
}

#[tokio::test]
async fn a_probe_whose_caller_goes_away_leaves_the_next_one_free() {
    let endpoint = Endpoint::down().await;
    endpoint.answers(|_| status(200).set_delay(Duration::from_secs(30))).await;
    endpoint.clock.advance(Duration::from_secs(5));
    let embedder = endpoint.embedder.clone();
    let call = tokio::spawn(async move { embedder.embed("gone").await });
    while endpoint.asked().await.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(endpoint.embedder.embed("meanwhile").await, Err(EmbedError::LeftAlone));
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    endpoint.answers(vectors).await;
    assert!(endpoint.embedder.embed("next").await.is_ok());
}

#[tokio::test]
async fn the_time_that_an_endpoint_asks_for_holds_for_every_call() {
    for code in [429, 503] {
        let endpoint = Endpoint::start(0, |_| {}).await;
        endpoint.answers(move |_| status(code).insert_header("retry-after", "30")).await;
        assert!(endpoint.embedder.embed("one").await.is_err());
        assert_eq!(endpoint.asked().await.len(), 1, "nobody waits so long");
        endpoint.answers(vectors).await;
        endpoint.clock.advance(Duration::from_secs(29));
        assert_eq!(endpoint.embedder.embed("two").await, Err(EmbedError::LeftAlone), "{code}");
        endpoint.clock.advance(Duration::from_secs(1));
        assert!(endpoint.embedder.embed("two").await.is_ok());
    }
}

#[tokio::test]
async fn a_retry_after_may_be_a_date_and_may_be_nonsense() {
    let date = |seconds: u64| httpdate::fmt_http_date(std::time::UNIX_EPOCH + Duration::from_secs(seconds));
    for (asked, is_waited) in
        [(date(1_030), true), (date(900), false), ("soon".to_owned(), false), (u64::MAX.to_string(), true)]
    {
        let endpoint = Endpoint::start(0, |_| {}).await;
        let now = date(1_000);
        let first =
            status(503).insert_header("date", now.as_str()).insert_header("retry-after", asked.as_str());
        Mock::given(method("POST")).respond_with(first).up_to_n_times(1).mount(&endpoint.server).await;
        let then = |request: &Request| vectors(&inputs(request));
        Mock::given(method("POST")).respond_with(then).mount(&endpoint.server).await;
        assert_eq!(endpoint.embedder.embed("text").await.is_err(), is_waited, "{asked}");
    }
}

#[tokio::test]
async fn a_refused_text_is_told_from_an_endpoint_that_refuses_everything() {
    for code in [400, 413, 422] {
        let endpoint = Endpoint::start(0, |_| {}).await;
        let picky = move |texts: &[String]| {
            if texts.iter().any(|text| text == "bad") { status(code) } else { vectors(texts) }
        };
        endpoint.answers(picky).await;
        for _ in 0..5 {
            assert_eq!(endpoint.embedder.embed("bad").await, Err(EmbedError::Refused));
        }
        assert!(endpoint.embedder.is_up());
        assert!(endpoint.embedder.embed("good").await.is_ok(), "{code}");

        endpoint.answers(move |_| status(code)).await;
        let error = endpoint.embedder.embed("good").await.unwrap_err();
        assert!(matches!(error, EmbedError::Status { status, .. } if status == code), "{error:?}");
        assert!(!endpoint.embedder.is_up());
    }
}

#[tokio::test]
async fn a_text_on_which_the_endpoint_fails_is_not_taken_for_an_endpoint_that_is_down() {
    let endpoint = Endpoint::start(0, |_| {}).await;
    // What a llama.cpp server says to a text that is too long for it.
    endpoint.answers(|texts| if texts == ["long"] { status(500) } else { vectors(texts) }).await;
    for _ in 0..5 {
        let error = endpoint.embedder.embed("long").await.unwrap_err();
        assert!(matches!(error, EmbedError::Status { status, .. } if status == 500), "{error:?}");
        assert!(endpoint.embedder.is_up());
    }
    assert!(endpoint.embedder.embed("short").await.is_ok());
}

#[tokio::test]
async fn one_text_that_is_refused_keeps_no_other_from_its_vector() {
    let endpoint = Endpoint::start(0, |_| {}).await;
    endpoint
        .answers(
            |texts| {
                if texts.iter().any(|text| text.starts_with("bad")) { status(400) } else { vectors(texts) }
            },
        )
        .await;
    let texts = ["1", "22", "bad", "4444", "55555", "bad too", "7777777"];
    for (text, answer) in texts.iter().zip(endpoint.sweep(&texts).await) {
        match answer {
            Ok(vector) => assert!(is_of(&vector, text), "{text}"),
            Err(error) => {
                assert_eq!(error, EmbedError::Refused);
                assert!(text.starts_with("bad"), "{text}");
            }
        }
    }
}

#[tokio::test]
async fn a_text_that_always_fails_is_given_up_and_one_that_failed_is_not() {
    let endpoint = Endpoint::start(0, |_| {}).await;
    // Nothing that is a vector, for these texts alone.
    let failing = |texts: &[String]| match texts.iter().find(|text| text.starts_with("bad")) {
        Some(text) if text == "bad status" => status(500),
        Some(_) => status(200).set_body_json(json!({ "data": [{ "index": 0, "embedding": [null, 1] }] })),
        None => vectors(texts),
    };
    endpoint.answers(failing).await;
    let texts = ["bad status", "1", "bad numbers", "22"];
    for attempt in 1..=4 {
        let answers = endpoint.sweep(&texts).await;
        assert!(answers[1].is_ok() && answers[3].is_ok(), "{answers:?}");
        for bad in [&answers[0], &answers[2]] {
            assert_eq!(*bad == Err(EmbedError::Refused), attempt >= 3, "{attempt}: {bad:?}");
        }
    }
    // For now no sweep asks for it again.
    endpoint.answers(vectors).await;
    assert_eq!(endpoint.sweep(&["bad status", "bad numbers"]).await, [const { Err(EmbedError::Refused) }; 2]);
    assert!(endpoint.asked().await.is_empty());
    // What failed less often, or long ago and well since, is as good as any other.
    assert!(endpoint.sweep(&["1", "22"]).await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_sweep_at_an_endpoint_that_refuses_everything_gives_up_no_text() {
    for code in [400, 401, 404, 500] {
        let endpoint = Endpoint::start(0, |_| {}).await;
        endpoint.answers(move |_| status(code)).await;
        for _ in 0..5 {
            let answers = endpoint.sweep(&["one", "two"]).await;
            assert!(answers.iter().all(|answer| *answer != Err(EmbedError::Refused)), "{answers:?}");
            endpoint.clock.advance(Duration::from_mins(1));
        }
    }
}

#[tokio::test]
async fn a_long_text_is_sent_in_pieces_and_pooled_by_their_lengths() {
    let endpoint = Endpoint::start(0, |settings| settings.max_text_bytes = 10).await;
    let answer = |texts: &[String]| {
        let vector = |text: &String| if text.starts_with('a') { [1.0, 0.0] } else { [0.0, 1.0] };
        let data =
            texts.iter().enumerate().map(|(at, text)| json!({ "index": at, "embedding": vector(text) }));
        status(200).set_body_json(json!({ "data": data.collect::<Vec<_>>() }))
    };
    endpoint.answers(answer).await;
    let vector = endpoint.embedder.embed("aaaa aaaa. bbbb bbbb").await.unwrap();
    assert_eq!(endpoint.asked().await, [["aaaa aaaa.", "bbbb bbbb"]]);
    assert!((vector[0] / vector[1] - 10.0 / 9.0).abs() < 1e-5, "{vector:?}");
    // What comes after the first 32 pieces does not count.
    let beyond = format!("{}{}", "aaaaaaaaa ".repeat(32), "bbbbbbbbb ".repeat(8));
    assert_eq!(endpoint.embedder.embed(&beyond).await.unwrap(), [1.0, 0.0]);
}

#[tokio::test]
async fn what_is_known_is_not_asked_for_again() {
    let endpoint = Endpoint::start(CACHE_BYTES, |_| {}).await;
    endpoint.answers(vectors).await;
    let first = endpoint.embedder.embed("tea").await.unwrap();
    assert_eq!(endpoint.embedder.embed("tea").await.unwrap(), first);
    // The same text, as far as the endpoint sees it.
    assert_eq!(endpoint.embedder.embed(" tea\n").await.unwrap(), first);
    assert_eq!(endpoint.sweep(&["tea", "tea "]).await, [Ok(first.clone()), Ok(first)]);
    endpoint.embedder.embed("caf\u{e9}").await.unwrap();
    endpoint.embedder.embed("cafe\u{301}").await.unwrap();
    // Another text for the endpoint, whatever it means.
    endpoint.embedder.embed("Tea").await.unwrap();
    assert_eq!(endpoint.asked().await, [["tea"], ["caf\u{e9}"], ["Tea"]]);
    // What a sweep learned, a call knows; within the sweep nothing is asked for twice.
    endpoint.answers(vectors).await;
    assert!(endpoint.sweep(&["milk", "rum", "milk"]).await.iter().all(Result::is_ok));
    endpoint.embedder.embed("rum").await.unwrap();
    assert_eq!(endpoint.asked().await, [["milk", "rum"]]);
}

#[tokio::test]
async fn calls_for_one_text_at_once_wait_for_one_request() {
    let endpoint = Endpoint::start(CACHE_BYTES, |_| {}).await;
    endpoint.answers(|texts| vectors(texts).set_delay(Duration::from_millis(50))).await;
    let answers = join_all((0..20).map(|_| endpoint.embedder.embed("tea"))).await;
    assert!(answers.iter().all(|answer| *answer == answers[0] && answer.is_ok()));
    assert_eq!(endpoint.asked().await.len(), 1);
}

#[tokio::test]
async fn a_caller_that_goes_away_fails_none_of_those_who_wait_with_it() {
    let endpoint = Endpoint::start(CACHE_BYTES, |_| {}).await;
    endpoint.answers(|texts| vectors(texts).set_delay(Duration::from_secs(3))).await;
    let call = || {
        let embedder = endpoint.embedder.clone();
        tokio::spawn(async move { embedder.embed("tea").await })
    };
    let first = call();
    while endpoint.asked().await.is_empty() {
        tokio::task::yield_now().await;
    }
    let second = call();
    tokio::task::yield_now().await;
    endpoint.answers(vectors).await;
    first.abort();
    assert!(second.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_failure_is_never_remembered_and_nothing_is_where_the_cache_is_off() {
    let endpoint = Endpoint::start(CACHE_BYTES, |_| {}).await;
    endpoint.answers(|texts| if texts == ["tea"] { status(400) } else { vectors(texts) }).await;
    assert_eq!(endpoint.embedder.embed("tea").await, Err(EmbedError::Refused));
    endpoint.answers(vectors).await;
    assert!(endpoint.embedder.embed("tea").await.is_ok());

    let off = Endpoint::start(0, |_| {}).await;
    off.answers(vectors).await;
    off.embedder.embed("tea").await.unwrap();
    off.embedder.embed("tea").await.unwrap();
    assert_eq!(off.asked().await.len(), 2);
}

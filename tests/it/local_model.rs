//! The sentence transformer in this process: its vectors are those of the Python original, whatever they are computed
//! beside, and nobody waits for them who need not.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use memser::clock::Clock;
use memser::provider::embed::{EmbedError, Embedder};
use memser::provider::local::{Local, LocalSettings, fetch, find};
use memser::provider::openai::{OpenAi, OpenAiSettings};
use serde::Deserialize;
use wiremock::{Mock, MockServer, ResponseTemplate, matchers};

use crate::support::TestApp;

/// `minilm.json` says how it was computed.
#[derive(Deserialize)]
struct Golden {
    sentences: Vec<Sentence>,
}

#[derive(Deserialize)]
struct Sentence {
    text: String,
    tokens: usize,
    vector: Vec<f32>,
}

static GOLDEN: LazyLock<Vec<Sentence>> = LazyLock::new(|| {
    let golden: Golden = serde_json::from_str(include_str!("../data/minilm.json")).unwrap();
    golden.sentences
});

fn folder() -> PathBuf {
    std::env::var_os("MEMSER_TEST_MODEL_DIR").expect("run by scripts/test-services.sh").into()
}

fn start(workers: usize) -> Embedder {
    Embedder::local(Local::start(&LocalSettings { workers, ..LocalSettings::new(folder()) }).unwrap(), 0)
}

async fn one(embedder: &Embedder, text: &str) -> Vec<f32> {
    embedder.embed(text).await.unwrap()
}

async fn all(embedder: &Embedder, texts: &[String]) -> Vec<Vec<f32>> {
    embedder.embed_each(texts).await.into_iter().collect::<Result<_, _>>().unwrap()
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The same direction, and of length 1.
#[track_caller]
fn assert_same(actual: &[f32], expected: &[f32], text: &str) {
    let text: String = text.chars().take(40).collect();
    assert!((cosine(actual, actual) - 1.0).abs() < 1e-4, "{text:?} is not of length 1");
    let cosine = cosine(actual, expected);
    assert!(cosine > 0.9999, "{text:?}: {cosine}");
}

fn texts() -> Vec<String> {
    GOLDEN.iter().map(|sentence| sentence.text.clone()).collect()
}

/// A text of so many full windows: 254 tokens beside the two special ones.
fn windows(word: &str, count: usize) -> String {
    vec![word; 254 * count].join(" ")
}

#[tokio::test]
async fn vectors_are_those_of_the_python_original_alone_and_together() {
    let embedder = start(1);
    assert_eq!((embedder.provider(), embedder.dimensions()), ("local", 384));
    assert_eq!(embedder.model(), "nreimers/MiniLM-L6-H384-uncased@53aa5117");
    assert!(GOLDEN.iter().any(|sentence| sentence.tokens == 256), "none fills the window");
    let together = all(&embedder, &texts()).await;
    for (sentence, vector) in GOLDEN.iter().zip(&together) {
        assert_same(vector, &sentence.vector, &sentence.text);
        assert_same(&one(&embedder, &sentence.text).await, &sentence.vector, &sentence.text);
    }
    assert_eq!(embedder.embed_each(&[]).await, []);
}

#[tokio::test]
async fn a_long_text_is_the_mean_of_its_first_eight_windows() {
    let embedder = start(1);
    let (harbour, budget) =
        (one(&embedder, &windows("harbour", 1)).await, one(&embedder, &windows("budget", 1)).await);
    assert_same(&one(&embedder, &windows("harbour", 3)).await, &harbour, "the same in every window");
    let both = one(&embedder, &format!("{} {}", windows("harbour", 1), windows("budget", 1))).await;
    assert!(cosine(&both, &harbour) > 0.5 && cosine(&both, &budget) > 0.5, "both windows count");
    let beyond = format!("{} {}", windows("harbour", 8), windows("budget", 1));
    assert_same(&one(&embedder, &beyond).await, &harbour, "the ninth window does not count");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_at_once_each_get_their_own_vector() {
    let embedder = start(2);
    let answers = join_all(GOLDEN.iter().map(|sentence| one(&embedder, &sentence.text))).await;
    for (sentence, vector) in GOLDEN.iter().zip(&answers) {
        assert_same(vector, &sentence.vector, &sentence.text);
    }
}

#[tokio::test]
async fn the_runtime_goes_on_while_eight_callers_wait() {
    let embedder = start(1);
    let answered = AtomicUsize::new(0);
    let text = windows("harbour", 2);
    let callers = join_all((0..8).map(|_| async {
        one(&embedder, &text).await;
        answered.fetch_add(1, Ordering::SeqCst);
    }));
    // One thread has all of them: it comes to the ticks only if no caller computes on it.
    let ticks = async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        answered.load(Ordering::SeqCst)
    };
    let (_, answered_before) = tokio::join!(callers, ticks);
    assert_eq!(answered_before, 0, "the ticks waited for answers");
    assert_eq!(answered.load(Ordering::SeqCst), 8);
}

#[tokio::test]
async fn a_question_does_not_wait_for_a_long_list() {
    let embedder = start(1);
    let long = (1..=64).map(|n| format!("{n} {}", windows("harbour", 1))).collect::<Vec<_>>();
    let question = &GOLDEN[8];
    let list = tokio::spawn({
        let embedder = embedder.clone();
        async move { embedder.embed_each(&long).await }
    });
    tokio::task::yield_now().await;
    assert_same(&one(&embedder, &question.text).await, &question.vector, &question.text);
    assert!(!list.is_finished(), "the list was done first");
    // A caller that goes away leaves the worker to the others.
    list.abort();
    assert_same(&one(&embedder, &question.text).await, &question.vector, &question.text);
}

#[test]
fn only_a_whole_model_is_taken() {
    let refusal = |folder: &std::path::Path| {
        let error = Local::start(&LocalSettings::new(folder)).unwrap_err();
        assert_eq!(error.field(), Some("EMBEDDING_MODEL_DIR"));
        error.to_string()
    };
    let root = tempfile::tempdir().unwrap();
    assert!(refusal(root.path()).contains("model.safetensors"));

    // Deep in a package, beside a file of the same name that is another's.
    let model = root.path().join("package/model");
    let pooling = model.join("1_Pooling");
    std::fs::create_dir_all(&pooling).unwrap();
    std::fs::write(root.path().join("config.json"), "{}").unwrap();
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        std::os::unix::fs::symlink(folder().join(file), model.join(file)).unwrap();
    }
    assert_eq!(find(root.path()), Some(model.clone()));
    std::fs::write(pooling.join("config.json"), r#"{ "pooling_mode_mean_tokens": false }"#).unwrap();
    assert!(refusal(root.path()).contains("mean"));
    std::fs::write(pooling.join("config.json"), r#"{ "pooling_mode_mean_tokens": true }"#).unwrap();
    assert!(Local::start(&LocalSettings::new(root.path())).is_ok());

    std::fs::remove_file(model.join("config.json")).unwrap();
    std::fs::write(model.join("config.json"), r#"{ "model_type": "roberta" }"#).unwrap();
    assert!(refusal(root.path()).contains("roberta"));
}

#[test]
fn its_errors_are_not_worth_a_retry() {
    assert!(!EmbedError::Model.is_transient() && !EmbedError::Stopped.is_transient());
}

/// Set `MEMSER_TEST_EMBEDDING_URL` to what comes before `/embeddings` of a server that has all-MiniLM-L6-v2 and takes 512
/// tokens at once, such as llama.cpp's.
#[tokio::test]
#[ignore = "needs an OpenAI-compatible server with this model"]
async fn an_openai_compatible_server_with_the_same_model_gives_the_same_vectors() {
    let url = std::env::var("MEMSER_TEST_EMBEDDING_URL").expect("MEMSER_TEST_EMBEDDING_URL");
    let endpoint = |max_text_bytes| {
        let mut settings = OpenAiSettings::new(&url, "all-MiniLM-L6-v2");
        settings.dimensions = Some(384);
        settings.max_text_bytes = max_text_bytes;
        Embedder::openai(OpenAi::new(&settings, Clock::System).unwrap(), 0)
    };
    let embedder = endpoint(1_000);
    for (sentence, vector) in GOLDEN.iter().zip(all(&embedder, &texts()).await) {
        // llama.cpp cuts other scripts into other tokens than the original.
        if sentence.text.is_ascii() && sentence.text.len() <= 1_000 {
            assert_same(&vector, &sentence.vector, &sentence.text);
        }
    }
    let (long, piece) = (vec!["harbour"; 1_000].join(" "), vec!["harbour"; 125].join(" "));
    let pooled = embedder.embed(&long).await.unwrap();
    assert_same(&pooled, &embedder.embed(&piece).await.unwrap(), "eight pieces of a kind");
    let word = embedder.embed("harbour").await.unwrap();

    // Where texts are sent that are too long for it, it fails on them alone.
    let embedder = endpoint(8_000);
    let answers = embedder.embed_each(&[long.clone(), "harbour".to_owned()]).await;
    assert!(answers[0].is_err());
    assert_same(answers[1].as_ref().unwrap(), &word, "beside one that is too long");
    assert!(embedder.embed(&long).await.is_err());
    assert!(embedder.is_up());
}

/// A hub with the files of the tests' model, save for `missing`.
async fn hub(missing: &str) -> MockServer {
    let model = find(&folder()).unwrap();
    let hub = MockServer::start().await;
    for file in
        ["config.json", "tokenizer.json", "model.safetensors"].into_iter().filter(|file| *file != missing)
    {
        let answer = ResponseTemplate::new(200).set_body_bytes(std::fs::read(model.join(file)).unwrap());
        let path = matchers::path(format!("/acme/mini/resolve/main/{file}"));
        Mock::given(path).respond_with(answer).mount(&hub).await;
    }
    hub
}

#[tokio::test]
async fn a_model_is_fetched_once_and_used_without_its_hub_from_then_on() {
    let hub = hub("").await;
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("model");
    let start = || {
        let builder = TestApp::builder().set("EMBEDDER", "local").set("EMBEDDING_HUB_MODEL", "acme/mini");
        let builder = builder.set("EMBEDDING_HUB_URL", hub.uri());
        builder.set("EMBEDDING_MODEL_DIR", dir.to_str().unwrap()).start()
    };
    let app = start().await;
    app.admin().store("user:1", "Anna plays the cello.").await;
    assert_eq!(app.admin().recall("user:1", "Who makes music?").await, ["Anna plays the cello."]);
    app.stop().await;
    let asked = hub.received_requests().await.unwrap().len();
    assert_eq!(asked, 4, "each file once");
    start().await.stop().await;
    assert_eq!(hub.received_requests().await.unwrap().len(), asked);
}

#[tokio::test]
async fn a_fetch_that_fails_leaves_no_model_and_says_what_is_missing() {
    let hub = hub("model.safetensors").await;
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("model");
    let fetch = async |name: &str| {
        let error = fetch(&hub.uri().parse().unwrap(), &name.parse().unwrap(), &dir).await.unwrap_err();
        format!("{error:#}")
    };
    let words = fetch("acme/mini").await;
    assert!(words.contains("acme/mini@main") && words.contains("model.safetensors"), "{words}");
    assert_eq!(find(&dir), None);
    let words = fetch("acme/other").await;
    assert!(words.contains("config.json: there is none"), "{words}");
    let left: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_str().unwrap().starts_with(".fetch")), "{left:?}");
}

use std::ffi::OsString;
use std::io::Write;

use crate::db::Pooler;
use crate::engine::score::Bm25;
use secrecy::ExposeSecret;

use super::*;

fn read(values: &[(&str, &str)]) -> anyhow::Result<Source> {
    Source::read(None, values.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))))
}

fn config(values: &[(&str, &str)]) -> anyhow::Result<Config> {
    Config::parse(&read(values)?)
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn refusal(outcome: anyhow::Result<impl std::fmt::Debug>) -> String {
    format!("{:#}", outcome.unwrap_err())
}

#[test]
fn a_judge_by_model_needs_to_know_which_one() {
    let with = |more: &[(&str, &str)]| config(&[&[("MEMSER_JUDGE", "llm")], more].concat());
    assert!(refusal(with(&[("LLM_MODEL", "tiny")])).contains("need LLM_URL"));
    assert!(refusal(with(&[("LLM_URL", "http://localhost/v1")])).contains("need LLM_MODEL"));
    let both = [("LLM_URL", "http://localhost/v1"), ("LLM_MODEL", "tiny"), ("OPENAI_API_KEY", "sk-other")];
    let decisions = with(&both).unwrap().decisions;
    assert!(decisions.llm_judges);
    assert!(
        decisions.llm.unwrap().key.is_some(),
        "the key of the other endpoint is used where it has none of its own"
    );
    assert!(!config(&both).unwrap().decisions.llm_judges, "named is not chosen");
}

#[test]
fn summaries_are_a_models_where_one_is_named() {
    let both = [("LLM_URL", "http://localhost/v1"), ("LLM_MODEL", "tiny")];
    let with = |more: &[(&str, &str)]| config(&[&both, more].concat()).unwrap().decisions;
    assert!(with(&[]).llm_summarises && with(&[("SUMMARIES", "llm")]).llm_summarises);
    let extractive = with(&[("SUMMARIES", "extractive")]);
    assert!(
        !extractive.llm_summarises && extractive.llm.is_none(),
        "an endpoint that nothing uses is not reached"
    );
    assert!(refusal(config(&[("SUMMARIES", "llm")])).contains("need LLM_URL"));
    assert!(!config(&[("LLM_URL", "http://localhost/v1")]).unwrap().decisions.llm_summarises);
}

#[test]
fn nothing_set_is_a_whole_service() {
    let config = config(&[("DATABASE_URL", ""), ("OPENAI_API_KEY", " ")]).unwrap();
    assert_eq!(config.bind.to_string(), "127.0.0.1:8080");
    assert!(matches!(config.storage, Storage::Embedded(_)));
    // Which of the two depends on whether this clone has a model.
    match config.embedder {
        EmbedderSettings::Local { dir, .. } => assert_eq!(Some(dir), model_folder()),
        EmbedderSettings::Hash { dimensions } => {
            assert_eq!((dimensions, model_folder()), (HASH_DIMENSIONS, None));
        }
        EmbedderSettings::OpenAi(_) => panic!("without a key"),
    }
    assert!(config.sweeps.enabled);
    let defaults = Weights::default();
    assert_eq!(
        config.decisions.weights.over(defaults),
        defaults,
        "the table's weights are not those measured"
    );
    assert_eq!(config.decisions.bm25, Bm25::default());
}

#[test]
fn a_key_alone_means_openai() {
    let config = config(&[("OPENAI_API_KEY", "k")]).unwrap();
    assert!(matches!(config.embedder, EmbedderSettings::OpenAi(_)));
}

#[test]
fn a_model_folder_means_local_unless_there_is_a_key_or_a_name() {
    let folder = ("EMBEDDING_MODEL_DIR", "/opt/model");
    for (values, expected) in [
        (vec![folder], "local"),
        (vec![folder, ("EMBEDDER", "local"), ("OPENAI_API_KEY", "k")], "local"),
        (vec![folder, ("OPENAI_API_KEY", "k")], "openai"),
        (vec![folder, ("EMBEDDER", "hash")], "hash"),
        (vec![folder, ("EMBEDDER", "openai")], "openai"),
    ] {
        let found = match config(&values).unwrap().embedder {
            EmbedderSettings::Local { dir, fetch } => {
                assert_eq!((dir.as_path(), fetch), (Path::new("/opt/model"), None));
                "local"
            }
            EmbedderSettings::OpenAi(_) => "openai",
            EmbedderSettings::Hash { .. } => "hash",
        };
        assert_eq!(found, expected, "{values:?}");
    }
}

#[test]
fn a_model_is_fetched_only_where_one_is_named_and_none_is_there() {
    let named = ("EMBEDDING_HUB_MODEL", "acme/mini");
    let fetched = |values: &[(&str, &str)]| match config(values).unwrap().embedder {
        EmbedderSettings::Local { dir, fetch } => (dir, fetch.map(|(hub, name)| format!("{hub} {name}"))),
        other => panic!("{other:?}"),
    };
    let hub = Some("https://huggingface.co/ acme/mini@main".to_owned());
    let there = [named, ("EMBEDDER", "local"), ("EMBEDDING_MODEL_DIR", "/opt/model")];
    assert_eq!(fetched(&there), (PathBuf::from("/opt/model"), hub));
    if model_folder().is_none() {
        let (dir, hub) = fetched(&[named, ("MEMSER_DATA_DIR", "/srv/data")]);
        assert_eq!((dir, hub.is_some()), (PathBuf::from("/srv/data/models/acme--mini"), true));
    }
    let error = config(&[("EMBEDDING_HUB_MODEL", "https://h/x"), ("EMBEDDER", "local")]).unwrap_err();
    assert!(format!("{error:#}").contains("EMBEDDING_HUB_MODEL"), "{error:#}");
}

#[test]
fn wrong_values_are_refused_by_name() {
    for (name, value) in [
        ("MEMSER_BIND", "localhost"),
        ("MEMSER_PUBLIC_URL", "ftp://example.com"),
        ("MEMSER_PUBLIC_URL", "https://u@example.com"),
        ("MEMSER_TOKEN", "short"),
        ("MEMSER_RATE_LIMIT", "0"),
        ("DUPLICATE_THRESHOLD", "1.5"),
        ("MEMSER_DUPLICATE_THRESHOLD", "1.5"),
        ("DUPLICATE_THRESHOLD", "NaN"),
        ("CONFLICT_RULE", "strict"),
        ("CONFLICT_POLICY", "oldest_wins"),
        ("WEIGHT_VECTOR", "-1"),
        ("ENABLE_SCHEDULER", "maybe"),
        ("CONSOLIDATION_INTERVAL_MINUTES", "0.001"),
        ("CONSOLIDATION_INTERVAL_MINUTES", "-1"),
        ("DECAY_AFTER_DAYS", "0"),
        ("DECAY_HALF_LIFE_DAYS", "0"),
        ("DATABASE_POOLER", "session"),
        ("EMBEDDER", "magic"),
        ("EMBEDDING_DIMENSIONS", "0"),
        ("MEMSER_LOG_FORMAT", "xml"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:key@collector:4318"),
    ] {
        let error = refusal(config(&[(name, value)]));
        assert!(error.contains(name), "{name}: {error}");
    }
}

#[test]
fn a_url_that_is_none_is_refused_with_one_that_would_do() {
    let error = refusal(config(&[("MEMSER_PUBLIC_URL", "memory.example.com")]));
    assert!(error.ends_with(", for example https://memory.example.com"), "{error}");
}

#[test]
fn traces_are_sent_where_a_collector_is_named_with_the_headers_that_it_wants() {
    let traces = |headers: &str| {
        let collector = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        config(&[collector, ("OTEL_EXPORTER_OTLP_HEADERS", headers)]).map(|config| config.telemetry.traces)
    };
    assert!(config(&[("OTEL_SERVICE_NAME", "memory")]).unwrap().telemetry.traces.is_none());
    let sent = traces("Authorization=Bearer%20k=, x-tenant = a").unwrap().unwrap();
    assert_eq!((sent.collector.port(), sent.service.as_str()), (Some(4318), "memser"));
    let headers: Vec<(&str, &str)> =
        sent.headers.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
    assert_eq!(headers, [("authorization", "Bearer k="), ("x-tenant", "a")]);
    for wrong in ["hunter2", "a b=hunter2", "a=hunter2%0A", "=hunter2"] {
        let error = refusal(traces(wrong));
        assert!(error.contains("OTEL_EXPORTER_OTLP_HEADERS") && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn a_pooler_of_transactions_needs_a_way_past_it() {
    let (url, direct) =
        (("DATABASE_URL", "postgres://pooler/m"), ("DATABASE_DIRECT_URL", "postgres://direct/m"));
    let external = |values: &[(&str, &str)]| match config(values).unwrap().storage {
        Storage::External(external) => (external.pooler, external.direct.get_host().to_owned()),
        Storage::Embedded(_) => panic!("with a URL"),
    };
    assert_eq!(external(&[url]), (Pooler::None, "pooler".to_owned()));
    assert_eq!(external(&[url, direct]), (Pooler::Transaction, "direct".to_owned()));
    assert_eq!(external(&[url, direct, ("DATABASE_POOLER", "none")]), (Pooler::None, "direct".to_owned()));
    let error = refusal(config(&[url, ("DATABASE_POOLER", "transaction")]));
    assert!(error.contains("DATABASE_POOLER") && error.contains("DATABASE_DIRECT_URL"), "{error}");
    let error = refusal(config(&[url, ("DATABASE_DIRECT_URL", "postgres://u:secret@host:port/m")]));
    assert!(error.contains("DATABASE_DIRECT_URL") && !error.contains("secret"), "{error}");
    // Without a database of one's own there is nothing to pool, and a URL that counts for nothing is a mistake.
    let error = refusal(config(&[direct]));
    assert!(error.contains("DATABASE_DIRECT_URL") && error.contains("DATABASE_URL"), "{error}");
}

#[test]
fn an_interval_of_nought_means_never() {
    let sweeps = config(&[("DECAY_INTERVAL_MINUTES", "0"), ("CONSOLIDATION_INTERVAL_MINUTES", "0.05")])
        .unwrap()
        .sweeps;
    assert_eq!(sweeps.decay_interval, None);
    assert_eq!(sweeps.consolidation_interval, Some(Duration::from_secs(3)));
    assert_eq!(sweeps.decay.protected, ["pinned"]);
}

#[test]
fn every_mistake_is_told_at_once() {
    let error = refusal(read(&[("WEIGHT_VECTOR", "x"), ("MEMSER_BINDD", "y"), ("EMBEDDER", "z")]));
    for name in ["WEIGHT_VECTOR", "MEMSER_BINDD", "EMBEDDER"] {
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn unknown_names_are_refused_with_the_nearest_known_one() {
    for (name, meant) in [
        ("MEMSER_PUBLC_URL", "MEMSER_PUBLIC_URL"),
        ("MEMSER_REDIS_URI", "MEMSER_REDIS_URL"),
        ("MEMSER_ALLOWED_HOST", "MEMSER_ALLOWED_HOSTS"),
        ("MEMSER_LOG_FROMAT", "MEMSER_LOG_FORMAT"),
        ("DUPLICATE_TRESHOLD", "DUPLICATE_THRESHOLD"),
        ("MEMSER_ELEPHANT", "memser config --reference"),
        ("MEMSER_PORT", "memser config --reference"),
    ] {
        let error = refusal(read(&[(name, "8080")]));
        assert!(error.contains(name) && error.contains(meant), "{error}");
    }
}

#[test]
fn what_other_programs_set_is_no_mistake() {
    let source = read(&[
        ("MEMSER_PORT", "tcp://10.0.0.1:8080"),
        ("MEMSER_SERVICE_HOST", "10.0.0.1"),
        ("MEMSER_SERVICE_PORT_HTTP", "8080"),
        ("MEMSER_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("MEMSER_POSTGRES_PORT", "tcp://10.0.0.2:5432"),
        ("EMBEDDED", "1"),
        ("DATABASE_URI", "postgres://elsewhere"),
        ("PATH", "/bin"),
    ])
    .unwrap();
    let warned = source.warnings.join("\n");
    assert!(warned.contains("DATABASE_URI") && warned.contains("DATABASE_URL"), "{warned}");
    assert!(!warned.contains("MEMSER_P"), "{warned}");
}

#[test]
fn variables_win_over_the_file_and_the_prefixed_name_wins() {
    let file = file(
        "duplicate_threshold = 0.9\nbind = \"127.0.0.1:1\"\nallowed_hosts = [\"a\", \"b\"]\nenable_scheduler = false\n",
    );
    let named = file.path().to_str().unwrap();
    let source = read(&[
        ("MEMSER_CONFIG", named),
        ("MEMSER_BIND", "127.0.0.1:2"),
        ("WORKING_MAX_PER_SCOPE", "7"),
        ("MEMSER_WORKING_MAX_PER_SCOPE", "8"),
    ])
    .unwrap();
    let config = Config::parse(&source).unwrap();
    assert_eq!(config.decisions.duplicate_threshold, Some(0.9));
    assert_eq!((config.bind.port(), config.working_cap, config.sweeps.enabled), (2, 8, false));
    assert_eq!(config.allowed_hosts, ["a", "b"]);
    let shown = reference::effective(&source);
    for line in [
        format!("duplicate_threshold = 0.9  # {named}"),
        "bind = \"127.0.0.1:2\"  # MEMSER_BIND".to_owned(),
        "working_max_per_scope = 8  # MEMSER_WORKING_MAX_PER_SCOPE".to_owned(),
        "conflict_rule = \"guarded\"  # default".to_owned(),
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line} is not in\n{shown}");
    }
}

#[test]
fn a_files_mistakes_are_told_with_its_name() {
    for (text, words) in [
        ("duplicate_treshold = 0.9", "did you mean duplicate_threshold?"),
        ("duplicate_threshold = 2", "from 0 to 1"),
        ("duplicate_threshold = \"high\"", "duplicate_threshold"),
        ("bind = 8080", "bind"),
        ("redis_url = [\"a\"]", "redis_url"),
        ("allowed_hosts = [1]", "allowed_hosts"),
        ("[server]\nbind = \"127.0.0.1:1\"", "unknown key server"),
        ("bind = \"127.0.0.1:1\"\nb", "line 2"),
    ] {
        let file = file(text);
        let error = refusal(Source::read(Some(file.path()), []));
        assert!(error.contains(words) && error.contains(file.path().to_str().unwrap()), "{text}: {error}");
    }
    let error = refusal(Source::read(Some(std::path::Path::new("/nowhere/memser.toml")), []));
    assert!(error.contains("/nowhere/memser.toml"), "{error}");
}

#[test]
fn a_secret_may_stand_in_a_file_of_its_own() {
    let key = file("sk-from-a-file\n");
    let source = read(&[("OPENAI_API_KEY_FILE", key.path().to_str().unwrap())]).unwrap();
    assert_eq!(source.text("OPENAI_API_KEY"), Some("sk-from-a-file"));
    let error = refusal(read(&[("MEMSER_REDIS_URL_FILE", "/nowhere")]));
    assert!(error.contains("MEMSER_REDIS_URL_FILE=/nowhere"), "{error}");
}

#[test]
fn secrets_stay_out_of_messages_and_of_what_is_shown() {
    let url = "postgres://memser:hunter2@db:notaport/memser";
    let error = refusal(config(&[("DATABASE_URL", url)]));
    assert!(!error.contains("hunter2"), "{error}");
    let shown = format!("{:?}", config(&[("MEMSER_TOKEN", "0123456789abcdef-secret")]).unwrap().token);
    assert!(!shown.contains("secret-") && !shown.contains("0123"), "{shown}");
    let file = file("token = 0123456789hunter2hunter2\n");
    let error = refusal(Source::read(Some(file.path()), []));
    assert!(!error.contains("hunter2"), "{error}");
    let source = read(&[
        ("DATABASE_URL", "postgres://memser:hunter2@db/memser?password=hunter2"),
        ("REDIS_URL", "redis://:hunter2@cache"),
        ("EMBEDDING_URL", "https://host/v1?key=hunter2"),
        ("OPENAI_API_KEY", "sk-hunter2"),
        ("MEMSER_TOKEN", "hunter2-hunter2-hunter2"),
    ])
    .unwrap();
    let shown = reference::effective(&source);
    assert!(!shown.contains("hunter2") && shown.contains("memser:***@db"), "{shown}");
}

#[test]
fn a_file_with_secrets_that_others_can_read_is_warned_of() {
    use std::os::unix::fs::PermissionsExt;
    let file = file("token = \"0123456789abcdef-secret\"\n");
    for (mode, warnings) in [(0o600, 0), (0o644, 1)] {
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(Source::read(Some(file.path()), []).unwrap().warnings.len(), warnings);
    }
}

use super::*;

fn config(values: &[(&str, &str)]) -> anyhow::Result<Config> {
    Config::from_lookup(&|name| {
        values.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn nothing_set_is_a_whole_service() {
    let config = config(&[("DATABASE_URL", ""), ("OPENAI_API_KEY", " ")]).unwrap();
    assert_eq!(config.bind.to_string(), "127.0.0.1:8080");
    assert!(matches!(config.storage, Storage::Embedded(_)));
    assert!(matches!(config.embedder, EmbedderSettings::Hash { dimensions: HASH_DIMENSIONS }));
    assert!(config.sweeps.enabled);
}

#[test]
fn a_key_alone_means_openai() {
    let config = config(&[("OPENAI_API_KEY", "k")]).unwrap();
    assert!(matches!(config.embedder, EmbedderSettings::OpenAi(_)));
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
        ("DUPLICATE_THRESHOLD", "NaN"),
        ("CONFLICT_RULE", "strict"),
        ("CONFLICT_POLICY", "oldest_wins"),
        ("WEIGHT_VECTOR", "-1"),
        ("ENABLE_SCHEDULER", "maybe"),
        ("DECAY_AFTER_DAYS", "0"),
        ("EMBEDDER", "magic"),
        ("EMBEDDING_DIMENSIONS", "0"),
        ("MEMSER_LOG_FORMAT", "xml"),
    ] {
        let error = format!("{:#}", config(&[(name, value)]).expect_err(name));
        assert!(error.contains(name), "{name}: {error}");
    }
}

#[test]
fn secrets_stay_out_of_messages() {
    let url = "postgres://memser:hunter2@db:notaport/memser";
    let error = format!("{:#}", config(&[("DATABASE_URL", url)]).unwrap_err());
    assert!(!error.contains("hunter2"), "{error}");
    let shown = format!("{:?}", config(&[("MEMSER_TOKEN", "0123456789abcdef-secret")]).unwrap().token);
    assert!(!shown.contains("secret-") && !shown.contains("0123"), "{shown}");
}

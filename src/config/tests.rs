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
    // Which of the two depends on whether this clone has a model.
    match config.embedder {
        EmbedderSettings::Local { dir } => assert_eq!(Some(dir), model_folder()),
        EmbedderSettings::Hash { dimensions } => {
            assert_eq!((dimensions, model_folder()), (HASH_DIMENSIONS, None));
        }
        EmbedderSettings::OpenAi(_) => panic!("without a key"),
    }
    assert!(config.sweeps.enabled);
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
            EmbedderSettings::Local { dir } => {
                assert_eq!(dir, Path::new("/opt/model"));
                "local"
            }
            EmbedderSettings::OpenAi(_) => "openai",
            EmbedderSettings::Hash { .. } => "hash",
        };
        assert_eq!(found, expected, "{values:?}");
    }
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

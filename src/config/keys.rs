//! Every setting. The reference, the sample file and the checks are made from this table.

use super::key::{Group, Kind, key};
use super::sweeps::SWEEPS;
use super::telemetry::TELEMETRY;

/// Every setting, in the order of the reference.
pub(super) static GROUPS: &[Group] = &[
    Group {
        title: "Listening",
        keys: &[
            key("MEMSER_BIND", Kind::Address, "Where to listen. A container sets `0.0.0.0:8080`.")
                .default("127.0.0.1:8080"),
            key(
                "MEMSER_METRICS_BIND",
                Kind::Address,
                "Where to show `/metrics` without a token, beside `MEMSER_BIND` with one: an address that only the \
                 monitoring reaches.",
            ),
            key(
                "MEMSER_PUBLIC_URL",
                Kind::Url("https://memory.example.com"),
                "Where clients reach memser, without `/mcp`: http or https, with a host, without user, query or \
                 fragment. Its host and origin are allowed; OAuth metadata names it.",
            )
            .unset("`http://` and the listen address"),
            key(
                "MEMSER_ALLOWED_HOSTS",
                Kind::List,
                "Further `Host` values. One without a port stands for every port. `localhost`, `127.0.0.1`, `[::1]` \
                 and the public URL's host are always allowed.",
            ),
            key(
                "MEMSER_ALLOWED_ORIGINS",
                Kind::List,
                "Further origins of web pages that may call, such as `https://app.example` or `http://localhost:*`. \
                 The public URL's own origin is allowed; loopback origins are allowed while the public URL is on \
                 loopback.",
            ),
            key(
                "MEMSER_CONNECTOR_TOOLS",
                Kind::Switch,
                "Whether to offer `search` and `fetch` as well, which ChatGPT's connectors and deep research look for. They \
                 only read, in every scope that the token may read.",
            )
            .default("false"),
            key(
                "MEMSER_CALL_TIMEOUT_SECONDS",
                Kind::Whole(1, 3_600),
                "When a tool call is stopped and answered with `timeout`.",
            )
            .default("60"),
            key(
                "MEMSER_SHUTDOWN_SECONDS",
                Kind::Whole(1, 600),
                "How long calls under way may go on after SIGTERM or Ctrl-C. Those that take longer are answered with an error.",
            )
            .default("10"),
        ],
        introduction: "A memser that listens on `0.0.0.0` and is reached by a name needs that name in \
                       `MEMSER_PUBLIC_URL` or\n`MEMSER_ALLOWED_HOSTS`. Otherwise it answers 403 `host_not_allowed`.\n",
    },
    Group {
        title: "Tokens",
        keys: &[
            key(
                "MEMSER_TOKEN",
                Kind::Text,
                "One token with admin on every scope: 16 or more printable ASCII characters without spaces.",
            )
            .secret(),
            key(
                "MEMSER_TOKENS_FILE",
                Kind::Path,
                "A TOML file of tokens. A change counts within a second, and at once on SIGHUP.",
            )
            .unset("`tokens.toml` in the data folder of the private Postgres, else none"),
            key(
                "MEMSER_CLIENT_TOKEN",
                Kind::Text,
                "The token that `memser stdio --url` sends to another memser. A server does not read it.",
            )
            .secret(),
        ],
        introduction: include_str!("tokens.md"),
    },
    Group {
        title: "JSON Web Tokens",
        keys: &[
            key(
                "JWKS_URL",
                Kind::Url("https://login.example.com/jwks"),
                "The issuer's JSON Web Key Set. Its keys are fetched every 10 minutes and when a token names a new one, \
                 at most every 30 seconds; while it is down, known keys serve for 24 hours.",
            ),
            key(
                "JWT_PUBLIC_KEY_FILE",
                Kind::Path,
                "Instead: the issuer's public key in PEM (RSA, P-256 or Ed25519), read at the start.",
            ),
            key(
                "JWT_SECRET",
                Kind::Text,
                "Instead: a secret shared with the issuer, for HS256; 32 or more bytes.",
            )
            .secret(),
            key("JWT_ISSUER", Kind::Text, "The `iss` that tokens must have, letter by letter. Needed with any of the above."),
            key("JWT_AUDIENCE", Kind::List, "Tokens must have one of these in `aud`.")
                .unset("`MEMSER_PUBLIC_URL` with `/mcp`"),
            key(
                "JWT_SCOPE_TEMPLATE",
                Kind::Text,
                "The scope that a token's OAuth scopes (`memory:read`, `memory:write`, `memory:review`, `memory:admin`) \
                 count for, with its `sub`: such as `user:{sub}`. Without it only the claim `memser_grants` counts.",
            ),
        ],
        introduction: include_str!("jwt.md"),
    },
    Group {
        title: "Limits",
        keys: &[
            key(
                "MEMSER_RATE_LIMIT",
                Kind::Whole(1, 1_000_000),
                "Requests a second for each token. Over it: HTTP 429 with `Retry-After`.",
            )
            .unset("no limit"),
            key(
                "MEMSER_RATE_BURST",
                Kind::Whole(1, 1_000_000),
                "How many requests a token may send at once after a rest. Counts only with `MEMSER_RATE_LIMIT`.",
            )
            .unset("`MEMSER_RATE_LIMIT`"),
            key(
                "MEMSER_MAX_CONCURRENT",
                Kind::Whole(1, 100_000),
                "Requests of one token that are answered at one time. Over it: HTTP 429 with `Retry-After: 1`.",
            )
            .default("256"),
            key(
                "MEMSER_MAX_MEMORIES_PER_SCOPE",
                Kind::Whole(1, 1_000_000_000_000),
                "The most durable memories of a scope, superseded ones included. A full scope answers `limit_exceeded`.",
            )
            .unset("no limit"),
            key(
                "MEMSER_MAX_BYTES_PER_SCOPE",
                Kind::Whole(1, 1_000_000_000_000_000),
                "The most bytes of content of a scope's durable memories. Over it: `limit_exceeded`.",
            )
            .unset("no limit"),
            key(
                "MEMSER_MAX_SCOPES_PER_TOKEN",
                Kind::Whole(1, 1_000_000_000_000),
                "The most scopes that stores of one token may make. Scopes that others made, and all that exist when the \
                 limit is lowered, stay open to it. Over it: `limit_exceeded` on `scope`.",
            )
            .default("100000"),
        ],
        introduction: "The first three count in each process by itself: two replicas allow twice as much. Those of \
                       memories, bytes and scopes\nhold exactly, over all replicas. Known texts are still taken by a full \
                       scope, because they add nothing. A scope belongs to\nthe token whose store made it, by the token's \
                       name or the JWT's `sub`, and is not given back when it is emptied.\n",
    },
    Group {
        title: "Stores",
        keys: &[
            key(
                "DATABASE_URL",
                Kind::Url("postgres://user:password@host:5432/database"),
                "An external Postgres, 15 or newer, with pgvector 0.8 or newer. TLS as the URL's `sslmode` says.",
            )
            .unset("a private Postgres")
            .secret(),
            key(
                "DATABASE_POOLER",
                Kind::OneOf(&["none", "transaction"]),
                "`transaction` where `DATABASE_URL` leads to a pooler that gives each transaction a session, such as \
                 PgBouncer with `pool_mode = transaction`; it needs `DATABASE_DIRECT_URL`. A pooler of sessions is `none`.",
            )
            .unset("`transaction` when `DATABASE_DIRECT_URL` is set, else `none`"),
            key(
                "DATABASE_DIRECT_URL",
                Kind::Url("postgres://user:password@host:5432/database"),
                "The same database past the pooler, for migrations, the locks of sweeps and indexes.",
            )
            .unset("`DATABASE_URL`")
            .secret(),
            key(
                "DATABASE_MAX_CONNECTIONS",
                Kind::Whole(2, 1_000),
                "The most connections of the pool. A running sweep has one more of its own.",
            )
            .default("20"),
            key(
                "MEMSER_MIGRATE",
                Kind::Switch,
                "Whether a start brings the database's schema up to date. With `false` it refuses a schema that is behind: \
                 for those who run `memser migrate` in a step of its own.",
            )
            .default("true"),
            key("MEMSER_DATA_DIR", Kind::Path, "The private Postgres' data folder.")
                .unset("`/var/lib/memser` for root, else `$XDG_DATA_HOME/memser` or `~/.local/share/memser`"),
            key(
                "MEMSER_PG_BIN",
                Kind::Path,
                "The folder of the private Postgres' `postgres` and `initdb`, with pgvector installed. When set, no \
                 other place is looked at.",
            )
            .unset("looked for"),
            key(
                "MEMSER_PG_USER",
                Kind::Text,
                "The user that runs the private Postgres where memser is root. Does not count otherwise.",
            )
            .default("nobody"),
            key(
                "REDIS_URL",
                Kind::Url("redis://:password@host:6379/0"),
                "Redis 6 or newer, one server, for working memories. This build speaks no TLS to Redis. Several \
                 installations may share one: keys carry an id that each database makes for itself. A restored copy \
                 of a database has its original's id, so give it another Redis.",
            )
            .unset("working memories are in Postgres")
            .secret(),
            key(
                "WORKING_MAX_PER_SCOPE",
                Kind::Whole(1, 100_000),
                "The most working memories of a scope. A full scope refuses; nothing is evicted.",
            )
            .default("1000"),
        ],
        introduction: include_str!("stores.md"),
    },
    Group {
        title: "Embeddings",
        keys: &[
            key("EMBEDDER", Kind::OneOf(&["openai", "local", "hash"]), "What turns texts into vectors.")
                .unset("`openai` when `OPENAI_API_KEY` is set, else `local` when a model is found, else `hash`"),
            key(
                "OPENAI_API_KEY",
                Kind::Text,
                "The endpoint's key. With `EMBEDDER=openai` it may be absent: a server of your own may want none.",
            )
            .secret(),
            key(
                "EMBEDDING_URL",
                Kind::Url("https://host/v1"),
                "What comes before `/embeddings`. Any OpenAI-compatible endpoint.",
            )
            .default("https://api.openai.com/v1"),
            key(
                "EMBEDDING_MODEL_DIR",
                Kind::Path,
                "The folder of a sentence transformer of the BERT family with mean pooling, such as all-MiniLM-L6-v2: \
                 `config.json`, `tokenizer.json` and `model.safetensors`. `make model` gets one.",
            )
            .unset("`.models/all-MiniLM-L6-v2` in the working directory, `models/all-MiniLM-L6-v2` beside the executable"),
            key(
                "EMBEDDING_HUB_MODEL",
                Kind::Text,
                "A model to fetch once from a hub, such as `sentence-transformers/all-MiniLM-L6-v2` or, for one \
                 revision, `owner/name@revision`. It is fetched into `EMBEDDING_MODEL_DIR`, or into `models/` in the data \
                 folder. Unset, memser fetches nothing.",
            ),
            key("EMBEDDING_HUB_URL", Kind::Url("https://hub.example"), "The hub.")
                .default("https://huggingface.co"),
            key("EMBEDDING_MODEL", Kind::Text, "The name of the endpoint's model.")
                .default("text-embedding-3-small"),
            key(
                "EMBEDDING_DIMENSIONS",
                Kind::Whole(1, 16_000),
                "The length of the vectors. Needed for a model that memser does not know; it knows OpenAI's \
                 `text-embedding-3-small`, `-3-large` and `-ada-002`. When set it is also sent to the endpoint.",
            )
            .unset("the model's own; `1024` for `hash`"),
            key(
                "EMBEDDING_MAX_TEXT_BYTES",
                Kind::Whole(256, 65_536),
                "The longest text that the endpoint is sent; a longer one is cut, and its vector is the mean of its \
                 pieces'. The default suits a model that reads 8,192 tokens. One that reads 512 and refuses longer \
                 texts wants about `1000`.",
            )
            .default("8000"),
            key(
                "EMBEDDING_CACHE_MIB",
                Kind::Whole(0, 65_536),
                "How much memory, in MiB, may hold vectors of texts and queries that were embedded before; `0` for \
                 none. A vector of 1,536 dimensions takes 6 KiB. `hash` needs none.",
            )
            .default("32"),
        ],
        introduction: "Changing any of these opens a new embedding space: see\n\
                       [operations](operations.md#changing-the-embedder).\n",
    },
    Group {
        title: "Decisions",
        keys: &[
            key(
                "DUPLICATE_THRESHOLD",
                Kind::Number(0.0, 1.0),
                "Cosine from which two memories that differ in a word or two may say the same. Those of the same words need \
                 `CONFLICT_THRESHOLD`.",
            )
            .unset("the embedder's: `0.95` for `openai`, `0.88` for `local`, `0.97` for `hash`"),
            key(
                "CONFLICT_THRESHOLD",
                Kind::Number(0.0, 1.0),
                "Cosine from which two memories may contradict each other, or repeat each other in the same words.",
            )
            .unset("the embedder's: `0.85` for `openai`, `0.7` for `local`, `0.4` for `hash`"),
            key(
                "CONFLICT_RULE",
                Kind::OneOf(&["guarded", "similarity"]),
                "`guarded` also looks for a difference that carries meaning (numbers, dates, negation, names). \
                 `similarity` goes by the cosine alone.",
            )
            .default("guarded"),
            key(
                "CONFLICT_POLICY",
                Kind::OneOf(&["newest_wins", "flag", "keep_both"]),
                "What a store does about a contradiction when the call does not say.",
            )
            .default("newest_wins"),
            key(
                "JUDGE",
                Kind::OneOf(&["rules", "llm"]),
                "Who judges near memories that the rules leave open: `rules` keeps both, `llm` asks a language model, which \
                 gets both texts. Where it fails, the rules decide and the answer says `degraded: [\"llm\"]`.",
            )
            .default("rules"),
            key(
                "SUMMARIES",
                Kind::OneOf(&["auto", "llm", "extractive"]),
                "Who writes the summaries of consolidated memories: `llm` asks a language model, which gets their texts; \
                 `extractive` takes the memories' own sentences; `auto` asks the model where `LLM_URL` and `LLM_MODEL` are \
                 set. While the model fails the memories wait as they are; a summary of which a number or a name is wrong \
                 or lacking is not used.",
            )
            .default("auto"),
            key(
                "LLM_URL",
                Kind::Url("https://host/v1"),
                "What comes before `/chat/completions`. Any OpenAI-compatible endpoint that takes a JSON schema. Needed by \
                 `JUDGE=llm` and `SUMMARIES=llm`.",
            ),
            key("LLM_MODEL", Kind::Text, "The name of its model. Needed by the same."),
            key("LLM_API_KEY", Kind::Text, "Its key.").unset("`OPENAI_API_KEY`, where that is set").secret(),
            key(
                "LLM_TIMEOUT_SECONDS",
                Kind::Whole(1, 60),
                "How long a store waits for the model before the rules decide, and a consolidation for a summary.",
            )
            .default("8"),
            key(
                "LLM_MAX_TOKENS",
                Kind::Whole(1_000, 1_000_000),
                "The most tokens of a summary's question and answer together, of which the answer may have a third; \
                 memories that need more are summarised in parts.",
            )
            .default("8000"),
            key(
                "CONSOLIDATION_SIMILARITY",
                Kind::Number(0.0, 1.0),
                "How alike the memories of one cluster are.",
            )
            .unset("the embedder's: `0.75` for `openai` and `local`, `0.6` for `hash`"),
            key("MEMSER_MAX_CONTENT_BYTES", Kind::Whole(1, 1_048_576), "The longest content of a memory.")
                .default("65536"),
            key(
                "SECRET_POLICY",
                Kind::OneOf(&["redact", "refuse", "allow"]),
                "What a store does about text that looks like a credential: keep the rest of it (`redact`), nothing \
                 (`refuse`), or all of it (`allow`). See [security](security.md#secrets).",
            )
            .default("redact"),
        ],
        introduction: "",
    },
    Group {
        title: "Ranking",
        keys: &[
            weight("WEIGHT_VECTOR", "Likeness of the vectors.")
                .unset("the embedder's: `0.5` for `openai`, `0.4` for `local`, `0.2` for `hash`"),
            weight("WEIGHT_LEXICAL", "Shared words (BM25).")
                .unset("the embedder's: `0.5` for `openai`, `0.6` for `local`, `0.8` for `hash`"),
            weight("WEIGHT_NEIGHBOUR", "The score of the previous and next memory of the same source.")
                .default("0.5"),
            weight(
                "WEIGHT_SUBJECT",
                "Beginning with a word of the query, as `Anna: ...` and `Anna lives in Rome` do when Anna is asked about.",
            )
            .default("0.2"),
            weight("WEIGHT_RECENCY", "How recent it is.").default("0.04"),
            weight("WEIGHT_FREQUENCY", "How often it was recalled.").default("0.03"),
            weight("WEIGHT_CONFIDENCE", "How sure it is.").default("0.03"),
            key(
                "BM25_K1",
                Kind::Number(0.0, 10.0),
                "How slowly repeats of a word saturate; with 0 a word counts once.",
            )
            .default("1.2"),
            key(
                "BM25_B",
                Kind::Number(0.0, 1.0),
                "How much a word counts less in a memory that is longer than the scope's average.",
            )
            .default("0.75"),
            key("RECENCY_HALF_LIFE_DAYS", Kind::Number(0.01, 36_500.0), "When recency has halved.")
                .default("30"),
        ],
        introduction: "Recall adds weighted signals and divides by the sum of the weights; 0 turns a signal off.\n",
    },
    SWEEPS,
    TELEMETRY,
];

const fn weight(name: &'static str, doc: &'static str) -> super::key::Key {
    key(name, Kind::Number(0.0, 10.0), doc)
}

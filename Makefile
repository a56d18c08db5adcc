# Everything a person or CI does with a clone. No target needs root; see scripts/ for what each gets and where.
.DEFAULT_GOAL := help
.PHONY: help run cluster test pooler conformance interop rest lint lint-deploy prepare reference postgres model clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

run: ## Build and run memser, with a Postgres of its own unless DATABASE_URL names one
	@scripts/toolchain.sh
	@if [ -z "$$DATABASE_URL$$MEMSER_PG_BIN" ]; then scripts/postgres.sh; fi
	@if [ -z "$$OPENAI_API_KEY$$EMBEDDER$$EMBEDDING_MODEL_DIR" ] && [ ! -d .models ]; then \
		echo "Recall goes by words alone; for recall by meaning, stop, and run once: make model" >&2; fi
	@cargo build --release --locked
	@exec target/release/memser serve

cluster: ## Try two memsers behind Caddy, with a Postgres and a Redis, all on this machine; Ctrl-C ends them
	@scripts/cluster.sh

test: ## Run all tests, with throw-away servers
	@scripts/toolchain.sh
	@scripts/test-services.sh cargo test --locked

pooler: ## Run the integration tests with a pooler of transactions between memser and Postgres
	@scripts/toolchain.sh
	@MEMSER_TEST_THROUGH_POOLER=1 scripts/test-services.sh cargo test --locked --test it

conformance: ## Run the official MCP conformance suite against a live memser
	@scripts/live.sh scripts/conformance.sh own
	@LIVE_PROGRAM=examples/conformance scripts/live.sh scripts/conformance.sh all

interop: ## Use a live memser with the MCP clients of others
	@scripts/live.sh scripts/interop.sh

rest: ## Check a live memser against its own description of /v1
	@scripts/live.sh scripts/rest.sh

lint: ## Check formatting, lints, docs, queries, dependencies and deployment files
	@scripts/toolchain.sh
	cargo fmt --all --check
	cargo clippy --locked --all-targets -- -D warnings
	cargo clippy --locked -p memser-telegram-bot --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --locked
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --locked -p memser-telegram-bot
	scripts/sqlx-prepare.sh --check
	scripts/deny.sh
	scripts/lint-deploy.sh

lint-deploy: ## Check the Dockerfile, the composition and the scripts
	@scripts/lint-deploy.sh

prepare: ## Bring .sqlx up to date after a change of a query or a migration
	scripts/sqlx-prepare.sh

reference: ## Bring docs/configuration.md and memser.default.toml up to date after a change of a setting
	cargo run --locked -- config --reference >docs/configuration.md.new
	cargo run --locked -- config --sample >memser.default.toml.new
	mv docs/configuration.md.new docs/configuration.md
	mv memser.default.toml.new memser.default.toml

postgres: ## Get PostgreSQL with pgvector into .postgres/
	@scripts/postgres.sh

model: ## Get a sentence transformer into .models/, for recall by meaning without an API key
	@scripts/model.sh

clean: ## Remove what was built and got; memories are not touched
	cargo clean
	rm -rf .postgres .redis .pgbouncer .models .tools

# syntax=docker/dockerfile:1

FROM rust:1.95-slim-bookworm AS builder
WORKDIR /build
COPY . .
ARG TARGETPLATFORM
# What was downloaded and compiled is kept between builds, outside of the image: the program is copied out of it. One
# build at a time, because cargo's own lock of the registry is not in there. cargo goes by times, and the sources of
# another clone can be older than what is kept: memser itself is always compiled.
RUN --mount=type=cache,id=memser-registry,sharing=locked,target=/usr/local/cargo/registry \
    --mount=type=cache,id=memser-target-$TARGETPLATFORM,sharing=locked,target=/build/target \
    touch src/lib.rs src/main.rs \
    && cargo build --release --locked --bin memser \
    && cp target/release/memser /usr/local/bin/memser

# The Telegram bot, which `docker build --target telegram` makes: see docs/telegram.md.
FROM builder AS telegram-builder
ARG TARGETPLATFORM
RUN --mount=type=cache,id=memser-registry,sharing=locked,target=/usr/local/cargo/registry \
    --mount=type=cache,id=memser-target-$TARGETPLATFORM,sharing=locked,target=/build/target \
    touch examples/telegram_bot/src/lib.rs examples/telegram_bot/src/main.rs \
    && cargo build --release --locked -p memser-telegram-bot \
    && cp target/release/memser-telegram-bot /usr/local/bin/memser-telegram-bot

FROM debian:bookworm-slim AS telegram
COPY --from=telegram-builder /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=telegram-builder /usr/local/bin/memser-telegram-bot /usr/local/bin/memser-telegram-bot
USER 10001:10001
STOPSIGNAL SIGTERM
# It listens nowhere. Where it cannot go on it ends, and is started again.
HEALTHCHECK NONE
ENTRYPOINT ["memser-telegram-bot"]

FROM debian:bookworm-slim
LABEL org.opencontainers.image.title="memser" \
      org.opencontainers.image.description="Memory-as-a-Service: an MCP server that gives any agent durable, scoped memory" \
      org.opencontainers.image.source="https://github.com/memser/memser" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --gid 10001 memser \
    && useradd --uid 10001 --gid 10001 --no-log-init --no-create-home --home-dir /nonexistent \
        --shell /usr/sbin/nologin memser
# The authorities that memser trusts when it calls an embedding endpoint.
COPY --from=builder /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY LICENSE /usr/share/doc/memser/LICENSE
COPY --from=builder /usr/local/bin/memser /usr/local/bin/memser
# As numbers: Kubernetes' runAsNonRoot takes no name for an answer.
USER 10001:10001
# There is no Postgres in here: DATABASE_URL and MEMSER_TOKEN (or MEMSER_TOKENS_FILE) have to be set.
ENV MEMSER_BIND=0.0.0.0:8080
EXPOSE 8080
STOPSIGNAL SIGTERM
# Asks /readyz: unhealthy means that Postgres does not answer. See docs/operations.md on what should follow from it.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["memser", "healthcheck"]
ENTRYPOINT ["memser"]
CMD ["serve"]

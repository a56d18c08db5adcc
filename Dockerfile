# syntax=docker/dockerfile:1

FROM rust:1.95-slim-bookworm AS builder
WORKDIR /build
COPY . .
# The target folder is a cache and gone after the step: the program is copied out of it.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    cargo build --release --locked --bin memser \
    && cp target/release/memser /usr/local/bin/memser

FROM debian:bookworm-slim
LABEL org.opencontainers.image.title="memser" \
      org.opencontainers.image.description="Memory-as-a-Service: an MCP server that gives any agent durable, scoped memory" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin memser
# For TLS to the embedding endpoint and to Postgres.
COPY --from=builder /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=builder /usr/local/bin/memser /usr/local/bin/memser
COPY LICENSE /usr/share/doc/memser/LICENSE
USER memser
# There is no Postgres in here: DATABASE_URL and MEMSER_TOKEN (or MEMSER_TOKENS_FILE) have to be set.
ENV MEMSER_BIND=0.0.0.0:8080
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["memser", "healthcheck"]
ENTRYPOINT ["memser"]
CMD ["serve"]

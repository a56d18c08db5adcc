//! What is logged, and where traces go.

use anyhow::{Context, ensure};
use http::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use secrecy::SecretString;
use url::Url;

use super::key::{Group, Kind, key};
use super::source::Source;
use crate::telemetry::{Settings, Traces};

pub(super) const TELEMETRY: Group = Group {
    title: "Logs and traces",
    keys: &[
        key(
            "MEMSER_LOG",
            Kind::Text,
            "What is logged, to standard error, as a `tracing` filter. Lines of other crates below `info`, and of rmcp below \
             `error`, are never shown: they hold what passes through them.",
        )
        // These crates say nothing at `info` that helps an operator.
        .default("info,sqlx=warn,tokio_cron_scheduler=warn"),
        key("MEMSER_LOG_FORMAT", Kind::OneOf(&["text", "json"]), "One JSON object a line with `json`.")
            .default("text"),
        key(
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            Kind::Url("http://collector:4318"),
            "Where to send traces: what comes before `/v1/traces` of a collector that takes OTLP as protobuf over HTTP. Unset, \
             memser sends none.",
        ),
        key(
            "OTEL_EXPORTER_OTLP_HEADERS",
            Kind::Text,
            "Headers to send with them: `name=value`, several with commas between them, values percent-encoded.",
        )
        .secret(),
        key("OTEL_SERVICE_NAME", Kind::Text, "What memser is called in them.").default("memser"),
    ],
    introduction: "[Operations](operations.md#traces) says what is in a trace.\n",
};

pub(super) fn telemetry(source: &Source) -> anyhow::Result<Settings> {
    let collector: Option<Url> = source.maybe("OTEL_EXPORTER_OTLP_ENDPOINT")?;
    Ok(Settings {
        log: source.set("MEMSER_LOG")?,
        json: source.text("MEMSER_LOG_FORMAT") == Some("json"),
        traces: collector.map(|collector| traces(source, collector)).transpose()?,
    })
}

fn traces(source: &Source, collector: Url) -> anyhow::Result<Traces> {
    ensure!(
        matches!(collector.scheme(), "http" | "https") && collector.host_str().is_some(),
        "OTEL_EXPORTER_OTLP_ENDPOINT is no http or https URL, for example http://collector:4318"
    );
    ensure!(
        collector.username().is_empty() && collector.password().is_none(),
        "OTEL_EXPORTER_OTLP_ENDPOINT has a user name or password: a key goes into OTEL_EXPORTER_OTLP_HEADERS"
    );
    let headers = source.list("OTEL_EXPORTER_OTLP_HEADERS");
    Ok(Traces {
        collector,
        headers: headers
            .iter()
            .map(|pair| {
                header(pair).context("OTEL_EXPORTER_OTLP_HEADERS: a part of it is no name=value of a header")
            })
            .collect::<anyhow::Result<_>>()?,
        service: source.set("OTEL_SERVICE_NAME")?,
    })
}

/// A header as OpenTelemetry writes it.
fn header(pair: &str) -> Option<(String, SecretString)> {
    let (name, value) = pair.split_once('=')?;
    let name: HeaderName = name.trim().parse().ok()?;
    let value = percent_decode_str(value.trim()).decode_utf8().ok()?.into_owned();
    HeaderValue::from_str(&value).ok()?;
    Some((name.to_string(), SecretString::from(value)))
}

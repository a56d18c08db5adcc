//! Sending traces on: OTLP, protobuf over HTTP.

use std::collections::HashMap;

use anyhow::Context;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use secrecy::{ExposeSecret, SecretString};
use tracing::Subscriber;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::registry::LookupSpan;
use url::Url;

/// Where traces go.
#[derive(Clone, Debug)]
pub struct Traces {
    /// The collector, without the path of its traces.
    pub collector: Url,
    /// What to send with them, such as the collector's key.
    pub headers: Vec<(String, SecretString)>,
    /// What this service is called there.
    pub service: String,
}

impl Traces {
    /// Starts what sends spans on in batches. The SDK's own variables for sampling and batches count as well.
    pub(super) fn start(&self) -> anyhow::Result<SdkTracerProvider> {
        let headers =
            self.headers.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned()));
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(format!("{}/v1/traces", self.collector.as_str().trim_end_matches('/')))
            .with_headers(headers.collect::<HashMap<_, _>>())
            .build()
            .context("OTEL_EXPORTER_OTLP_ENDPOINT")?;
        let resource = Resource::builder()
            .with_service_name(self.service.clone())
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
    }
}

/// What makes traces of spans.
pub(super) fn layer<S>(traces: &SdkTracerProvider) -> OpenTelemetryLayer<S, SdkTracer>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    // Where a span is in the source, and on which thread, tells nobody anything that its name does not.
    tracing_opentelemetry::layer()
        .with_tracer(traces.tracer("memser"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        // Nobody here asks OpenTelemetry which span is current; `tracing` knows.
        .with_context_activation(false)
}

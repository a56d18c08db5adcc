//! A collector of traces: what a memser sends by OTLP, as protobuf over HTTP.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use prost::Message;
use wiremock::matchers::{header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

pub struct Collector(MockServer);

/// A span as it came.
#[derive(Debug)]
pub struct Span {
    pub name: String,
    pub trace: String,
    pub id: String,
    /// Empty where it has none.
    pub parent: String,
    /// The spans that it is linked to.
    pub links: Vec<String>,
    /// As the protocol numbers them: 2 serves, 3 asks.
    pub kind: i32,
    pub is_error: bool,
    pub attributes: BTreeMap<String, String>,
    /// Those that are numbers.
    pub numbers: BTreeMap<String, i64>,
    /// The name of the service that sent it.
    pub service: String,
}

impl Collector {
    /// One that wants this key.
    pub async fn start(key: &str) -> Self {
        let server = MockServer::start().await;
        Mock::given(method("POST"))
            .and(path("/v1/traces"))
            .and(header("x-key", key))
            .and(header("content-type", "application/x-protobuf"))
            .respond_with(ResponseTemplate::new(200))
            .mount(&server)
            .await;
        Self(server)
    }

    pub fn url(&self) -> String {
        self.0.uri()
    }

    /// Everything that came, as bytes.
    pub async fn bodies(&self) -> Vec<Vec<u8>> {
        let requests = self.0.received_requests().await.unwrap();
        requests.into_iter().map(|request| request.body).collect()
    }

    pub async fn spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        for body in self.bodies().await {
            let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
            for resource in request.resource_spans {
                let about = resource.resource.map(|resource| texts(&resource.attributes)).unwrap_or_default();
                let sent = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
                spans.extend(sent.map(|span| Span {
                    name: span.name,
                    trace: hex::encode(span.trace_id),
                    id: hex::encode(span.span_id),
                    parent: hex::encode(span.parent_span_id),
                    links: span.links.iter().map(|link| hex::encode(&link.span_id)).collect(),
                    kind: span.kind,
                    is_error: span.status.is_some_and(|status| status.code == 2),
                    attributes: texts(&span.attributes),
                    numbers: numbers(&span.attributes),
                    service: about["service.name"].clone(),
                }));
            }
        }
        spans
    }
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| match value(attribute) {
        Some(any_value::Value::StringValue(text)) => Some(text.clone()),
        Some(any_value::Value::IntValue(_)) => None,
        Some(any_value::Value::BoolValue(truth)) => Some(truth.to_string()),
        other => Some(format!("{other:?}")),
    };
    attributes.iter().filter_map(|attribute| Some((attribute.key.clone(), text(attribute)?))).collect()
}

fn numbers(attributes: &[KeyValue]) -> BTreeMap<String, i64> {
    let number = |attribute: &KeyValue| match value(attribute) {
        Some(any_value::Value::IntValue(number)) => Some(*number),
        _ => None,
    };
    attributes.iter().filter_map(|attribute| Some((attribute.key.clone(), number(attribute)?))).collect()
}

fn value(attribute: &KeyValue) -> Option<&any_value::Value> {
    attribute.value.as_ref()?.value.as_ref()
}

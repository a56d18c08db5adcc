//! The description of the API (`OpenAPI` 3.1), from the handlers and from the schemas that MCP clients see.

use schemars::JsonSchema;
use serde_json::{Map, Value};
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{Array, Object, Schema};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Components, RefOr, Required};
use utoipa::{IntoParams, Modify, OpenApi, PartialSchema, ToSchema};

use super::memories::{BatchAnswer, BatchArgs, ForgetOneArgs, GetArgs};
use super::problem::Problem;
use crate::api::{
    AuditAnswer, AuditArgs, ConflictsAnswer, ConflictsArgs, ConsolidateAnswer, ConsolidateArgs, ForgetAnswer,
    ForgetArgs, JobsAnswer, JobsArgs, ListAnswer, ListArgs, MemoryView, RecallAnswer, RecallArgs,
    ResolveAnswer, ResolveArgs, ScopesAnswer, ScopesArgs, StoreAnswer, StoreArgs,
};
use crate::args::schema;

/// What the document says beside its paths.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "memser",
        description = "Memory for agents. The same calls as the MCP tools at /mcp, for programs without an MCP client.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    modifiers(&Bearer),
    security(("bearer" = [])),
    tags(
        (name = "memories", description = "Store, recall, list and forget"),
        (name = "review", description = "Consolidation, conflicts and scopes"),
        (name = "admin", description = "For administrators")
    )
)]
pub(super) struct Document;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        document.components.get_or_insert_with(Components::new).add_security_scheme("bearer", scheme);
    }
}

/// Lets types be described by the schemas that they have already.
macro_rules! described {
    ($by:ident: $($name:ident),+ $(,)?) => {$(
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                RefOr::T(converted(Value::Object(Map::clone(&schema::$by::<$name>()))))
            }
        }
        impl ToSchema for $name {}
    )+};
}

described!(input: BatchArgs, ConsolidateArgs, ForgetArgs, RecallArgs, ResolveArgs, StoreArgs);
described!(answer: AuditAnswer, BatchAnswer, ConflictsAnswer, ConsolidateAnswer, ForgetAnswer, JobsAnswer, ListAnswer,
    MemoryView, Problem, RecallAnswer, ResolveAnswer, ScopesAnswer, StoreAnswer);

/// Lets types be read from query strings: each argument is a parameter.
macro_rules! queried {
    ($($name:ident),+ $(,)?) => {$(
        impl IntoParams for $name {
            fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
                parameters::<Self>()
            }
        }
    )+};
}

queried!(AuditArgs, ConflictsArgs, ForgetOneArgs, GetArgs, JobsArgs, ListArgs, ScopesArgs);

fn parameters<T: JsonSchema>() -> Vec<Parameter> {
    let schema = schema::input::<T>();
    let properties = schema.get("properties").and_then(Value::as_object);
    let parameter = |(name, property): (&String, &Value)| {
        ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Query)
            .required(Required::False)
            .description(property["description"].as_str())
            .schema(Some(converted(property.clone())))
            .build()
    };
    properties.into_iter().flatten().map(parameter).collect()
}

/// A schema in utoipa's types, which hold every keyword that ours use; a test compares them.
fn converted(schema: Value) -> Schema {
    if schema["type"] == "array" {
        serde_json::from_value::<Array>(schema).map(Schema::Array).unwrap_or_default()
    } else {
        serde_json::from_value::<Object>(schema).map(Schema::Object).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_kept<T: ToSchema>(schema: &schema::Schema) {
        let mut schema = Map::clone(schema);
        // The document names the dialect once, by its own version.
        schema.remove("$schema");
        let kept = serde_json::to_value(T::schema()).unwrap();
        assert_eq!(kept, Value::Object(schema), "{}", T::name());
    }

    #[test]
    fn no_keyword_of_a_schema_is_lost() {
        assert_kept::<StoreArgs>(&schema::input::<StoreArgs>());
        assert_kept::<RecallArgs>(&schema::input::<RecallArgs>());
        assert_kept::<ForgetArgs>(&schema::input::<ForgetArgs>());
        assert_kept::<BatchArgs>(&schema::input::<BatchArgs>());
        assert_kept::<ConsolidateArgs>(&schema::input::<ConsolidateArgs>());
        assert_kept::<ResolveArgs>(&schema::input::<ResolveArgs>());
        assert_kept::<StoreAnswer>(&schema::answer::<StoreAnswer>());
        assert_kept::<RecallAnswer>(&schema::answer::<RecallAnswer>());
        assert_kept::<ListAnswer>(&schema::answer::<ListAnswer>());
        assert_kept::<ForgetAnswer>(&schema::answer::<ForgetAnswer>());
        assert_kept::<ConsolidateAnswer>(&schema::answer::<ConsolidateAnswer>());
        assert_kept::<ResolveAnswer>(&schema::answer::<ResolveAnswer>());
        assert_kept::<ConflictsAnswer>(&schema::answer::<ConflictsAnswer>());
        assert_kept::<ScopesAnswer>(&schema::answer::<ScopesAnswer>());
        assert_kept::<JobsAnswer>(&schema::answer::<JobsAnswer>());
        assert_kept::<AuditAnswer>(&schema::answer::<AuditAnswer>());
        assert_kept::<BatchAnswer>(&schema::answer::<BatchAnswer>());
        assert_kept::<Problem>(&schema::answer::<Problem>());
    }
}

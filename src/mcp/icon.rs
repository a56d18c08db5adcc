//! Pictures for clients that show them, drawn here and carried in the messages, so that no client fetches anything.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rmcp::model::Icon;

use super::ToolName;

/// Three layers: what is kept in tiers.
const SERVER: &str = "M12 3 3 8l9 5 9-5zM3 12l9 5 9-5M3 16l9 5 9-5";

/// The server's picture.
pub(super) fn server() -> Vec<Icon> {
    vec![drawn(SERVER)]
}

/// A tool's picture.
pub(super) fn of(tool: ToolName) -> Vec<Icon> {
    let lines = match tool {
        ToolName::Store => "M12 5v14M5 12h14",
        ToolName::Recall | ToolName::Search => "M4 11a7 7 0 1 0 14 0 7 7 0 1 0-14 0M16 16l5 5",
        ToolName::Forget => "M4 7h16M9 7V4h6v3M6 7l1 14h10l1-14",
        ToolName::List => "M9 6h12M9 12h12M9 18h12M4 6h.01M4 12h.01M4 18h.01",
        ToolName::Consolidate => "M4 5l8 8 8-8M12 13v8",
        ToolName::Resolve => "M5 13l5 5L20 6",
        ToolName::Fetch => "M12 4v11M7 10l5 5 5-5M4 20h16",
    };
    vec![drawn(lines)]
}

/// Lines on a square of 24, in a blue that shows on light and on dark.
fn drawn(lines: &str) -> Icon {
    let svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none" stroke="#4f86c6" stroke-width="2" stroke-linecap="round" stroke-linejoin="round"><path d="{lines}"/></svg>"##
    );
    Icon::new(format!("data:image/svg+xml;base64,{}", BASE64_STANDARD.encode(svg)))
        .with_mime_type("image/svg+xml")
        .with_sizes(vec!["any".to_owned()])
}

//! The shape of the source itself: which module may use which, and what belongs in no file.

use std::fs;
use std::path::Path;

use crate::support::files;

/// From the top down: a module uses only modules of lower rows, as `lib.rs` says in short.
const ROWS: &[&[&str]] = &[
    &["main"],
    &["backup_command", "export_command", "import_command", "jobs_command", "stdio_command", "token_command"],
    &["app", "doctor"],
    &["http", "jobs", "stdio"],
    // `config` is made of the settings of the parts that it configures.
    &["mcp", "config"],
    &["engine"],
    &["working"],
    &["db", "provider"],
    &["args"],
    &["api", "auth", "port"],
    // Parsing a name fails with the one error, and that error names scopes and actions.
    &["model", "error"],
    &["clock", "metrics", "telemetry", "text"],
];
/// The one pair of a row whose modules use each other.
const MUTUAL: [&str; 2] = ["error", "model"];
const MAX_LINES: usize = 450;

struct Source {
    /// Below `src/`.
    path: String,
    /// The top-level module that the file belongs to.
    module: String,
    /// Every line.
    lines: usize,
    /// Numbered lines without comments and without the tests at the end.
    code: Vec<(usize, String)>,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    files(&root).iter().map(|file| source(&root, file)).collect()
}

fn source(root: &Path, file: &Path) -> Source {
    let path = file.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
    let module = path.split('/').next().unwrap().trim_end_matches(".rs").to_owned();
    let text = fs::read_to_string(file).unwrap();
    let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
    let code = text
        .lines()
        .enumerate()
        .take_while(|(_, line)| !is_test && !line.starts_with("#[cfg(test)]"))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(at, line)| (at + 1, line.to_owned()))
        .collect();
    Source { path, module, lines: text.lines().count(), code }
}

/// Every line of code that `wrong` says something about.
fn findings(wrong: impl Fn(&Source, &str) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources() {
        for (number, line) in &source.code {
            if let Some(words) = wrong(&source, line) {
                found.push(format!("src/{}:{number}: {words}", source.path));
            }
        }
    }
    found
}

fn assert_none(found: &[String]) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

fn row(module: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&module))
}

/// What is wrong with a line of `module`, as far as its paths to other modules go.
fn against_the_direction(module: &str, line: &str) -> Option<String> {
    let own = row(module)?;
    for prefix in ["crate::", "memser::"] {
        for (at, _) in line.match_indices(prefix) {
            // As a whole word, and no `$crate`.
            if line[..at].ends_with(|c: char| c.is_alphanumeric() || "_$:\"/".contains(c)) {
                continue;
            }
            let path = &line[at + prefix.len()..];
            let used: String = path.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let Some(other) = row(&used) else {
                return Some(format!("{prefix}{path}: name one module of lib.rs"));
            };
            let mutual = MUTUAL.contains(&module) && MUTUAL.contains(&used.as_str());
            if used != module && !mutual && other <= own {
                return Some(format!("{module} uses {used}, against the direction"));
            }
        }
    }
    None
}

#[test]
fn every_module_has_its_row_and_every_row_its_modules() {
    let mut modules: Vec<String> = sources().into_iter().map(|source| source.module).collect();
    modules.retain(|module| module != "lib");
    modules.sort();
    modules.dedup();
    let mut known: Vec<&str> = ROWS.concat();
    known.sort_unstable();
    assert_eq!(modules, known);
}

#[test]
fn modules_use_only_what_is_below_them() {
    assert_none(&findings(|source, line| against_the_direction(&source.module, line)));
    // In a top-level file `super` is the crate, and would hide a path from the rule.
    assert_none(&findings(|source, line| {
        let hidden = !source.path.contains('/') && line.contains("super::");
        hidden.then(|| "super:: of a top-level module".to_owned())
    }));
}

#[test]
fn the_rule_of_direction_finds_what_is_against_it() {
    for (module, line) in [
        ("db", "use crate::engine::Engine;"),
        ("db", "    let x = crate::working::DEFAULT_CAP;"),
        ("engine", "use crate::config::Config;"),
        ("provider", "use crate::db::Db;"),
        ("http", "use crate::jobs::Jobs;"),
        ("engine", "pub(crate) use crate::{db, http};"),
        ("app", "fn f() -> memser::main::X {"),
    ] {
        assert!(against_the_direction(module, line).is_some(), "{module}: {line}");
    }
    for (module, line) in [
        ("main", "use memser::app::App;"),
        ("engine", "use crate::engine::score;"),
        ("error", "use crate::model::Scope;"),
        ("http", r#"const X: &str = "urn:memser::x";"#),
    ] {
        assert_eq!(against_the_direction(module, line), None);
    }
}

#[test]
fn only_db_speaks_sql() {
    let mut statements = 0;
    for source in sources() {
        let here = source.code.iter().filter(|(_, line)| line.contains("sqlx::query"));
        let here = here.count();
        if source.module == "db" {
            statements += here;
        } else {
            assert_eq!(here, 0, "src/{} speaks SQL", source.path);
        }
    }
    assert!(statements > 0, "the search finds nothing at all");
    assert_none(&findings(|source, line| {
        let statement = ["raw_sql(", "QueryBuilder", "query!(", "query_as!(", "query_as(", "query_scalar"]
            .iter()
            .any(|word| line.contains(word));
        (source.module != "db" && statement).then(|| format!("SQL outside src/db: {}", line.trim()))
    }));
}

#[test]
fn time_is_an_input() {
    assert_none(&findings(|source, line| {
        let reads = ["Utc::now", "Local::now", "SystemTime::now"].iter().any(|clock| line.contains(clock));
        (source.module != "clock" && reads).then(|| "reads the time itself: ask the Clock".to_owned())
    }));
}

#[test]
fn nothing_that_serves_may_panic_on_a_value() {
    assert_none(&findings(|_, line| {
        let panics = [".unwrap()", ".expect(", "panic!(", "todo!(", "unreachable!("]
            .iter()
            .find(|word| line.contains(**word));
        panics.map(|word| format!("{word} outside tests"))
    }));
}

#[test]
fn files_stay_readable() {
    let long: Vec<String> = sources()
        .iter()
        .filter(|source| source.lines > MAX_LINES)
        .map(|source| format!("src/{} has {} lines of {MAX_LINES}", source.path, source.lines))
        .collect();
    assert_none(&long);
}

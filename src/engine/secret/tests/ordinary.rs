//! Text of the kinds that people and agents store, made at random, and that of this repository: none of it holds a
//! credential, so that whatever is found in it is found wrongly.

use std::fs;
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::sieve;

const SENTENCES: usize = 4_000;

const HEX: &str = "0123456789abcdef";
const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const NAMES: [&str; 8] = ["Anna", "Ben", "Chloé", "Дмитрий", "Елена", "José", "小明", "Yuki"];
const THINGS: [&str; 12] = [
    "password",
    "passphrase",
    "API key",
    "access token",
    "client secret",
    "private key",
    "session token",
    "пароль",
    "токен",
    "ключ",
    "密码",
    "webhook secret",
];
const LABELS: [&str; 16] = [
    "api_key_id",
    "private_key_path",
    "webhook_secret_name",
    "auth_token_ttl",
    "token_type",
    "secret_version",
    "access_key_file",
    "signing_key_algorithm",
    "session_token_expires_at",
    "secretName",
    "tokenCount",
    "max_tokens",
    "password_policy",
    "key",
    "cache_key",
    "primary_key",
];
const WORDS: [&str; 16] = [
    "billing", "prod", "staging", "backup", "login", "service", "report", "index", "worker", "mobile",
    "main", "cache", "deploy", "mail", "search", "audit",
];

/// Draws what a sentence is made of.
pub(super) struct Writer(StdRng);

impl Writer {
    pub(super) fn seeded(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.0.random_range(0..of.len())]
    }

    fn number(&mut self, to: u32) -> u32 {
        self.0.random_range(0..to)
    }

    fn run(&mut self, alphabet: &str, length: usize) -> String {
        let letters = alphabet.as_bytes();
        (0..length).map(|_| char::from(letters[self.0.random_range(0..letters.len())])).collect()
    }

    fn uuid(&mut self) -> String {
        uuid::Builder::from_random_bytes(self.0.random()).into_uuid().to_string()
    }

    /// Words with something between them, as things are called.
    fn called(&mut self) -> String {
        let between = self.one(&["-", "_", ".", "/"]);
        let (first, second, number) = (self.one(&WORDS), self.one(&WORDS), self.number(20));
        match self.number(3) {
            0 => format!("{first}{between}{second}"),
            1 => format!("{first}{between}{second}{between}{number}"),
            _ => format!("{first}{between}{second}-v{number}"),
        }
    }

    fn path(&mut self) -> String {
        let root = self.one(&["/home/anna", "~", "./", "/run/secrets", "/etc/ssl", "/Users/ben", "C:\\work"]);
        format!("{root}/{}.{}", self.called(), self.one(&["pem", "key", "txt", "json", "rs", "toml"]))
    }

    fn placeholder(&mut self) -> String {
        let number = self.number(100);
        match self.number(9) {
            0 => "YOUR_ACCESS_TOKEN_HERE".to_owned(),
            1 => format!("<token-{number}>"),
            2 => format!("${{TOKEN_{number}}}"),
            3 => "x".repeat(16),
            4 => format!("$SECRET_{number}"),
            5 => format!("{{{{ secrets.KEY_{number} }}}}"),
            6 => "changeme123".to_owned(),
            7 => format!("your-api-key-{number}"),
            _ => "********".to_owned(),
        }
    }

    pub(super) fn sentence(&mut self) -> String {
        let (name, other, thing) = (self.one(&NAMES), self.one(&NAMES), self.one(&THINGS));
        let (label, word, number) = (self.one(&LABELS), self.one(&WORDS), self.number(10_000));
        match self.number(26) {
            0 => format!("{name} forgot the {thing} of {word}{number} again and asked {other} to reset it."),
            1 => format!("The {thing} for {word} rotates every {} days; {name} owns it.", self.number(90)),
            2 => format!("{thing}: ask {name}, room {}{number}", self.one(&["A", "B2-", "C"])),
            3 => format!("The {thing} is {} characters long and valid for {number}s.", self.number(64)),
            4 => format!("{label}={}", self.called()),
            5 => format!("{label}: {}", self.path()),
            6 => format!("{label} = {number}{}", self.one(&["s", "ms", "m", "h", "d", " days", "seconds"])),
            7 => format!("export {}_TOKEN={}", word.to_uppercase(), self.placeholder()),
            8 => {
                format!("curl -H \"Authorization: Bearer {}\" https://{word}.example/v1", self.placeholder())
            }
            9 => format!("Commit {} by {name} broke {}", self.run(HEX, 40), self.called()),
            10 => format!("{} is the parent of {}", self.uuid(), self.uuid()),
            11 => format!("sha256:{} {}", self.run(HEX, 64), self.path()),
            12 => format!("![{word}](data:image/png;base64,iVBORw0KGgo{}=)", self.run(BASE64, 300)),
            13 => format!("integrity sha512-{}== in package-lock.json", self.run(BASE64, 86)),
            14 => format!(
                "https://{word}.example.com:{number}/{}?page={number}&sort=asc#token-{word}",
                self.called()
            ),
            15 => format!("postgres://{word}@db-{number}.internal:5432/{word}?sslmode=require"),
            16 => format!("let {word}_token = self.tokens.get(\"{}\").unwrap_or({number});", self.called()),
            17 => format!("password = request.form['{word}_password{number}'] # {name}"),
            18 => format!("fn {word}_key(secret: &str, token: Token{number}) -> Result<Key{number}, Error>"),
            19 => {
                format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{} {word}@host-{number}", self.run(BASE64, 43))
            }
            20 => format!(
                "{name} paid {number} EUR to DE{} on 2026-0{}-1{}",
                self.run("0123456789", 20),
                1 + self.number(8),
                self.number(10)
            ),
            21 => format!("secret: {}, pwd: {}", self.called(), self.path()),
            22 => format!(
                "2026-03-01T12:00:{:02}Z INFO {word}: token refreshed in {number}ms trace={}",
                self.number(60),
                self.run(HEX, 32)
            ),
            23 => format!("image: registry.example/{}@sha256:{}", self.called(), self.run(HEX, 64)),
            24 => format!("{name} сказал, что {thing} лежит в сейфе №{number}, а {other} его сменит."),
            _ => format!("{name}说{thing}在{number}号保险箱里，不在{word}里。"),
        }
    }
}

#[test]
fn nothing_is_found_in_four_thousand_sentences() {
    let (sieve, mut writer) = (sieve(), Writer::seeded(7));
    let sentences = std::iter::repeat_with(|| writer.sentence()).take(SENTENCES);
    let wrong: Vec<String> = sentences.filter(|text| sieve.rules.redact(text).0.is_some()).collect();
    assert!(wrong.is_empty(), "{} of {SENTENCES}: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
}

fn texts(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts(&path, into);
        } else if !path.ends_with("tests.rs")
            && path
                .extension()
                .is_some_and(|kind| ["rs", "md", "toml", "sql"].iter().any(|known| kind == *known))
        {
            into.push(path);
        }
    }
}

#[test]
fn nothing_is_found_in_the_documentation_and_the_source() {
    let (sieve, root) = (sieve(), Path::new(env!("CARGO_MANIFEST_DIR")));
    let mut files =
        vec![root.join("README.md"), root.join("memser.default.toml"), root.join("docker-compose.yml")];
    for folder in ["docs", "migrations", "src/http", "src/auth"] {
        texts(&root.join(folder), &mut files);
    }
    assert!(files.len() > 40);
    let mut wrong = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        // Tests have credentials of their own.
        let code = text.split("#[cfg(test)]").next().unwrap();
        if sieve.rules.redact(code).0.is_some() {
            wrong.extend(
                code.lines()
                    .filter(|line| sieve.rules.redact(line).0.is_some())
                    .map(|line| format!("{}: {line}", file.display())),
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

use serde_json::json;

use super::*;

mod keywords;
mod ordinary;

const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const HEX: &str = "0123456789abcdef";
const WORD: &str = "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zLcFiOhPw";

/// So many characters that look random and are always the same. Made here, because whole examples would have other
/// people's scanners find them in this file.
fn random(alphabet: &str, length: usize) -> String {
    let letters: Vec<char> = alphabet.chars().collect();
    let mut state = 7_usize;
    let mut next = || {
        state = (state * 1_103 + 12_345) % 65_536;
        letters[(state >> 4) % letters.len()]
    };
    (0..length).map(|_| next()).collect()
}

/// A text for every kind; what stands between `«` and `»` is the credential.
#[expect(clippy::too_many_lines, reason = "a table: one entry for each kind")]
fn examples() -> Vec<(&'static str, String)> {
    let w = |length| random(WORD, length);
    let h = |length| random(HEX, length);
    vec![
        (
            "private_key",
            format!(
                "Use «-----BEGIN RSA {0}-----\n{1}\n-----END RSA {0}-----» to log in",
                "PRIVATE KEY",
                w(300)
            ),
        ),
        (
            "putty_private_key",
            format!(
                "Mine: «PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: dummy\nPublic-Lines: 1\n{}\n\
                 Private-Lines: 1\n{}\nPrivate-MAC: {}»\nis new",
                w(64),
                w(64),
                h(64)
            ),
        ),
        ("private_key", format!("The wallet's private key: «0x{}»", h(64))),
        ("private_key", format!("private_key=«{}»", h(64))),
        (
            "seed_phrase",
            format!(
                "Recovery phrase: «{}»",
                "abandon ability able about above absent absorb abstract absurd abuse access accident"
            ),
        ),
        ("age_key", format!("«AGE-SECRET-KEY-1{}»", random("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58))),
        ("aws_access_key", format!("The deploy user has «AKIA{}».", random(UPPER, 16))),
        ("aws_secret_key", format!("aws_secret_access_key = «{}»", w(40))),
        ("azure_storage_key", format!("AccountName=a;AccountKey=«{}==»;EndpointSuffix=b", w(86))),
        ("azure_client_secret", format!("the secret «abc8Q~{}»", w(34))),
        ("google_api_key", format!("key «AIza{}» for maps", w(35))),
        ("google_oauth_token", format!("«ya29.{}»", w(60))),
        ("digitalocean_token", format!("«dop_v1_{}»", h(64))),
        ("databricks_token", format!("«dapi{}»", h(32))),
        ("vault_token", format!("«hvs.{}»", w(90))),
        ("doppler_token", format!("«dp.pt.{}»", w(43))),
        ("docker_token", format!("docker login with «dckr_pat_{}»", w(27))),
        ("heroku_key", format!("«HRKU-AA{}»", w(58))),
        ("supabase_token", format!("«sbp_{}»", h(40))),
        ("supabase_token", format!("«sb_secret_{}»", w(31))),
        ("planetscale_token", format!("«pscale_tkn_{}»", w(43))),
        ("terraform_token", format!("credentials «{}.atlasv1.{}»", w(14), w(67))),
        ("pulumi_token", format!("«pul-{}»", h(40))),
        ("tailscale_key", format!("«tskey-auth-k{}CNTRL-{}»", w(11), w(32))),
        ("onepassword_token", format!("«ops_eyJ{}»", w(240))),
        (
            "signed_url",
            format!(
                "https://a.blob.core.windows.net/c/f?sv=2024-11-04&se=2026-01-01&sr=b&sig=«{}%3D»&x=1",
                w(43)
            ),
        ),
        ("signed_url", format!("https://b.s3.amazonaws.com/f?X-Amz-Expires=600&X-Amz-Signature=«{}»", h(64))),
        ("github_token", format!("Push with «ghp_{}»", w(36))),
        ("github_token", format!("Push with «github_pat_{}»", w(82))),
        ("gitlab_token", format!("«glpat-{}»", w(20))),
        ("npm_token", format!("//registry.npmjs.org/:_authToken=«npm_{}»", w(36))),
        ("pypi_token", format!("«pypi-AgE{}»", w(120))),
        ("crates_io_token", format!("cargo login «cio{}»", w(32))),
        ("atlassian_token", format!("«ATATT3{}»", w(186))),
        ("linear_key", format!("«lin_api_{}»", w(40))),
        ("notion_token", format!("«ntn_{}»", w(46))),
        ("rubygems_key", format!("«rubygems_{}»", h(48))),
        ("bitbucket_password", format!("«ATBB{}»", w(32))),
        ("postman_key", format!("«PMAK-{}-{}»", h(24), h(34))),
        ("figma_token", format!("«figd_{}»", w(40))),
        ("grafana_token", format!("«glsa_{}_{}»", w(32), h(8))),
        ("sentry_token", format!("«sntryu_{}»", h(64))),
        ("newrelic_key", format!("«NRAK-{}»", random(UPPER, 27))),
        ("anthropic_key", format!("«sk-ant-api03-{}»", w(95))),
        ("openai_key", format!("«sk-proj-{}»", w(120))),
        ("openai_key", format!("«sk-{}»", h(32))),
        ("xai_key", format!("«xai-{}»", w(80))),
        ("replicate_token", format!("«r8_{}»", w(37))),
        ("tavily_key", format!("«tvly-{}»", w(32))),
        ("nvidia_key", format!("«nvapi-{}»", w(64))),
        ("langsmith_key", format!("«lsv2_pt_{}_{}»", h(32), h(10))),
        ("pinecone_key", format!("«pcsk_{}_{}»", w(6), w(63))),
        ("openrouter_key", format!("«sk-or-v1-{}»", h(64))),
        ("huggingface_token", format!("«hf_{}»", w(34))),
        ("groq_key", format!("«gsk_{}»", w(52))),
        ("perplexity_key", format!("«pplx-{}»", w(48))),
        ("slack_token", format!("«xoxb-2401-{}»", w(24))),
        ("slack_webhook", format!("https://hooks.slack.com/services/«T0/B0/{}»", w(30))),
        ("discord_webhook", format!("https://discord.com/api/webhooks/123456789012345678/«{}»", w(68))),
        ("discord_token", format!("«M{}.{}.{}»", w(23), w(6), w(38))),
        ("telegram_token", format!("The bot is «123456789:AA{}»", w(33))),
        ("telegram_token", format!("curl https://api.telegram.org/bot«123456789:AA{}»/getMe", w(33))),
        ("brevo_key", format!("«xkeysib-{}-{}»", h(64), w(16))),
        ("square_token", format!("«sq0atp-{}»", w(22))),
        ("square_token", format!("pay with «EAAA{}» at the till", w(60))),
        ("twilio_key", format!("«SK{}»", h(32))),
        ("sendgrid_key", format!("«SG.{}.{}»", w(22), w(43))),
        ("mailgun_key", format!("«key-{}»", h(32))),
        ("stripe_key", format!("«sk_live_{}»", w(24))),
        ("shopify_token", format!("«shpat_{}»", h(32))),
        ("memser_token", format!("«memser_{}»", h(64))),
        ("json_web_token", format!("It is «eyJ{}.eyJ{}.{}» for now", w(30), w(60), w(43))),
        ("password_in_url", "postgres://app:«hunter2»@db.internal:5432/app".to_owned()),
        ("authorization_header", format!("curl -H 'Authorization: Bearer «{}»' https://x.example", w(32))),
        ("labelled_key", format!("The API key is «{}», Anna made it", w(32))),
        ("labelled_key", format!("CLIENT_SECRET_PROD='«{}»'", w(24))),
        ("labelled_key", format!("TOKEN=«{}»", w(20))),
        ("labelled_key", "JWT_SECRET=«keep-this-away-from-them»".to_owned()),
        ("labelled_key", "secret=«q7Zp1vKx90»".to_owned()),
        ("labelled_key", format!("https://api.example.com/v1?token=«{}»&page=2", w(24))),
        ("labelled_key", format!("ключ API: «{}»", w(24))),
        ("labelled_key", format!("Токен бота — «{}»", w(24))),
        ("labelled_key", format!("секрет = «{}»", h(32))),
        ("labelled_key", format!("令牌：«{}»", w(24))),
        ("labelled_key", format!("API密钥是«{}»", h(32))),
        ("password", "My db password: \"«correct horse 9»\"".to_owned()),
        ("password", "{\"password\": \"«s3cr3t$enough»\"}".to_owned()),
        ("password", "Passwort: «guest2go»".to_owned()),
        ("password_in_url", "ftp://anna:«guest2go»@ftp.example.com/".to_owned()),
        ("password", "The password for the wifi: «tiger2026»".to_owned()),
        ("password", "DB_PASS: «hunter2hunter2»".to_owned()),
        ("password", "login anna pass: «hunter2»".to_owned()),
        ("password", "pwd=«tr0ub4dor»".to_owned()),
        ("password", "Пароль от вайфая: «tigr2026»".to_owned()),
        ("password", "пароль — «qwerty123»".to_owned()),
        ("password", "密码是«qwerty123»，别告诉别人".to_owned()),
        ("password", "My wifi password is \"«correcthorse9»\"".to_owned()),
        ("password", "The router's password is «Tr0ub4dor!».".to_owned()),
    ]
}

fn sieve() -> Sieve {
    Sieve::new(SecretPolicy::Redact).unwrap()
}

#[test]
fn every_rule_finds_its_kind_and_takes_out_that_alone() {
    let sieve = sieve();
    let examples = examples();
    for (kind, marked) in &examples {
        let text = marked.replace(['«', '»'], "");
        let (start, rest) = marked.split_once('«').unwrap();
        let (_, end) = rest.split_once('»').unwrap();
        let (clean, kinds) = sieve.rules.redact(&text);
        assert_eq!(clean.as_deref(), Some(format!("{start}[redacted: {kind}]{end}").as_str()), "{text}");
        assert_eq!(kinds, [*kind]);
    }
    let mut tested: Vec<&str> = examples.iter().map(|(kind, _)| *kind).collect();
    let mut known: Vec<&str> = sieve.rules.each.iter().map(|rule| rule.kind.as_str()).collect();
    for kinds in [&mut tested, &mut known] {
        kinds.sort_unstable();
        kinds.dedup();
    }
    assert_eq!(tested, known);
    assert!(known.len() >= 20);
}

#[test]
fn what_was_cleaned_is_clean() {
    let sieve = sieve();
    let all = examples().iter().map(|(_, text)| text.replace(['«', '»'], "")).collect::<Vec<_>>().join("\n");
    let (clean, kinds) = sieve.rules.redact(&all);
    assert!(kinds.len() >= examples().len(), "{kinds:?}");
    assert_eq!(sieve.rules.redact(&clean.unwrap()), (None, vec![]));
}

#[test]
fn ordinary_text_is_left_alone() {
    let sieve = sieve();
    for text in [
        "My password is stored in the vault, not here.",
        "The password policy asks for at least 12 characters, and it changes every 90 days.",
        "Password: see 1Password, entry 14",
        "The password was changed on 2026-03-01 by Anna.",
        "Anna forgot her password again; the reset took 20 minutes.",
        "The API key is in the team's vault under billing/production.",
        "We rotate the API key every 30 days and the secret key every 60 days.",
        "Which token limit does gpt-4o-mini have? 128000 tokens.",
        "The session token is valid for 3600 seconds.",
        "Refresh token: rotation is on, reuse detection is on.",
        "Set OPENAI_API_KEY=$OPENAI_API_KEY or api_key=YOUR_API_KEY_GOES_HERE_PLEASE before the start.",
        "export DB_PASSWORD=${DB_PASSWORD} && password=<password>",
        "The id is 0199c1f0-5a3e-7cc2-9d0e-2f6f4f1f9f3b and its parent 550e8400-e29b-41d4-a716-446655440000.",
        "Commit 9fceb02d0ae598e95dc970b74767f19372d61af8 broke the build; 078245d repaired it.",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "https://example.com/a?page=2&sort=asc#token-refresh and http://localhost:8080/mcp",
        "ssh://git@github.com:22/owner/repo.git, postgres://localhost:5432/app, https://user@host.example/x",
        "postgres://user:password@host is refused, write postgres://USER:${PASSWORD}@host instead",
        "Call +49 170 1234567 or (555) 010-9999 about ISBN 978-3-16-148410-0.",
        "IBAN DE89 3704 0044 0532 0130 00, order SK-2024-000017, ticket KEY-1234",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
        "The secret ingredient is cardamom; the key is patience.",
        "Secret Santa: Anna draws Ben. The access token talk is at 10:30 in room B2.",
        "Authorization: the review takes two days. Bearer bonds are rare.",
        "class PasswordResetTokenGenerator extends TokenGenerator { private static final int LENGTH = 32; }",
        "let client_secret = config.get(\"client_secret\")?; let api_key: String = env::var(\"API_KEY\")?;",
        "The public key is ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGk7 anna@laptop",
        "-----BEGIN PRIVATE KEY----- is the first line of such a file; never paste one.",
        "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----",
        "She moved from Mönchengladbach to Zürich on 3.4.2025; das Passwort kennt nur Jürgen.",
        "パスワードは金庫にあります。トークンは毎月変わります。",
        "eyJ is how every JWT begins; a JWT has three parts.",
        "hf_ tokens, sk- keys and ghp_ tokens are prefixes that scanners know.",
        "The meeting with AKIA Corp is at noon. ASIA2026 is the conference.",
        "password manager: Bitwarden. passphrase: the one from the book",
        "Their monkey is called key-lime and their fish is SK8er.",
        "function auth(token: string, key: string): Promise<void>",
        "key: value, token: 42, secret: false, password: null",
        "api_key_id=AKID2f9c81be7d42 private_key_path: /etc/ssl/private/server-2024.key",
        "webhook_secret_name=billing-webhook-secret-v2 auth_token_ttl=86400seconds",
        "session_secret_file: /run/secrets/session-key-1 and JWT_SECRET_FILE=/run/secrets/jwt-secret-2",
        "client_secret_arn = arn:aws:secretsmanager:eu-central-1:123456789012:secret:prod/db",
        "secretName: wildcard-example-com-tls-2024, secret: registry-credentials-v3",
        "$ pwd: /home/anna/projects/app2 and PWD=/srv/www/site-1, oldpwd: ~/work/x1",
        "pwd: C:\\Users\\anna\\src2",
        "ACCESS_TOKEN=YOUR_ACCESS_TOKEN_HERE GITHUB_TOKEN=<token> API_KEY=your-api-key-123",
        "token: ${TOKEN}, token: $TOKEN_2, token: {{ secrets.TOKEN_2 }}, token: %TOKEN_2%",
        "api_key=xxxxxxxxxxxxxxxx1234 or ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx or sk-ant-api03-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "AWS's manual has AKIAIOSFODNN7EXAMPLE and aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "ftp://anonymous:guest@ftp.example.com/pub and ftp://anonymous:anna@example.com@ftp.example.com/",
        "password=os.environ[\"PG_PASSWORD2\"], token = config.get(\"token2\"), secret: process.env.SECRET_2",
        "password = getpass.getpass(\"2nd password:\")",
        "Password: ************ (12 characters), token: ...a1b2",
        "next_page_token: CAUQAA2f9c81be7d, cursor_token=eyJvZmZzZXQiOjIwfQ2",
        "All 12 tests pass: unit_2, e2e_login-3 and pass: src/auth.test2.ts",
        "The private key is 4096 bits long; private key: RSA-4096, made in 2024.",
        "Пароль: не менее 8 символов. Ключ от квартиры у Анны, токен живёт 30 дней.",
        "Ключ: user:42:profile, секрет успеха — труд. Токены: 128000.",
        "密码：至少8个字符。密钥在保险箱里，令牌有效期30天。",
        "We lost the recovery phrase: nobody wrote the words down in 2019.",
        "The seed phrase has 12 words; the recovery words are in the safe.",
        "Doctor's appointment: 2026-05-01T09:30:00Z, insurance number X123456789.",
    ] {
        assert_eq!(sieve.rules.redact(text).0, None, "{text}");
    }
}

/// Text that almost matches, of so many bytes.
fn bait(bytes: usize) -> String {
    let bait = [
        "-----BEGIN PRIVATE KEY-----\nVersion",
        "PuTTY-User-Key-File-3: ",
        "eyJhbGciOiJI.eyJ",
        "a://b:",
        "password for a b c ",
        "password: \"",
        "api_key_api_key_",
        "secret secret key ",
        "?sig=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "seed phrase: abandon ability able ",
        "TOKEN=\n",
        "ключ ключ ключ ",
        "密码",
        "x-x-x-x-x-x-x-x-x-x-x_",
    ];
    let share = bytes / bait.len();
    bait.map(|part| part.repeat(share / part.len())).concat()
}

/// However it is made, text costs one pass: a rule that looked again and again at what it has seen would not come to an
/// end here.
#[test]
fn what_almost_matches_is_read_to_the_end() {
    sieve().rules.redact(&bait(256 << 10));
}

/// However metadata is made, each of its bytes is read a few times.
#[test]
fn metadata_is_read_once() {
    let fields = |key: String, value| BTreeMap::from([(key, value)]);
    let mut read = 0;
    sift_fields(fields("k".repeat(8_000), json!(vec!["v"; 2_000])), &mut |text| read += text.len());
    assert!(read < 8_000 + 2_000 * 2 * LABEL_MAX_BYTES, "{read}");

    let keys = (0..500).map(|number| (format!("secret {number}"), json!(number))).collect();
    let clean = sift_fields(keys, &mut |text| "[redacted]".clone_into(text));
    assert_eq!(clean.len(), 500);
    assert!(clean.contains_key("[redacted]") && clean.contains_key("[redacted] 500"), "{clean:?}");
}

#[test]
fn every_field_that_is_kept_is_sifted() {
    let secret = format!("ghp_{}", random(WORD, 36));
    let args = StoreArgs {
        content: format!("Push with {secret} please"),
        tags: vec!["git".to_owned(), secret.clone()],
        source: Some(secret.clone()),
        actor: Some(secret.clone()),
        metadata: [
            ("nested".to_owned(), json!({ "list": [1, { "deep": secret }], "ok": "text" })),
            ("password".to_owned(), json!("hunter2hunter2")),
            (secret.clone(), json!(true)),
            ("plain".to_owned(), json!("password manager")),
        ]
        .into(),
        ..StoreArgs::default()
    };
    let sieve = sieve();
    let sifted = sieve.sift(args.clone());
    let kept = serde_json::to_string(&sifted.args).unwrap();
    assert!(!kept.contains(&secret) && !kept.contains("hunter2"), "{kept}");
    assert_eq!(sifted.args.content, "Push with [redacted: github_token] please");
    assert_eq!(sifted.args.metadata["plain"], "password manager");
    assert_eq!(sifted.args.metadata["nested"]["ok"], "text");
    assert_eq!(sifted.judge(&sieve).unwrap(), ["github_token", "password"]);

    let refusing = Sieve::new(SecretPolicy::Refuse).unwrap();
    let error = refusing.sift(args.clone()).judge(&refusing).unwrap_err();
    assert_eq!((error.code(), error.field()), ("invalid_argument", Some("content")));
    assert!(!error.to_string().contains(&secret));

    let allowing = Sieve::new(SecretPolicy::Allow).unwrap();
    let sifted = allowing.sift(args.clone());
    assert_eq!(serde_json::to_value(&sifted.args).unwrap(), serde_json::to_value(&args).unwrap());
    assert!(sifted.judge(&allowing).unwrap().is_empty());
}

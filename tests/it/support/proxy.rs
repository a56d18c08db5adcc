//! Two memsers behind nginx or Caddy, with the configurations of `deploy/` and TLS.

use std::fs;
use std::iter;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::process::{Running, data_folder, memser};
use super::{ADMIN, Client, TestDatabase};

/// The name in `deploy/nginx.conf`, which clients use.
const DOMAIN: &str = "memory.example.com";
/// How often to look whether a program has come up: with `LOOK_EVERY`, for a minute.
const LOOKS: u32 = 1_200;
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A client gives up an answer that stays silent for so long: what a proxy holds back must not hold up the tests.
const SILENCE: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Nginx,
    Caddy,
}

impl Kind {
    pub const ALL: [Self; 2] = [Self::Nginx, Self::Caddy];

    /// The shipped configuration with what is different on this machine.
    fn configuration(self, port: u16, replicas: [u16; 2], impatient: bool) -> String {
        let [first, second] = replicas.map(|replica| format!("127.0.0.1:{replica}"));
        match self {
            Self::Nginx => {
                let listen = format!("listen 127.0.0.1:{port}");
                let mut changes = vec![
                    ("listen 443", &*listen),
                    ("    listen [::]:443 ssl;\n", ""),
                    ("/etc/ssl/certs/memory.example.com.pem", "certificate.pem"),
                    ("/etc/ssl/private/memory.example.com.key", "key.pem"),
                    ("127.0.0.1:8080", &first),
                    ("127.0.0.1:8081", &second),
                ];
                changes.extend(impatient.then_some(("read_timeout 120s", "read_timeout 10s")));
                shipped("nginx.conf", &changes)
            }
            Self::Caddy => {
                let mut changes = vec![("memser-1:8080", &*first), ("memser-2:8080", &second)];
                let patience = "lb_policy least_conn";
                let impatience = "lb_policy least_conn\n transport http {\n read_timeout 10s\n response_header_timeout 10s\n }";
                changes.extend(impatient.then_some((patience, impatience)));
                // A certificate of its own, and nothing of this machine's but one port of the loopback.
                let options = "{\nlocal_certs\nskip_install_trust\nadmin off\npersist_config off\n\
                               auto_https disable_redirects\ndefault_bind 127.0.0.1\n";
                format!("{options}https_port {port}\n}}\n{}", shipped("Caddyfile", &changes))
            }
        }
    }

    /// Starts it.
    fn spawn(self, folder: &TempDir, configuration: &str) -> Child {
        let path = folder.path();
        let variable = match self {
            Self::Nginx => "MEMSER_TEST_NGINX",
            Self::Caddy => "MEMSER_TEST_CADDY",
        };
        let program = std::env::var_os(variable).expect("run by scripts/test-services.sh");
        let mut command = Command::new(program);
        match self {
            Self::Nginx => {
                let rcgen::CertifiedKey { cert, signing_key } =
                    rcgen::generate_simple_self_signed([DOMAIN.to_owned()]).unwrap();
                fs::write(path.join("certificate.pem"), cert.pem()).unwrap();
                fs::write(path.join("key.pem"), signing_key.serialize_pem()).unwrap();
                fs::write(path.join("memser.conf"), configuration).unwrap();
                // As one process, which needs no other user and ends with the test.
                let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
                let folders = folders.map(|name| format!("{name}_temp_path {name};\n")).concat();
                let main = format!(
                    "daemon off;\nmaster_process off;\npid pid;\nerror_log stderr;\nevents {{}}\n\
                     http {{\naccess_log off;\n{folders}include memser.conf;\n}}\n"
                );
                fs::write(path.join("nginx.conf"), main).unwrap();
                command.arg("-p").arg(path).arg("-c").arg(path.join("nginx.conf"));
            }
            Self::Caddy => {
                fs::write(path.join("Caddyfile"), configuration).unwrap();
                command.args(["run", "--config"]).arg(path.join("Caddyfile"));
                command.env("MEMSER_DOMAIN", DOMAIN).env("HOME", path).env("XDG_DATA_HOME", path);
            }
        }
        let log = fs::File::create(path.join("log")).unwrap();
        command.current_dir(path).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        command.spawn().unwrap()
    }

    /// Where the certificate is that a client has to trust.
    fn certificate(self) -> &'static str {
        match self {
            Self::Nginx => "certificate.pem",
            Self::Caddy => "caddy/pki/authorities/local/root.crt",
        }
    }
}

/// A file of `deploy/` with other values in some places, each of which has to be there once.
fn shipped(name: &str, changes: &[(&str, &str)]) -> String {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)).unwrap();
    changes.iter().fold(text, |text, (from, to)| {
        assert_eq!(text.matches(from).count(), 1, "{from} in {name}");
        text.replace(from, to)
    })
}

/// The address of a path for clients.
pub fn url(path: &str) -> String {
    format!("https://{DOMAIN}{path}")
}

/// Ports that are free, and below those that the system gives out by itself: they stay free while a server restarts.
fn free_ports<const N: usize>() -> [u16; N] {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, rand::random_range(10_000..30_000)));
    // Held until all are found, so that no two are the same.
    let listeners = std::array::from_fn::<_, N, _>(|_| iter::repeat_with(bind).find_map(Result::ok).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// The proxy, what is behind it, and a client that trusts it.
pub struct Site {
    pub kind: Kind,
    pub database: TestDatabase,
    pub http: reqwest::Client,
    replicas: [Replica; 2],
    proxy: Child,
    folder: TempDir,
}

/// One memser behind the proxy.
pub struct Replica {
    port: u16,
    variables: Vec<(&'static str, String)>,
    running: Option<Running>,
}

/// How a site differs from the usual one.
#[derive(Clone, Copy, Default)]
pub struct Settings {
    /// The proxy gives up after 10 s without a byte of an answer.
    pub impatient: bool,
    /// Requests a second for each token and replica.
    pub rate_limit: Option<u32>,
}

impl Site {
    pub async fn start(kind: Kind, settings: Settings) -> Self {
        let database = TestDatabase::create().await;
        let [port, first, second] = free_ports();
        let replicas = [first, second].map(|port| {
            let mut variables = database.settings();
            variables.extend([
                ("MEMSER_BIND", format!("127.0.0.1:{port}")),
                ("MEMSER_PUBLIC_URL", url("")),
                ("MEMSER_TOKEN", ADMIN.to_owned()),
                ("ENABLE_SCHEDULER", "false".to_owned()),
                // Alike texts are stored beside each other.
                ("DUPLICATE_THRESHOLD", "1".to_owned()),
                ("CONFLICT_THRESHOLD", "1".to_owned()),
                ("DATABASE_MAX_CONNECTIONS", "5".to_owned()),
            ]);
            variables.extend(settings.rate_limit.map(|limit| ("MEMSER_RATE_LIMIT", limit.to_string())));
            Replica { port, variables, running: None }
        });
        let folder = data_folder();
        let proxy = kind.spawn(&folder, &kind.configuration(port, [first, second], settings.impatient));
        let http = reqwest::Client::new();
        let mut site = Self { kind, database, http, replicas, proxy, folder };
        for replica in &mut site.replicas {
            replica.start().await;
        }
        site.http = site.trusting(port).await;
        site
    }

    /// Waits until the proxy serves, and gives a client that reaches it by its name.
    async fn trusting(&mut self, port: u16) -> reqwest::Client {
        let certificate = self.folder.path().join(self.kind.certificate());
        for _ in 0..LOOKS {
            if let Ok(pem) = fs::read(&certificate)
                && let Ok(certificate) = reqwest::Certificate::from_pem(&pem)
            {
                let http = reqwest::Client::builder()
                    .tls_certs_only([certificate])
                    .read_timeout(SILENCE)
                    .resolve(DOMAIN, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
                    .build()
                    .unwrap();
                let alive = http.get(url("/livez")).send().await;
                if alive.is_ok_and(|answer| answer.status() == 200) {
                    return http;
                }
            }
            let ended = self.proxy.try_wait().unwrap();
            assert!(ended.is_none(), "{:?} has ended: {}", self.kind, self.log());
            tokio::time::sleep(LOOK_EVERY).await;
        }
        panic!("{:?} does not serve: {}", self.kind, self.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// A client with the token of every right.
    pub fn admin(&self) -> Client {
        Client::over(self.http.clone(), url("/mcp"), ADMIN)
    }

    pub fn replicas(&mut self) -> &mut [Replica; 2] {
        &mut self.replicas
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
    }
}

impl Replica {
    /// Starts it where it was.
    pub async fn start(&mut self) {
        let variables: Vec<_> = self.variables.iter().map(|(name, value)| (*name, &**value)).collect();
        let command = memser(&["serve"], &variables);
        self.running = Some(tokio::task::spawn_blocking(|| Running::run(command)).await.unwrap());
    }

    /// The process that serves, which is no longer a part of the site.
    pub fn take(&mut self) -> Running {
        self.running.take().expect("it serves")
    }

    /// How many requests for `/mcp` it has answered since it started.
    pub async fn answered(&self) -> u64 {
        answered(self.port, ADMIN).await
    }
}

/// How many requests for `/mcp` the memser on this port has answered since it started; 0 while it does not serve.
pub async fn answered(port: u16, token: &str) -> u64 {
    let metrics = reqwest::Client::new().get(format!("http://127.0.0.1:{port}/metrics"));
    let Ok(answer) = metrics.bearer_auth(token).send().await else { return 0 };
    let text = answer.text().await.unwrap();
    let counts = text.lines().filter(|line| {
        line.starts_with("memser_http_request_duration_seconds_count") && line.contains("route=\"/mcp\"")
    });
    counts.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

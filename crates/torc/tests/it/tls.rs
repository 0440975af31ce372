//! Encrypted servers, seen by our own client and by foreign ones.

use crate::support::{Running, Test};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

struct Server {
    _running: Running,
    port: String,
}

/// A server at `args`, whose address begins with `https://`.
fn serve(test: &Test, args: &[&str]) -> Server {
    let mut running = test.torc([&["server", "run"], args].concat()).spawn();
    let url = running.wait_for_stdout("https://").trim().to_string();
    let port = url.rsplit(':').next().expect("a port").to_string();
    Server { _running: running, port }
}

/// Writes `ca.pem`, and for a certificate that it signed `NAME.pem` and `NAME.key`.
struct Authority {
    params: CertificateParams,
    key: KeyPair,
}

impl Authority {
    fn new(test: &Test) -> Self {
        let mut params = CertificateParams::new([]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        test.write("ca.pem", &params.self_signed(&key).expect("a certificate").pem());
        Self { params, key }
    }

    fn sign(&self, test: &Test, name: &str, host: &str, ends: SystemTime) {
        let mut params = CertificateParams::new([host.to_owned()]).expect("parameters");
        // A name of its own: one that is its issuer's says to OpenSSL that it signed itself.
        params.distinguished_name.push(rcgen::DnType::CommonName, host);
        params.not_before = (SystemTime::now() - Duration::from_secs(48 * 3600)).into();
        params.not_after = ends.into();
        let key = KeyPair::generate().expect("a key");
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        test.write(&format!("{name}.pem"), &certificate.pem());
        test.write(&format!("{name}.key"), &key.serialize_pem());
    }
}

/// A certificate for a host in `NAME.pem` and `NAME.key`, signed by the new authority in `ca.pem`.
pub fn certificate(test: &Test, name: &str, host: &str) {
    Authority::new(test).sign(test, name, host, tomorrow());
}

fn tomorrow() -> SystemTime {
    SystemTime::now() + Duration::from_secs(24 * 3600)
}

fn at<'a>(test: &'a Test, url: &str, args: &'a [&'a str]) -> crate::support::Call {
    let token = test.path(".torc/token");
    let token = token.to_str().expect("text");
    test.torc([&["--url", url, "--token-file", token], args].concat())
}

#[test]
fn a_workflow_runs_over_tls_and_its_jobs_can_ask_the_server() {
    let test = Test::new()
        .spec("name: w\njobs:\n  - {name: a, command: 'torc -f json status > seen.json'}\n");
    Authority::new(&test).sign(&test, "server", "localhost", tomorrow());
    let args = ["--host", "localhost", "--tls-cert", "server.pem", "--tls-key", "server.key"];
    let server = serve(&test, &[&["--tls-ca", "ca.pem"], &args[..]].concat());
    // The file beside the database tells local clients what to trust.
    test.torc(["create", "workflow.yaml", "--initialize"]).success();
    let url = format!("https://localhost:{}", server.port);
    at(&test, &url, &["--tls-ca", "ca.pem", "runner", "w"]).success();
    assert!(test.read("seen.json").contains("\"running\""), "{}", test.read("seen.json"));
    at(&test, &url, &["--tls-ca", "ca.pem", "status"]).success();

    at(&test, &url, &["status"]).exit(3).tells("certificate");
    at(&test, &format!("http://localhost:{}", server.port), &["status"]).exit(3);
    at(&test, &url, &["--tls-ca", "none.pem", "status"]).exit(2).tells("none.pem");
    at(&test, &url, &["--tls-ca", "workflow.yaml", "status"]).exit(2).tells("no certificate");
}

#[test]
fn bad_certificates_are_refused_and_say_why() {
    let test = Test::new();
    let authority = Authority::new(&test);
    let yesterday = SystemTime::now() - Duration::from_secs(24 * 3600);
    authority.sign(&test, "expired", "localhost", yesterday);
    authority.sign(&test, "other", "other.example", tomorrow());
    for (name, reason) in [("expired", "expired"), ("other", "not valid for name")] {
        let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
        let server = serve(&test, &["--host", "localhost", "--tls-cert", &cert, "--tls-key", &key]);
        let url = format!("https://localhost:{}", server.port);
        at(&test, &url, &["--tls-ca", "ca.pem", "status"]).exit(3).tells(reason);
    }
    let call = ["server", "run", "--tls-cert", "other.pem", "--tls-key"];
    test.torc([&call[..], &["expired.key"]].concat()).exit(3).tells("expired.key");
    test.torc([&call[..], &["ca.pem"]].concat()).exit(3).tells("ca.pem");
    test.torc(&call[..4]).exit(2).tells("--tls-key");
}

/// What foreign clients, with TLS libraries of their own, say to a server: Python's status or error, and
/// the exit code of curl.
fn foreign(test: &Test, ca: &str, url: &str) -> (String, Option<i32>) {
    let python = "import ssl, sys, urllib.request as u\n\
        c = ssl.create_default_context(cafile=sys.argv[1])\n\
        try: print(u.urlopen(sys.argv[2], context=c).status)\n\
        except Exception as e: print(e)";
    let run = |program: &str, args: &[&str]| {
        let call = Command::new(program)
            .args(args)
            .current_dir(test.path("."))
            .stdin(Stdio::null())
            .output();
        call.unwrap_or_else(|error| panic!("{program}: {error}"))
    };
    let said = run("python3", &["-c", python, ca, url]);
    let curl = run("curl", &["-sS", "--max-time", "20", "--cacert", ca, "-o", "/dev/null", url]);
    (String::from_utf8_lossy(&said.stdout).trim().to_owned(), curl.status.code())
}

#[test]
fn foreign_clients_judge_certificates_by_their_own_libraries() {
    let test = Test::new();
    let authority = Authority::new(&test);
    authority.sign(&test, "good", "localhost", tomorrow());
    authority.sign(&test, "expired", "localhost", SystemTime::now() - Duration::from_secs(3600));
    authority.sign(&test, "other", "elsewhere.example", tomorrow());
    let own = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["localhost".to_owned()]).expect("parameters");
    test.write("own.pem", &params.self_signed(&own).expect("a certificate").pem());
    test.write("own.key", &own.serialize_pem());
    // 60: the peer's certificate cannot be trusted; older ones say 51 for another host.
    for (name, reason) in
        [("good", "200"), ("expired", "expired"), ("other", "match"), ("own", "self")]
    {
        let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
        let server = serve(&test, &["--host", "localhost", "--tls-cert", &cert, "--tls-key", &key]);
        let health = format!("https://localhost:{}/health/live", server.port);
        let (python, curl) = foreign(&test, "ca.pem", &health);
        assert!(python.contains(reason), "{name}: {python}");
        let is_refused = matches!(curl, Some(51 | 60));
        assert_eq!(
            (is_refused, curl == Some(0)),
            (name != "good", name == "good"),
            "{name}: {curl:?}"
        );
        if name == "good" {
            let page = format!("https://localhost:{}/ui/", server.port);
            let call = [
                "-sS",
                "--max-time",
                "20",
                "--cacert",
                "ca.pem",
                "-A",
                "Mozilla/5.0",
                "-D",
                "-",
                &page,
            ];
            let said = Command::new("curl").args(call).current_dir(test.path(".")).output();
            let said = String::from_utf8_lossy(&said.expect("curl").stdout).to_lowercase();
            assert!(said.contains("\nstrict-transport-security: max-age="), "{said}");
        }
    }
}

#[test]
fn a_server_for_other_machines_makes_its_own_certificate_and_keeps_it() {
    let test = Test::new();
    let server = serve(&test, &["--host", "0.0.0.0"]);
    let url = format!("https://localhost:{}", server.port);
    let first = test.read(".torc/tls-cert.pem");
    at(&test, &url, &["--tls-ca", ".torc/tls-cert.pem", "workflows", "list"]).success();
    at(&test, &url, &["workflows", "list"]).exit(3).tells("certificate");

    // Foreign clients judge by their own libraries.
    let token = test.read(".torc/token");
    let health = format!("https://localhost:{}/torc-service/v1/health", server.port);
    let python = "import ssl, sys, urllib.request as u\n\
        c = ssl.create_default_context(cafile=sys.argv[1])\n\
        r = u.Request(sys.argv[2], headers={'Authorization': 'Bearer ' + sys.argv[3].strip()})\n\
        print(u.urlopen(r, context=c).status)";
    let ask = |ca: &str| {
        let out = Command::new("python3")
            .args(["-c", python, ca, &health, &token])
            .current_dir(test.path("."))
            .stdin(Stdio::null())
            .output()
            .expect("python3 runs");
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    assert_eq!(ask(".torc/tls-cert.pem"), "200");
    Authority::new(&test);
    assert_eq!(ask("ca.pem"), "");

    drop(server);
    let _server = serve(&test, &["--host", "0.0.0.0"]);
    assert_eq!(test.read(".torc/tls-cert.pem"), first);
}

#[test]
fn plain_http_for_other_machines_must_be_asked_for() {
    let test = Test::new();
    let mut running = test.torc(["server", "run", "--host", "0.0.0.0", "--insecure"]).spawn();
    running.wait_for_stdout("http://");
}

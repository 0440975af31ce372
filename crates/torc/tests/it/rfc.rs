//! The server by the rules of HTTP/1.1 (RFC 9110 and 9112), as foreign clients see it: curl, Python's own
//! client, and bytes written by hand for what no client sends.

use crate::support::{Running, Test};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

struct Server {
    test: Test,
    running: Running,
    url: String,
    token: String,
}

fn serve() -> Server {
    let test = Test::new();
    let mut running = test.torc(["server", "run"]).spawn();
    let url = running.wait_for_stdout("http://").trim().to_owned();
    let token = test.read(".torc/token").trim().to_owned();
    Server { test, running, url, token }
}

/// Sends bytes and reads until the server closes the connection. `{H}`, `{A}` and `{C}` stand for the headers that
/// name the host, bring the token, and ask for the connection to be closed.
fn send(server: &Server, request: &str) -> String {
    let address = server.url.strip_prefix("http://").expect("plain HTTP");
    let text = request
        .replace("{H}", &format!("Host: {address}\r\n"))
        .replace("{A}", &format!("Authorization: Bearer {}\r\n", server.token))
        .replace("{C}", "Connection: close\r\n")
        .replace("{address}", address);
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(text.as_bytes()).expect("sent");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit");
    let mut answer = Vec::new();
    // A reset after the answer is no less an answer.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

const GET: &str = "GET /torc-service/v1/limits HTTP/1.1\r\n";
const PUT: &str =
    "PUT /torc-service/v1/limits/x HTTP/1.1\r\n{H}{A}{C}Content-Type: application/json\r\n";

#[test]
fn requests_are_read_as_the_rfc_says() {
    let server = serve();
    let cases = [
        // RFC 9112, 3.2: exactly one host.
        ("no host", format!("{GET}{{A}}{{C}}\r\n"), "HTTP/1.1 400 "),
        ("two hosts", format!("{GET}{{H}}{{H}}{{A}}{{C}}\r\n"), "HTTP/1.1 400 "),
        ("another host", format!("{GET}Host: example.org\r\n{{A}}{{C}}\r\n"), "HTTP/1.1 421 "),
        // 3.2.2: the absolute form is accepted.
        (
            "absolute form",
            "GET http://{address}/torc-service/v1/limits HTTP/1.1\r\n{H}{A}{C}\r\n".into(),
            "HTTP/1.1 200 ",
        ),
        // 5.1: no space before the colon. 5.2: no folded lines.
        ("space before a colon", format!("{GET}{{H}}{{A}}X-A : 1\r\n\r\n"), "HTTP/1.1 400 "),
        ("folded line", format!("{GET}{{H}}{{A}}X-A: 1\r\n 2\r\n\r\n"), "HTTP/1.1 400 "),
        // 6.1 and 6.3: how long a body is.
        ("unknown coding", format!("{PUT}Transfer-Encoding: gzip\r\n\r\n"), "HTTP/1.1 400 "),
        ("negative length", format!("{PUT}Content-Length: -1\r\n\r\n"), "HTTP/1.1 400 "),
        (
            "two lengths",
            format!("{PUT}Content-Length: 9\r\nContent-Length: 8\r\n\r\n"),
            "HTTP/1.1 400 ",
        ),
        // 7.1: chunks.
        (
            "chunks",
            format!(
                "{PUT}Transfer-Encoding: chunked\r\n\r\n4\r\n{{\"ma\r\n5\r\nx\":1}}\r\n0\r\n\r\n"
            ),
            "HTTP/1.1 200 ",
        ),
        ("no chunk", format!("{PUT}Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n"), "HTTP/1.1 400 "),
        ("a method with a sign", "G@T / HTTP/1.1\r\n{H}\r\n".into(), "HTTP/1.1 400 "),
        ("no version", "GET / HTTP/9.9\r\n{H}\r\n".into(), "HTTP/1.1 400 "),
        // RFC 9110, 10.1.1: the body is asked for.
        (
            "expectation",
            format!("{PUT}Expect: 100-continue\r\nContent-Length: 9\r\n\r\n{{\"max\":2}}"),
            "HTTP/1.1 ",
        ),
    ];
    for (name, request, expected) in cases {
        let answer = send(&server, &request);
        assert!(answer.starts_with(expected), "{name}: {answer}");
    }
    // RFC 9112, 6.3: a length beside a coding is an attack or a mistake; the connection ends with it.
    let both = format!(
        "PUT /torc-service/v1/limits/x HTTP/1.1\r\n{{H}}{{A}}Content-Length: 3\r\n\
         Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{GET}{{H}}{{A}}{{C}}\r\n"
    );
    let answer = send(&server, &both);
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    // 9.3: requests in a row over one connection, answered in order.
    let row = format!("{GET}{{H}}{{A}}\r\n{GET}{{H}}{{C}}\r\n");
    let answer = send(&server, &row);
    let codes: Vec<&str> = answer.split("HTTP/1.1 ").skip(1).map(|text| &text[..3]).collect();
    assert_eq!(codes, ["200", "401"], "{answer}");
    server.running.signal("TERM");
}

#[test]
fn curl_and_python_find_answers_complete() {
    let server = serve();
    let curl = |options: &str, path: &str| {
        let auth = format!("Authorization: Bearer {}", server.token);
        let line = format!("curl -sS --http1.1 {options} -H '{auth}' '{}{path}'", server.url);
        server.test.shell(&line).done()
    };
    if curl("--version", "/").code == Some(127) {
        return eprintln!("skipped: there is no curl");
    }
    let head = curl("-I", "/torc-service/v1/limits").stdout;
    let whole = curl("-D -", "/torc-service/v1/limits").stdout;
    let lengths =
        |text: &str| text.lines().find(|l| l.starts_with("content-length")).map(str::to_owned);
    // RFC 9110, 9.3.2 and 6.6.1.
    assert!(lengths(&head).is_some() && lengths(&head) == lengths(&whole), "{head}\n{whole}");
    assert!(whole.contains("\ndate: ") && head.trim_end().lines().all(|l| !l.starts_with('{')));
    // 15.5.6: what is allowed instead. 11.6.1: how to identify oneself.
    let wrong = curl("-D - -X PATCH", "/torc-service/v1/workflows").stdout;
    assert!(
        wrong.starts_with("HTTP/1.1 405") && wrong.contains("\nallow: GET,HEAD,POST"),
        "{wrong}"
    );
    let stranger =
        server.test.shell(&format!("curl -sS -D - {}/torc-service/v1/limits", server.url)).done();
    let stranger = stranger.stdout;
    assert!(
        stranger.starts_with("HTTP/1.1 401") && stranger.contains("\nwww-authenticate: Bearer"),
        "{stranger}"
    );
    // A large body is announced with an expectation, and sent in chunks.
    let body = "-X PUT -H 'Content-Type: application/json' -H 'Transfer-Encoding: chunked' -H 'Expect: 100-continue'";
    let set = curl(
        &format!("{body} -d '{{\"max\":3}}' -w ' %{{http_code}}'"),
        "/torc-service/v1/limits/a",
    );
    assert!(set.stdout.ends_with(" 200"), "{}", set.stdout);

    server.test.write(
        "client.py",
        "import http.client, json, sys\n\
         c = http.client.HTTPConnection(sys.argv[1], timeout=30)\n\
         head = {'Authorization': 'Bearer ' + sys.argv[2]}\n\
         for path in ['/torc-service/v1/limits', '/nothing', '/torc-service/v1/workflows/9']:\n\
         \x20   c.request('GET', path, headers=head)\n\
         \x20   r = c.getresponse()\n\
         \x20   print(r.status, r.version, sorted(json.loads(r.read()))[0])\n",
    );
    let address = server.url.trim_start_matches("http://");
    let python = server.test.shell(&format!("python3 client.py {address} {}", server.token)).done();
    assert_eq!(python.stdout, "200 11 count\n404 11 error\n404 11 error\n", "{}", python.stderr);
    server.running.signal("TERM");
}

//! Messages to people, against real receivers on loopback: HTTP, SMTP and a program.

use crate::support::{Test, text};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// A request as it came.
#[derive(Debug)]
struct Post {
    path: String,
    head: String,
    body: String,
}

/// Answers every POST with 200 and hands it over.
fn receiver() -> (String, Receiver<Post>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(stream, &send);
        }
    });
    (address, receive)
}

fn answer(stream: TcpStream, send: &Sender<Post>) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) <= 2 {
            break;
        }
        head += &line.to_lowercase();
    }
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_ok() {
        let body = String::from_utf8_lossy(&body).into_owned();
        let _ = send.send(Post { path, head, body });
        let _ = reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    }
}

/// Takes mail and hands over what was said to it.
fn relay() -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let (mut said, mut is_data) = (String::new(), false);
            let _ = reader.get_mut().write_all(b"220 here\r\n");
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap_or(0) > 0 {
                said += &line;
                let reply: &[u8] = match line.trim_end() {
                    "." if is_data => {
                        is_data = false;
                        b"250 taken\r\n"
                    }
                    _ if is_data => b"",
                    "DATA" => {
                        is_data = true;
                        b"354 go on\r\n"
                    }
                    "QUIT" => b"221 bye\r\n",
                    _ => b"250-more\r\n250 ok\r\n",
                };
                let _ = reader.get_mut().write_all(reply);
                line.clear();
            }
            let _ = send.send(said);
        }
    });
    (address, receive)
}

fn next<T>(from: &Receiver<T>) -> T {
    from.recv_timeout(Duration::from_secs(60)).expect("a message")
}

const FAILING: &str = "
name: sweep <1>
jobs:
  - {name: 'bad_{i}', command: 'exit 3', parameters: {i: '1:20'}}
  - {name: good, command: 'true'}
";

#[test]
fn a_run_tells_its_first_failure_and_its_end_once_each() {
    let test = Test::new().spec(FAILING);
    let (address, posts) = receiver();
    let notify = format!("slack:http://{address}/services/T0/secret");
    test.torc(["run", "workflow.yaml", "-j", "4", "--notify", &notify]).exit(1);
    let (first, last) = (next(&posts), next(&posts));
    // The server has ended, so no third is to come.
    assert!(posts.try_recv().is_err(), "twenty failures are one message");
    assert_eq!(first.path, "/services/t0/secret", "{first:?}");
    let said = |post: &Post| {
        let body: Value = serde_json::from_str(&post.body).expect("JSON");
        text(&body["text"]).to_owned()
    };
    assert!(said(&first).contains("sweep &lt;1&gt;: job bad_"), "{first:?}");
    assert!(said(&first).contains("failed with code 3"), "{first:?}");
    assert!(said(&last).contains("20 of 21 jobs did not succeed"), "{last:?}");
    assert!(said(&last).contains("/ui/w/1|"), "a link: {last:?}");
    // The path of a channel is a secret.
    let list = test.torc(["notify", "list"]).success();
    assert!(list.stdout.contains("http://127.0.0.1") && !list.stdout.contains("secret"));
    // Again: the failures of the next run are news, the same channel is not asked for twice.
    test.torc(["run", "workflow.yaml", "--notify", &notify]).exit(1);
    assert!(said(&next(&posts)).contains("job bad_"));
    assert!(said(&next(&posts)).contains("20 of 21"));
    assert!(posts.try_recv().is_err());
    let list = test.torc(["-f", "json", "notify", "list"]).success().json();
    assert_eq!(list["total_count"], json!(1), "{list}");
}

#[test]
fn each_kind_of_channel_is_spoken_to_as_it_wants() {
    let test = Test::new().spec("name: größe\njobs: [{name: a, command: 'true'}]\n");
    let (address, posts) = receiver();
    let (smtp, mails) = relay();
    test.write(
        "tell",
        "#!/bin/sh\ncat > \"$1\"\nprintf '%s\\n' \"$TORC_NOTIFY_TITLE\" >> \"$1\"\n",
    );
    test.command("chmod", ["755", "tell"]).success();
    let url = |path: &str| format!("http://{address}/{path}");
    let add = |words: &[&str]| {
        let all = [&["notify", "add"], words].concat();
        test.torc(all).success();
    };
    add(&["teams", &url("teams"), "--allow-private", "--on", "end"]);
    add(&["ntfy", &url("topic"), "--allow-private", "--on", "end"]);
    add(&["mail", "me@example.org,you@example.org", "--smtp", &smtp, "--on", "end"]);
    let out = test.path("told").display().to_string();
    add(&["command", "tell", "--on", "end", "--", &out]);
    test.torc(["run", "workflow.yaml"]).success();

    let both = [next(&posts), next(&posts)];
    let of = |path: &str| both.iter().find(|post| post.path == path).expect(path);
    let card: Value = serde_json::from_str(&of("/teams").body).expect("JSON");
    let content = &card["attachments"][0]["content"];
    assert_eq!(content["type"], json!("AdaptiveCard"));
    let title = text(&content["body"][0]["inlines"][0]["text"]);
    assert_eq!(title, "größe: all 1 jobs succeeded");
    let ntfy = of("/topic");
    assert!(ntfy.head.contains("title: =?utf-8?b?"), "{ntfy:?}");
    assert!(ntfy.head.contains("click: http://127.0.0.1"), "{ntfy:?}");
    let mail = next(&mails);
    for line in
        ["MAIL FROM:<torc@localhost>", "RCPT TO:<me@example.org>", "RCPT TO:<you@example.org>"]
    {
        assert!(mail.contains(line), "{line}: {mail}");
    }
    assert!(mail.contains("Subject: =?UTF-8?B?") && mail.contains("\r\n.\r\n"), "{mail}");
    let told = test.read("told");
    let (event, title) = told.split_once('}').expect("JSON, then the title");
    assert!(event.contains("\"event\":\"end\""), "{told}");
    assert!(title.contains("größe: all 1 jobs succeeded"), "{told}");
}

/// The runner of `torc run` shares its process with the server that starts the command.
#[test]
fn a_command_that_outlives_the_workflow_is_let_finish() {
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    test.write("tell", "#!/bin/sh\nread -r event\nsleep 2\necho \"$TORC_NOTIFY_TITLE\" > \"$1\"\n");
    test.command("chmod", ["755", "tell"]).success();
    let out = test.path("told").display().to_string();
    test.torc(["notify", "add", "command", "tell", "--on", "end", "--", &out]).success();
    test.torc(["run", "workflow.yaml"]).success();
    assert_eq!(test.read("told"), "w: all 1 jobs succeeded\n");
}

/// A relay with a TLS library of its own: Python's. Its first argument says when it encrypts.
const RELAY: &str = r#"
import socket, ssl, sys
when, out = sys.argv[1], sys.argv[2]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('relay.pem', 'relay.key')
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
def encrypted(peer):
    return context.wrap_socket(peer, server_side=True)

def talk(peer):
    said, is_data = [], False
    lines = peer.makefile('rb')
    peer.sendall(b'220 here\r\n')
    while line := lines.readline().decode():
        line = line.rstrip()
        said.append(line)
        reply = b'250 ok\r\n'
        if is_data:
            if line != '.':
                continue
            is_data = False
            open(out, 'a').write('\n'.join(said) + '\n')
        elif line == 'DATA':
            is_data, reply = True, b'354 go on\r\n'
        elif line == 'QUIT':
            reply = b'221 bye\r\n'
        elif line == 'STARTTLS' and when == 'later':
            peer.sendall(b'220 begin\r\n')
            peer = encrypted(peer)
            lines = peer.makefile('rb')
            said.append('ENCRYPTED')
            continue
        elif line == 'STARTTLS':
            reply = b'502 no\r\n'
        peer.sendall(reply)

while True:
    peer, _ = listener.accept()
    try:
        talk(encrypted(peer) if when == 'start' else peer)
    except OSError as error:
        print(error, file=sys.stderr)
"#;

/// A receiver of `https` with a TLS library of its own: Python's. It appends the path of each request to a file.
const RECEIVER: &str = r#"
import http.server, ssl
class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers['content-length']))
        with open('got', 'a') as got:
            got.write(self.path + '\n')
        self.send_response(204)
        self.end_headers()

class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        pass

server = Server(('127.0.0.1', 0), Receiver)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('receiver.pem', 'receiver.key')
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"#;

#[test]
fn a_receiver_is_believed_if_the_machine_trusts_who_signed_its_certificate() {
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    crate::tls::certificate(&test, "receiver", "localhost");
    test.write("receiver.py", RECEIVER);
    let mut receiver = test.command("python3", ["receiver.py"]).spawn();
    let port = receiver.wait_for_stdout("").trim().to_owned();
    let url = format!("https://localhost:{port}/topic");
    test.torc(["notify", "add", "ntfy", &url, "--allow-private", "--on", "end"]).success();
    test.torc(["run", "workflow.yaml"]).success();
    let list = test.torc(["-f", "json", "notify", "list"]).success().json();
    let error = text(&list["notifications"][0]["last_error"]).to_owned();
    assert!(error.contains("encrypt"), "{list}");
    assert!(!test.exists("got"));
    let ca = test.path("ca.pem");
    test.torc(["run", "workflow.yaml", "--new"]).env("SSL_CERT_FILE", &ca).success();
    assert!(test.read("got").contains("/topic"), "{}", test.read("got"));
}

#[test]
fn mail_is_encrypted_where_that_was_asked_for_or_not_sent() {
    for (scheme, when) in [("smtps", "start"), ("starttls", "later")] {
        let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
        crate::tls::certificate(&test, "relay", "localhost");
        test.write("relay.py", RELAY);
        let mut relay = test.command("python3", ["relay.py", when, "said"]).spawn();
        let port = relay.wait_for_stdout("").trim().to_owned();
        let smtp = format!("{scheme}://localhost:{port}");
        test.torc(["notify", "add", "mail", "me@example.org", "--smtp", &smtp, "--on", "end"])
            .success();
        // The machine does not trust the authority of the certificate.
        test.torc(["run", "workflow.yaml"]).success();
        let list = test.torc(["-f", "json", "notify", "list"]).success().json();
        let error = text(&list["notifications"][0]["last_error"]).to_owned();
        assert!(error.contains("encrypt"), "{scheme}: {list}");
        assert!(!test.exists("said") || !test.read("said").contains("DATA"), "{scheme}");
        let ca = test.path("ca.pem");
        test.torc(["run", "workflow.yaml", "--new"]).env("SSL_CERT_FILE", &ca).success();
        let said = test.read("said");
        assert!(said.contains("RCPT TO:<me@example.org>") && said.contains("Subject:"), "{said}");
        assert_eq!(said.contains("ENCRYPTED"), when == "later", "{said}");
    }
    // A relay that cannot encrypt gets nothing.
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    crate::tls::certificate(&test, "relay", "localhost");
    test.write("relay.py", RELAY);
    let mut relay = test.command("python3", ["relay.py", "never", "said"]).spawn();
    let port = relay.wait_for_stdout("").trim().to_owned();
    let smtp = format!("starttls://127.0.0.1:{port}");
    test.torc(["notify", "add", "mail", "me@example.org", "--smtp", &smtp, "--on", "end"])
        .success();
    test.torc(["run", "workflow.yaml"]).success();
    let list = test.torc(["-f", "json", "notify", "list"]).success().json();
    assert!(text(&list["notifications"][0]["last_error"]).contains("502"), "{list}");
}

#[test]
fn what_cannot_be_delivered_waits_and_says_why() {
    let test = Test::new().spec("name: w\njobs: [{name: a, command: 'true'}]\n");
    // No one listens on a port that was just given back.
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("one").port();
    let url = format!("http://127.0.0.1:{port}/x");
    test.torc(["run", "workflow.yaml", "--notify", &format!("ntfy:{url}")]).success();
    let list = test.torc(["-f", "json", "notify", "list"]).success().json();
    let one = &list["notifications"][0];
    assert_eq!(one["pending"], json!(1), "{one}");
    assert!(text(&one["last_error"]).contains("connect"), "{one}");

    for (words, expected) in [
        (&["notify", "add", "ntfy", "http://127.0.0.1:1/x"][..], "--allow-private"),
        (&["notify", "add", "pigeon", "x"], "slack"),
        (&["notify", "add", "mail", "me"], "not an address"),
        (&["notify", "add", "ntfy", "https://ntfy.sh/x", "--on", "lunch"], "verdict"),
        (&["notify", "add", "slack", "https://x.org/y", "--smtp", "z"], "mail"),
        (&["notify", "remove", "99"], "no notification"),
        (&["run", "workflow.yaml", "--notify", "https://ntfy.sh/x"], "KIND:TARGET"),
    ] {
        test.torc(words).exit(2).tells(expected);
    }
}

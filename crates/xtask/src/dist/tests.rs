//! `install.sh` against a server of files on this machine, with archives as `cargo xtask dist` writes them.

use super::archive::{Entry, gzip, tar};
use super::hex;
use crate::root;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;

/// A directory of a test, removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("torc-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("its removal");
    }
}

type Files = BTreeMap<String, Vec<u8>>;

/// An archive for this machine whose program is a script, and its checksum.
fn archive(script: &str) -> Files {
    let machine = std::env::consts::ARCH;
    let name = format!("torc-1.2.3+gabc-{machine}-linux.tar.gz");
    let entries = [
        Entry::file("torc/bin/torc", 0o755, script.as_bytes().to_vec()),
        Entry::file("torc/share/man/man1/torc.1.gz", 0o644, b"page".to_vec()),
    ];
    let packed = gzip(&tar(&entries, 1).expect("an archive"));
    let sums = format!(
        "{}  torc_1.2.3_amd64.deb\n{}  {name}\n",
        "0".repeat(64),
        hex(&Sha256::digest(&packed))
    );
    Files::from([(name, packed), ("SHA256SUMS".into(), sums.into_bytes())])
}

/// Serves files until the test ends; an unknown one is answered with 404.
fn serve(files: Files) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let files = Arc::new(files);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
            let first = lines.next().and_then(Result::ok).unwrap_or_default();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let name = first.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
            let (status, body) = match files.get(&name.replace("%2B", "+")) {
                Some(body) => ("200 OK", body.as_slice()),
                None => ("404 Not Found", b"".as_slice()),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            // A client that has gone away has what it wanted.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        }
    });
    address
}

fn install(from: &str, prefix: &std::path::Path) -> Output {
    let script = root().expect("the root").join("packaging/install.sh");
    let output =
        Command::new("sh").arg(script).args(["--from", from, "--prefix"]).arg(prefix).output();
    output.expect("a shell")
}

#[test]
fn install_takes_an_archive_whose_checksum_is_right() {
    let directory = Directory::new("install");
    let address = serve(archive("#!/bin/sh\necho torc 1.2.3\n"));
    let done = install(&format!("http://{address}/"), &directory.0);
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(said.starts_with("installed torc 1.2.3 to "), "{said}");
    assert!(directory.0.join("bin/torc").is_file());
    assert_eq!(fs::read(directory.0.join("share/man/man1/torc.1.gz")).expect("the page"), b"page");
    // The same again, in the place of the first.
    assert!(install(&format!("http://{address}"), &directory.0).status.success());
}

#[test]
fn install_refuses_what_is_not_what_it_should_be() {
    let directory = Directory::new("refuse");
    let refused = |files: Files, what: &str| {
        let done = install(&format!("http://{}", serve(files)), &directory.0);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success() && said.contains(what), "{said}");
        assert!(!directory.0.join("bin/torc").exists());
    };
    let mut changed = archive("#!/bin/sh\necho torc\n");
    let packed = changed.values_mut().next_back().expect("the archive");
    let last = packed.len() - 1;
    packed[last] ^= 1;
    refused(changed, "the checksum of");
    refused(archive("#!/bin/sh\nexit 1\n"), "does not run on this machine");
    refused(Files::new(), "cannot fetch");
    refused(Files::from([("SHA256SUMS".into(), b"nothing\n".to_vec())]), "there is no archive for");
}

#[test]
fn install_reads_a_directory_too() {
    let directory = Directory::new("directory");
    let from = directory.0.join("from");
    fs::create_dir_all(&from).expect("a directory");
    for (name, bytes) in archive("#!/bin/sh\necho torc 1.2.3\n") {
        fs::write(from.join(name), bytes).expect("a file");
    }
    let done = install(&from.display().to_string(), &directory.0);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

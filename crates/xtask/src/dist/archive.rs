//! The three formats that packages are made of, written so that equal input gives equal bytes.

use crate::Result;
use crate::wheel::crc32;
use std::collections::BTreeSet;

/// A file in an archive.
#[derive(Clone)]
pub struct Entry {
    pub path: String,
    mode: u32,
    content: Vec<u8>,
}

impl Entry {
    pub fn file(path: &str, mode: u32, content: Vec<u8>) -> Self {
        Self { path: path.to_owned(), mode, content }
    }

    /// The room it takes when it is installed, in KiB.
    pub fn kib(&self) -> usize {
        self.content.len().div_ceil(1024)
    }

    pub fn moved(&self, place: impl Fn(&str) -> String) -> Self {
        Self { path: place(&self.path), ..self.clone() }
    }
}

/// A tar in the format of POSIX with directories before what is in them; all of it root's.
pub fn tar(entries: &[Entry], time: u64) -> Result<Vec<u8>> {
    let mut entries: Vec<&Entry> = entries.iter().collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let mut body = Vec::new();
    let mut directories = BTreeSet::new();
    for entry in entries {
        for (at, _) in entry.path.match_indices('/') {
            let directory = &entry.path[..=at];
            if directories.insert(directory.to_owned()) {
                body.extend(header(directory, 0o755, 0, time, b'5')?);
            }
        }
        body.extend(header(&entry.path, entry.mode, entry.content.len(), time, b'0')?);
        body.extend(&entry.content);
        body.resize(body.len().next_multiple_of(512), 0);
    }
    body.resize(body.len() + 1024, 0);
    Ok(body)
}

fn header(path: &str, mode: u32, size: usize, time: u64, kind: u8) -> Result<[u8; 512]> {
    let mut block = [0u8; 512];
    if path.len() > 100 {
        return Err(format!("`{path}` is too long for an archive").into());
    }
    block[..path.len()].copy_from_slice(path.as_bytes());
    let mut put =
        |at: usize, text: String| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(100, format!("{mode:07o}"));
    put(108, "0000000".into());
    put(116, "0000000".into());
    put(124, format!("{size:011o}"));
    put(136, format!("{time:011o}"));
    put(148, " ".repeat(8));
    put(257, "ustar\x0000".into());
    put(265, "root".into());
    put(297, "root".into());
    block[156] = kind;
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(block)
}

pub fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255];
    packed.extend(crate::wheel::deflate(content));
    packed.extend(crc32(content).to_le_bytes());
    // The format has the length modulo 2^32.
    packed.extend((content.len() as u64 as u32).to_le_bytes());
    packed
}

/// What a package does when it is there: the user that its unit names is made where systemd can.
const AFTER_INSTALLATION: &str = "#!/bin/sh\nset -e\nif [ \"$1\" = configure ] && command -v systemd-sysusers >/dev/null; \
                                  then\n    systemd-sysusers torc.conf || true\nfi\n";

/// A Debian package: an `ar` of the format's version, the description and the files.
pub fn deb(control: &str, entries: &[Entry], time: u64) -> Result<Vec<u8>> {
    let about = [
        Entry::file("./control", 0o644, control.as_bytes().to_vec()),
        Entry::file("./postinst", 0o755, AFTER_INSTALLATION.as_bytes().to_vec()),
    ];
    let parts = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", gzip(&tar(&about, time)?)),
        ("data.tar.gz", gzip(&tar(entries, time)?)),
    ];
    let mut package = b"!<arch>\n".to_vec();
    for (name, content) in parts {
        package.extend(
            format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 100_644, content.len())
                .bytes(),
        );
        package.extend(&content);
        if !content.len().is_multiple_of(2) {
            package.push(b'\n');
        }
    }
    Ok(package)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// What a program says about bytes.
    fn said(program: &str, words: &[&str], bytes: &[u8], name: &str) -> Option<String> {
        let file = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::write(&file, bytes).expect("a file");
        let output = Command::new(program).args(words).arg(&file).stderr(Stdio::inherit()).output();
        std::fs::remove_file(&file).expect("its removal");
        let output = output.ok()?;
        assert!(output.status.success(), "{program} refuses {name}");
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn entries() -> [Entry; 2] {
        [
            Entry::file("./usr/bin/torc", 0o755, b"program".to_vec()),
            Entry::file("./usr/share/a", 0o644, vec![7; 513]),
        ]
    }

    #[test]
    fn tar_reads_what_was_written() {
        let packed = gzip(&tar(&entries(), 1).expect("a tar"));
        assert_eq!(packed, gzip(&tar(&entries(), 1).expect("again")));
        let Some(listed) = said("tar", &["-tvzf"], &packed, "torc.tar.gz") else { return };
        let lines: Vec<&str> = listed.lines().collect();
        assert_eq!(lines.len(), 6, "{listed}");
        assert!(lines[3].starts_with("-rwxr-xr-x root/root         7 1970-01-01"), "{listed}");
    }

    #[test]
    fn debian_reads_what_was_written() {
        let control = "Package: torc\nVersion: 1\nArchitecture: amd64\nMaintainer: A <a@example.invalid>\nDescription: x\n";
        let package = deb(control, &entries(), 1).expect("a package");
        let Some(told) = said("dpkg-deb", &["--info"], &package, "torc.deb") else { return };
        assert!(told.contains("Version: 1") && told.contains("postinst"), "{told}");
        let Some(listed) = said("dpkg-deb", &["--contents"], &package, "torc.deb") else { return };
        assert!(listed.contains("./usr/bin/torc"), "{listed}");
    }
}

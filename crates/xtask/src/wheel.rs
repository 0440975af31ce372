//! `cargo xtask wheel`: the Python package and the program in one file, without Python or maturin.
//!
//! A wheel is a zip file with METADATA, WHEEL and RECORD. The same tree and program give the same bytes.

use crate::dist::{Release, program};
use crate::{Result, root};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

/// Write the Python wheel: the program and the module `torcflow`
#[derive(clap::Args)]
pub struct Args {
    /// Pack this program instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Directory for the wheel [default: target/wheels]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// What a download should not exceed.
const MOST_BYTES: usize = 12_000_000;

impl Args {
    pub fn execute(&self) -> Result<()> {
        let root = root()?;
        let program = match &self.program {
            Some(file) => file.clone(),
            None => program(&root, &Release::of(&root).version)?,
        };
        let program = fs::read(&program)
            .map_err(|error| format!("cannot read the program `{}`: {error}", program.display()))?;
        let platform = platform(&program)?;
        let version = env!("CARGO_PKG_VERSION");
        let wheel = wheel(&root, version, &platform, program)?;
        let directory = self.output.clone().unwrap_or_else(|| root.join("target/wheels"));
        fs::create_dir_all(&directory)?;
        let file = directory.join(format!("torcflow-{version}-py3-none-{platform}.whl"));
        fs::write(&file, &wheel)?;
        println!("{} ({:.1} MB)", file.display(), wheel.len() as f64 / 1e6);
        if wheel.len() > MOST_BYTES {
            eprintln!("warning: the wheel is larger than {} MB", MOST_BYTES / 1_000_000);
        }
        Ok(())
    }
}

/// The files of a wheel, in order, and the wheel of them.
fn wheel(root: &Path, version: &str, platform: &str, program: Vec<u8>) -> Result<Vec<u8>> {
    let info = format!("torcflow-{version}.dist-info");
    let mut files: Vec<(String, u32, Vec<u8>)> = Vec::new();
    let module = root.join("python/torcflow");
    let mut names: Vec<String> = fs::read_dir(&module)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names
        .retain(|name| [".py", ".pyi"].iter().any(|end| name.ends_with(end)) || name == "py.typed");
    names.sort();
    for name in names {
        files.push((format!("torcflow/{name}"), 0o644, fs::read(module.join(&name))?));
    }
    files.push((format!("torcflow-{version}.data/scripts/torc"), 0o755, program));
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        files.push((format!("{info}/licenses/{name}"), 0o644, fs::read(root.join(name))?));
    }
    let readme = fs::read_to_string(root.join("docs/python.md"))?;
    files.push((format!("{info}/METADATA"), 0o644, metadata(version, &readme).into_bytes()));
    files.push((format!("{info}/WHEEL"), 0o644, about(platform).into_bytes()));
    let mut record = String::new();
    for (name, _, content) in &files {
        let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(content));
        record.push_str(&format!("{name},sha256={digest},{}\n", content.len()));
    }
    record.push_str(&format!("{info}/RECORD,,\n"));
    files.push((format!("{info}/RECORD"), 0o644, record.into_bytes()));
    zip(&files)
}

fn metadata(version: &str, readme: &str) -> String {
    format!(
        "Metadata-Version: 2.4\nName: torcflow\nVersion: {version}\nSummary: Run Python calls and workflows of shell \
         jobs on a laptop or a Slurm cluster, and recover them\nLicense-Expression: MIT OR Apache-2.0\nLicense-File: \
         LICENSE-APACHE\nLicense-File: LICENSE-MIT\nRequires-Python: >=3.9\nRequires-Dist: \
         cloudpickle>=2.2\nDescription-Content-Type: text/markdown\n\n{readme}"
    )
}

fn about(platform: &str) -> String {
    let tags: String = platform.split('.').map(|tag| format!("Tag: py3-none-{tag}\n")).collect();
    format!("Wheel-Version: 1.0\nGenerator: cargo xtask wheel\nRoot-Is-Purelib: false\n{tags}")
}

/// The architecture of a program, as Linux calls it.
pub fn machine(program: &[u8]) -> Result<&'static str> {
    match (program.get(..4), program.get(4), program.get(18..20)) {
        (Some(b"\x7fELF"), Some(2), Some([0x3e, 0])) => Ok("x86_64"),
        (Some(b"\x7fELF"), Some(2), Some([0xb7, 0])) => Ok("aarch64"),
        _ => Err("the program is no 64-bit Linux program for x86_64 or aarch64".into()),
    }
}

/// Where the program runs: by its architecture, and by the newest symbols of glibc that it asks for.
fn platform(program: &[u8]) -> Result<String> {
    let machine = machine(program)?;
    Ok(match glibc(program) {
        // A static program runs with any C library.
        None => format!("manylinux_2_17_{machine}.musllinux_1_2_{machine}"),
        Some(minor) => format!("manylinux_2_{}_{machine}", minor.max(17)),
    })
}

/// The newest minor version of glibc whose symbols a program asks for; `None` if it is static.
pub fn glibc(program: &[u8]) -> Option<u32> {
    const MARK: &[u8] = b"\0GLIBC_2.";
    if !asks_for_loader(program) {
        return None;
    }
    let mut newest = 0;
    for (at, window) in program.windows(MARK.len()).enumerate() {
        if window == MARK {
            let digits = program[at + MARK.len()..].iter().take_while(|byte| byte.is_ascii_digit());
            newest = newest.max(digits.fold(0, |sum, byte| sum * 10 + u32::from(byte - b'0')));
        }
    }
    Some(newest)
}

/// Whether a program header names the dynamic loader (`PT_INTERP`): a static program has none.
fn asks_for_loader(program: &[u8]) -> bool {
    const INTERPRETER: [u8; 4] = [3, 0, 0, 0];
    let number = |at: usize, bytes: usize| {
        let field = program.get(at..at + bytes)?;
        let value = field.iter().rev().fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte));
        usize::try_from(value).ok()
    };
    let (Some(start), Some(size), Some(count)) = (number(32, 8), number(54, 2), number(56, 2))
    else {
        return false;
    };
    (0..count).any(|nth| {
        let at = start.saturating_add(size * nth);
        program.get(at..at.saturating_add(4)) == Some(&INTERPRETER)
    })
}

/// Deflated with much effort: about a minute for the program, and 2% smaller than by `gzip -9`. More rounds gain nothing.
pub fn deflate(content: &[u8]) -> Vec<u8> {
    let options = zopfli::Options {
        iteration_count: std::num::NonZeroU64::new(5).unwrap_or(std::num::NonZeroU64::MIN),
        ..Default::default()
    };
    let mut packed = Vec::new();
    zopfli::compress(options, zopfli::Format::Deflate, content, &mut packed)
        .expect("a vector takes all that is written");
    packed
}

/// A zip file of compressed files with modes and without times.
fn zip(files: &[(String, u32, Vec<u8>)]) -> Result<Vec<u8>> {
    const FIRST_DAY: u32 = 0x0021 << 16; // 1980-01-01
    let mut body = Vec::new();
    let mut directory = Vec::new();
    for (name, mode, content) in files {
        let offset = u32::try_from(body.len())?;
        let packed = deflate(content);
        let mut common = Vec::new();
        common.extend(20u16.to_le_bytes()); // version that can read it
        common.extend(0x0800u16.to_le_bytes()); // names in UTF-8
        common.extend(8u16.to_le_bytes()); // deflate
        common.extend(FIRST_DAY.to_le_bytes());
        common.extend(crc32(content).to_le_bytes());
        common.extend(u32::try_from(packed.len())?.to_le_bytes());
        common.extend(u32::try_from(content.len())?.to_le_bytes());
        common.extend(u16::try_from(name.len())?.to_le_bytes());
        common.extend(0u16.to_le_bytes()); // extra field
        body.extend(b"PK\x03\x04");
        body.extend(&common);
        body.extend(name.as_bytes());
        body.extend(packed);
        directory.extend(b"PK\x01\x02");
        directory.extend(0x031eu16.to_le_bytes()); // made on Unix: the mode counts
        directory.extend(&common);
        directory.extend([0; 6]); // comment, disk, internal attributes
        directory.extend(((0o100_000 | mode) << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let count = u16::try_from(files.len())?;
    let start = u32::try_from(body.len())?;
    body.extend(&directory);
    body.extend(b"PK\x05\x06\0\0\0\0");
    body.extend(count.to_le_bytes());
    body.extend(count.to_le_bytes());
    body.extend(u32::try_from(directory.len())?.to_le_bytes());
    body.extend(start.to_le_bytes());
    body.extend(0u16.to_le_bytes());
    Ok(body)
}

pub fn crc32(content: &[u8]) -> u32 {
    let mut table = [0u32; 256];
    for (byte, entry) in (0u32..).zip(&mut table) {
        *entry =
            (0..8).fold(
                byte,
                |value, _| {
                    if value & 1 == 1 { 0xedb8_8320 ^ (value >> 1) } else { value >> 1 }
                },
            );
    }
    !content.iter().fold(!0, |value: u32, byte| {
        table[usize::from(value.to_le_bytes()[0] ^ byte)] ^ (value >> 8)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_is_that_of_zip() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn platform_is_read_from_the_program() {
        let mut program = b"\x7fELF\x02".to_vec();
        program.resize(64, 0);
        program[18] = 0x3e;
        program.extend(b"\0GLIBC_2.9\0GLIBC_2.34\0");
        let fixed = platform(&program).expect("a platform");
        assert_eq!(fixed, "manylinux_2_17_x86_64.musllinux_1_2_x86_64");
        // One program header, of 56 bytes, that names the loader.
        (program[54], program[56]) = (56, 1);
        program[32] = u8::try_from(program.len()).expect("a small program");
        program.extend([3, 0, 0, 0]);
        program.resize(program.len() + 52, 0);
        assert_eq!(platform(&program).expect("a platform"), "manylinux_2_34_x86_64");
        assert!(platform(b"#!/bin/sh").is_err());
    }

    #[test]
    fn wheel_lists_every_file_with_its_digest() {
        let root = root().expect("the root");
        let bytes = wheel(&root, "1.2.3", "any", b"program".to_vec()).expect("a wheel");
        let text = String::from_utf8_lossy(&bytes);
        for name in ["torcflow/__init__.py", "torcflow-1.2.3.data/scripts/torc"] {
            assert!(text.contains(name), "{name}");
        }
        assert_eq!(bytes, wheel(&root, "1.2.3", "any", b"program".to_vec()).expect("again"));
    }
}

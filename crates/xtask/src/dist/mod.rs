//! `cargo xtask dist`: the program as packages. A tree with completions, manual pages and a unit of systemd, as a `tar.gz` and
//! a `deb`, with checksums, `install.sh`, and the recipes of `packaging/` with version and checksum filled in.
//!
//! The same commit and toolchain give the same bytes: times are that of the commit, and owners are root.

mod archive;
#[cfg(test)]
mod tests;

use crate::{Result, root};
use archive::{Entry, deb, gzip, tar};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Write packages of the program: tar, deb, checksums, recipes
#[derive(clap::Args)]
pub struct Args {
    /// Pack this program instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Directory for the packages [default: target/dist]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// What a download should not exceed.
const MOST_BYTES: u64 = 30_000_000;

/// Files of `packaging/` that name the version or the checksum of the archive.
const RECIPES: [&str; 5] =
    ["Dockerfile", "torc.def", "conda/meta.yaml", "spack/package.py", "homebrew/torc.rb"];

/// What of the repository the packages are made of.
pub struct Release {
    pub version: String,
    /// When its commit was made, in seconds since 1970.
    pub time: u64,
}

impl Release {
    /// From the tag or the commit that is checked out; without git from the manifest.
    pub fn of(root: &Path) -> Self {
        let manifest = env!("CARGO_PKG_VERSION");
        let described = git(
            root,
            &["describe", "--tags", "--match", "v[0-9]*", "--long", "--dirty"],
        )
        .or_else(|| {
            Some(format!("v{manifest}-1-g{}", git(root, &["describe", "--always", "--dirty"])?))
        });
        let version = described.map_or_else(|| manifest.to_owned(), |text| version(&text));
        let time = git(root, &["log", "-1", "--format=%ct"]).and_then(|text| text.parse().ok());
        Self { version, time: time.unwrap_or(0) }
    }
}

/// `v0.2.0-0-gabc` is the release itself, `v0.2.0-5-gabc` five commits later.
fn version(described: &str) -> String {
    let (rest, dirty) = match described.strip_suffix("-dirty") {
        Some(rest) => (rest, ".dirty"),
        None => (described, ""),
    };
    let mut parts = rest.rsplitn(3, '-');
    let (commit, later, tag) = (parts.next(), parts.next(), parts.next());
    let tag = tag.unwrap_or(rest).trim_start_matches('v');
    match (later, commit) {
        (Some("0"), _) if dirty.is_empty() => tag.to_owned(),
        (Some(_), Some(commit)) => format!("{tag}+{commit}{dirty}"),
        _ => tag.to_owned(),
    }
}

fn git(root: &Path, words: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(words).current_dir(root).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// Builds the program of a release: with the C library inside, so that it runs on any Linux.
pub fn program(root: &Path, version: &str) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["rustc", "--locked", "--profile", "dist", "-p", "torc", "--bin", "torc"])
        .arg("--message-format=json-render-diagnostics")
        .args(["--", "-C", "target-feature=+crt-static", "-C", PACKED])
        .args(FOLDED.iter().flat_map(|argument| ["-C", argument]))
        .env("TORC_VERSION", version)
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err("the program cannot be built".into());
    }
    crate::executable(&output.stdout)
}

/// Where the program is placed in memory is chosen when it starts. The list of addresses that change with it takes a bit each
/// instead of 24 bytes. glibc 2.36 reads it; with an older one the program does not start, and making the packages fails.
const PACKED: &str = "link-arg=-Wl,-z,pack-relative-relocs";

/// Functions with equal instructions become one. Only LLD can do that, which Rust links with on x86-64; nothing in the
/// program asks whether two functions have the same address.
const FOLDED: &[&str] =
    if cfg!(target_arch = "x86_64") { &["link-arg=-Wl,--icf=all"] } else { &[] };

impl Args {
    pub fn execute(&self) -> Result<()> {
        let root = root()?;
        let release = Release::of(&root);
        let program = match &self.program {
            Some(file) => file.clone(),
            None => program(&root, &release.version)?,
        };
        let machine = crate::wheel::machine(&fs::read(&program)?)?;
        let directory = self.output.clone().unwrap_or_else(|| root.join("target/dist"));
        fs::create_dir_all(&directory)?;
        let tree = tree(&root, &program)?;
        let name = format!("torc-{}-{machine}-linux", release.version);
        let mut made = Vec::new();
        let packed = gzip(&tar(&tree.under(&name), release.time)?);
        made.push((format!("{name}.tar.gz"), packed));
        let architecture = if machine == "aarch64" { "arm64" } else { "amd64" };
        let files = tree.of_debian();
        let control = control(&release.version, architecture, &program, &files)?;
        let package = deb(&control, &files, release.time)?;
        made.push((format!("torc_{}_{architecture}.deb", release.version), package));
        let sums: String = made
            .iter()
            .map(|(name, bytes)| format!("{}  {name}\n", hex(&Sha256::digest(bytes))))
            .collect();
        let archive_sum = sums.split_whitespace().next().unwrap_or_default().to_owned();
        made.push(("SHA256SUMS".into(), sums.into_bytes()));
        made.push(("install.sh".into(), fs::read(root.join("packaging/install.sh"))?));
        for recipe in RECIPES {
            let text = fs::read_to_string(root.join("packaging").join(recipe))?;
            let filled = text
                .replace("@VERSION@", &release.version)
                .replace("@ARCHIVE@", &format!("{name}.tar.gz"))
                .replace("@SHA256@", &archive_sum);
            made.push((recipe.to_owned(), filled.into_bytes()));
        }
        for (name, bytes) in &made {
            let file = directory.join(name);
            fs::create_dir_all(file.parent().unwrap_or(&directory))?;
            fs::write(&file, bytes)?;
            println!("{} ({:.1} MB)", file.display(), bytes.len() as f64 / 1e6);
        }
        let size = fs::metadata(&program)?.len();
        println!("the program: {:.1} MB, {}", size as f64 / 1e6, needs(&fs::read(&program)?));
        if size > MOST_BYTES {
            eprintln!("warning: the program is larger than {} MB", MOST_BYTES / 1_000_000);
        }
        Ok(())
    }
}

/// What a program asks of the machine that it runs on.
fn needs(program: &[u8]) -> String {
    match crate::wheel::glibc(program) {
        None => "runs on any Linux".into(),
        Some(minor) => format!("needs glibc 2.{minor} or newer"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The files of a package, below the prefix that they are installed to.
struct PackageTree(Vec<Entry>);

impl PackageTree {
    fn under(&self, prefix: &str) -> Vec<Entry> {
        self.0.iter().map(|entry| entry.moved(|path| format!("{prefix}/{path}"))).collect()
    }

    /// Where Debian has things: below `usr`, documents in a directory of the package, zsh's completions of packages apart.
    fn of_debian(&self) -> Vec<Entry> {
        let place = |path: &str| match path.strip_prefix("share/zsh/site-functions/") {
            Some(name) => format!("./usr/share/zsh/vendor-completions/{name}"),
            None if path.contains('/') => format!("./usr/{path}"),
            None => format!("./usr/share/doc/torc/{path}"),
        };
        self.0.iter().map(|entry| entry.moved(place)).collect()
    }
}

fn tree(root: &Path, program: &Path) -> Result<PackageTree> {
    let program = program.canonicalize()?;
    let mut entries = vec![Entry::file("bin/torc", 0o755, fs::read(&program)?)];
    for (shell, path) in [
        ("bash", "share/bash-completion/completions/torc"),
        ("fish", "share/fish/vendor_completions.d/torc.fish"),
        ("zsh", "share/zsh/site-functions/_torc"),
    ] {
        // The script calls the program by the path that it was made with.
        let text = run(&program, &["completions", shell])?;
        let text = text.replace(&program.display().to_string(), "torc");
        entries.push(Entry::file(path, 0o644, text.into_bytes()));
    }
    let pages = std::env::temp_dir().join(format!("torc-man-{}", std::process::id()));
    run(&program, &["-q", "man", &pages.display().to_string()])?;
    let mut names: Vec<PathBuf> =
        fs::read_dir(&pages)?.map(|page| Ok(page?.path())).collect::<Result<_>>()?;
    names.sort();
    for page in names {
        let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
        entries.push(Entry::file(
            &format!("share/man/man1/{name}.gz"),
            0o644,
            gzip(&fs::read(&page)?),
        ));
    }
    fs::remove_dir_all(&pages)?;
    // The user of the unit is made when the package is installed; here it need not be.
    let unit = run(&program, &["server", "install", "--system", "--as", "root", "--print"])?;
    let unit = unit
        .replace(&program.display().to_string(), "/usr/bin/torc")
        .replace("# Written by `torc server install`.\n", "")
        .replace("User=root\n", "User=torc\n");
    entries.push(Entry::file("lib/systemd/system/torc.service", 0o644, unit.into_bytes()));
    let users = "u torc - \"Torc, a server of workflows\" /var/lib/torc\n";
    entries.push(Entry::file("lib/sysusers.d/torc.conf", 0o644, users.as_bytes().to_vec()));
    for name in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        entries.push(Entry::file(name, 0o644, fs::read(root.join(name))?));
    }
    Ok(PackageTree(entries))
}

/// What the program prints, away from the state and the configuration of whom builds.
fn run(program: &Path, words: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(words)
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .current_dir(std::env::temp_dir())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("`{}` cannot be run: {error}", program.display()))?;
    if !output.status.success() {
        return Err(format!("`{} {}` failed", program.display(), words.join(" ")).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The description of a Debian package.
fn control(version: &str, architecture: &str, program: &Path, files: &[Entry]) -> Result<String> {
    let size: usize = files.iter().map(Entry::kib).sum();
    let depends = match crate::wheel::glibc(&fs::read(program)?) {
        None => String::new(),
        Some(minor) => format!("Depends: libc6 (>= 2.{minor})\n"),
    };
    Ok(format!(
        "Package: torc\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: The authors of Torc \
         <torc@example.invalid>\nSection: science\nPriority: optional\nInstalled-Size: {size}\n{depends}Description: workflows of shell jobs that \
         recover by themselves\n Torc runs workflows on a laptop or a Slurm cluster, retries what can be fixed,\n explains what \
         happened, and loses nothing when a machine dies. One program:\n command line, server, runner, page and terminal \
         interface.\n"
    ))
}

#[cfg(test)]
mod names {
    use super::*;

    #[test]
    fn versions_come_from_tags_and_commits() {
        assert_eq!(version("v0.2.0-0-gabc1234"), "0.2.0");
        assert_eq!(version("v0.2.0-5-gabc1234"), "0.2.0+gabc1234");
        assert_eq!(version("v0.2.0-0-gabc1234-dirty"), "0.2.0+gabc1234.dirty");
        assert_eq!(version("v0.1.0-1-gabc1234-dirty"), "0.1.0+gabc1234.dirty");
    }

    #[test]
    fn every_recipe_takes_its_values() {
        let root = root().expect("the root");
        for recipe in RECIPES {
            let text = fs::read_to_string(root.join("packaging").join(recipe)).expect(recipe);
            assert!(text.contains("@VERSION@") || text.contains("@ARCHIVE@"), "{recipe}");
        }
    }

    #[test]
    fn files_go_where_debian_has_them() {
        let tree = PackageTree(vec![
            Entry::file("bin/torc", 0o755, Vec::new()),
            Entry::file("share/zsh/site-functions/_torc", 0o644, Vec::new()),
            Entry::file("README.md", 0o644, Vec::new()),
        ]);
        let paths: Vec<String> = tree.of_debian().into_iter().map(|entry| entry.path).collect();
        assert_eq!(
            paths,
            [
                "./usr/bin/torc",
                "./usr/share/zsh/vendor-completions/_torc",
                "./usr/share/doc/torc/README.md"
            ]
        );
    }
}

//! The files of the page as they are sent. `build.rs` makes them of the hand-written modules (see
//! `page_modules`) and packs them with more patience than a running server has.

use axum::http::HeaderValue;
use miniz_oxide::inflate::decompress_to_vec_zlib;
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

/// The page of every address. It holds no data.
pub const SHELL: &str = include_str!("../../page/index.html");
/// What stands in for the server in an offline report; not served.
pub const REPORT_SCRIPT: &str = include_str!("../../page/report.js");
/// All modules in one script.
pub const BUNDLE: &str = "page.js";
/// The styles of the page and of the report.
pub const STYLE: &str = "style.css";

/// A file as it is sent.
#[derive(Debug)]
pub struct Asset {
    /// Below `/ui/`.
    pub name: &'static str,
    /// Its media type.
    pub kind: &'static str,
    /// Its text in the zlib format.
    pub deflated: &'static [u8],
    /// Changes with the text.
    pub tag: HeaderValue,
}

impl Asset {
    fn new(name: &'static str, kind: &'static str, deflated: &'static [u8]) -> Self {
        let hash = crate::secret::hex(&Sha256::digest(deflated)[..8]);
        // Hexadecimal digits are always a header.
        let tag = HeaderValue::try_from(format!("\"{hash}\""))
            .unwrap_or(HeaderValue::from_static("\"\""));
        Self { name, kind, deflated, tag }
    }

    /// For clients that read no packed files; no browser is one.
    pub fn text(&self) -> Vec<u8> {
        // A test unpacks all of them.
        decompress_to_vec_zlib(self.deflated).unwrap_or_default()
    }
}

macro_rules! packed {
    ($name:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".deflated"))
    };
}

static ASSETS: LazyLock<[Asset; 3]> = LazyLock::new(|| {
    [
        Asset::new(BUNDLE, "text/javascript; charset=utf-8", packed!("page.js")),
        Asset::new(STYLE, "text/css; charset=utf-8", packed!("style.css")),
        Asset::new("icon.svg", "image/svg+xml", packed!("icon.svg")),
    ]
});

/// What is sent by this name.
pub fn asset(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

/// The text of what is sent by this name.
pub fn text(name: &str) -> String {
    let bytes = asset(name).map(Asset::text).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::page_modules::{read, script, style};
    use super::*;

    #[test]
    fn the_page_keeps_to_its_budget() {
        let all = ASSETS.iter().map(|asset| asset.text().len());
        let bytes = SHELL.len() + all.sum::<usize>();
        assert!(bytes <= 160_000, "the page has {bytes} bytes");
        let packed = SHELL.len() + ASSETS.iter().map(|asset| asset.deflated.len()).sum::<usize>();
        assert!(packed <= 45_000, "the page has {packed} bytes when it is packed");
        eprintln!("{bytes} bytes, {packed} packed");
    }

    #[test]
    fn what_is_packed_is_what_was_written() {
        let modules = read();
        let made = script(modules.iter().map(|(_, text)| text.as_str()));
        assert_eq!(text(BUNDLE), format!("// Torc\n{made}"));
        assert_eq!(text(STYLE), style(include_str!("../../page/style.css")));
        assert_eq!(text("icon.svg"), include_str!("../../page/icon.svg"));
    }
}

//! Passes a job's output on: raw into a pipe, escaped onto a terminal, in pieces of any size.

use super::{escape, stdout_is_terminal, write_data};
use crate::error::Result;

/// Writes pieces of a job's output to standard output.
pub struct RawWriter {
    escaping: bool,
    /// The beginning of a character whose rest has not come yet.
    partial: Vec<u8>,
}

impl RawWriter {
    /// Escapes when standard output is a terminal.
    pub fn new() -> Self {
        Self { escaping: stdout_is_terminal(), partial: Vec::new() }
    }

    /// Writes the next piece.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if !self.escaping {
            return write_data(bytes);
        }
        let text = self.decode(bytes);
        write_data(escape::block(&text.replace("\r\n", "\n")).as_bytes())
    }

    /// Writes what is left of a character that never became whole.
    pub fn finish(&mut self) -> Result<()> {
        let rest = std::mem::take(&mut self.partial);
        write_data(String::from_utf8_lossy(&rest).as_bytes())
    }

    /// Decodes lossily, but keeps a character that is cut at the end for the next piece.
    fn decode(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        let keep = match std::str::from_utf8(&all) {
            Err(error) if error.error_len().is_none() => all.len() - error.valid_up_to(),
            _ => cut_at_end(&all),
        };
        self.partial = all.split_off(all.len() - keep);
        String::from_utf8_lossy(&all).into_owned()
    }
}

/// Length of the unfinished character at the end, if an earlier error hides it from `from_utf8`.
fn cut_at_end(bytes: &[u8]) -> usize {
    (1..=3.min(bytes.len()))
        .find(|n| bytes[bytes.len() - n] >= 0xc0)
        .filter(|n| {
            std::str::from_utf8(&bytes[bytes.len() - n..]).is_err_and(|e| e.error_len().is_none())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_survive_any_cut() {
        let text = "a€😀\u{fffd}b".as_bytes();
        let mut bytes = text.to_vec();
        bytes.insert(1, 0xff);
        for size in 1..=bytes.len() {
            let mut writer = RawWriter { escaping: true, partial: Vec::new() };
            let out: String = bytes.chunks(size).map(|piece| writer.decode(piece)).collect();
            assert_eq!(out, "a\u{fffd}€😀\u{fffd}b", "pieces of {size}");
        }
    }
}

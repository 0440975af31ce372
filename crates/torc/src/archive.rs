//! Files with many files in them: `tar.gz` and `zip`, written piece by piece, and `tar.gz` read back.

use miniz_oxide::deflate::core::{
    CompressorOxide, TDEFLFlush, TDEFLStatus, compress, create_comp_flags_from_zip_params,
};
use std::io::{self, Read, Write};

/// Bytes that are read and packed at a time.
const PIECE: usize = 64 << 10;
/// Blocks of a tar file.
const BLOCK: usize = 512;
/// Usual level of packing.
const LEVEL: i32 = 6;

/// The checksum of `gzip` and `zip`.
#[derive(Clone, Copy)]
pub struct Crc(u32);

impl Crc {
    /// Of nothing.
    pub fn new() -> Self {
        Self(!0)
    }

    /// Of more.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 ^= u32::from(*byte);
            for _ in 0..8 {
                self.0 = (self.0 >> 1) ^ (0xEDB8_8320 & (self.0 & 1).wrapping_neg());
            }
        }
    }

    /// The number.
    pub fn value(self) -> u32 {
        !self.0
    }
}

/// Packs what is written to it.
struct Deflater {
    state: Box<CompressorOxide>,
    crc: Crc,
    size: u64,
    packed: u64,
}

impl Deflater {
    fn new() -> Self {
        let flags = create_comp_flags_from_zip_params(LEVEL, 0, 0);
        let state = Box::new(CompressorOxide::new(flags));
        Self { state, crc: Crc::new(), size: 0, packed: 0 }
    }

    fn push(
        &mut self,
        mut bytes: &[u8],
        flush: TDEFLFlush,
        into: &mut impl Write,
    ) -> io::Result<()> {
        self.crc.add(bytes);
        self.size += bytes.len() as u64;
        let mut room = [0u8; PIECE];
        loop {
            let (status, read, written) = compress(&mut self.state, bytes, &mut room, flush);
            bytes = &bytes[read..];
            into.write_all(&room[..written])?;
            self.packed += written as u64;
            match status {
                TDEFLStatus::Done => return Ok(()),
                TDEFLStatus::Okay
                    if bytes.is_empty() && written < PIECE && flush == TDEFLFlush::None =>
                {
                    return Ok(());
                }
                TDEFLStatus::Okay => {}
                TDEFLStatus::BadParam | TDEFLStatus::PutBufFailed => {
                    return Err(io::Error::other("the packer refused its input"));
                }
            }
        }
    }
}

/// A `tar.gz` that is being written.
pub struct TarGz<W: Write> {
    out: W,
    packer: Deflater,
}

impl<W: Write> TarGz<W> {
    /// Begins one.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255])?;
        Ok(Self { out, packer: Deflater::new() })
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.packer.push(bytes, TDEFLFlush::None, &mut self.out)
    }

    /// Adds a file with this content.
    pub fn add(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.add_from(name, content.len() as u64, &mut io::Cursor::new(content))
    }

    /// Adds a file of this size; what a file that still grows has more is left out.
    pub fn add_from(&mut self, name: &str, size: u64, content: &mut impl Read) -> io::Result<()> {
        if name.len() > 100 {
            // Its own header tells a long name.
            self.header("././@LongLink", name.len() as u64 + 1, b'L')?;
            let mut long = name.as_bytes().to_vec();
            long.push(0);
            self.put(&long)?;
            self.pad(long.len() as u64)?;
        }
        let short: String = name.chars().take(100).collect();
        self.header(&short, size, b'0')?;
        let mut left = size;
        let mut room = vec![0u8; PIECE];
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let got = content.read(&mut room[..want])?;
            if got == 0 {
                // It was cut short meanwhile: the place that its header promised is filled.
                room.fill(0);
                while left > 0 {
                    let fill = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
                    self.put(&room[..fill])?;
                    left -= fill as u64;
                }
                break;
            }
            self.put(&room[..got])?;
            left -= got as u64;
        }
        self.pad(size)
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        let over = (size % BLOCK as u64) as usize;
        if over > 0 {
            self.put(&[0u8; BLOCK][over..])?;
        }
        Ok(())
    }

    fn header(&mut self, name: &str, size: u64, kind: u8) -> io::Result<()> {
        let mut head = [0u8; BLOCK];
        let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
        let name = name.as_bytes();
        put(0, &name[..name.len().min(100)]);
        put(100, b"0000644\0");
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{size:011o}\0").as_bytes());
        put(136, b"00000000000\0");
        put(148, b"        ");
        put(156, &[kind]);
        put(257, b"ustar  \0");
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.put(&head)
    }

    /// Ends it.
    pub fn finish(mut self) -> io::Result<W> {
        self.packer.push(&[0u8; 2 * BLOCK], TDEFLFlush::Finish, &mut self.out)?;
        self.out.write_all(&self.packer.crc.value().to_le_bytes())?;
        self.out.write_all(&(self.packer.size as u32).to_le_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// The files of a `tar.gz`: each is handed out with its name, up to `most` bytes in all.
pub fn read_tar_gz(
    bytes: &[u8],
    most: usize,
    mut each: impl FnMut(&str, &[u8]),
) -> Result<(), String> {
    let head = bytes.get(..10).filter(|head| head[..3] == [0x1f, 0x8b, 8]);
    let flags = head.ok_or("it is not a gzip file")?[3];
    if flags & !0x08 != 0 {
        return Err("its gzip header has fields that are not read here".into());
    }
    let mut at = 10;
    if flags & 0x08 != 0 {
        at += 1 + bytes[10..].iter().position(|byte| *byte == 0).ok_or("its header has no end")?;
    }
    let tar = miniz_oxide::inflate::decompress_to_vec_with_limit(&bytes[at..], most)
        .map_err(|error| format!("it cannot be unpacked: {error}"))?;
    let mut rest = tar.as_slice();
    let mut long: Option<String> = None;
    while rest.len() >= BLOCK && rest[..BLOCK].iter().any(|byte| *byte != 0) {
        let text = |from: usize, to: usize| {
            let field = &rest[from..to];
            let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
            String::from_utf8_lossy(&field[..end]).trim().to_owned()
        };
        let size = usize::from_str_radix(&text(124, 136), 8).map_err(|_| "a size is no number")?;
        let (kind, name) = (rest[156], text(0, 100));
        let content = rest.get(BLOCK..BLOCK + size).ok_or("it ends inside of a file")?;
        match kind {
            b'L' => long = Some(String::from_utf8_lossy(content).trim_end_matches('\0').to_owned()),
            b'0' | 0 => each(&long.take().unwrap_or(name), content),
            _ => long = None,
        }
        rest = rest.get(BLOCK + size.next_multiple_of(BLOCK)..).unwrap_or_default();
    }
    Ok(())
}

/// A `zip` that is being written.
pub struct Zip<W: Write> {
    out: W,
    at: u64,
    entries: Vec<u8>,
    count: u16,
}

impl<W: Write> Zip<W> {
    /// Begins one.
    pub fn new(out: W) -> Self {
        Self { out, at: 0, entries: Vec::new(), count: 0 }
    }

    /// Adds a file. Sizes are told after the content, so that it need not be held whole.
    pub fn add_from(&mut self, name: &str, content: &mut impl Read) -> io::Result<()> {
        let too_large = || io::Error::other("a zip file of this kind holds at most 4 GB");
        let begin = u32::try_from(self.at).map_err(|_| too_large())?;
        let length =
            u16::try_from(name.len()).map_err(|_| io::Error::other("a name is too long"))?;
        // Sizes follow the content; names are UTF-8; deflated; 1 January 1980.
        let common = |out: &mut Vec<u8>, numbers: [u32; 3]| {
            for number in [20u16, 0x0808, 8, 0, 0x21] {
                out.extend(number.to_le_bytes());
            }
            numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
            out.extend(length.to_le_bytes());
            out.extend(0u16.to_le_bytes());
        };
        let mut head = b"PK\x03\x04".to_vec();
        common(&mut head, [0, 0, 0]);
        head.extend(name.as_bytes());
        self.out.write_all(&head)?;
        let mut packer = Deflater::new();
        let mut room = vec![0u8; PIECE];
        loop {
            let got = content.read(&mut room)?;
            if got == 0 {
                break;
            }
            packer.push(&room[..got], TDEFLFlush::None, &mut self.out)?;
        }
        packer.push(&[], TDEFLFlush::Finish, &mut self.out)?;
        let size = u32::try_from(packer.size).map_err(|_| too_large())?;
        let packed = u32::try_from(packer.packed).map_err(|_| too_large())?;
        let crc = packer.crc.value();
        let mut tail = b"PK\x07\x08".to_vec();
        [crc, packed, size].iter().for_each(|number| tail.extend(number.to_le_bytes()));
        self.out.write_all(&tail)?;
        self.at += head.len() as u64 + u64::from(packed) + tail.len() as u64;
        self.entries.extend(b"PK\x01\x02");
        self.entries.extend((3u16 << 8 | 20).to_le_bytes());
        common(&mut self.entries, [crc, packed, size]);
        for number in [0u16, 0, 0] {
            self.entries.extend(number.to_le_bytes());
        }
        self.entries.extend((0o100_644_u32 << 16).to_le_bytes());
        self.entries.extend(begin.to_le_bytes());
        self.entries.extend(name.as_bytes());
        self.count = self.count.checked_add(1).ok_or_else(|| io::Error::other("too many files"))?;
        Ok(())
    }

    /// Ends it.
    pub fn finish(mut self) -> io::Result<W> {
        let begin = u32::try_from(self.at).map_err(|_| io::Error::other("the zip is too large"))?;
        let size =
            u32::try_from(self.entries.len()).map_err(|_| io::Error::other("too many files"))?;
        let mut end = b"PK\x05\x06".to_vec();
        for number in [0u16, 0, self.count, self.count] {
            end.extend(number.to_le_bytes());
        }
        end.extend(size.to_le_bytes());
        end.extend(begin.to_le_bytes());
        end.extend(0u16.to_le_bytes());
        self.out.write_all(&self.entries)?;
        self.out.write_all(&end)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_read_back() {
        let long = format!("{}/x.txt", "d".repeat(150));
        let noise: Vec<u8> =
            (0..300_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut tar = TarGz::new(Vec::new()).unwrap();
        tar.add("a.txt", b"hello").unwrap();
        tar.add(&long, b"").unwrap();
        tar.add_from("cut.bin", 400_000, &mut io::Cursor::new(&noise)).unwrap();
        let bytes = tar.finish().unwrap();
        let mut seen = Vec::new();
        read_tar_gz(&bytes, 10 << 20, |name, content| {
            seen.push((name.to_owned(), content.to_vec()))
        })
        .unwrap();
        assert_eq!(seen[0], ("a.txt".to_owned(), b"hello".to_vec()));
        assert_eq!(seen[1], (long, Vec::new()));
        assert_eq!((seen[2].0.as_str(), seen[2].1.len()), ("cut.bin", 400_000));
        assert!(seen[2].1.starts_with(&noise));
        assert!(read_tar_gz(&bytes, 1000, |_, _| {}).is_err());
        assert!(read_tar_gz(b"no", 1000, |_, _| {}).is_err());
    }

    #[test]
    fn the_checksum_is_the_usual_one() {
        let mut crc = Crc::new();
        crc.add(b"123456789");
        assert_eq!(crc.value(), 0xCBF4_3926);
    }
}

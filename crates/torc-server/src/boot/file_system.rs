//! Tells a local disk from a network file system.
//!
//! SQLite's write-ahead log shares memory between its users, which only works on a local file
//! system, and file locks of network file systems may hold on one machine only. So everything that
//! is not known to be local is treated with care.

use std::io;
use std::path::Path;

/// Where a path lives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileSystem {
    /// On a disk or in the memory of this machine.
    Local,
    /// Perhaps seen by other machines as well; the text names it.
    Network(String),
}

/// Types that are local for certain.
#[cfg(target_os = "linux")]
const LOCAL: &[u64] = &[
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x794c_7630, // overlayfs
    0x2fc1_2fc1, // zfs
    0xf2f5_2010, // f2fs
    0xca45_1a4e, // bcachefs
    0x3153_464a, // jfs
    0x5265_4973, // reiserfs
    0x3434,      // nilfs
    0x4d44,      // fat
    0x2011_bab0, // exfat
    0x5346_544e, // ntfs
    0x7366_746e, // ntfs3
    0xf15f,      // ecryptfs
];

/// Types that deserve a name in a message.
#[cfg(target_os = "linux")]
const NETWORK: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0102_1997, "9P"),
    (0x6573_5546, "FUSE"),
    (0xaad7_aaea, "PanFS"),
    (0x2003_0528, "OrangeFS"),
    (0x7461_636f, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x786f_4256, "vboxsf"),
];

/// Where `path` (which must exist) lives.
#[cfg(target_os = "linux")]
pub fn detect(path: &Path) -> io::Result<FileSystem> {
    let stat = rustix::fs::statfs(path)?;
    // Some machines have this field signed and 32 bits wide.
    Ok(classify((stat.f_type as u64) & 0xffff_ffff))
}

/// Other systems do not tell; their users' disks are local.
#[cfg(not(target_os = "linux"))]
pub fn detect(_path: &Path) -> io::Result<FileSystem> {
    Ok(FileSystem::Local)
}

#[cfg(target_os = "linux")]
fn classify(magic: u64) -> FileSystem {
    if LOCAL.contains(&magic) {
        return FileSystem::Local;
    }
    match NETWORK.iter().find(|(known, _)| *known == magic) {
        Some((_, name)) => FileSystem::Network((*name).into()),
        None => FileSystem::Network(format!("an unknown type of file system (0x{magic:x})")),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn known_types_are_told_apart_and_unknown_ones_are_not_trusted() {
        assert_eq!(classify(0xef53), FileSystem::Local);
        assert_eq!(classify(0x6969), FileSystem::Network("NFS".into()));
        assert_eq!(classify(0x0bd0_0bd0), FileSystem::Network("Lustre".into()));
        assert!(matches!(classify(0x1234), FileSystem::Network(name) if name.contains("0x1234")));
    }

    #[test]
    fn proc_is_not_a_place_for_a_database() {
        assert!(matches!(detect(Path::new("/proc")).unwrap(), FileSystem::Network(_)));
        assert!(detect(Path::new("/does/not/exist")).is_err());
    }
}

//! What a dead runner of this host left in files: results that it could not deliver, and which
//! attempts it had begun. Its processes are ended by [`torc_fence`].

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use torc_fs::Trust;
use torc_model::api::CompletionReport;
use torc_model::{files, kept};

/// The results that a runner wrote down for a server that did not answer. A torn last line is
/// passed over.
pub fn spooled(output_dir: &Path, key: &str) -> Vec<CompletionReport> {
    let path = output_dir.join(files::SPOOL).join(files::spool_file(key));
    let text = match torc_fs::read(&path, Trust::Log, files::MAX_SPOOL_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the results that a dead runner kept cannot be used");
            return Vec::new();
        }
    };
    kept::reports(&text)
}

/// Removes the files by which a dead runner was known, and the tokens of its jobs. Runners that
/// start later in the same place do that too; this does not wait for one.
pub fn remove_files(output_dir: &Path, key: &str) {
    let dir = output_dir.join(files::RUNNERS);
    // Nothing is removed through a link, nor in a place that others may write.
    let is_ours = fs::symlink_metadata(&dir).is_ok_and(|found| {
        let own = rustix::process::geteuid().as_raw();
        found.is_dir() && found.uid() == own && found.mode() & 0o077 == 0
    });
    if !is_ours {
        return;
    }
    let (tokens, record) =
        (dir.join(files::runner_tokens(key)), dir.join(files::runner_record(key)));
    // The tokens first: the record tells the next runner of them.
    for (path, removed) in
        [(&tokens, fs::remove_dir_all(&tokens)), (&record, fs::remove_file(&record))]
    {
        if let Err(error) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "cannot remove a file of a dead runner");
        }
    }
}

/// Which of these attempts have files, by how the names of those begin.
pub fn begun<'a>(
    output_dir: &Path,
    attempts: impl Iterator<Item = &'a str>,
) -> io::Result<HashSet<String>> {
    let attempts: HashSet<&str> = attempts.collect();
    let mut begun = HashSet::new();
    if attempts.is_empty() {
        return Ok(begun);
    }
    for entry in fs::read_dir(output_dir.join(files::LOGS))? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        begun.extend(attempts.get(files::stem_of(name)).map(|name| (*name).to_owned()));
    }
    Ok(begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_has_begun_when_it_has_any_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let names =
            ["job_wf1_j2_r1_a1", "job_wf1_j2_r1_a11", "job_wf1_j3_r1_a1", "job_wf1_j4_r1_a1"];
        let at = dir.path();
        assert!(begun(at, names.into_iter()).is_err(), "without the directory nothing is known");
        fs::create_dir(dir.path().join("job_stdio")).expect("a directory");
        for file in ["job_wf1_j2_r1_a11.o", "job_wf1_j3_r1_a1_s0_t1.e", "other"] {
            fs::write(dir.path().join("job_stdio").join(file), "").expect("a file");
        }
        let found = begun(at, names.into_iter()).expect("it is there");
        assert_eq!(found, HashSet::from([names[1].to_owned(), names[2].to_owned()]));
    }
}

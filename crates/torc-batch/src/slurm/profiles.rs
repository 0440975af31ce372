//! Which cluster this is.

use super::command::Slurm;
use std::path::{Path, PathBuf};
use torc_fs::Trust;
use torc_model::slurm::cluster;
use torc_model::slurm::profile::Profile;

const MAX_BYTES: u64 = 16 << 20;

/// Where users keep profiles of their own: `NAME.json`.
fn user_dir() -> Option<PathBuf> {
    torc_fs::user_config_dir().map(|dir| dir.join("profiles"))
}

/// Every profile: the user's own, which win, then those that come with the program.
pub fn all() -> Result<Vec<Profile>, String> {
    let mut profiles = Vec::new();
    if let Some(entries) = user_dir().and_then(|dir| std::fs::read_dir(dir).ok()) {
        let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
        files.sort();
        for file in files.into_iter().filter(|f| f.extension().is_some_and(|e| e == "json")) {
            profiles.push(read(&file, Trust::Config)?);
        }
    }
    for built_in in Profile::built_in() {
        if !profiles.iter().any(|p: &Profile| p.name == built_in.name) {
            profiles.push(built_in);
        }
    }
    Ok(profiles)
}

fn read(file: &Path, trust: Trust) -> Result<Profile, String> {
    let text = torc_fs::read_text(file, trust, MAX_BYTES)
        .map_err(|e| format!("cannot read `{}`: {e}", file.display()))?;
    Profile::parse(&text).map_err(|e| format!("`{}`: {e}", file.display()))
}

/// The profile with this name, or in this file.
pub fn find(name: &str) -> Result<Profile, String> {
    if name.contains('/') || name.ends_with(".json") {
        // The user named this very file.
        return read(Path::new(name), Trust::Regular);
    }
    let profiles = all()?;
    let known: Vec<String> = profiles.iter().map(|p| p.name.clone()).collect();
    let found = profiles.into_iter().find(|p| p.name == name);
    found
        .ok_or_else(|| format!("profile `{name}` not found (known profiles: {})", known.join(", ")))
}

/// The profile of the cluster we are on: by its environment, else by asking Slurm.
pub async fn detect(slurm: &Slurm) -> Result<Profile, String> {
    let here = all()?.into_iter().find(|p| p.is_here(|name| std::env::var(name).ok()));
    match here {
        Some(profile) => Ok(profile),
        None => derive(slurm, None).await,
    }
}

/// What Slurm itself tells about this cluster, as a profile.
pub async fn derive(slurm: &Slurm, name: Option<&str>) -> Result<Profile, String> {
    let nodes = cluster::nodes(&slurm.show("nodes").await?);
    let partitions = cluster::partitions(&slurm.show("partitions").await?);
    let config = cluster::config(&slurm.show("config").await?);
    let whole_nodes = config.get("SelectType").is_some_and(|s| s.ends_with("linear"));
    let cluster_name = config.get("ClusterName").map_or("cluster", String::as_str);
    let profile = Profile::derive(name.unwrap_or(cluster_name), &nodes, &partitions, whole_nodes);
    if profile.partitions.is_empty() {
        return Err("Slurm shows no partition with nodes".into());
    }
    Ok(profile)
}

//! Maps whose items are written in the spec: each item becomes a job, and the map waits for them.

use super::Planner;
use crate::diagnostic::{Diagnostic, excerpt};
use crate::node::At;
use std::collections::HashMap;
use torc_model::plan::Job;
use torc_model::steps::{ItemSource, MapRole, job_name, prepare};

impl Planner<'_> {
    /// Adds the jobs of all items that are known now. Also gives the definition of each job.
    pub fn expand_maps(
        &mut self,
        mut jobs: Vec<Job>,
        mut origins: Vec<usize>,
    ) -> (Vec<Job>, Vec<usize>) {
        if jobs.iter().all(|job| job.extra.map.is_none()) {
            return (jobs, origins);
        }
        let mut names: HashMap<String, usize> =
            jobs.iter().enumerate().map(|(index, job)| (job.name.clone(), index)).collect();
        let roles: Vec<Option<MapRole>> = jobs
            .iter()
            .map(|job| job.extra.map.as_ref().and_then(|map| MapRole::from_value(map).ok()))
            .collect();
        for (index, role) in roles.iter().enumerate() {
            match role {
                Some(MapRole::Map(settings)) => {
                    let ItemSource::List(items) = &settings.items else { continue };
                    let prepared = match prepare(settings, items.clone()) {
                        Ok(prepared) => prepared,
                        Err(error) => {
                            self.report(
                                &At::top("jobs").index(origins[index]).key("map"),
                                "",
                                Diagnostic::error(error.to_string()),
                            );
                            continue;
                        }
                    };
                    let parent = jobs[index].clone();
                    for item in prepared {
                        let name = job_name(&parent.name, &item.key);
                        if names.insert(name.clone(), jobs.len()).is_some() {
                            let message = format!("job `{}` is defined twice", excerpt(&name));
                            self.report(
                                &At::top("jobs").index(origins[index]).key("map"),
                                "",
                                Diagnostic::error(message),
                            );
                            continue;
                        }
                        let mut child = parent.clone();
                        child.name = name;
                        // The tree is the map's: stored once, however many items there are.
                        child.steps = None;
                        let role = MapRole::Item {
                            of: parent.name.clone(),
                            key: item.key,
                            item: item.item,
                        };
                        child.extra.map = Some(role.to_value());
                        let position = jobs.len();
                        jobs[index].depends_on.push(position);
                        jobs.push(child);
                        origins.push(origins[index]);
                    }
                }
                Some(MapRole::Reduce(map)) => {
                    let is_map = names.get(map).is_some_and(|index| {
                        matches!(roles.get(*index), Some(Some(MapRole::Map(_))))
                    });
                    if !is_map && !self.may_be_lost("job", map) {
                        let message = format!("`{}` is not a job with `map`", excerpt(map));
                        self.report(
                            &At::top("jobs").index(origins[index]).key("reduce"),
                            "",
                            Diagnostic::error(message),
                        );
                    }
                }
                Some(MapRole::Item { .. }) | None => {}
            }
        }
        (jobs, origins)
    }
}

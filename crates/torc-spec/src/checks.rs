//! Rules between the keys of one object; they see the canonical form, some of it still with
//! `{variables}`.

use crate::diagnostic::Diagnostic;
use crate::node::{Kind, Node, Span};
use crate::read::Reader;

/// The span of a key, or of the whole object if it is not there.
fn span(node: &Node, key: &str) -> Span {
    node.entry(key).map_or(node.span, |entry| entry.key_span)
}

fn text<'a>(node: &'a Node, key: &str) -> &'a str {
    node.get(key).and_then(Node::as_text).unwrap_or_default()
}

/// The whole file.
pub fn workflow(reader: &mut Reader<'_>, node: &Node) {
    parameters_source(reader, node);
    let variables = node.get("variables").map(|node| &node.kind);
    let parameters = node.get("parameters");
    if let Some(Kind::Map(variables)) = variables {
        for variable in variables {
            if let Some(parameter) =
                parameters.and_then(|parameters| parameters.entry(&variable.key))
            {
                let place = reader.place(parameter.key_span);
                let message = format!("`{}` is both a variable and a parameter", variable.key);
                reader.report(
                    variable.key_span,
                    Diagnostic::error(message).remark_at("the parameter", place),
                );
            }
            let value = variable.value.as_text().unwrap_or_default();
            if let Some(name) = crate::template::names(value).next() {
                let message =
                    format!("the value of variable `{}` contains `{{{name}}}`", variable.key);
                let help = "variables cannot be built from others; write the value out";
                reader.report(variable.value.span, Diagnostic::error(message).help(help));
            }
        }
    }
    if let Some(jobs) = node.entry("jobs")
        && matches!(&jobs.value.kind, Kind::List(jobs) if jobs.is_empty())
    {
        reader.report(jobs.key_span, Diagnostic::warning("the workflow has no jobs"));
    }
}

/// A job.
pub fn job(reader: &mut Reader<'_>, node: &Node) {
    parameterised(reader, node);
    one_way(reader, node);
    more_than_nothing(reader, node, &["memory", "time"]);
    for key in ["non_empty", "min_size"] {
        let outputs = ["output_files", "output_file_regexes"];
        let writes = |text: &Node| text.to_value().to_string().contains("${files.output.");
        if let Some(entry) = node.entry(key)
            && outputs.iter().all(|key| node.get(key).is_none())
            && !["command", "steps"].iter().any(|key| node.get(key).is_some_and(writes))
        {
            let message = format!("`{key}` has no effect: the job has no `output_files`");
            reader.report(entry.key_span, Diagnostic::warning(message));
        }
    }
    match (node.get("command"), node.get("steps")) {
        (Some(_), Some(_)) => {
            let diagnostic = Diagnostic::error("a job has either `command` or `steps`, not both");
            let place = reader.place(span(node, "command"));
            reader.report(span(node, "steps"), diagnostic.remark_at("the command", place));
        }
        (None, None) => {
            let message = format!("job `{}` has no `command`", text(node, "name"));
            reader.report(
                node.get("name").map_or(node.span, |name| name.span),
                Diagnostic::error(message),
            );
        }
        (Some(command), None) if command.as_text().is_some_and(|text| text.trim().is_empty()) => {
            reader.report(
                command.span,
                Diagnostic::error("the command is empty")
                    .help("write `true` for a job that does nothing"),
            );
        }
        _ => {}
    }
}

/// What a job needs is said in one way.
fn one_way(reader: &mut Reader<'_>, node: &Node) {
    let Some(named) = node.entry("resource_requirements") else { return };
    for key in ["cpus", "gpus", "memory", "time"] {
        let Some(own) = node.entry(key) else { continue };
        let place = reader.place(named.key_span);
        let message = format!("`{key}` cannot stand beside `resource_requirements`");
        let diagnostic = Diagnostic::error(message).remark_at("the name", place);
        let help = "put it into that entry, or write all needs here";
        reader.report(own.key_span, diagnostic.help(help));
    }
}

/// Anything with parameters.
pub fn parameterised(reader: &mut Reader<'_>, node: &Node) {
    parameters_source(reader, node);
    shared_table(reader, node);
    if let (Some(own), Some(shared)) =
        (node.entry("parameters").or(node.entry("parameters_file")), node.entry("use_parameters"))
    {
        let unused: Vec<&str> = shared
            .value
            .items()
            .iter()
            .filter_map(Node::as_text)
            .filter(|name| own.key == "parameters" && own.value.get(name).is_none())
            .collect();
        if !unused.is_empty() {
            let message = format!("`use_parameters` has no effect beside `{}`", own.key);
            let place = reader.place(own.key_span);
            let diagnostic = Diagnostic::warning(message).remark_at("these are taken alone", place);
            reader.report(
                shared.key_span,
                diagnostic.help(
                    "move the values to the workflow's `parameters`, or remove one of the two",
                ),
            );
        }
    }
    if node.get("parameters").is_none()
        && node.get("parameters_file").is_none()
        && node.get("use_parameters").is_none()
        && let Some(mode) = node.entry("parameter_mode")
    {
        reader.report(
            mode.key_span,
            Diagnostic::warning("`parameter_mode` has no effect without parameters"),
        );
    }
}

/// `use_parameters_file: true` is all that says which values there are.
fn shared_table(reader: &mut Reader<'_>, node: &Node) {
    let Some(shared) = node.entry("use_parameters_file").filter(|e| e.value.is_true()) else {
        return;
    };
    for key in ["parameters", "parameter_mode", "parameters_file", "use_parameters"] {
        if let Some(other) = node.entry(key) {
            let message = format!("`{key}` cannot stand beside `use_parameters_file`");
            let place = reader.place(shared.key_span);
            let diagnostic = Diagnostic::error(message)
                .label("each row of the workflow's `parameters_file` is one set of values");
            reader.report(other.key_span, diagnostic.remark_at("the workflow's rows", place));
        }
    }
}

fn parameters_source(reader: &mut Reader<'_>, node: &Node) {
    let Some(file) = node.entry("parameters_file") else { return };
    for key in ["parameters", "parameter_mode"] {
        if let Some(other) = node.entry(key) {
            let message = format!("`{key}` cannot stand beside `parameters_file`");
            let place = reader.place(file.key_span);
            let diagnostic =
                Diagnostic::error(message).label("each row of the file is one set of values");
            reader.report(other.key_span, diagnostic.remark_at("the file", place));
        }
    }
}

/// Resource requirements.
pub fn requirements(reader: &mut Reader<'_>, node: &Node) {
    if let Some(name) = node.get("name").filter(|name| name.as_text() == Some("default")) {
        let message = "the name `default` is reserved for jobs that ask for nothing";
        reader.report(
            name.span,
            Diagnostic::error(message).help("choose another name and name it in the jobs"),
        );
    }
    more_than_nothing(reader, node, &["memory", "runtime"]);
}

fn more_than_nothing(reader: &mut Reader<'_>, node: &Node, keys: &[&str]) {
    for key in keys {
        if matches!(text(node, key), "0" | "PT0S") {
            let span = node.get(key).map_or(node.span, |value| value.span);
            reader.report(
                span,
                Diagnostic::error(format!("`{key}` must be more than zero"))
                    .help("leave it out for no limit"),
            );
        }
    }
}

/// A failure handler.
pub fn handler(reader: &mut Reader<'_>, node: &Node) {
    if let Some(rules) = node.entry("rules")
        && matches!(&rules.value.kind, Kind::List(rules) if rules.is_empty())
    {
        reader.report(
            rules.key_span,
            Diagnostic::error(format!("failure handler `{}` has no rules", text(node, "name"))),
        );
    }
}

/// A rule of a failure handler.
pub fn rule(reader: &mut Reader<'_>, node: &Node) {
    let lists = ["exit_codes", "signals", "causes", "stderr_matches"];
    let all = node
        .get("match_all_exit_codes")
        .is_some_and(|all| matches!(all.kind, Kind::Bool(true) | Kind::Text(_)));
    if !all && lists.iter().all(|key| node.get(key).is_none()) {
        let diagnostic = Diagnostic::error("this rule matches no failure")
            .label("it says nothing about when to retry");
        let help = "give it `exit_codes`, `signals`, `causes`, `stderr_matches` or `match_all_exit_codes: true`";
        reader.report(node.span, diagnostic.help(help));
    }
    for code in node.get("exit_codes").map(Node::items).unwrap_or_default() {
        if matches!(&code.kind, Kind::Number(number, _) if number.as_i64() == Some(0)) {
            reader.report(code.span, Diagnostic::error("exit code 0 is success, not a failure"));
        }
    }
}

const AUTO_SCHEDULE: &str = "auto_schedule_on_ready_jobs";

/// An action.
pub fn action(reader: &mut Reader<'_>, node: &Node) {
    let trigger = text(node, "trigger_type");
    let kind = text(node, "action_type");
    let about_jobs = matches!(trigger, "on_jobs_ready" | "on_jobs_complete");
    let has_jobs = node.get("jobs").is_some() || node.get("job_name_regexes").is_some();
    if about_jobs && !has_jobs {
        let message = format!("`{trigger}` needs `jobs` or `job_name_regexes`");
        reader.report(span(node, "trigger_type"), Diagnostic::error(message));
    }
    if trigger == AUTO_SCHEDULE && kind == "run_commands" {
        let message = format!("`{trigger}` asks for nodes and cannot run commands");
        let help = "use `action_type: schedule_nodes`";
        reader.report(span(node, "action_type"), Diagnostic::error(message).help(help));
    }
    for key in ["jobs", "job_name_regexes"] {
        let speaks_of_jobs = about_jobs || trigger == AUTO_SCHEDULE;
        if !speaks_of_jobs
            && !trigger.is_empty()
            && !trigger.contains('{')
            && node.get(key).is_some()
        {
            let message = format!("`{key}` has no effect at `{trigger}`");
            let help = "only `on_jobs_ready`, `on_jobs_complete` and `auto_schedule_on_ready_jobs` name jobs";
            reader.report(span(node, key), Diagnostic::warning(message).help(help));
        }
    }
    let (needed, foreign): (&[&str], &[&str]) = match kind {
        "run_commands" => (
            &["commands"],
            &[
                "scheduler",
                "scheduler_type",
                "num_allocations",
                "start_one_worker_per_node",
                "max_parallel_jobs",
            ],
        ),
        "schedule_nodes" if text(node, "scheduler_type") == "local" => {
            let message = "an action with `scheduler_type: local` has no effect";
            let help = "`torc run` or `torc runner` on a machine takes its jobs";
            reader.report(span(node, "scheduler_type"), Diagnostic::warning(message).help(help));
            (&[], &[])
        }
        "schedule_nodes" => (&["scheduler"], &["commands"]),
        _ => (&[], &[]),
    };
    for key in needed.iter().filter(|key| node.get(key).is_none()) {
        let message = format!("`{kind}` needs `{key}`");
        reader.report(
            span(node, "action_type"),
            Diagnostic::error(message).label(format!("`{key}` is missing")),
        );
    }
    for key in foreign.iter().filter(|key| node.get(key).is_some()) {
        reader.report(
            span(node, key),
            Diagnostic::warning(format!("`{key}` has no effect in `{kind}`")),
        );
    }
}

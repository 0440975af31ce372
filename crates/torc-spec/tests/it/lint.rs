//! Every warning that `torc check` gives, and that it is silent where there is none.

use torc_spec::{LargestNode, Severity, Site, Source, SpecFormat};

/// All doubts about a spec in YAML, as `warning: message` and `note: message`.
fn doubts_at(text: &str, site: Site<'_>) -> Vec<String> {
    let parsed = torc_spec::parse(&Source::new("test.yaml", text, SpecFormat::Yaml))
        .unwrap_or_else(|errors| panic!("{errors}"));
    let checked = parsed.spec.check(site).unwrap_or_else(|errors| panic!("{errors}"));
    let word = |severity| if severity == Severity::Warning { "warning" } else { "note" };
    let all = parsed.warnings.iter().chain(checked.warnings.iter());
    all.map(|doubt| format!("{}: {}", word(doubt.severity), doubt.message)).collect()
}

fn doubts(text: &str) -> Vec<String> {
    doubts_at(text, Site::default())
}

const JOB: &str = "jobs: [{name: a, command: 'true'}]\n";

#[test]
fn names_that_are_not_used() {
    for (text, expected) in [
        (
            "resource_requirements: [{name: big, num_cpus: 2}]",
            "resource requirement `big` is never used",
        ),
        (
            "failure_handlers: [{name: h, rules: [{exit_codes: [1]}]}]",
            "failure handler `h` is never used",
        ),
        (
            "slurm_schedulers: [{name: s, account: x, walltime: '1:00:00'}]",
            "Slurm scheduler `s` is never used",
        ),
        ("parameters: {i: '1:3'}", "no entry takes parameter `i` with `use_parameters`"),
        ("limits: {licence: 2}", "no job takes limit `licence` with `uses`"),
        ("variables: {v: x}", "variable `v` is never used"),
        ("files: [{name: f, path: f.txt}]", "1 file never used: `f`"),
        ("user_data: [{name: u, data: 1}]", "1 user data never used: `u`"),
    ] {
        assert_eq!(doubts(&format!("name: w\n{text}\n{JOB}")), [format!("warning: {expected}")]);
    }
    assert!(doubts(&format!("name: w\n{JOB}")).is_empty());
}

#[test]
fn limits_that_are_not_set() {
    let jobs = "jobs: [{name: a, command: 'true', uses: [lic]}, {name: b, command: 'true', uses: [lik]}]\n";
    let expected = "warning: limit `lik` is not in `limits`, so it has no effect";
    assert_eq!(doubts(&format!("name: w\nlimits: {{lic: 1}}\n{jobs}")), [expected]);
    // The server may have them.
    let note = |name: &str| {
        format!(
            "note: limit `{name}` is not set here, so it has no effect unless the server has it"
        )
    };
    assert_eq!(doubts(&format!("name: w\n{jobs}")), [note("lic"), note("lik")]);
}

#[test]
fn user_data_that_no_job_reads_and_two_names_for_one_path() {
    let text = "name: w
files: [{name: f, path: out}, {name: g, path: out}]
user_data: [{name: d}]
jobs:
  - {name: a, command: 'true', output_files: [f], output_user_data: [d]}
  - {name: b, command: 'true', input_files: [g]}
";
    assert_eq!(
        doubts(text),
        [
            "note: 1 user data written that no job reads: `d`",
            "warning: files `f` and `g` have the same path `out`"
        ]
    );
}

#[test]
fn input_that_is_missing_and_that_no_job_makes() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("there"), "").unwrap();
    let site = Site { machine: None, dir: Some(dir.path()) };
    let text = "name: w
files: [{name: t, path: there}, {name: m, path: missing}, {name: p, path: made}, {name: h, path: $HOME/x}]
jobs:
  - {name: a, command: 'true', input_files: [t, m, h], output_files: [p]}
  - {name: b, command: 'true', input_files: [p]}
";
    assert_eq!(
        doubts_at(text, site),
        ["warning: 1 input file is not there, and no job writes it: `missing`"]
    );
    assert!(doubts(text).is_empty(), "without a directory nothing can be said");
}

#[test]
fn rules_that_never_match() {
    let rules = |rules: &str| {
        let text = format!(
            "name: w\nfailure_handlers: [{{name: h, rules: {rules}}}]\njobs: [{{name: a, command: 'true', failure_handler: h}}]\n"
        );
        doubts(&text)
    };
    let never = ["warning: this rule can never match".to_owned()];
    assert_eq!(rules("[{exit_codes: [1, 2]}, {exit_codes: [2]}]"), never);
    assert_eq!(rules("[{match_all_exit_codes: true}, {match_all_exit_codes: true}]"), never);
    assert_eq!(rules("[{exit_codes: [300]}]"), never);
    assert!(
        rules("[{match_all_exit_codes: true}, {exit_codes: [2]}, {signals: [KILL]}]").is_empty()
    );
    assert_eq!(
        rules("[{exit_codes: [3], max_retries: 1, recovery_script: ./fix}]"),
        ["warning: this recovery script never runs"]
    );
    assert_eq!(
        rules("[{exit_codes: [3], max_retries: 1}]"),
        ["warning: this rule never gives a retry"]
    );
    assert!(
        rules("[{match_all_exit_codes: true, max_retries: 1}]").is_empty(),
        "it says so for everything"
    );
    let exception = "[{exit_codes: [3], max_retries: 1}, {match_all_exit_codes: true}]";
    assert!(rules(exception).is_empty(), "an exception from the rule for everything");
}

#[test]
fn jobs_that_fit_nowhere() {
    let site = Site {
        machine: Some(LargestNode { num_cpus: 4, memory_bytes: 8 << 30, num_gpus: Some(0) }),
        dir: None,
    };
    let needs = |needs: &str| {
        let text = format!(
            "name: w\nresource_requirements: [{{name: r, {needs}}}]\njobs: [{{name: 'a{{i}}', command: 'true', resource_requirements: r, parameters: {{i: '1:3'}}}}]\n"
        );
        doubts_at(&text, site)
    };
    for (asked, reason) in [
        ("num_cpus: 8", "it needs 8 CPUs, this machine has 4"),
        ("memory: 16g", "it needs 16g of memory, this machine has 8g"),
        ("num_gpus: 1", "it needs 1 GPU, this machine has fewer"),
    ] {
        let found = needs(asked);
        let about: Vec<&String> =
            found.iter().filter(|doubt| doubt.contains("would never start")).collect();
        assert_eq!(
            about,
            [&format!("warning: job `a1` would never start: {reason}")],
            "once for all instances"
        );
    }
    assert!(!needs("num_cpus: 4, memory: 8g").iter().any(|doubt| doubt.contains("never start")));
    let slurm = "name: w
resource_requirements: [{name: r, num_cpus: 1, runtime: 5h, memory: 64g, num_nodes: 3}]
slurm_schedulers: [{name: s, account: x, walltime: '4:00:00', mem: 32G, nodes: 2}]
jobs: [{name: a, command: 'true', resource_requirements: r, scheduler: s}]
";
    let found = doubts_at(slurm, site).join("\n");
    for part in [
        "its runtime 5h is longer than the allocation's 4h",
        "it needs 64g of memory, the allocation has 32g per node",
        "it needs 3 nodes, the allocation has 2",
    ] {
        assert!(found.contains(part), "{part} is not in\n{found}");
    }
}

#[test]
fn labels_that_only_who_starts_a_runner_can_give() {
    let text = "name: w
jobs:
  - {name: anywhere, command: 'true'}
  - {name: m, label: gpu, map: {items: [1, 2]}, command: 'true'}
  - {name: 'a{i}', label: big, command: 'true', parameters: {i: '1:7'}}
";
    assert_eq!(
        doubts(text),
        [
            "note: 8 jobs wait for a runner with a label: `big` (`a1`, `a2`, `a3`, `a4`, `a5`, ...), `gpu` (`m`)"
        ]
    );
    let one = "name: w\njobs: [{name: a, command: 'true', label: gpu}]\n";
    assert_eq!(doubts(one), ["note: 1 job waits for a runner with a label: `gpu` (`a`)"]);
    let in_slurm = "name: w
slurm_schedulers: [{name: s, account: x, walltime: '1:00:00'}]
jobs:
  - {name: 'a{i}', label: gpu, scheduler: s, command: 'true', parameters: {i: '1:2'}}
  - {name: b, scheduler: s, command: 'true'}
";
    assert_eq!(
        doubts(in_slurm),
        [
            "warning: job `a1` would never start on nodes of Slurm scheduler `s`: it asks for a runner with the label \
          `gpu`, and those in allocations have none"
        ]
    );
}

#[test]
fn handlers_that_prove_nothing_or_are_never_reached() {
    let steps = |step: &str| doubts(&format!("name: w\njobs: [{{name: a, steps: [{step}]}}]\n"));
    for (step, expected) in [
        ("{shell: make, on_failure: {claude: fix it}}", "this recovery is not verified"),
        ("{shell: 'true', on_failure: echo no}", "this handler is never reached"),
        (
            "{shell: make, on_failure: [{shell: a, continue_on_error: true}]}",
            "every command of this handler may fail",
        ),
        ("{shell: 'echo a', capture: v}, {shell: \"echo '${v}'\"}", "stands in single quotes"),
        ("{shell: 'echo a', capture: v}, {shell: 'echo ${v}'}", "is not quoted"),
    ] {
        let found = steps(step);
        assert!(found.len() == 1 && found[0].contains(expected), "{step}: {found:?}");
    }
    for fine in [
        "{shell: make, on_failure: {claude: fix it, max_attempts: 2}}",
        "{shell: make, on_failure: [{claude: fix it}, make]}",
        "{shell: make, on_failure: {strategy: cleanup, commands: [{shell: a, continue_on_error: true}]}}",
        "{shell: 'echo a', capture: v}, {shell: 'echo \"${v}\"'}",
    ] {
        assert!(steps(fine).is_empty(), "{fine}: {:?}", steps(fine));
    }
}

#[test]
fn settings_without_effect() {
    for (text, expected) in [
        (
            "jobs: [{name: a, command: 'true', parameter_mode: zip}]",
            "`parameter_mode` has no effect",
        ),
        (
            "parameters: {i: [1]}\njobs: [{name: '{k}', command: 'true', parameters: {k: [1]}, use_parameters: [i]}]",
            "`use_parameters` has no effect beside `parameters`",
        ),
        (
            "jobs: [{name: 'a{i}', command: 'true', parameters: {i: [1], k: [1]}}]",
            "parameter `k` is not used here",
        ),
        ("jobs: []", "the workflow has no jobs"),
        (
            "jobs: [{name: a, command: 'true'}]\nactions: [{trigger_type: on_workflow_start, action_type: run_commands, commands: [x], jobs: [a]}]",
            "`jobs` has no effect at `on_workflow_start`",
        ),
        (
            "jobs: [{name: a, command: 'true'}]\nactions: [{trigger_type: on_workflow_start, action_type: run_commands, commands: [x], num_allocations: 2}]",
            "`num_allocations` has no effect in `run_commands`",
        ),
    ] {
        let found = doubts(&format!("name: w\n{text}\n"));
        assert!(found.iter().any(|doubt| doubt.contains(expected)), "{text}: {found:?}");
    }
}

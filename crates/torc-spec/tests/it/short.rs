//! Short forms: what a job says itself instead of naming an entry of the workflow.

use crate::{parents, plan, plan_with_warnings, spec, try_plan};
use torc_model::plan::Plan;
use torc_model::units::{Memory, Runtime};
use torc_spec::SpecFormat;

fn yaml(text: &str) -> Plan {
    plan(text, SpecFormat::Yaml)
}

fn error(text: &str) -> String {
    match try_plan(text, SpecFormat::Yaml) {
        Ok(_) => panic!("{text} is accepted"),
        Err(errors) => errors.to_string(),
    }
}

fn jobs(lines: &str) -> String {
    format!("name: w\njobs:\n{lines}\n")
}

#[test]
fn needs_in_a_job_become_one_entry_per_distinct_wish() {
    let plan = yaml(&jobs(
        "- {name: a, command: x, cpus: 2, memory: 2g, gpus: 1, time: 30m}\n\
         - {name: b, command: x, num_cpus: 2, memory: 2048m, num_gpus: 1, runtime: 1800s}\n\
         - {name: c, command: x, memory: 1g}\n\
         - {name: d, command: x}",
    ));
    let [both, one] = plan.resource_requirements.as_slice() else { panic!("{plan:?}") };
    assert_eq!((both.num_cpus, both.num_gpus, both.num_nodes), (2, 1, 1));
    assert_eq!((both.memory, both.runtime), (Some(Memory(2 << 30)), Some(Runtime(1800))));
    assert_eq!(both.name, "cpus: 2, gpus: 1, memory: 2g, time: 30m");
    assert_eq!((one.num_cpus, one.memory), (1, Some(Memory(1 << 30))));
    let used: Vec<Option<usize>> = plan.jobs.iter().map(|job| job.resource_requirements).collect();
    assert_eq!(used, [Some(0), Some(0), Some(1), None]);
}

#[test]
fn an_entry_of_the_spec_keeps_its_name_and_its_number() {
    let plan = yaml(
        "name: w\nresource_requirements: [{name: 'cpus: 2', cpus: 8}]\n\
         jobs:\n- {name: a, command: x, cpus: 2}\n- {name: b, command: x, resource_requirements: 'cpus: 2'}\n",
    );
    let names: Vec<&str> = plan.resource_requirements.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["cpus: 2", "cpus: 2'"]);
    assert_eq!(plan.jobs[0].resource_requirements, Some(1));
    assert_eq!(plan.jobs[1].resource_requirements, Some(0));
}

#[test]
fn two_ways_of_saying_what_a_job_needs_are_refused_at_their_place() {
    let text = "name: w\nresource_requirements: [{name: big, cpus: 8}]\njobs:\n  - name: a\n    command: x\n    \
                resource_requirements: big\n    cpus: 2\n";
    let said = error(text);
    assert!(said.contains("`cpus` cannot stand beside `resource_requirements`"), "{said}");
    assert!(said.contains("test.yaml:7:5"), "{said}");
    let said = error(&jobs("- {name: a, command: x, cpus: 2, num_cpus: 3}"));
    assert!(said.contains("are the same key"), "{said}");
    let said = error(&jobs("- {name: a, command: x, memory: 0}"));
    assert!(said.contains("`memory` must be more than zero"), "{said}");
}

#[test]
fn retries_are_a_rule_for_what_no_other_rule_matches() {
    let plan = yaml(
        "name: w\ndefault_failure_handler: all\nfailure_handlers:\n\
         - {name: own, rules: [{exit_codes: [7], max_retries: 9}]}\n\
         - {name: all, rules: [{causes: [oom], max_retries: 5}, {match_all_exit_codes: true, max_retries: 2}]}\n\
         jobs:\n\
         - {name: a, command: x, retries: 3}\n\
         - {name: b, command: x, retries: 3, failure_handler: own}\n\
         - {name: c, command: x, retries: 3}\n\
         - {name: d, command: x, retries: 0}\n",
    );
    let handler = |job: usize| {
        let handler = &plan.failure_handlers[plan.jobs[job].failure_handler.unwrap()];
        let rules: Vec<(bool, u32)> =
            handler.rules.iter().map(|r| (r.match_all_exit_codes, r.max_retries)).collect();
        (handler.name.as_str(), rules)
    };
    // Three retries are four attempts.
    assert_eq!(handler(0), ("all, retries: 3", vec![(false, 5), (true, 4)]));
    assert_eq!(handler(1), ("own, retries: 3", vec![(false, 9), (true, 4)]));
    assert_eq!(plan.jobs[0].failure_handler, plan.jobs[2].failure_handler);
    assert_eq!(plan.jobs[3].failure_handler, None);
    assert_eq!(plan.settings.default_failure_handler, Some(1));
    assert_eq!(plan.failure_handlers.len(), 4);
    let alone = yaml(&jobs("- {name: a, command: x, retries: 1}"));
    assert_eq!(alone.failure_handlers[0].name, "retries: 1");
}

#[test]
fn retries_beside_a_rule_for_all_failures_are_refused() {
    let said = error(
        "name: w\nfailure_handlers: [{name: h, rules: [{match_all_exit_codes: true}]}]\n\
         jobs: [{name: a, command: x, failure_handler: h, retries: 2}]\n",
    );
    assert!(said.contains("`retries` would have no effect"), "{said}");
}

#[test]
fn a_path_is_a_file_without_an_entry_of_its_own() {
    let plan = yaml(
        "name: w\nfiles: [{name: table, path: out/table.csv}]\njobs:\n\
         - {name: 'm_{i}', parameters: {i: '1:2'}, output_files: ['out/{i}.txt'], command: 'touch out/{i}.txt'}\n\
         - {name: all, parameters: {i: '1:2'}, input_files: ['./out/{i}.txt'], output_files: [out/table.csv], command: x}\n\
         - {name: end, input_files: [table, /etc/passwd], command: 'cat ${files.input.out/1.txt}'}\n",
    );
    let files: Vec<(&str, &str)> =
        plan.files.iter().map(|f| (f.name.as_str(), f.path.as_str())).collect();
    assert_eq!(
        files,
        [
            ("table", "out/table.csv"),
            ("out/1.txt", "out/1.txt"),
            ("out/2.txt", "out/2.txt"),
            ("/etc/passwd", "/etc/passwd"),
        ]
    );
    assert_eq!(parents(&plan, "all"), ["m_1", "m_2"]);
    assert_eq!(parents(&plan, "end"), ["m_1", "all"]);
    assert_eq!(plan.jobs.last().unwrap().command, "cat out/1.txt");
}

#[test]
fn a_word_that_is_neither_a_name_nor_a_path_is_explained() {
    let said = error(
        "name: w\nfiles: [{name: table, path: t.csv}]\njobs: [{name: a, command: x, input_files: [tabel]}]\n",
    );
    assert!(said.contains("there is no file called `tabel`"), "{said}");
    assert!(said.contains("`table`") && said.contains("or a path write `./tabel`"), "{said}");
    let plan = yaml(&jobs("- {name: a, command: x, output_files: [./result]}"));
    assert_eq!(plan.files[0].path, "result");
}

#[test]
fn sizes_of_outputs_come_from_the_file_and_from_the_job() {
    let plan = yaml(
        "name: w\nfiles:\n- {name: a, path: a.bin, min_size: 1k}\n- {name: b, path: b.bin, non_empty: true}\n\
         - {name: c, path: c.bin}\n\
         jobs:\n- {name: j, command: x, output_files: [a, b, d.bin], min_size: 100}\n\
         - {name: k, command: x, input_files: [a], output_files: [c]}\n",
    );
    let sizes: Vec<u64> = plan.files.iter().map(|file| file.min_size).collect();
    assert_eq!(sizes, [1024, 100, 0, 100]);
    let (_, warnings) =
        plan_with_warnings(&jobs("- {name: j, command: x, non_empty: true}"), SpecFormat::Yaml);
    assert!(warnings.to_string().contains("`non_empty` has no effect"), "{warnings}");
}

#[test]
fn words_of_other_tools_are_answered_with_ours() {
    for (word, value, ours) in [
        ("needs", "[a]", "depends_on"),
        ("deps", "[a]", "depends_on"),
        ("resources", "{cores: 2}", "resource_requirements"),
        ("cores", "2", "cpus"),
        ("threads", "2", "cpus"),
        ("retry", "2", "retries"),
        ("max_retries", "2", "retries"),
        ("inputs", "[x.txt]", "input_files"),
        ("outputs", "[x.txt]", "output_files"),
        ("mem_mb", "200", "memory"),
        ("walltime", "1h", "timeout"),
        ("environment", "{A: b}", "env"),
        ("matrix", "{a: [1]}", "parameters"),
    ] {
        let said = error(&jobs(&format!("- {{name: a, command: x, {word}: {value}}}")));
        assert!(said.contains(&format!("unknown key `{word}` in a job")), "{said}");
        assert!(said.contains(&format!("`{ours}")), "{word}: {said}");
        assert!(!said.contains("known keys"), "{word}: {said}");
    }
    // The one mistake is told once: the job does not also lack a command.
    for word in ["script", "run", "cmd"] {
        let said = error(&jobs(&format!("- {{name: a, {word}: x}}")));
        assert!(said.contains("write `command: TEXT`"), "{said}");
        assert!(!said.contains("has no `command`"), "{said}");
    }
    let said = error("name: w\nrules: []\njobs: []\n");
    assert!(said.contains("write `jobs:`"), "{said}");
}

#[test]
fn short_forms_come_back_from_every_format() {
    let text = "name: w\nfiles: [{name: t, path: t.csv, min_size: 2k}]\njobs:\n\
                - {name: a, command: x, cpus: 2, memory: 2g, gpus: 1, time: 30m, retries: 3, non_empty: true, \
                   min_size: 10, input_files: [in/x.csv, ./y], output_files: [t, 'out dir/z.csv']}\n";
    let written = spec(text, SpecFormat::Yaml);
    let plan = yaml(text);
    for format in [SpecFormat::Yaml, SpecFormat::Json, SpecFormat::Json5, SpecFormat::Kdl] {
        let again = spec(&written.write(format), format);
        assert_eq!(again, written, "{format}");
        assert_eq!(again.plan().unwrap().0, plan, "{format}");
    }
}

#[test]
fn a_command_beyond_an_argument_is_remarked_and_one_beyond_all_of_them_is_doubted() {
    let said = |length: usize| {
        let text = jobs(&format!("- {{name: a, command: \"echo {}\"}}", "x".repeat(length)));
        plan_with_warnings(&text, SpecFormat::Yaml).1.to_string()
    };
    assert_eq!(said(100 << 10), "");
    let note = said(130 << 10);
    assert!(note.contains("the runner starts it from a file") && note.contains("note"), "{note}");
    let warning = said(2 << 20);
    assert!(warning.contains("at most about 2 MiB of arguments in all"), "{warning}");
}

#[test]
fn user_data_that_nothing_gives_a_value_is_doubted() {
    let check = |text: &str| {
        spec(text, SpecFormat::Yaml).check(Default::default()).unwrap().warnings.to_string()
    };
    let base =
        "name: w\nuser_data: [{name: v}]\njobs:\n- {name: a, command: x, input_user_data: [v]}\n";
    let said = check(base);
    assert!(
        said.contains("user data `v` has no value and no job produces it, but job `a` reads it"),
        "{said}"
    );
    let produced = format!("{base}- {{name: b, command: x, output_user_data: [v]}}\n");
    assert!(!check(&produced).contains("has no value"));
    assert!(!check(&base.replace("{name: v}", "{name: v, data: 1}")).contains("has no value"));
}

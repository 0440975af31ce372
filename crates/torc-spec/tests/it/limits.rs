//! Hostile and huge input: an error in bounded time, never a crash.

use crate::try_plan;
use std::time::{Duration, Instant};
use torc_spec::{Diagnostics, Source, SpecFormat};

/// Generous for a debug build on a busy machine; the optimised program takes a small part of it.
const SOON: Duration = Duration::from_secs(30);

fn refused(text: impl Into<Vec<u8>>, format: SpecFormat) -> Diagnostics {
    let start = Instant::now();
    let result =
        torc_spec::parse(&Source::new("x", text, format)).and_then(|parsed| parsed.spec.plan());
    assert!(start.elapsed() < SOON, "{format} took {:?}", start.elapsed());
    result.expect_err("must be refused")
}

#[test]
fn deep_nesting_is_refused() {
    let depth = 10_000;
    let flow = format!("name: x\nmetadata: {}{}\n", "[".repeat(depth), "]".repeat(depth));
    let block: String = (0..depth).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    let json =
        format!("{{\"name\": \"x\", \"metadata\": {}{}}}", "[".repeat(depth), "]".repeat(depth));
    let maps = format!(
        "{{\"name\": \"x\", \"metadata\": {}1{}}}",
        "{\"a\":".repeat(depth),
        "}".repeat(depth)
    );
    let kdl = format!("name \"x\"\n{}{}", "a {\n".repeat(depth), "}\n".repeat(depth));
    for (text, format) in [
        (flow, SpecFormat::Yaml),
        (block, SpecFormat::Yaml),
        (json.clone(), SpecFormat::Json),
        (json, SpecFormat::Json5),
        (maps, SpecFormat::Json),
        (kdl, SpecFormat::Kdl),
    ] {
        let errors = refused(text, format);
        assert!(errors.0[0].message.contains("levels deep"), "{errors}");
    }
    // Unclosed, and nested comments, which are not values.
    refused("[".repeat(1_000_000), SpecFormat::Yaml);
    refused("{a: ".repeat(1_000_000), SpecFormat::Yaml);
    refused("- ".repeat(1_000_000), SpecFormat::Yaml);
    refused("? ".repeat(1_000_000), SpecFormat::Yaml);
    refused("[".repeat(1_000_000), SpecFormat::Json5);
    refused("/*".repeat(1_000_000), SpecFormat::Kdl);
    refused("(".repeat(1_000_000), SpecFormat::Kdl);
    refused("/-".repeat(1_000_000), SpecFormat::Kdl);
}

#[test]
fn alias_bombs_are_refused() {
    let mut text = String::from("name: x\na0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..30 {
        let previous = format!("*a{}, ", level - 1).repeat(9);
        text.push_str(&format!("a{level}: &a{level} [{previous}]\n"));
    }
    let errors = refused(text, SpecFormat::Yaml);
    assert!(errors.0[0].message.contains("values"), "{errors}");

    let long = "x".repeat(1 << 20);
    let aliases = "*t, ".repeat(100_000);
    let errors = refused(format!("name: x\na: &t {long}\nb: [{aliases}]\n"), SpecFormat::Yaml);
    assert!(errors.0[0].message.contains("values"), "{errors}");

    let mut merges = String::from("name: x\nm0: &m0 {a: 1}\n");
    for level in 1..40 {
        merges.push_str(&format!(
            "m{level}: &m{level} {{k{level}: [*m{0}, *m{0}], <<: [*m{0}]}}\n",
            level - 1
        ));
    }
    refused(merges, SpecFormat::Yaml);
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    for format in SpecFormat::ALL {
        assert!(refused(b"name: \xff\xfe".to_vec(), format).0[0].message.contains("UTF-8"));
        assert!(refused(b"name: a\0b".to_vec(), format).0[0].message.contains("NUL"));
    }
    let place = refused(b"name: x\n  \xff".to_vec(), SpecFormat::Yaml).0.remove(0).place.unwrap();
    assert_eq!((place.line, place.column), (2, 3));
    for (text, format) in [
        ("{\"name\": \"a\\u0000b\", \"jobs\": []}", SpecFormat::Json),
        ("name: \"a\\0b\"\njobs: []", SpecFormat::Yaml),
        ("name \"a\\u{0}b\"", SpecFormat::Kdl),
    ] {
        assert!(
            refused(text, format).iter().any(|error| error.message.contains("NUL")),
            "{format}"
        );
    }
}

#[test]
fn huge_files_and_names_are_refused() {
    for format in SpecFormat::ALL {
        let errors = refused(vec![b'x'; 100 << 20], format);
        assert!(errors.0[0].message.contains("larger than"), "{errors}");
    }
    let name = "n".repeat(1 << 20);
    let text = format!("name: x\njobs:\n  - {{name: {name}, command: 'true'}}\n");
    let errors = refused(text, SpecFormat::Yaml);
    assert!(errors.0[0].message.contains("longer than 255 bytes"));
    assert!(errors.render(false).len() < 5_000, "the message must stay short");
    // Short as written, long when filled in.
    let text = format!(
        "name: x\njobs:\n  - {{name: 'j{{a}}', command: 'true', parameters: {{a: [{}]}}}}\n",
        "n".repeat(300)
    );
    assert!(refused(text, SpecFormat::Yaml).0[0].message.contains("longer than 255 bytes"));
    let many: String = (0..2_000_000).map(|_| "1,").collect();
    let errors = refused(
        format!("{{\"name\": \"x\", \"metadata\": [[{many}1],[{many}1]]}}"),
        SpecFormat::Json,
    );
    assert!(errors.0[0].message.contains("values"), "{errors}");
}

#[test]
fn explosive_parameters_are_refused() {
    let job = |parameters: &str, command: &str| {
        format!(
            "name: x\njobs:\n  - {{name: 'j{{a}}{{b}}{{c}}', command: '{command}', parameters: {{{parameters}}}}}\n"
        )
    };
    let errors = refused(job("a: '1:1000', b: '1:1000', c: '1:1000'", "true"), SpecFormat::Yaml);
    assert!(errors.0[0].message.contains("combinations"), "{errors}");
    refused(job("a: '1:1000000000000', b: 1, c: 1", "true"), SpecFormat::Yaml);
    let long = "y".repeat(1 << 20);
    let errors = refused(job("a: '1:1000', b: '1:10', c: 1", &long), SpecFormat::Yaml);
    assert!(errors.0[0].message.contains("MiB"), "{}", errors.0[0].message);
    let edges = "name: x\njobs:\n  - {name: 'a{i}', command: 'true', parameters: {i: '1:30000'}}\n  - {name: 'b{i}', command: 'true', depends_on_regexes: ['^a'], parameters: {i: '1:30000'}}\n";
    let errors = refused(edges, SpecFormat::Yaml);
    assert!(errors.0[0].message.contains("dependencies"), "{errors}");
}

#[test]
fn distinct_regexes_do_not_go_quadratic() {
    let jobs = 20_000;
    let text = format!(
        "name: x\njobs:\n  - {{name: 'a_{{i}}', command: 'true', parameters: {{i: '1:{jobs}'}}}}\n  \
         - {{name: 'b_{{i}}', command: 'true', depends_on_regexes: ['^a_{{i}}$', 'a_{{i}}$'], parameters: {{i: '1:{jobs}'}}}}\n"
    );
    let start = Instant::now();
    let (plan, _) = try_plan(&text, SpecFormat::Yaml).unwrap();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert_eq!(plan.jobs[jobs + 41].depends_on, [41]);
}

#[test]
fn messages_from_long_lines_stay_short() {
    let text = format!(
        "{{\"name\": \"x\", \"jobs\": [{}{{\"nam\": 1}}]}}",
        "{\"name\": \"a\", \"command\": \"b\"},".repeat(3000)
    );
    let rendered = refused(text, SpecFormat::Json).render(false);
    assert!(rendered.contains("did you mean `name`?"), "{rendered}");
    assert!(rendered.lines().all(|line| line.chars().count() < 200), "{rendered}");
}

#[test]
fn advice_for_many_wrong_names_does_not_go_quadratic() {
    let many = "name: x\njobs:\n  - {name: 'a_{i}', command: 'true', parameters: {i: '1:20000'}}\n  - {name: b, command: 'true', parameters: {i: '1:20000'}, depends_on: ['aa_{i}']}\n";
    let errors = refused(many, SpecFormat::Yaml);
    assert!(
        errors.0[0].help.as_deref().is_some_and(|help| help.contains("did you mean")),
        "{errors}"
    );
    let each: String = (0..5000)
        .map(|n| format!("  - {{name: job_{n}, command: 'true', depends_on: [jop_{n}]}}\n"))
        .collect();
    let errors = refused(format!("name: x\njobs:\n{each}"), SpecFormat::Yaml);
    assert!(
        errors.0.len() >= 100 && errors.0[0].help.is_some() && errors.0[99].help.is_none(),
        "{errors}"
    );
}

//! Measures reading and planning of large workflows: `cargo run --release -p torc-spec --example
//! measure`.

use std::time::Instant;
use torc_spec::{Source, SpecFormat};

fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn measure(name: &str, text: String, format: SpecFormat) {
    let start = Instant::now();
    let parsed = torc_spec::parse(&Source::new(name, text, format));
    let read = start.elapsed();
    let outcome = match parsed.and_then(|parsed| parsed.spec.plan()) {
        Ok((plan, _)) => {
            let edges: usize = plan.jobs.iter().map(|job| job.depends_on.len()).sum();
            format!("{} jobs, {edges} edges", plan.jobs.len())
        }
        Err(errors) => {
            format!("refused: {}", errors.0[0].message.chars().take(60).collect::<String>())
        }
    };
    println!(
        "{name:40} {format:5} read {read:>9.3?} all {:>9.3?} peak {:>4} MiB  {outcome}",
        start.elapsed(),
        peak_mib()
    );
}

fn main() {
    let only = std::env::args().nth(1);
    let n = 100_000;
    let explicit_yaml: String = (0..n)
        .map(|i| format!("  - name: job_{i}\n    command: \"echo {i} | tee out/{i}.txt\"\n    resource_requirements: small\n    depends_on: [job_{}]\n", i / 2 + n))
        .collect();
    let more: String =
        (n..n + n / 2 + 1).map(|i| format!("  - {{name: job_{i}, command: 'true'}}\n")).collect();
    let explicit = format!(
        "name: x\nresource_requirements: [{{name: small, num_cpus: 1}}]\njobs:\n{explicit_yaml}{more}"
    );
    let cases: Vec<(&str, String, SpecFormat)> = vec![
        (
            "sweep",
            format!(
                "name: x\njobs:\n  - {{name: 'a_{{i:06d}}', command: 'run --n {{i}}', parameters: {{i: '1:{n}'}}}}\n"
            ),
            SpecFormat::Yaml,
        ),
        (
            "sweep, files, collector",
            format!(
                "name: x\nparameters: {{i: '1:{n}'}}\nfiles:\n  - {{name: 'f_{{i}}', path: 'out/{{i}}.txt', use_parameters: [i]}}\njobs:\n  \
                 - {{name: 'a_{{i}}', command: 'run {{i}} > ${{files.output.f_{{i}}}}', use_parameters: [i]}}\n  \
                 - {{name: all, command: 'cat out/*', depends_on_regexes: ['^a_']}}\n"
            ),
            SpecFormat::Yaml,
        ),
        (
            "pairs by regex",
            format!(
                "name: x\nparameters: {{i: '1:{}'}}\njobs:\n  - {{name: 'a_{{i}}', command: 'true', use_parameters: [i]}}\n  \
                 - {{name: 'b_{{i}}', command: 'true', use_parameters: [i], depends_on_regexes: ['^a_{{i}}$']}}\n",
                n / 2
            ),
            SpecFormat::Yaml,
        ),
        (
            "pairs by regex with classes",
            format!(
                "name: x\nparameters: {{i: '1:{}'}}\njobs:\n  - {{name: 'a_{{i}}_x', command: 'true', use_parameters: [i]}}\n  \
                 - {{name: 'b_{{i}}', command: 'true', use_parameters: [i], depends_on_regexes: ['a_{{i}}_[xy]$']}}\n",
                n / 2
            ),
            SpecFormat::Yaml,
        ),
        ("one by one", explicit.clone(), SpecFormat::Yaml),
    ];
    if only.as_deref().is_none_or(|only| only == "a million") {
        let jobs: Vec<String> =
            (0..1_000_000).map(|i| format!("{{\"name\":\"j{i}\",\"command\":\"true\"}}")).collect();
        measure(
            "a million",
            format!("{{\"name\":\"x\",\"jobs\":[{}]}}", jobs.join(",")),
            SpecFormat::Json,
        );
    }
    for (name, text, format) in cases {
        if only.as_deref().is_none_or(|only| only == name) {
            measure(name, text, format);
        }
    }
    if only.as_deref().is_none_or(|only| only == "formats") {
        let spec = torc_spec::parse(&Source::new("x", explicit, SpecFormat::Yaml))
            .expect("it is valid")
            .spec;
        for format in SpecFormat::ALL {
            measure("one by one, written back", spec.write(format), format);
        }
    }
}

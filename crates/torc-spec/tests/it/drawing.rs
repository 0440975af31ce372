//! What a plan looks like beforehand: stages, widths, the critical path, who recovers what, and the
//! drawings.

use torc_spec::{Analysis, Site, Source, SpecFormat};

fn analysis(text: &str) -> Analysis {
    let parsed = torc_spec::parse(&Source::new("test.yaml", text, SpecFormat::Yaml))
        .unwrap_or_else(|errors| panic!("{errors}"));
    parsed.spec.check(Site::default()).unwrap_or_else(|errors| panic!("{errors}")).analysis
}

const DIAMOND: &str = "name: diamond
resource_requirements:
  - {name: short, num_cpus: 1, runtime: 10m}
  - {name: long, num_cpus: 1, runtime: 2h}
jobs:
  - {name: prepare, command: 'true', resource_requirements: short}
  - {name: left, command: 'true', depends_on: [prepare], resource_requirements: short}
  - {name: right, command: 'true', depends_on: [prepare], resource_requirements: long}
  - {name: 'join <\"&#>', command: 'true', depends_on: [left, right], resource_requirements: short}
";

#[test]
fn stages_widths_and_the_critical_path() {
    let found = analysis(DIAMOND);
    assert_eq!((found.jobs, found.dependencies, found.width), (4, 4, 2));
    assert_eq!(found.stages.iter().map(|stage| stage.jobs).collect::<Vec<_>>(), [1, 2, 1]);
    assert_eq!(found.critical_path, ["prepare", "right", "join <\"&#>"], "the long way round");
    assert_eq!(found.critical_seconds, Some(2 * 3600 + 20 * 60));
    let unknown = analysis(&DIAMOND.replace(
        "resource_requirements: short}\n  - {name: left",
        "priority: 1}\n  - {name: left",
    ));
    assert_eq!(unknown.critical_seconds, None, "one of its jobs names no runtime");
    // Without runtimes the longest chain is the one with the most jobs.
    let chain = analysis(
        "name: c\njobs:\n  - {name: a, command: x}\n  - {name: b, command: x, depends_on: [a]}\n  - {name: c, command: x, depends_on: [b]}\n  - {name: d, command: x}\n",
    );
    assert_eq!(chain.critical_path, ["a", "b", "c"]);
}

#[test]
fn as_text() {
    assert_eq!(
        analysis(DIAMOND).to_text(),
        "diamond: 4 jobs, 4 dependencies, 3 stages, at most 2 at once

stage 1: 1 job
  prepare

stage 2: 2 jobs
  left  <- prepare
  right  <- prepare

stage 3: 1 job
  join <\"&#>  <- left, right

critical path (2h 20m): prepare -> right -> join <\"&#>
"
    );
}

#[test]
fn as_dot_and_mermaid_with_everything_quoted() {
    let graph = analysis(DIAMOND).graph;
    assert_eq!(
        graph.to_dot(),
        "digraph workflow {\n  rankdir=LR;\n  node [shape=box];\n  n0 [label=\"prepare\"];\n  n1 [label=\"left\"];\n  \
         n2 [label=\"right\"];\n  n3 [label=\"join <\\\"&#>\"];\n  n0 -> n1;\n  n0 -> n2;\n  n1 -> n3;\n  n2 -> n3;\n}\n"
    );
    assert_eq!(
        graph.to_mermaid(),
        "flowchart LR\n  n0[\"prepare\"]\n  n1[\"left\"]\n  n2[\"right\"]\n  n3[\"join #lt;#quot;&#35;>\"]\n  n0 --> n1\n  \
         n0 --> n2\n  n1 --> n3\n  n2 --> n3\n"
    );
}

#[test]
fn as_svg() {
    let svg = analysis(DIAMOND).graph.to_svg();
    assert_eq!((svg.matches("<rect ").count(), svg.matches("<path ").count()), (4, 4));
    assert!(svg.contains("<title>join &lt;&quot;&amp;#&gt;</title>"), "{svg}");
    // Every element that is opened is closed: enough to be XML, as nothing else is in it.
    for tag in ["svg", "g", "title", "text"] {
        let (open, close) =
            (svg.matches(&format!("<{tag}")).count(), svg.matches(&format!("</{tag}>")).count());
        assert_eq!(open, close, "{tag}");
    }
    // Jobs of one stage stand below each other, stages side by side.
    let place = |name: &str| {
        let from = svg.find(&format!("<title>{name}</title>")).unwrap();
        let number = |key: &str| -> u32 {
            svg[from..]
                .split(&format!("{key}=\""))
                .nth(1)
                .unwrap()
                .split('"')
                .next()
                .unwrap()
                .parse()
                .unwrap()
        };
        (number(" x"), number(" y"))
    };
    let (prepare, left, right) = (place("prepare"), place("left"), place("right"));
    assert!(prepare.0 < left.0 && left.0 == right.0 && left.1 < right.1);
}

#[test]
fn as_json() {
    let value = serde_json::to_value(analysis(DIAMOND)).unwrap();
    assert_eq!(value["critical_seconds"], 8400);
    assert_eq!(value["graph"]["edges"], serde_json::json!([[0, 1], [0, 2], [1, 3], [2, 3]]));
    assert_eq!(
        value["graph"]["nodes"][3],
        serde_json::json!({"name": "join <\"&#>", "jobs": 1, "stage": 3})
    );
    assert_eq!(value["stages"][1], serde_json::json!({"jobs": 2, "nodes": [1, 2]}));
}

#[test]
fn many_jobs_are_drawn_as_their_definitions() {
    let graph = analysis(
        "name: sweep\njobs:\n  - {name: 'a_{i}', command: x, parameters: {i: '1:500'}}\n  - {name: all, command: x, depends_on_regexes: ['^a_']}\n",
    )
    .graph;
    let labels: Vec<String> = graph.nodes.iter().map(torc_spec::PlanNode::label).collect();
    assert_eq!((labels, graph.edges), (vec!["a_{i} x500".into(), "all".into()], vec![(0, 1)]));
}

#[test]
fn who_recovers_what() {
    let text = analysis(
        "name: w
use_pending_failed: true
failure_handlers:
  - {name: trouble, rules: [{exit_codes: [124, 137], max_retries: 3}, {signals: [SEGV], recovery_script: ./fix}]}
jobs:
  - name: 'release_{i}'
    parameters: {i: '1:3'}
    failure_handler: trouble
    steps:
      - {name: build, shell: make, retry: {attempts: 2, only: [timeout, 75]}, on_failure: [make clean, make]}
      - {name: types, shell: tsc, on_failure: {claude: fix, max_attempts: 4}}
      - name: deploy
        shell: ./deploy production
        on_failure: {strategy: fallback, commands: [./deploy staging], handler_failure_fatal: true}
      - {name: bench, shell: bench, continue_on_error: true}
      - {shell: tidy, continue_on_error: true, on_failure: {strategy: cleanup, commands: [rm -rf x]}}
      - echo nothing helps here
    on_failure: {strategy: cleanup, commands: [tar c .]}
  - {name: plain, command: 'true', max_lost_retries: 0, cancel_on_blocking_job_failure: false}
",
    )
    .to_text();
    let table = text.split("who recovers what\n").nth(1).unwrap();
    assert_eq!(
        table,
        "  release_{i}
    build                    retry after timeout, exit 75, up to 2 tries
                             recovery by `make clean` and 1 more, trusted -> recovered, else failed
    types                    recovery by the agent, proved by running again, up to 4 tries -> recovered, else failed
    deploy                   fallback by `./deploy staging`; its failure is final -> recovered, else failed
    bench                    no handler; the job continues -> ignored
    steps[4]                 cleanup by `rm -rf x` -> ignored
    all steps                cleanup by `tar c .` -> failed
    the whole job            `trouble` after exit 124, 137: up to 3 attempts
                             `trouble` after SIGSEGV: up to 3 attempts, after its script
                             a verdict, while it waits as pending_failed
                             after the loss of its runner: up to 3 more attempts -> a new attempt, else failed
  plain
    the whole job            a verdict, while it waits as pending_failed -> a new attempt, else failed
"
    );
}
